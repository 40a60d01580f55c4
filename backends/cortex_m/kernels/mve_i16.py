"""What the MVE kernels on int16 activations share: what they recognize, and the requantization of sums.

RESCALE takes the i48 accumulators of int16 with 16-bit multipliers (TOSA 1.0, apply_scale_16). Where no input can bring
a sum and its bias out of int32, the kernels compute in int32, which is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tosaic.backends.cortex_m.kernels.mve_match import INT32, constants_after_first, dtype_of
from tosaic.backends.cortex_m.kernels.sketch_constants import normalized
from tosaic.support.attributes import bool_of, enum_of, int_of
from tosaic.support.mlir import element_type, ir

INT16 = np.dtype(np.int16)
_LOWEST = -(1 << 15)
_MOST_PARTS, _LARGEST_BIAS = 16, 1 << 38
"""Of a sum of 48 bits; and the bias that fits int32 without its lowest byte, beside these."""


@dataclass(frozen=True)
class EpilogueI16:
    """A RESCALE from i48 for each channel, zero points 0, and of int16 the clamp of its result.

    Args:
        element: the type of the result.
    """

    element: np.dtype
    multiplier: np.ndarray
    shift: np.ndarray
    low: int
    high: int

    @property
    def form(self) -> str:
        """What shifts allow on sums of 32 bits: no other (`round`), any (`left`), or to the right."""
        if (self.shift == 15).all():
            return "round"
        return "left" if (self.shift < 16).any() else "right"

    @property
    def left(self) -> int:
        """Bits by which sums are shifted left before they are multiplied, at most."""
        _, shift = normalized(self.multiplier, self.shift)
        return 0 if self.form == "round" else max(0, 32 - int(shift.min()))

    @property
    def clamped(self) -> bool:
        """Whether results are bound closer than by their type."""
        limits = np.iinfo(self.element)
        return (self.low, self.high) != (limits.min, limits.max)

    @property
    def constants(self) -> dict[str, np.ndarray]:
        """What goes into the params; `range` is zero point, lowest and highest output."""
        bounds = np.array([0, self.low, self.high], np.int32)
        return {"multiplier": self.multiplier, "shift": self.shift, "range": bounds}


def match_epilogue_i16(ops: list[ir.Operation], channels: int, wide: bool = False) -> EpilogueI16 | None:
    """The epilogue that `ops` (a RESCALE, perhaps a CLAMP) form, None where they are anything else.

    Args:
        wide: whether it may be a RESCALE to int32 alone.
    """
    if [op.name for op in ops] not in (["tosa.rescale"], ["tosa.rescale", "tosa.clamp"]):
        return None
    rescale = ops[0]
    element = dtype_of(rescale.results[0])
    if str(element_type(rescale.operands[0])) != "i48" or (element != INT16 and (not wide or len(ops) > 1)):
        return None
    flags = [bool_of(rescale, name) for name in ("scale32", "input_unsigned", "output_unsigned")]
    if any(flags) or enum_of(rescale, "rounding_mode") != "SINGLE_ROUND":
        return None
    operands = constants_after_first(rescale)
    if operands is None or operands[2].any() or operands[3].any() or (operands[0] < 0).any():
        return None
    if element not in (INT16, INT32):
        return None
    low, high = np.iinfo(element).min, np.iinfo(element).max
    for op in ops[1:]:
        low, high = int_of(op, "min_val"), int_of(op, "max_val")
    multiplier, shift = (np.broadcast_to(operand, (channels,)) for operand in operands[:2])
    return EpilogueI16(element, multiplier, shift, low, high)


def is_wide(weights: np.ndarray, bias: np.ndarray, left: int = 0) -> bool:
    """Whether int16 inputs can bring a sum of products plus bias, shifted left by so many bits, out of int32.

    Args:
        weights: int8 (channels, ...).
        bias: int64 (channels,).
    """
    sums = np.abs(weights.reshape(len(weights), -1).astype(np.int64)).sum(axis=1)
    return bool((-_LOWEST * sums + np.abs(bias) > np.iinfo(np.int32).max >> left).any())


def parts_of(weights: np.ndarray, bias: np.ndarray) -> int | None:
    """Parts along the depth, as few as there can be, whose sums without the bias fit int32; None where that needs many,
    or the bias is near the ends of 48 bits.

    Args:
        weights: int8 (channels, ...).
        bias: int64 (channels,).
    """
    rows, none = weights.reshape(len(weights), -1), np.zeros(1, np.int64)
    fitting = (
        n
        for n in range(1, _MOST_PARTS + 1)
        if rows.shape[1] % n == 0 and not is_wide(rows.reshape(-1, rows.shape[1] // n), none)
    )
    return next(fitting, None) if (np.abs(bias) < _LARGEST_BIAS).all() else None


def widened(multiplier: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The multipliers and shifts of apply_scale_32 that give what those of apply_scale_16 give."""
    return multiplier.astype(np.int32) << 16, shift + np.int8(16)
