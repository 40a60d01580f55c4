"""Requantization: multiply by an integer, shift right, round; exact at any width.

Rounding modes are named for what they do to a tie and to the sign. TOSA's `apply_scale_32` (TOSA 1.0, section on
scaling) is NATURAL without and DOUBLE with double rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from tosaic.backends.ethos_u.emulator.memory import RegionMemory
from tosaic.backends.ethos_u.emulator.registers import Registers


class Rounding(Enum):
    """How the bits that a right shift drops count."""

    DOUBLE = "add half, and beyond a shift of 31 first 2**30 away from zero"
    NATURAL = "add half: ties go up"
    SYMMETRIC = "add half to the magnitude: ties go away from zero"
    TO_ZERO = "drop them from the magnitude"
    DOWN = "drop them"


SMALL_ROUNDING = (Rounding.DOUBLE, Rounding.TO_ZERO, Rounding.NATURAL)
LARGE_ROUNDING = (
    Rounding.DOUBLE, Rounding.NATURAL, Rounding.DOUBLE, Rounding.SYMMETRIC, Rounding.TO_ZERO, Rounding.DOWN,
)  # fmt: skip
_SAFE = (1 << 62) - 1


@dataclass(frozen=True)
class Scale:
    """Multiplier (unsigned) and right shift, for all channels (integers) or each (int64 arrays)."""

    multiplier: int | np.ndarray
    shift: int | np.ndarray

    def apply(self, values: np.ndarray, rounding: Rounding) -> np.ndarray:
        """round(values * multiplier / 2**shift) as int64."""
        multiplier, shift = np.asarray(self.multiplier, np.int64), np.asarray(self.shift, np.int64)
        if not shift.any() and (multiplier == 1).all():
            return values
        largest = max(int(values.max(initial=0)), -int(values.min(initial=0))) * int(multiplier.max())
        if largest + (1 << max(0, int(shift.max()) - 1)) + (1 << 30) > _SAFE:
            return _rounded_shift(_unbounded(values), _unbounded(multiplier), _unbounded(shift), rounding).astype(
                np.int64
            )
        return _rounded_shift(values, multiplier, shift, rounding)


def _unbounded(numbers: np.ndarray) -> np.ndarray:
    """The same as Python integers."""
    return np.asarray(numbers, object)


def _rounded_shift(values: np.ndarray, multiplier: np.ndarray, shift: np.ndarray, rounding: Rounding) -> np.ndarray:
    product = values * multiplier
    one = np.asarray(1, dtype=product.dtype)
    half = (one << shift) >> 1
    if rounding is Rounding.NATURAL:
        return (product + half) >> shift
    if rounding is Rounding.DOWN:
        return product >> shift
    negative = product < 0
    if rounding is Rounding.DOUBLE:
        nudge = np.where(shift > 31, one << 30, 0)
        return (product + half + np.where(negative, -nudge, nudge)) >> shift
    magnitude = abs(product) + (half if rounding is Rounding.SYMMETRIC else 0)
    return np.where(negative, -(magnitude >> shift), magnitude >> shift)


def scale_register(registers: Registers, name: str) -> Scale:
    """A scale register: multiplier in the payload, shift in the low six bits beside the code."""
    return Scale(registers[name] & 0xFFFFFFFF, registers.parameter[name] & 63)


_RECORD = 10  # bytes of one channel's bias and scale


def small_channel_scales(
    registers: Registers, memory: RegionMemory, channels: int, cores: int
) -> tuple[np.ndarray, Scale]:
    """Bias and scale per channel on U55 and U65: 40-bit bias, 32-bit multiplier, 6-bit shift; a stream per core."""
    bias, multiplier, shift = (np.zeros(channels, np.int64) for _ in range(3))
    for core in range(cores):
        count = -(-(channels - core) // cores)
        if count <= 0:
            continue
        name = "SCALE" if core == 0 else f"SCALE{core}"
        records = _records(registers, memory, f"{name}_BASE", count)
        raw = _little_endian(records[:, :5])
        bias[core::cores] = (raw ^ 1 << 39) - (1 << 39)
        multiplier[core::cores] = _little_endian(records[:, 5:9])
        shift[core::cores] = records[:, 9] & 63
    return bias, Scale(multiplier, shift)


def large_channel_scales(registers: Registers, memory: RegionMemory, channels: int) -> tuple[np.ndarray, Scale]:
    """Bias and scale per channel on U85: bias 32 and multiplier 31 bits, or 48 and 15 with 48-bit accumulators."""
    records = _records(registers, memory, "SCALE_BASE", channels)
    wide = registers.bits("ACC_FORMAT", 0, 2) != 0
    split, sign, mask = (6, 47, 0x7FFF) if wide else (4, 31, 0x7FFFFFFF)
    bias = (_little_endian(records[:, :split]) ^ 1 << sign) - (1 << sign)
    return bias, Scale(_little_endian(records[:, split:8]) & mask, records[:, 8] & 63)


def _records(registers: Registers, memory: RegionMemory, base: str, count: int) -> np.ndarray:
    region = registers["SCALE_REGION"] & 7
    return memory.read(region, registers.address(base), (count, _RECORD), (_RECORD, 1), "u1").astype(np.int64)


def _little_endian(octets: np.ndarray) -> np.ndarray:
    return (octets << 8 * np.arange(octets.shape[1])).sum(1)
