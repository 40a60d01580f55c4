"""Products of rows in parts, for cores with vectors: what follows from the numbers of a schedule.

Results of a tile of pixels go in parts: whole vectors of bytes, in blocks whose sums lie in scratch memory, and by
fours what is left, or all of wider results.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from tosaic.backends.cortex_m.kernels.mve import round_up
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, VECTORS, PixelRows


@dataclass(frozen=True)
class RowPart:
    """Some channels.

    Args:
        loop, depth: the loops over them, and over a window.
        behind: what the names of its buffers end in.
        channels: how many they are; whole vectors of results where nothing is behind the names of the first part.
        loops: how many loops over a window, or a part of it, there are before it is scheduled.
    """

    s: PixelRows
    loop: str
    depth: str
    behind: str
    channels: int
    loops: int

    @property
    def whole(self) -> bool:
        """Whether results are whole vectors of bytes."""
        return self.s.whole > 0 and not self.behind

    @property
    def block(self) -> int:
        """Channels whose sums lie in scratch memory at a time."""
        return self.s.block if self.channels % self.s.block == 0 else self.channels

    @property
    def inner(self) -> str:
        """The loop over a block."""
        if not self.s.constant:
            return f"{self.loop}m{'b' * self.s.result.column_terms}"
        return self.loop if self.block == self.channels else f"{self.loop}m"

    @property
    def epilogue_unroll(self) -> int:
        """Vectors of results in an iteration."""
        return self.s.epilogue_unroll if self.block % (LANES * self.s.epilogue_unroll) == 0 else 1

    @property
    def pixel(self) -> str:
        """The loop over the pixels of a tile; none over one."""
        return f"{self.s.pixel}{self.behind}" if self.s.pixel else ""

    @property
    def epilogue(self) -> str:
        """The loop of which an iteration is one block, of the epilogue of a block of channels."""
        return f"{self.inner}b"

    @property
    def fours(self) -> int:
        """Vectors of four results in an iteration: all where they are few."""
        vectors = self.block // FOUR
        if vectors <= FOUR:
            return max(1, vectors)
        return self.s.epilogue_unroll if vectors % self.s.epilogue_unroll == 0 else 1

    @property
    def shared(self) -> str:
        """The loop over pixels that share one reading of the factors of whole vectors; none over one."""
        if self.s.share == 1:
            return ""
        return self.pixel if self.s.share == self.s.together else "xr"

    @property
    def over_pixels(self) -> bool:
        """Whether a hardware loop of the epilogue of whole vectors goes over pixels, as one iteration takes all
        channels."""
        s = self.s
        return self.block == LANES * self.epilogue_unroll and s.share < s.together and s.together % s.share == 0

    @property
    def unrolled(self) -> int:
        """Pixels in an iteration of a hardware loop over them."""
        result = self.s.result
        if result.terms and (result.table or result.clamped):
            return 1
        return next(n for n in (4, 3, 2, 1) if self.s.together % n == 0)

    @property
    def ahead(self) -> int:
        """Loads of the epilogue that run an iteration ahead: of pixels with factors that stay sums alone are loaded, as
        far as there are registers."""
        s = self.s
        if self.whole or not self.pixel:
            return s.epilogue_ahead
        free = VECTORS - len(s.result.factors) - len(s.result.bounds) - s.result.narrowed
        return min(s.epilogue_ahead, self.unrolled, free - 1)

    @property
    def epilogues(self) -> list[tuple[str, str, int]]:
        """The blocks of its epilogue: the loop of which an iteration is one, its hardware loop, and the iterations of
        that."""
        if self.s.parts:
            return []
        if self.whole and self.over_pixels:
            return [(self.epilogue, self.pixel, self.s.together // self.s.share)]
        if self.whole:
            return [(self.epilogue, "nf", self.block // (LANES * self.epilogue_unroll))]
        whole, left = divmod(self.block, FOUR)
        behind = "_t" * (whole > 0)
        if self.pixel:
            iterations = self.s.together // self.unrolled
            names = [(self.epilogue, self.pixel)] * (whole > 0)
            names += [(f"{self.epilogue}{behind}", f"{self.pixel}{behind}")] * (left > 0)
            return [(*each, iterations) for each in names]
        found = [(self.epilogue, "nq", whole // self.fours)] if whole else []
        return found + ([(f"{self.epilogue}{behind}", "", 1)] if left else [])

    @cached_property
    def groups(self) -> list[SumGroup]:
        """What is added up in a loop of its own: as many channels and pixels together as the schedule says, then the
        channels that are left, then the pixels that are."""
        s, width = self.s, min(self.s.width, self.block)
        names = (f"k{'_t' * n}" for n in itertools.count(self.loops))
        loop, rest = "si" if self.whole else self.inner, self.block % width
        kinds = [(loop, self.depth, "", self.block - rest, width)]
        if rest:
            kinds.append((f"{loop}_t", next(names), "x", rest, rest))
        lasts = [next(names) if s.short and s.vectors else depth for _, depth, *_ in kinds]
        found = list[SumGroup]()
        for (loop, depth, behind, channels, width), last in zip(kinds, lasts, strict=True):
            held = 0 if behind else min(s.held, s.vectors)
            left = next(names) if 0 < held < s.vectors else depth
            over = f"sx{self.behind}{'b' * (behind != '')}" if self.pixel else ""
            found.append(SumGroup(self, over, loop, depth, last, left, behind, s.pixels, channels, width, held))
        pixels = s.together % s.pixels
        return found + [group.of_pixels(pixels) for group in found if pixels]

    @property
    def in_place(self) -> tuple[str, str, int]:
        """The block of sums of columns that are read in place: the loop of which an iteration is one, its hardware
        loop, and the iterations of that."""
        s, columns = self.s, f"sj{self.behind}"
        if s.unroll:
            return "th" if self.whole else columns, self.column, s.vectors // s.unroll
        if self.whole and not s.pairs:
            return columns, "ti", FOUR
        return f"{self.loop}m", columns, self.columns_apart

    @property
    def column(self) -> str:
        """The loop over a column that is read in place."""
        return f"{'z' * self.s.result.column_terms}k{self.behind}"

    @property
    def columns_apart(self) -> int:
        """Columns of a block, or sixteens of them, one behind the other."""
        return self.block // LANES if self.whole else self.block

    @property
    def once(self) -> int:
        """Channels whose constants are copied at a time."""
        return self.block if self.s.blocks_outside else self.channels

    @property
    def weights(self) -> Mapping[str, int]:
        """Bytes of each constant of weights that are copied at a time."""
        blocks = self.once // self.block
        each = self.s.sums * self.s.taps * round_up(self.s.depth, self.s.lanes)
        return {g.weights: blocks * g.channels * each for g in self.groups}

    def named(self, name: str) -> str:
        """A buffer that other parts have, too, by its name in this one."""
        return f"{name}{self.behind}"


@dataclass(frozen=True)
class SumGroup:
    """Channels of a block that are added up in one hardware loop.

    Args:
        over, loop, depth: the loops over tiles of pixels, over the channels, and over a window.
        last: the loop over the last vector of a window where it is short.
        left: the loop over whole vectors of a window that do not stay in registers, where others do.
        behind: what names end in.
        pixels: in registers.
        channels, width: how many there are, and in registers.
        held: vectors of a window that stay.
    """

    part: RowPart
    over: str
    loop: str
    depth: str
    last: str
    left: str
    behind: str
    pixels: int
    channels: int
    width: int
    held: int

    def of_pixels(self, pixels: int) -> SumGroup:
        """The same for pixels that are left."""
        over, loop, depth = (f"{name}_p" for name in (self.over, self.loop, self.depth))
        short, held = self.last != self.depth, self.left != self.depth
        last = f"{depth}_t" if short else depth
        left = f"{depth}{'_t' * (1 + short)}" if held else depth
        behind = f"{self.behind}p"
        return replace(self, over=over, loop=loop, depth=depth, last=last, left=left, behind=behind, pixels=pixels)

    @property
    def repeats(self) -> int:
        """Times as many sums as there are in registers in an iteration."""
        return self.part.s.repeats if self.channels % (self.width * self.part.s.repeats) == 0 else 1

    @property
    def tiles(self) -> int:
        """Tiles of pixels of a block."""
        return self.part.s.together // self.pixels

    @property
    def over_tiles(self) -> bool:
        """Whether its hardware loop goes over tiles of pixels, as one iteration takes all channels."""
        s = self.part.s
        own = s.strip is not None and s.strip.tile == "sx"
        alone = s.short or s.unroll or own or self.behind.endswith("p")
        return not alone and self.tiles > 1 and self.channels == self.width * self.repeats

    @property
    def iterations(self) -> int:
        """Of its hardware loop."""
        s = self.part.s
        if self.over_tiles:
            return self.tiles
        return s.vectors // s.unroll if s.unroll else self.channels // (self.width * self.repeats)

    @property
    def loads(self) -> int:
        """Vectors that an iteration loads, as far as no other load has moved their pointer on."""
        s, each = self.part.s, self.pixels + self.width
        if s.unroll:
            return s.unroll * each if s.constant else 1
        return self.repeats * (s.vectors * each - self.held * self.pixels + (s.short > 0) * self.width)

    @property
    def hardware_loop(self) -> str:
        """Its hardware loop."""
        if self.over_tiles:
            return self.over
        return self.depth if self.part.s.unroll else self.own("sj")

    @property
    def around(self) -> str:
        """The loop of which an iteration is one block."""
        return self.own("sj") if self.part.s.unroll else self.loop

    @property
    def pixel(self) -> str:
        """The loop over the pixels whose sums lie in registers; none over one."""
        return self.own("st") if self.pixels > 1 else ""

    @property
    def inner(self) -> str:
        """The loop of which an iteration adds what registers hold."""
        return self.own("sr" if self.repeats > 1 else "sj")

    @property
    def each(self) -> list[str]:
        """The loops over channels and pixels whose sums registers hold."""
        return [*([self.own("sc")] if self.width > 1 else []), *([self.pixel] if self.pixel else [])]

    @property
    def weights(self) -> str:
        """The constant that it reads."""
        if not self.part.s.constant:
            return self.part.named("W")
        return f"{self.part.named('w')}{self.behind.removesuffix('p')}"

    @property
    def strip(self) -> str:
        """What names of its strip end in, where each tile has its own; nothing for the last group."""
        last = self.behind == self.part.groups[-1].behind and (self.part.behind or not self.part.s.rest)
        return "" if last else self.own("v")

    @property
    def image(self) -> str:
        """The buffer that it reads windows from."""
        s = self.part.s
        apart = s.strip is not None and s.strip.tile == "sx" and self.strip
        return f"{s.image}_{self.strip}" if apart else s.image

    @property
    def taps(self) -> list[str]:
        """The loops over the rows of a window, and over the columns, where there are several."""
        strip = self.part.s.strip
        names = [name for name, count in zip(("ky", "kx"), strip.taps, strict=True) if count > 1] if strip else []
        return [self.depth.replace("k", name, 1) for name in names]

    @property
    def loops(self) -> int:
        """Loops over a window, or a part of it, that it adds."""
        return (self.behind == "x") + (self.last != self.depth) + (self.left != self.depth)

    def own(self, name: str) -> str:
        """A new name."""
        return f"{name}{'u' * (self.part.behind != '')}{self.behind}"


@lru_cache(maxsize=64)
def row_parts(s: PixelRows) -> Sequence[RowPart]:
    """The parts of a row, whole vectors of results first."""
    both = bool(s.whole and s.rest)
    parts = [RowPart(s, "n", "k", "", s.whole, 1 + both)] if s.whole else []
    if s.rest:
        behind, loops = "_t" if both else "", sum(g.loops for part in parts for g in part.groups if g.depth[-1] != "p")
        parts.append(RowPart(s, f"n{behind}", f"k{behind}", behind, s.rest, 1 + both + loops))
    return parts
