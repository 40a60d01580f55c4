"""Products of rows in parts, for cores with vectors: what each hardware loop adds up.

Results of a tile of pixels go in parts: whole vectors of bytes, in blocks whose sums lie in scratch memory, and by
fours what is left, or all of wider results.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tosaic.backends.cortex_m.kernels.mve import round_up
from tosaic.backends.cortex_m.program.sketches.row_numbers import PixelRows
from tosaic.backends.cortex_m.program.sketches.row_part import RowPart


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
        last = self.behind == groups_of(self.part)[-1].behind and (self.part.behind or not self.part.s.rest)
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


@lru_cache(maxsize=256)
def groups_of(part: RowPart) -> list[SumGroup]:
    """What is added up in a loop of its own: as many channels and pixels together as the schedule says, then the
    channels that are left, then the pixels that are."""
    s, width = part.s, min(part.s.width, part.block)
    names = (f"k{'_t' * n}" for n in itertools.count(part.loops))
    loop, rest = "si" if part.whole else part.inner, part.block % width
    kinds = [(loop, part.depth, "", part.block - rest, width)]
    if rest:
        kinds.append((f"{loop}_t", next(names), "x", rest, rest))
    lasts = [next(names) if s.short and s.vectors else depth for _, depth, *_ in kinds]
    found = list[SumGroup]()
    for (loop, depth, behind, channels, width), last in zip(kinds, lasts, strict=True):
        held = 0 if behind else min(s.held, s.vectors)
        left = next(names) if 0 < held < s.vectors else depth
        over = f"sx{part.behind}{'b' * (behind != '')}" if part.pixel else ""
        found.append(SumGroup(part, over, loop, depth, last, left, behind, s.pixels, channels, width, held))
    pixels = s.together % s.pixels
    return found + [group.of_pixels(pixels) for group in found if pixels]


def weight_bytes(part: RowPart) -> Mapping[str, int]:
    """Bytes of each constant of weights that are copied at a time."""
    blocks = part.once // part.block
    each = part.s.sums * part.s.taps * round_up(part.s.depth, part.s.lanes)
    return {g.weights: blocks * g.channels * each for g in groups_of(part)}


@lru_cache(maxsize=64)
def row_parts(s: PixelRows) -> Sequence[RowPart]:
    """The parts of a row, whole vectors of results first."""
    both = bool(s.whole and s.rest)
    parts = [RowPart(s, "n", "k", "", s.whole, 1 + both)] if s.whole else []
    if s.rest:
        behind = "_t" if both else ""
        loops = sum(g.loops for part in parts for g in groups_of(part) if g.depth[-1] != "p")
        parts.append(RowPart(s, f"n{behind}", f"k{behind}", behind, s.rest, 1 + both + loops))
    return parts
