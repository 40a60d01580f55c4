"""Resize: each axis is a product with a matrix of weights, or a choice of indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.frontend.onnx_ops.registry import onnx_op
from tosaic.support.errors import ModelError

_ROUNDED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
_IMAGE = 4  # axes


@onnx_op("Resize", lists="roi scales sizes")
def _resize(
    x: Tensor,
    roi: Sequence[float] | None = None,
    scales: Sequence[float] | None = None,
    sizes: Sequence[int] | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    places = [axis % x.ndim for axis in axes or range(x.ndim)]
    given = [x.shape[axis] for axis in places]
    if scales:
        wanted, factors = [int(size * scale) for size, scale in zip(given, scales, strict=True)], list(scales)
    elif sizes:
        wanted, factors = list(sizes), [new / old for new, old in zip(sizes, given, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            factor = min(factors) if keep_aspect_ratio_policy == "not_larger" else max(factors)
            wanted, factors = [int(factor * size + 0.5) for size in given], [factor] * len(given)
    else:
        raise ModelError("it has neither scales nor sizes")
    if not antialias and (image := _by_torch(x, places, wanted, factors, mode, coordinate_transformation_mode)):
        return image[0]
    outside = np.zeros((1,) * x.ndim, bool)
    for number, (axis, new, factor) in enumerate(zip(places, wanted, factors, strict=True)):
        region = (roi[number], roi[number + len(places)]) if roi else (0.0, 1.0)
        source = _coordinates(coordinate_transformation_mode, given[number], new, factor, region)
        if coordinate_transformation_mode == "tf_crop_and_resize":
            beyond = (source < 0) | (source > given[number] - 1)
            outside = outside | beyond.reshape(-1, *(1,) * (x.ndim - 1 - axis))
        if mode == "nearest":
            index = np.clip(_ROUNDED[nearest_mode](source), 0, given[number] - 1).astype(np.int64)
            if not np.array_equal(index, np.arange(given[number])):
                x = x.index_select(axis, torch.from_numpy(index))
            continue
        width = min(factor, 1.0) if antialias else 1.0
        kernel = _triangle if mode == "linear" else _cubic(cubic_coeff_a)
        weights = _weights(source, given[number], kernel, width, bool(exclude_outside))
        if not np.array_equal(weights, np.eye(given[number])):
            matrix = torch.from_numpy(weights.T.astype(np.float32))
            x = torch.matmul(x.movedim(axis, -1), matrix).movedim(-1, axis)
    return torch.where(torch.from_numpy(outside), extrapolation_value, x) if outside.any() else x


def _by_torch(
    x: Tensor, axes: Sequence[int], sizes: Sequence[int], factors: Sequence[float], mode: str, coordinates: str
) -> tuple[Tensor] | None:
    """The image by the op of PyTorch that does the same, which becomes one RESIZE; None where there is none."""
    new = {axis: size for axis, size in zip(axes, sizes, strict=True) if size != x.shape[axis]}
    exact = all(size == x.shape[axis] * scale for axis, size, scale in zip(axes, sizes, factors, strict=True))
    if x.ndim != _IMAGE or not new or min(new) < 2 or not exact or mode != "linear":
        return None
    size = (new.get(2, x.shape[2]), new.get(3, x.shape[3]))
    if coordinates == "half_pixel" or (coordinates == "pytorch_half_pixel" and min(size) > 1):
        return (F.interpolate(x, size, mode="bilinear"),)
    return (F.interpolate(x, size, mode="bilinear", align_corners=True),) if coordinates == "align_corners" else None


def _coordinates(mode: str, given: int, new: int, factor: float, region: tuple[float, float]) -> np.ndarray:
    """Where each of the `new` elements of an axis lies among the given ones."""
    number, exact = np.arange(new, dtype=np.float64), factor * given
    if mode == "asymmetric":
        return number / factor
    if mode == "align_corners":
        return number * (given - 1) / (exact - 1) if exact != 1 else np.zeros(new)
    if mode == "tf_crop_and_resize":
        start, end = region
        if exact == 1:
            return np.full(new, (start + end) * (given - 1) / 2)
        return start * (given - 1) + number * (end - start) * (given - 1) / (exact - 1)
    if mode == "pytorch_half_pixel" and exact == 1:
        return np.full(new, -0.5)
    offset = given / 2 * (1 - new / exact) if mode == "half_pixel_symmetric" else 0.0
    return offset + (number + 0.5) / factor - 0.5


def _weights(
    source: np.ndarray, given: int, kernel: Callable[[np.ndarray], np.ndarray], width: float, inside: bool
) -> np.ndarray:
    """[new, given]: how much each element of an axis is of each new one; what lies outside is the nearest inside."""
    reach = int(np.ceil(2 / width))
    taps = np.floor(source)[:, None].astype(np.int64) + np.arange(-reach, reach + 2)
    weights = kernel((taps - source[:, None]) * width)
    if inside:
        weights = np.where((taps >= 0) & (taps < given), weights, 0.0)
    weights /= weights.sum(1, keepdims=True)
    matrix = np.zeros((len(source), given))
    np.add.at(matrix, (np.arange(len(source))[:, None], np.clip(taps, 0, given - 1)), weights)
    return matrix


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.clip(1 - np.abs(x), 0, None)


def _cubic(a: float) -> Callable[[np.ndarray], np.ndarray]:
    """Cubic convolution (Keys 1981)."""

    def kernel(x: np.ndarray) -> np.ndarray:
        x = np.abs(x)
        near = (a + 2) * x**3 - (a + 3) * x**2 + 1
        return np.where(x <= 1, near, np.where(x < 2, a * (x**3 - 5 * x**2 + 8 * x - 4), 0.0))

    return kernel


@onnx_op("Upsample", lists="scales")
def _upsample(x: Tensor, scales: Sequence[float], *, mode: str = "nearest") -> Tensor:
    return _resize(x, scales=scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
