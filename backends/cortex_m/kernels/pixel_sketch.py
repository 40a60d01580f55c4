"""CONV2D of windows of one pixel, several to a row, with the numbers that its schedules with vectors leave open."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import itemgetter
from typing import ClassVar

from tosaic.backends.cortex_m.footprint import Walk
from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels.mve import round_up
from tosaic.backends.cortex_m.kernels.pixel_walk import pixel_walk
from tosaic.backends.cortex_m.kernels.pixels_together import TOGETHER, few_together, possible_together
from tosaic.backends.cortex_m.kernels.row_cycles import (
    copied_cycles,
    copies_of,
    epilogue_cycles,
    instructions_of,
    sums_cycles,
)
from tosaic.backends.cortex_m.kernels.vector_conv2d import VectorConv2d
from tosaic.backends.cortex_m.program.check import SLACK
from tosaic.backends.cortex_m.program.guesses import assignments
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.sketches.image_strips import ImageStrip
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, PixelRows
from tosaic.backends.cortex_m.program.sketches.row_part import RowPart
from tosaic.backends.cortex_m.program.sketches.row_parts import SumGroup, groups_of, row_parts
from tosaic.backends.cortex_m.program.sketches.rows import rows_of_pixels
from tosaic.backends.cortex_m.program.sketches.tiles import tile_sizes
from tosaic.backends.cortex_m.program.tree import BYTES, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_TILES = ("3x2", "2x2", "2x3", "7x1", "6x1", "5x1", "4x1", "3x1", "2x1", "1x6", "1x4", "1x2", "1x1")
_BLOCKS = (128, 64, 32, 16)
"""Channels whose sums lie in scratch memory at a time at most, beside all of them."""
_SETTLED = ("epilogue_unroll", "ahead", "epilogue_ahead")
_NUMBERS = itemgetter("together", "share", "block", "repeats", "unroll", "held", *_SETTLED)
_PLACES = ("params", "scratch")
_MOST_INSTRUCTIONS, _MOST_REPEATED = 960, 420
"""Of an iteration, so that it is in the reach of its end; and of several blocks of sums, which gain little more."""
_AHEAD, _EPILOGUE_AHEAD = 2, 3
"""Loads that most often run an iteration ahead of the sums, and of the epilogue."""
_MOST_WIDTH = 7
"""Sums that registers hold."""
_MOST_HELD = 6
"""Vectors that stay, so that others find registers."""
_LONG = 32
"""Elements of a window whose sums have room for their biases."""


@dataclass(frozen=True)
class PixelSketch(VectorConv2d):
    """CONV2D whose windows are one pixel each; see `sketches.rows`."""

    compared: ClassVar[int] = 4
    near: ClassVar[float] = 1.0025
    price: ClassVar[int] = 3
    """Cycles that an instruction less is worth."""
    most_sums: ClassVar[int] = 4096
    """In scratch memory at a time, of more than one tile."""
    little: ClassVar[int] = TOGETHER[-1]
    """Pixels whose sums take little memory."""

    def row(self, knobs: Knobs) -> int:
        """Pixels of a row."""
        return self.geometry.columns

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many pixels a row may have."""
        return (self.geometry.columns,)

    @property
    def pitch(self) -> int:
        """Elements of the copy of a window."""
        return self.geometry.depth - self.part + self.depth

    @property
    def taps(self) -> int:
        """Rows of a window."""
        return 1

    def strip(self, knobs: Knobs) -> ImageStrip | None:
        """How windows of several pixels are read."""
        return None

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `tile`, pixels x channels of the sums in registers; `bias`, whether `sums` begin
        with it, or `results` are made with it; `weights`, where a block of channels reads its constants; others as of
        `PixelRows`."""
        vectors = self.depth // self.window_lanes if self.taps == 1 else 0
        whole = self.channels // LANES * LANES if self.epilogue.element == "i8" else 0
        most = whole or self.channels
        divisors = [n for n in range(LANES, most, LANES) if most % n == 0]
        blocks = dict.fromkeys([most, *(max((n for n in divisors if n <= limit), default=most) for limit in _BLOCKS)])
        sizes = map(tile_sizes, _TILES)
        return {
            "tile": tuple(f"{p}x{c}" for p, c in sizes if p <= max(self.lengths) and c <= min(blocks)),
            "together": tuple(dict.fromkeys(n for row in self.lengths for n in possible_together(row))),
            "share": (2, 1, *((3,) if len(self._biases) > 1 else ())) if whole else (1,),
            "bias": self._biases,
            "block": tuple(blocks),
            "weights": _PLACES,
            "repeats": (4, 2, 1, 8),
            "unroll": (0, *(n for n in (4, 2, 8, 1) if vectors % n == 0 and vectors > n)),
            "held": tuple(n for n in (0, 1, 2) if n <= vectors),
            "epilogue_unroll": (1,) if self.parts else (2, 1, 4),
            "ahead": (2, 1, 3, 0),
            "epilogue_ahead": (0,) if self.parts else (3, 2, 0),
        }

    @property
    def _biases(self) -> tuple[Choice, ...]:
        """Where a bias may be added: long sums have room for it."""
        whole = self.epilogue.element == "i8" and self.channels % LANES == self.depth % self.window_lanes == 0
        long = self.taps * self.depth >= _LONG and "bias" in self.result.factors
        return ("results", "sums") if whole and long else ("results",)

    def groups(self, knobs: Mapping[str, Sequence[Choice]], site: Site) -> Iterator[Iterable[dict[str, Choice]]]:
        return self.groups_with({}, knobs, site)

    def groups_with(
        self, fixed: Knobs, knobs: Mapping[str, Sequence[Choice]], site: Site
    ) -> Iterator[Iterable[dict[str, Choice]]]:
        """Of those that differ in pixels together a few, and of those that differ in the epilogue, or in
        loads that run ahead, the usual one: they say little of what differs else."""
        row = self.row(fixed)
        places = knobs["weights"] if site.waits_for_memory else knobs["weights"][:1]
        others = list(assignments({name: knobs[name] for name in ("share", "bias", "repeats", "unroll", "held")}))
        for tile, block in itertools.product(knobs["tile"], knobs["block"]):
            (pixels, width), channels = tile_sizes(str(tile)), int(block)
            epilogue = 2 if channels % (2 * self.lanes) == 0 and not self.parts else 1
            some = self.some_together(knobs["together"], row, pixels, width, channels)
            # What is chosen where no bound is known yet bounds the working memory of all kernels.
            most = max(self.little, pixels) if self.little and site.most_scratch is None else row
            for together in (n for n in some if n <= most):
                first = {**fixed, "tile": tile, "together": together, "block": block, "epilogue_unroll": epilogue}
                yield from (map(partial(self.usual, {**first, "weights": place}), others) for place in places)

    def usual(self, first: Knobs, others: Knobs) -> dict[str, Choice]:
        """All numbers, with the loads that most often run an iteration ahead, where there is one."""
        (pixels, width), block, together = tile_sizes(str(first["tile"])), int(first["block"]), int(first["together"])
        iterations = self._iterations(
            self.tiles(together, pixels), block, width, int(others["repeats"]), int(others["unroll"])
        )
        lanes = self.lanes * int(first["epilogue_unroll"])
        ends = self._epilogue_iterations(block, lanes, together, int(others["share"]))
        return {**first, **others, "ahead": _AHEAD * (iterations > 1), "epilogue_ahead": _EPILOGUE_AHEAD * ends}

    def some_together(self, choices: Sequence[Choice], row: int, pixels: int, width: int, block: int) -> list[int]:
        """Of some numbers of pixels whose sums lie in scratch memory at a time, those worth a thought."""
        some = [n for n in map(int, choices) if n == pixels or (pixels < n <= row and n * block <= self.most_sums)]
        return few_together(some, row, (pixels, width), block, self.little)

    def tiles(self, together: int, pixels: int) -> int:
        """Tiles of pixels that a hardware loop may go over."""
        return together // pixels

    def _iterations(self, tiles: int, block: int, width: int, repeats: int, unroll: int) -> int:
        """Of the hardware loop of the sums: over channels, or over tiles of pixels where an iteration takes all of
        these."""
        if unroll:
            return self.depth // self.window_lanes // unroll
        short, iterations = self.depth % self.window_lanes, block // width // repeats
        return tiles if iterations == 1 and not short else iterations

    def _epilogue_iterations(self, block: int, lanes: int, together: int, share: int) -> bool:
        """Whether there are several of the epilogue of whole vectors."""
        return not self.parts and (block > lanes or (share < together and together % share == 0))

    def rows(self, knobs: Knobs) -> PixelRows:
        """The numbers of a schedule.

        Raises:
            RefusedError: there is none with these.
        """
        return _rows(self, tuple(knobs.items()))

    def numbers(self, knobs: Knobs) -> PixelRows:
        """As `rows`, anew."""
        pixels, width = tile_sizes(str(knobs["tile"]))
        numbers = map(int, _NUMBERS(knobs))
        together, share, block, repeats, unroll, held, epilogue_unroll, ahead, epilogue_ahead = numbers
        if not max(pixels, share) <= together <= self.row(knobs):
            raise RefusedError(f"{together} pixels have no tiles of {knobs['tile']}, or of {share}")
        if together * block > self.most_sums and together > pixels:
            raise RefusedError(f"{together} pixels of {block} sums take too much memory")
        depth, row = self.depth, self.row(knobs)
        vectors, short = self.taps * -(-depth // self.window_lanes), depth % self.window_lanes > 0
        if pixels * width == _MOST_WIDTH and short:
            raise RefusedError(f"{_MOST_WIDTH} sums leave no register for a mask")
        if block // width % repeats:
            raise RefusedError(f"a block of {block} channels has no iterations of {repeats * width}")
        if epilogue_unroll > 1 and block % (self.lanes * epilogue_unroll):
            raise RefusedError(f"a block of {block} channels has no iterations of {epilogue_unroll} vectors")
        if unroll and (held or repeats > 1):
            raise RefusedError("where a hardware loop goes over the depth, no vector stays")
        instructions = ((unroll or vectors) * (pixels * width + pixels + width) + pixels * width) * repeats
        if instructions > (_MOST_INSTRUCTIONS if repeats == 1 else _MOST_REPEATED):
            raise RefusedError(f"an iteration of {instructions} instructions is too long")
        if (ahead and self._iterations(self.tiles(together, pixels), block, width, repeats, unroll) < 2) or (
            epilogue_ahead and not self._epilogue_iterations(block, self.lanes * epilogue_unroll, together, share)
        ):
            raise RefusedError("there is no further iteration of which loads could run ahead")
        if (held + short) * pixels + max(ahead, width > 1) > _MOST_HELD:
            raise RefusedError(f"{held} vectors of {pixels} pixels leave no registers")
        result = replace(self.result, begun=knobs["bias"] == "sums")
        pairs = width == 2 and share > 1 and not unroll and knobs["weights"] == "params"
        if result.begun and not (pairs and knobs["bias"] in self._biases):
            raise RefusedError("long sums of two channels begin with biases that are read in params")
        if not result.epilogue_fits(share, epilogue_ahead):
            raise RefusedError(f"{share} pixels have no epilogue together in vectors")
        found = PixelRows(
            row, self.channels, depth, result, pixels, width, together, share, block, repeats, unroll, held,
            epilogue_unroll, ahead,  epilogue_ahead, knobs["weights"] == "scratch", self.strip(knobs),
            element=self.element, parts=self.parts,
        )  # fmt: skip
        if found.copied and any(part.once < FOUR for part in row_parts(found)):
            raise RefusedError("so few factors are not copied")
        return found

    def steps(self, knobs: Knobs) -> Iterator[str]:
        return rows_of_pixels(self.rows(knobs))

    def cost(self, knobs: Knobs) -> float:
        s = self.rows(knobs)
        usual = self.usual(knobs, knobs)
        unlikely = abs(s.ahead - int(usual["ahead"])) + abs(s.epilogue_ahead - int(usual["epilogue_ahead"]))
        unlikely += s.epilogue_unroll > 2
        cycles, _, instructions = _promised(self, s)
        return cycles * (1 + unlikely / 50) + self.price * instructions

    def promise(self, knobs: Knobs) -> Mapping[str, float]:
        """The cycles of the core, bytes of working memory, and instructions."""
        cycles, scratch, instructions = _promised(self, self.rows(knobs))
        return {"estimate": cycles, "scratch": scratch, "code": instructions}

    def promised(self, s: PixelRows) -> tuple[float, int, int]:
        """The cycles of the core, bytes of working memory, and instructions, anew."""
        parts = row_parts(s)
        sums = FOUR * s.sums * s.together * max(part.block for part in parts)
        strip = [s.strip.bytes] if s.strip else []
        # Strips of a row of windows are gone where its sums are made.
        buffers = [max(sums, *strip)] if s.strip and s.strip.sides else [sums, *strip]
        buffers += [size for part in parts for size in copies_of(part)]
        buffers += [s.strip.windows * self.pitch * BYTES[s.element]] if s.strip and s.strip.windows else []
        scratch = sum(round_up(size + SLACK, LANES) for size in buffers)
        return self._cycles(s), scratch, self._instructions(s)

    def moved(self, knobs: Knobs) -> Sequence[Walk]:
        return [pixel_walk(self.geometry, self.rows(knobs))]

    def _cycles(self, s: PixelRows) -> float:
        """About its cycles: what the multiplier, or the loads, take, and what the epilogue does."""
        g = self.geometry
        rows = round_up(g.rows, s.strip.tall) if s.strip else g.rows
        tiles = g.batch * rows * g.columns / s.row * -(-s.row // s.together)
        filled = g.batch * s.strip.cycles if s.strip else 0.0
        return filled + sum(
            part.channels / part.block * tiles * self._part(part) + part.channels / part.once * copied_cycles(part)
            for part in row_parts(s)
        )

    def _part(self, part: RowPart) -> float:
        """Cycles of a block of channels of a tile of pixels."""
        return part.s.sums * sum(map(self._sums, groups_of(part))) + epilogue_cycles(part)

    def _sums(self, g: SumGroup) -> float:
        return sums_cycles(g)

    def _instructions(self, s: PixelRows) -> int:
        return instructions_of(s)


@lru_cache(maxsize=1 << 14)
def _rows(what: PixelSketch, knobs: tuple[tuple[str, Choice], ...]) -> PixelRows:
    return what.numbers(dict(knobs))


@lru_cache(maxsize=1 << 14)
def _promised(what: PixelSketch, s: PixelRows) -> tuple[float, int, int]:
    return what.promised(s)
