"""Integer ops on numpy arrays, exactly as TOSA 1.0 defines them, and views of RESCALE."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tosaic.support.attributes import bool_of, enum_of, int_of
from tosaic.support.mlir import constant_value, element_type, ir

RANGES = {"i8": (-128, 127), "i16": (-32768, 32767), "i32": (-(2**31), 2**31 - 1)}


@dataclass(frozen=True)
class Rescale:
    """A `tosa.rescale` with one multiplier, signed, SINGLE_ROUND."""

    multiplier: int
    shift: int
    input_zp: int
    output_zp: int
    source: str
    target: str

    @property
    def by_power_of_two(self) -> bool:
        return self.multiplier.bit_count() == 1

    @property
    def by_one(self) -> bool:
        return self.multiplier == 1 << self.shift

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The results (int64) for stored integers `x`."""
        product = (x.astype(np.int64) - self.input_zp) * self.multiplier
        return scaled(product, self.shift, self.output_zp, self.target)


def scaled(product: np.ndarray, shift: int | np.ndarray, zero_point: int | np.ndarray, target: str) -> np.ndarray:
    """What a signed RESCALE of SINGLE_ROUND makes of products with its multipliers (apply_scale_32, TOSA 1.0)."""
    return np.clip(((product + (np.int64(1) << (shift - 1))) >> shift) + zero_point, *RANGES[target])


def rescale_of(op: ir.Operation) -> Rescale | None:
    """What a `tosa.rescale` computes; None where it is per channel, unsigned, of other rounding, or of i48."""
    plain = not any(bool_of(op, name) for name in ("per_channel", "input_unsigned", "output_unsigned"))
    operands = [constant_value(operand) for operand in list(op.operands)[1:]]
    source, target = str(element_type(op.operands[0])), str(element_type(op.results[0]))
    if not plain or enum_of(op, "rounding_mode") != "SINGLE_ROUND" or source not in RANGES or target not in RANGES:
        return None
    if any(operand is None for operand in operands):
        return None
    numbers = [int(operand.reshape(-1)[0]) for operand in operands if operand is not None]
    multiplier, shift, input_zp, output_zp = numbers
    return Rescale(multiplier, shift, input_zp, output_zp, source, target)


def domain(kind: str) -> np.ndarray:
    """Every value of an integer type of 16 bits at most, in order."""
    low, high = RANGES[kind]
    return np.arange(low, high + 1)


def clamp_limits(op: ir.Operation) -> tuple[int, int]:
    """The limits of an integer `tosa.clamp`."""
    return int_of(op, "min_val"), int_of(op, "max_val")


def unary_function(op: ir.Operation) -> np.ndarray | None:
    """The 256 results (int8) of an op that is a function of one i8 value to i8, in the order -128..127; else None."""
    if len(op.results) != 1 or str(element_type(op.results[0])) != "i8":
        return None
    if str(element_type(op.operands[0])) != "i8":
        return None
    values = domain("i8")
    if op.name == "tosa.clamp":
        return np.clip(values, *clamp_limits(op)).astype(np.int8)
    if op.name == "tosa.table":
        return constant_value(op.operands[1])
    rescale = rescale_of(op) if op.name == "tosa.rescale" else None
    return None if rescale is None else rescale(values).astype(np.int8)
