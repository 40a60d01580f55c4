"""Affine quantization: integers that stand for real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tosaic.support.mlir import dialect, ir

TO_SIGNED = 128  # uint8 is compiled as int8: every stored integer and zero point less this
LEAST_SCALE = 2.0**-126  # the least normal float32, whose inverse is finite
_quant = dialect("quant")
_RANGES = {"i4": (-8, 7), "ui8": (0, 255), "i8": (-128, 127), "i16": (-32768, 32767), "i32": (-(2**31), 2**31 - 1)}


class CoarserWeights(NamedTuple):
    """What coarser steps of weights gave.

    Args:
        layers, of_layers: how many have them, and of how many.
        encoded_bytes, finest_bytes: of all these layers' weights, and with the finest steps.
        sqnr_db, finest_db: of the worst output, on samples that no parameter was fitted to where there are two of them;
            and with the finest steps. None where no noise is left.
    """

    layers: int
    of_layers: int
    encoded_bytes: int
    finest_bytes: int
    sqnr_db: float | None
    finest_db: float | None


@dataclass(frozen=True)
class Quantization:
    """real = scale * (stored - zero_point), per tensor or per channel.

    Args:
        storage: element type of the stored integers, `i4`, `i8`, `i16` or `i32`; `ui8` where these are bytes, which
            tensors of i8 hold.
        scales: one, or one per channel, float64.
        zero_points: as many.
        axis: the channel dimension; None per tensor.
        low, high: the range of stored integers.
    """

    storage: str
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None
    low: int
    high: int

    @staticmethod
    def per_tensor(storage: str, scale: float, zero_point: int) -> Quantization:
        """Over the whole range of a storage type."""
        return Quantization(storage, (scale,), (zero_point,), None, *_RANGES[storage])

    @property
    def scale(self) -> float:
        """The scale of a per-tensor quantization."""
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """The zero point of a per-tensor quantization."""
        return self.zero_points[0]

    @property
    def full_range(self) -> bool:
        """Whether every value of the storage type may occur."""
        return (self.low, self.high) == _RANGES[self.storage]

    def quantize(self, real: np.ndarray) -> np.ndarray:
        """The stored integers (int64) of per-tensor `real` values: round half to even, saturate."""
        stored = np.rint(np.asarray(real, np.float64) / self.scale) + self.zero_point
        return np.asarray(np.clip(stored, self.low, self.high)).astype(np.int64)

    def quantize_as_torch(self, real: np.ndarray) -> np.ndarray:
        """The same as `torch.quantize_per_tensor` computes it: a product with the reciprocal in float32."""
        stored = np.rint(real.astype(np.float32) * np.float32(1.0 / self.scale)) + self.zero_point
        return np.asarray(np.clip(stored, self.low, self.high)).astype(np.int64)

    def dequantize(self, stored: np.ndarray) -> np.ndarray:
        """The real values (float64) of stored integers."""
        stored = stored.astype(np.uint8) if self.storage == "ui8" else stored
        if self.axis is None:
            return (stored.astype(np.float64) - self.zero_point) * self.scale
        shape = [1] * stored.ndim
        shape[self.axis] = -1
        zero_points = np.reshape(np.array(self.zero_points, np.float64), shape)
        return (stored.astype(np.float64) - zero_points) * np.reshape(self.scales, shape)

    def scaled(self, factor: float) -> Quantization:
        """The quantization whose real values are `factor` times these."""
        scales = tuple(scale * factor for scale in self.scales)
        return replace(self, scales=scales)

    def type(self) -> ir.Type:
        """The `!quant.uniform` type."""
        storage, real = ir.Type.parse(self.storage), ir.F32Type.get()
        if self.axis is None:
            return _quant.UniformQuantizedType.get(1, storage, real, self.scale, self.zero_point, self.low, self.high)
        return _quant.UniformQuantizedPerAxisType.get(
            1, storage, real, list(self.scales), list(self.zero_points), self.axis, self.low, self.high
        )


def annotate(main: ir.Operation, kind: str, quantizations: Sequence[Quantization | None]) -> None:
    """Say of each argument (`arg_attrs`) or result (`res_attrs`) of `main` how its integers are quantized."""
    present = list(ir.ArrayAttr(main.attributes[kind])) if kind in main.attributes else []
    merged = []
    for index, quantization in enumerate(quantizations):
        attributes = {}
        if present:
            attributes = {named.name: named.attr for named in ir.DictAttr(present[index])}
        if quantization is not None:
            i64 = ir.IntegerType.get_signless(64)
            attributes["tosaic.scale"] = ir.FloatAttr.get(ir.F64Type.get(), quantization.scale)
            attributes["tosaic.zero_point"] = ir.IntegerAttr.get(i64, quantization.zero_point)
            if quantization.storage == "ui8":
                attributes["tosaic.unsigned"] = ir.UnitAttr.get()
        merged.append(ir.DictAttr.get(attributes))
    main.attributes[kind] = ir.ArrayAttr.get(merged)


def signed(stored: np.ndarray) -> np.ndarray:
    """Stored integers of uint8 as int8, all others as they are; the zero points move with them."""
    return (stored.astype(np.int16) - TO_SIGNED).astype(np.int8) if stored.dtype == np.uint8 else stored
