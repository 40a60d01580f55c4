"""Feature maps in memory: NHWC or NHCWB16 (bricks of 16 channels), cut into up to four tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tosaic.backends.ethos_u.emulator.memory import RegionMemory
from tosaic.backends.ethos_u.emulator.registers import Registers, signed

_BRICK = 16


@dataclass(frozen=True)
class FeatureBlock:
    """A block of a feature map: rows, columns and channels, ends exclusive."""

    y0: int
    y1: int
    x0: int
    x1: int
    c0: int
    c1: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.y1 - self.y0, self.x1 - self.x0, self.c1 - self.c0

    @property
    def empty(self) -> bool:
        return min(self.shape) <= 0


def whole(height: int, width: int, depth: int) -> FeatureBlock:
    return FeatureBlock(0, height, 0, width, 0, depth)


@dataclass(frozen=True)
class FeatureMap:
    """One of IFM, IFM2 and OFM as the registers describe it.

    Args:
        bases: addresses of the upper left, upper right, lower left and lower right tile.
        width0, height0, height1: width of the left tiles, heights of the upper tiles (left, right).
        bricks: NHCWB16, else NHWC.
        dtype: numpy's type of one element.
    """

    region: int
    bases: tuple[int, int, int, int]
    width0: int
    height0: int
    height1: int
    stride_y: int
    stride_x: int
    stride_c: int
    bricks: bool
    dtype: str
    zero_point: int

    def read(self, memory: RegionMemory, box: FeatureBlock) -> np.ndarray:
        """The elements of `box`, int64 (height, width, depth), zero point subtracted."""
        values = np.empty(box.shape, np.int64)
        for part, address, shape, strides in self._pieces(box):
            target = values[part.y0 - box.y0 : part.y1 - box.y0, part.x0 - box.x0 : part.x1 - box.x0]
            target = target[..., part.c0 - box.c0 : part.c1 - box.c0].reshape(shape)
            target[...] = memory.read(self.region, address, shape, strides, self.dtype)
        if self.zero_point:
            values -= self.zero_point
        return values

    def write(self, memory: RegionMemory, values: np.ndarray) -> None:
        """Store (height, width, depth) integers, wrapped to the element type."""
        narrow = values.astype(self.dtype)
        for part, address, shape, strides in self._pieces(whole(*values.shape)):
            source = narrow[part.y0 : part.y1, part.x0 : part.x1, part.c0 : part.c1]
            memory.write(self.region, address, strides, source.reshape(shape))

    def span(self, box: FeatureBlock) -> tuple[int, int]:
        """The lowest and (exclusive) highest byte of `box`."""
        ends = [
            (address, tuple((n - 1) * s for n, s in zip(shape, strides, strict=True)))
            for address, shape, strides in self.byte_runs(box)
        ]
        low = min(address + sum(min(step, 0) for step in steps) for address, steps in ends)
        return low, max(address + sum(max(step, 0) for step in steps) for address, steps in ends) + 1

    def byte_runs(self, box: FeatureBlock) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """The bytes of `box` as strided blocks: address, shape and strides."""
        size = np.dtype(self.dtype).itemsize
        for _, address, shape, strides in self._pieces(box):
            yield address, (*shape, size), (*strides, 1)

    def _pieces(self, box: FeatureBlock) -> Iterator[tuple[FeatureBlock, int, tuple[int, ...], tuple[int, ...]]]:
        """`box` cut where one address formula ends: the part, its first address, shape and strides in bytes."""
        for part, base, top, left in self._tiles(box):
            size = np.dtype(self.dtype).itemsize
            origin = base + (part.y0 - top) * self.stride_y
            if not self.bricks:
                address = origin + (part.x0 - left) * self.stride_x + part.c0 * size
                yield part, address, part.shape, (self.stride_y, self.stride_x, size)
                continue
            for c0, c1 in _brick_runs(part.c0, part.c1):
                address = origin + (part.x0 - left) * _BRICK * size + c0 // _BRICK * self.stride_c + c0 % _BRICK * size
                count = max(1, (c1 - c0) // _BRICK)
                height, width, _ = part.shape
                shape = (height, width, count, (c1 - c0) // count)
                strides = (self.stride_y, _BRICK * size, self.stride_c, size)
                yield FeatureBlock(part.y0, part.y1, part.x0, part.x1, c0, c1), address, shape, strides

    def _tiles(self, box: FeatureBlock) -> Iterator[tuple[FeatureBlock, int, int, int]]:
        """The parts of `box` in each tile, with the tile's base, top row and left column."""
        columns = ((box.x0, min(box.x1, self.width0), 0), (max(box.x0, self.width0), box.x1, self.width0))
        for side, (x0, x1, left) in enumerate(columns):
            split = self.height1 if side else self.height0
            for lower, (y0, y1, top) in enumerate(
                ((box.y0, min(box.y1, split), 0), (max(box.y0, split), box.y1, split))
            ):
                part = FeatureBlock(y0, y1, x0, x1, box.c0, box.c1)
                if not part.empty:
                    yield part, self.bases[2 * lower + side], top, left


def _brick_runs(c0: int, c1: int) -> Iterator[tuple[int, int]]:
    """Channels c0..c1 as a partial first brick, a run of whole bricks and a partial last brick."""
    if c0 % _BRICK:
        end = min(c1, (c0 // _BRICK + 1) * _BRICK)
        yield c0, end
        c0 = end
    bulk = c0 + (c1 - c0) // _BRICK * _BRICK
    if bulk > c0:
        yield c0, bulk
    if c1 > max(bulk, c0):
        yield max(bulk, c0), c1


def input_map(registers: Registers, name: str) -> FeatureMap:
    """The feature map `IFM` or `IFM2`."""
    precision = registers[f"{name}_PRECISION"]
    return _feature_map(registers, name, element_type(bool(precision & 1), precision >> 2 & 3))


def output_map(registers: Registers) -> FeatureMap:
    return _feature_map(registers, "OFM", output_type(registers))


def output_type(registers: Registers) -> str:
    """numpy's type of an element of the OFM."""
    precision = registers["OFM_PRECISION"]
    return element_type(bool(precision & 1), precision >> 1 & 3)


def zero_point(registers: Registers, name: str) -> int:
    value = registers[f"{name}_ZERO_POINT"]
    return signed(value, 16) if registers[f"{name}_PRECISION"] & 1 else value


def element_type(is_signed: bool, log_bytes: int) -> str:
    """numpy's type of elements of 2**log_bytes bytes."""
    return f"<{'i' if is_signed else 'u'}{1 << log_bytes}"


def _feature_map(registers: Registers, name: str, dtype: str) -> FeatureMap:
    return FeatureMap(
        region=registers[f"{name}_REGION"] & 7,
        bases=tuple(registers.address(f"{name}_BASE{i}") for i in range(4)),  # type: ignore[arg-type]
        width0=registers[f"{name}_WIDTH0_M1"] + 1,
        height0=registers[f"{name}_HEIGHT0_M1"] + 1,
        height1=registers[f"{name}_HEIGHT1_M1"] + 1,
        stride_y=registers.stride(f"{name}_STRIDE_Y"),
        stride_x=registers.stride(f"{name}_STRIDE_X"),
        stride_c=registers.stride(f"{name}_STRIDE_C"),
        bricks=registers.bits(f"{name}_PRECISION", 6, 2) == 1,
        dtype=dtype,
        zero_point=zero_point(registers, name),
    )
