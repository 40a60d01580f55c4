"""What becomes of the sums of a bilinear resize."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tosaic.backends.cortex_m.kernels.mve import VECTOR, shift_factors
from tosaic.backends.cortex_m.nest.block import BlockInstruction, update
from tosaic.backends.cortex_m.nest.lane_access import Code, LaneAccess


def stored(value: str, vector: int) -> LaneAccess:
    """The store of eight results in lanes of 16 bits, of the vector of that number."""
    return LaneAccess("vstrb.16", value, "o0", VECTOR // 2 * vector, 127)


@dataclass(frozen=True)
class Average:
    """A sum times a scale, rounded once (TOSA 1.0, apply_scale_32).

    Args:
        offset: what is taken from the sum first.
        multiplier, left, right: as `shift_factors` gives them; `multiplier` 0 stands for a power of two, which `right`
            holds as well.
        zero_point: is added in the end.
    """

    offset: int
    multiplier: int
    left: int
    right: int
    zero_point: int

    @staticmethod
    def of(multiplier: np.ndarray, shift: np.ndarray, offset: np.ndarray, zero_point: np.ndarray) -> Average:
        """The average that a RESCALE makes of sums, each argument of one element."""
        factor, right, left = (int(each.item()) for each in shift_factors(multiplier, shift))
        if factor.bit_count() == 1:
            factor, right, left = 0, factor.bit_length() - 1 - int(shift.item()), 0
        return Average(int(offset.item()), factor, left, -right, int(zero_point.item()))


@dataclass(frozen=True)
class BlendFinish:
    """What becomes of sums in lanes of 16 bits.

    Args:
        average: the scale of a sum; its offset is 0.
    """

    average: Average

    def finish(self, value: str, vector: int) -> Code:
        """From eight sums to results in memory."""
        even = f"{value}b"
        code: Code = [
            BlockInstruction("vmovlb.s16", f"{{{even}}}, {{{value}}}", (even,)),
            _in_place("vmovlt.s16", value),
            *self.narrowed(even, value),
        ]
        return [*code, stored(even, vector)]

    def narrowed(self, even: str, odd: str) -> Code:
        """Sums of even and odd lanes, scaled, and as results in the lanes of `even`."""
        code = [each for half in (even, odd) for each in self._rounded(half)]
        code.append(_in_place("vqmovnb.s32", even))
        code.append(BlockInstruction("vqmovnt.s32", f"{{{even}}}, {{{odd}}}", (even,), (even,)))
        code += [update("vqadd.s16", even, "zero_point")] * bool(self.average.zero_point)
        code.append(_in_place("vqmovnb.s16", even))
        return code

    def _rounded(self, value: str) -> Code:
        """Four sums, scaled."""
        code = Code()
        if self.average.left:
            code.append(update("vshl.i32", value, f"#{self.average.left}"))
        if self.average.multiplier:
            code.append(update("vqdmulh.s32", value, "multiplier"))
        if self.average.right:
            code.append(update("vrshr.s32", value, f"#{self.average.right}"))
        return code


def _in_place(mnemonic: str, value: str) -> BlockInstruction:
    """An instruction on a vector that changes it."""
    return BlockInstruction(mnemonic, f"{{{value}}}, {{{value}}}", (value,), (value,))
