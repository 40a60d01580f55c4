"""The memory regions of a run: strided views with every byte checked for bounds, and for having been written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tosaic.backends.npu import EmulationError

DMA_UNIT = 16  # bytes
LUT = -1  # the region number under which the NPU's own look-up table memory goes


@dataclass(frozen=True)
class ByteRange:
    """Bytes `low` up to `high` (exclusive) of a region, which a command read or wrote."""

    region: int
    low: int
    high: int
    write: bool

    def conflicts(self, other: ByteRange) -> bool:
        apart = self.region != other.region or self.high <= other.low or other.high <= self.low
        return (self.write or other.write) and not apart


Span: TypeAlias = tuple[int, int, int]


class RegionMemory:
    """Byte arrays by region.

    Args:
        regions: uint8 arrays, changed in place.
        written: what holds data from the start: regions, or bytes of one, (region, begin, end).
        lut_bytes: size of the look-up table memory.
    """

    def __init__(self, regions: dict[int, np.ndarray], written: Iterable[int | Span], lut_bytes: int) -> None:
        self._bytes = {**regions, LUT: np.zeros(lut_bytes, np.uint8)}
        self._written = {number: np.zeros(len(data), bool) for number, data in self._bytes.items()}
        for known in written:
            region, begin, end = (known, 0, None) if isinstance(known, int) else known
            if region in self._written:
                self._written[region][begin:end] = True
        self.accesses: list[ByteRange] = []

    def take_accesses(self) -> list[ByteRange]:
        """What was accessed since the last call."""
        found, self.accesses = self.accesses, []
        return found

    def read(self, region: int, address: int, shape: Sequence[int], strides: Sequence[int], dtype: str) -> np.ndarray:
        """A view of elements of `dtype`; `strides` in bytes, any sign.

        Raises:
            EmulationError: an element lies outside its region or was never written.
        """
        view, low, high = self._view(region, address, shape, strides, np.dtype(dtype), "reads")
        written = self._written[region]
        if not written[low:high].all() and not _strided(written, address, shape, strides, np.dtype(bool)).all():
            raise _unwritten(region, low, high)
        self.accesses.append(ByteRange(region, low, high, write=False))
        return view

    def copy(self, source: int, start: int, target: int, end: int, length: int) -> None:
        """Copy `length` bytes from address `start` of `source` to address `end` of `target`.

        A transfer comes in whole units: of the last one, the bytes behind a tensor may be unwritten, and stay so.

        Raises:
            EmulationError: bytes lie outside a region, or others were never written.
        """
        octets, low, high = self._view(source, start, (length,), (1,), np.dtype("u1"), "reads")
        marks = self._written[source][low:high].copy()
        if not marks[: max(1, length - DMA_UNIT + 1)].all():
            raise _unwritten(source, low, high)
        self.accesses.append(ByteRange(source, low, high, write=False))
        copied = octets.copy()
        view, low, high = self._view(target, end, (length,), (1,), np.dtype("u1"), "writes")
        view[...] = copied
        self._written[target][low:high] = marks
        self.accesses.append(ByteRange(target, low, high, write=True))

    def write(self, region: int, address: int, strides: Sequence[int], values: np.ndarray) -> None:
        """Store `values` as they are.

        Raises:
            EmulationError: an element lies outside its region.
        """
        view, low, high = self._view(region, address, values.shape, strides, values.dtype, "writes")
        view[...] = values
        size = values.dtype.itemsize
        marks = _strided(self._written[region], address, (*values.shape, size), (*strides, 1), np.dtype(bool))
        marks[...] = True
        self.accesses.append(ByteRange(region, low, high, write=True))

    def size(self, region: int) -> int:
        if region not in self._bytes:
            raise EmulationError(f"no memory stands behind {_name(region)}")
        return len(self._bytes[region])

    def _view(
        self, region: int, address: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype, verb: str
    ):
        steps = [(count - 1) * stride for count, stride in zip(shape, strides, strict=True)]
        low = address + sum(min(step, 0) for step in steps)
        high = address + sum(max(step, 0) for step in steps) + dtype.itemsize
        size = self.size(region)
        if low < 0 or high > size:
            raise EmulationError(f"{verb} bytes {low:#x} to {high:#x} of {_name(region)}, which has {size:#x}")
        return _strided(self._bytes[region], address, shape, strides, dtype), low, high


def _strided(data: np.ndarray, address: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype):
    first = data[address : address + dtype.itemsize].view(dtype)
    return np.lib.stride_tricks.as_strided(first, shape, strides)


def _unwritten(region: int, low: int, high: int) -> EmulationError:
    return EmulationError(f"reads bytes of {_name(region)} between {low:#x} and {high:#x} that nothing has written")


def _name(region: int) -> str:
    return "the look-up table memory" if region == LUT else f"region {region}"
