"""The numbers of schedules of depthwise convolutions by spatial tiles, and how the strips of these are copied."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES
from tosaic.backends.cortex_m.program.sketches.spatial_tile_numbers import SpatialTiles, channels
from tosaic.backends.cortex_m.program.sketches.tiles import hardware_loop


@dataclass(frozen=True)
class StripCopy:
    """How four rows of a strip are copied.

    Args:
        group: their number among those of a spatial tile.
    """

    t: SpatialTiles
    group: int

    @property
    def letter(self) -> str:
        """What names of the copies of further rows end in."""
        return "z" * self.group

    @property
    def tail(self) -> str:
        """What names of their loops end in."""
        return "_t" * self.group

    @property
    def rows(self) -> int:
        """That a window meets, of four."""
        return min(FOUR, self.t.extent[0] - FOUR * self.group)

    @property
    def elements(self) -> int:
        """Of the image that lie together."""
        return self.t.block * (1 if self.t.apart else self.t.inside)

    @property
    def iterations(self) -> int:
        """Of the loop over vectors."""
        return -(-self.elements // (self.t.packed * LANES))

    @property
    def early(self) -> bool:
        """Whether the last of these starts early."""
        return self.elements % (self.t.packed * LANES) > 0

    def shaped(self) -> Iterator[str]:
        """Four rows of the image side by side, by whole vectors."""
        t, b, size = self.t, self.letter, self.t.packed * LANES
        row, cv, va = t.loops[1] + self.tail, f"cv{b}", f"va{b}"
        cn, cx = self.vectors, f"cx{self.tail}"
        if not t.apart and not t.alone:
            yield f"fuse(cx, {cn})"
        yield f"split({cn}, {cv}, {size}{', early' * self.early})"
        if self.by_pixel:
            yield f"reorder({cx}, {cn})"
        inner = cv
        if t.packed > 1:
            inner = f"cw{b}"
            yield f"split({cv}, {inner}, {LANES})"
        yield f"reorder({inner}, {row})"
        padded = any(t.geometry.pad[:2])
        if padded:
            yield f"distribute({inner})"
        yield f"stage(P, {cx if self.by_pixel else cn}, {va}, scratch)"
        if self.rows < FOUR:
            yield f"extend({va}1, {FOUR})"
        if t.packed > 1:
            yield from (f"split({va}0, vb{b}, {LANES})", f"divide_dim({va}, 0, {LANES})", f"reorder_dims({va}, d021)")
        else:
            yield f"reorder_dims({va}, d10)"
        yield f"place({va}, q)"
        if self.early and self.iterations > 1 and not self.by_pixel:
            yield f"cut({cn}, {self.iterations - 1}, e)"
        if padded:
            yield from () if self.group else ("stage(edge, y, edge_r, r)",)
            outermost = [cn] if self.by_pixel else [cx] if t.apart else self.parts
            yield from (f"tell({part}, y)" for part in outermost)

    @property
    def vectors(self) -> str:
        """The loop over vectors of the image."""
        return "cx" if self.t.alone else channels(self.t.loops[1] + self.tail)

    @property
    def by_pixel(self) -> bool:
        """Whether the hardware loop goes over pixels that lie apart, as there are more of them than vectors in one."""
        return self.t.apart and self.t.inside > self.iterations

    @property
    def entered(self) -> int:
        """How often the hardware loop begins for a strip."""
        return self.iterations if self.by_pixel else self.t.inside if self.t.apart else 1

    @property
    def parts(self) -> dict[str, int]:
        """The hardware loops, each with its iterations."""
        if self.by_pixel:
            return {f"cx{self.tail}": self.t.inside}
        cn = self.vectors
        return {cn: self.iterations - 1, f"{cn}_e": 1} if self.early and self.iterations > 1 else {cn: self.iterations}

    @property
    def sides(self) -> list[tuple[str, str, int]]:
        """What the padding on both sides is called, its loops, and its columns."""
        t = self.t
        sides = (("l", t.loops[0], t.left), ("r", t.loops[2], t.right))
        return [(letter, loop + self.tail, columns) for letter, loop, columns in sides if loop]

    @property
    def kinds(self) -> int:
        """Of strips: those that reach beyond the image elsewhere have code of their own."""
        t, g = self.t, self.t.geometry
        tops = (min(y, g.rows - t.rows) * g.stride[0] - g.pad[0] for y in range(0, g.rows, t.rows))
        rows = range(FOUR * self.group, FOUR * self.group + self.rows)
        return len(list(itertools.groupby([0 <= top + row < g.height for row in rows] for top in tops)))

    def extended(self) -> Iterator[str]:
        """Rows of padding that make four."""
        if self.rows < FOUR:
            yield from (f"extend({loop}, {FOUR})" for _, loop, _ in self.sides)

    def padding(self) -> Iterator[str]:
        """What lies on both sides of the image, by vectors."""
        tail = self.tail
        for letter, loop, columns in self.sides:
            lanes, early, _ = self._filled(columns)
            column, channel = f"c{letter}{tail}", channels(loop)
            inwards = [column] if self.t.alone else [column, channel]
            yield from (f"reorder({loop}, {inner})" for inner in inwards)
            if self.t.groups == 1 and not self.t.alone:
                yield f"fuse({column}, {channel})"
            yield f"fuse({inwards[-1]}, {loop})"
            yield f"split({loop}, {loop}v, {lanes}{', early' * early})"
            yield from (
                f"stage(P, {loop}, f{letter}{self.letter}, q)",
                f"stage(edge, {loop}, edge_{letter}{self.letter}s, r)",
            )

    def _filled(self, columns: int) -> tuple[int, bool, int]:
        """Bytes of a vector of padding, whether the last one starts early, and how many there are."""
        size = self.t.block * FOUR * (1 if self.t.groups > 1 else columns)
        lanes = min(size, LANES)
        return lanes, size % lanes > 0, -(-size // lanes)

    def hardware_loop(self) -> Iterator[str]:
        """The loops of copies, which become hardware loops."""
        for part, count in self.parts.items():
            for kind in range(self.kinds):
                yield from hardware_loop(part + f"_{kind}" * (kind > 0), count, early=False)
        for _, loop, columns in self.sides:
            _, early, count = self._filled(columns)
            yield from hardware_loop(loop, count, early)
