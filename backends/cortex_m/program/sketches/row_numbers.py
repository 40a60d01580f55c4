"""The numbers of schedules of products of rows, for cores with vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tosaic.backends.cortex_m.program.sketches.image_strips import ImageStrip, lanes_of
from tosaic.backends.cortex_m.program.tree import BYTES

LANES = 16
"""Bytes of a vector, and results of an iteration of the epilogue."""
FOUR = 4
"""Words of a vector."""
VECTORS = 8
"""Vector registers."""


class FactorTypes(NamedTuple):
    """How what a channel has of its own lies in memory.

    Args:
        bias: the type of biases, of which i16 is divided by 16 if sums are 16 times as large; `none` where all are 0.
        units: all multipliers are bytes times a number.
    """

    bias: str = "i32"
    units: bool = False


WORDS = FactorTypes()
"""As of kernels that shall be alike whatever their constants are."""


@dataclass(frozen=True)
class RowResult:
    """How sums become results.

    Args:
        form: `rounded` where every shift can be 31, `doubled` where none is below 32, else `shifted`; `joined` of sums
            of 48 bits, which no vector brings to results.
        element: the type of a result.
        clamped, table: whether results have bounds, and whether those of bytes are looked up.
        uniform: whether all channels have one scale.
        terms: whether what a channel adds to its sums is no constant, but `Z`, and each pixel adds a number `T`.
        column_terms: whether there is `Z`: it is 0 where the zero point of pixels is.
        sixteen: whether sums are 16 times as large.
        types: how what a channel has of its own lies in memory.
        begun: whether sums begin with the bias.
        fits: whether scaled sums fit 16 bits, so that bytes alone saturate.
    """

    form: str
    element: str
    clamped: bool
    table: bool
    uniform: bool = False
    terms: bool = False
    column_terms: bool = False
    sixteen: bool = False
    types: FactorTypes = WORDS
    begun: bool = False
    fits: bool = False

    @property
    def units(self) -> bool:
        """Whether multipliers are bytes times a number."""
        return self.types.units and self.form == "rounded"

    @property
    def scale(self) -> tuple[str, ...]:
        """The constants of a RESCALE in the order of their use."""
        return {
            "rounded": ("units" if self.units else "whole",),
            "doubled": ("multiplier", "down"),
            "shifted": ("left", "multiplier", "rest"),
            "joined": ("multiplier", "shift"),
        }[self.form]

    @property
    def rules(self) -> tuple[str, ...]:
        """The identities of a RESCALE: results of bytes alone have a zero point."""
        if self.form == "joined":
            return ()
        if self.element == "i8":
            return (self.form,)
        scaled = "nearest" if self.form == "rounded" else self.form
        return ("nothing_added", scaled) if self.element == "i16" else (scaled,)

    @property
    def narrowed(self) -> bool:
        """Whether results become halves in a vector of their own."""
        return self.element == "i16" and not self.clamped

    @property
    def bounds(self) -> tuple[str, ...]:
        """The constants that are the least and the greatest result."""
        names = ("least", "most") if self.element == "i8" else ("least_half", "most_half")
        return names if self.clamped else ()

    @property
    def constants(self) -> tuple[str, ...]:
        """The constants of a channel in the order of their use."""
        bias = ("bias_low", "bias_high") if self.form == "joined" else (self.bias,)
        added = not self.terms and not self.begun and self.types.bias != "none"
        return (*(bias if added else ()), *(() if self.uniform else self.scale))

    @property
    def factors(self) -> tuple[str, ...]:
        """What a channel has of its own to make results of sums with, in the order of its use."""
        return (*(("Z",) if self.column_terms else ()), *self.constants)

    @property
    def bias(self) -> str:
        """The constant that is added to sums."""
        return "sixteenth" if self._half_bias and self.sixteen else "bias"

    @property
    def _half_bias(self) -> bool:
        return self.types.bias == "i16" and not self.begun

    @property
    def factor_bytes(self) -> int:
        """What these and the bias take in memory."""
        narrow = BYTES["i16"] * self._half_bias + (BYTES["i32"] - BYTES["i8"]) * self.units
        return BYTES["i32"] * (len(self.factors) + self.begun) - narrow

    def widened(self, factor: str) -> str:
        """The last argument of a step that stages a factor, where it holds another type."""
        narrow = factor == "units" or (self._half_bias and factor == self.bias) or (self.fits and factor == "a_zero")
        return ", i32" if narrow else ""

    @property
    def biased(self) -> Iterator[str]:
        """The steps that make biases halves, or leave out those of 0."""
        if self.types.bias == "none":
            yield "rewrite(out, unbiased)"
        if self._half_bias:
            yield from ("rewrite(out, sixteenth)",) if self.sixteen else ()
            yield f"narrow({self.bias}, i16)"

    @property
    def fitted(self) -> Iterator[str]:
        """The steps that let bytes alone saturate."""
        if self.fits:
            yield from (f"narrow({name}_zero, i8)" for name in "a" * self.column_terms + "b" * self.terms)
            yield from ("rewrite(out, halves)", "fit(out)")

    @property
    def rescaled(self) -> Iterator[str]:
        """The steps that make its RESCALE one that instructions have."""
        yield from (f"rewrite(out, {rule})" for rule in self.rules)
        if self.units:
            yield from ("rewrite(out, units)", "narrow(units, i8)")

    def epilogue_fits(self, share: int, ahead: int) -> bool:
        """Whether the vectors that whole vectors of results of so many pixels take fit the registers."""
        factors = len(self.factors) if share > 1 else 1
        pressure = self.terms * (1 + self.table + (self.form == "shifted") + (not self.uniform))
        staying = 2 * self.clamped + (self.uniform and self.form == "rounded")
        return max(2 * share + factors + 1, ahead + share + 1 + pressure) <= VECTORS - staying


@dataclass(frozen=True)
class PixelRows:
    """The numbers of a schedule.

    Args:
        row: pixels in a row.
        channels: of the output.
        depth: elements of a window, or of the part of it that lies in a row of the image, or that is added up alone.
        pixels, width: pixels x channels whose sums lie in registers.
        together: pixels whose sums lie in scratch memory at a time.
        share: pixels that share one reading of the factors.
        block: channels whose sums lie in scratch memory at a time, of those in whole vectors.
        repeats: of the sums in registers in an iteration.
        unroll: vectors of the depth in an iteration of a hardware loop over it; 0 where that goes over channels.
        held: vectors of each pixel that stay in registers.
        epilogue_unroll: vectors of results in an iteration.
        ahead, epilogue_ahead: loads that run an iteration ahead.
        copied: whether what a block of channels reads of constants is copied to scratch memory.
        strip: how windows of several pixels are read; None where each is one pixel of the image.
        constant: whether the host lays the weights out; else they are the second operand of a MATMUL, a part of which
            is copied to `W`.
        transposed: whether that lies by columns.
        in_place: whether these are read where they lie, and what zero points add to a column is added up beside sums.
        element: the type of a window's elements; weights are bytes.
        parts: of a sum of 48 bits, of which each is one of so many elements; 0 of one that fits int32.
    """

    row: int
    channels: int
    depth: int
    result: RowResult
    pixels: int
    width: int
    together: int
    share: int
    block: int
    repeats: int
    unroll: int
    held: int
    epilogue_unroll: int
    ahead: int
    epilogue_ahead: int
    copied: bool = False
    strip: ImageStrip | None = None
    constant: bool = True
    transposed: bool = False
    in_place: bool = False
    element: str = "i8"
    parts: int = 0

    @property
    def lanes(self) -> int:
        """Elements of a vector of a window."""
        return lanes_of(self.element)

    @property
    def pairs(self) -> bool:
        """Whether sums of columns that are read in place are stored two at a time: there are registers for them, and
        these are within the reach of a pointer."""
        return self.row <= 2 and self.vectors + (self.short > 0) == 1

    @property
    def sums(self) -> int:
        """Those that a result is made of."""
        return max(1, self.parts)

    @property
    def widened(self) -> str:
        """The last argument of the step that brings weights to vectors, where these hold another type."""
        return "" if self.element == "i8" else f", {self.element}"

    @property
    def image(self) -> str:
        """The buffer that windows are read from."""
        if self.strip is None:
            return "a"
        return "Q" if self.strip.runs[1] else "P"

    @property
    def overlapping(self) -> bool:
        """Whether the windows of pixels that are read together overlap."""
        return self.image == "P"

    @property
    def taps(self) -> int:
        """Parts of a window that are read on their own."""
        return math.prod(self.strip.taps) if self.strip else 1

    @property
    def pixel(self) -> str:
        """The loop over the pixels whose sums lie in scratch memory; none over one."""
        return "" if self.together == 1 else "x" if self.together == self.row else "xi"

    @property
    def around(self) -> int:
        """Loops around that over the pixels of a row, which sums are told apart by."""
        return 1 if not self.constant or (self.strip and self.strip.fused) else 2

    @property
    def blocks_outside(self) -> bool:
        """Whether the loop over blocks of channels stands outside of those over tiles of pixels, which read the same
        weights then."""
        return (
            self.block < self.channels
            and not self.rest
            and self.image != "Q"
            and (self.pixel == "xi" or self.copied or self.overlapping)
        )

    @property
    def whole(self) -> int:
        """Channels in whole vectors of results, such that what is left of a copy has two dimensions."""
        if self.result.element != "i8":
            return 0
        alone = not self.constant and self.channels % LANES == 1
        return (self.channels - 2 * alone) // LANES * LANES

    @property
    def rest(self) -> int:
        """The other channels."""
        return self.channels - self.whole

    @property
    def vectors(self) -> int:
        """Whole vectors of a window."""
        return self.taps * (self.depth // self.lanes)

    @property
    def short(self) -> int:
        """Elements of the last vector of a window where it is not whole."""
        return self.depth % self.lanes
