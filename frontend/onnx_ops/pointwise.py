"""Functions of single elements."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.frontend.onnx_ops.registry import onnx_op
from tosaic.frontend.onnx_ops.types import torch_dtype
from tosaic.support.errors import ModelError

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "BitwiseNot": torch.bitwise_not,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "HardSwish": F.hardswish,
    "Identity": lambda x: x,
    "IsNaN": torch.isnan,
    "Log": torch.log,
    "Mish": F.mish,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
}
_BINARY: dict[str, Callable[[Any, Any], Tensor]] = {
    "Add": operator.add,
    "And": torch.logical_and,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
    "Equal": operator.eq,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Mul": operator.mul,
    "Or": torch.logical_or,
    "Pow": lambda x, y: (x**y).to(x.dtype) if isinstance(x, Tensor) else x**y,
    "Sub": operator.sub,
    "Xor": torch.logical_xor,
}
_OF_TENSORS = {"And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Or", "Xor"}

for _name, _of_one in _UNARY.items():
    onnx_op(_name)(lambda x, function=_of_one: function(x))
for _name, _of_two in _BINARY.items():
    onnx_op(_name, with_numbers=_name not in _OF_TENSORS)(lambda x, y, function=_of_two: function(x, y))


@onnx_op("Div", with_numbers=True)
def _div(x: Any, y: Any) -> Tensor:
    """Integers are divided toward 0."""
    if next(one for one in (x, y) if isinstance(one, Tensor)).is_floating_point():
        return x / y
    return torch.div(torch.as_tensor(x), y, rounding_mode="trunc")


@onnx_op("Mod")
def _mod(x: Tensor, y: Tensor, *, fmod: int = 0) -> Tensor:
    return torch.fmod(x, y) if fmod else torch.remainder(x, y)


@onnx_op("BitShift")
def _bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    return torch.bitwise_left_shift(x, y) if direction == "LEFT" else torch.bitwise_right_shift(x, y)


@onnx_op("Max")
def _max(*tensors: Tensor) -> Tensor:
    return reduce(torch.maximum, tensors)


@onnx_op("Min")
def _min(*tensors: Tensor) -> Tensor:
    return reduce(torch.minimum, tensors)


@onnx_op("Sum")
def _sum(*tensors: Tensor) -> Tensor:
    return reduce(torch.add, tensors)


@onnx_op("Mean")
def _mean(*tensors: Tensor) -> Tensor:
    return reduce(torch.add, tensors) / len(tensors)


@onnx_op("Where", with_numbers=True)
def _where(condition: Any, x: Any, y: Any) -> Tensor:
    return torch.where(torch.as_tensor(condition), x, y)


@onnx_op("Cast")
def _cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return x.to(torch_dtype(to))


@onnx_op("Clip", numbers="min max")
def _clip(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    return x if min is None and max is None else torch.clamp(x, min, max)


@onnx_op("IsInf")
def _isinf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    if detect_negative and detect_positive:
        return torch.isinf(x)
    largest = torch.finfo(x.dtype).max
    if detect_positive:
        return x > largest
    return x < -largest if detect_negative else torch.zeros_like(x, dtype=torch.bool)


@onnx_op("LeakyRelu")
def _leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


@onnx_op("PRelu")
def _prelu(x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, x * slope, x)


@onnx_op("Elu")
def _elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


@onnx_op("Celu")
def _celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


@onnx_op("Selu")
def _selu(x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Tensor:
    return gamma * F.elu(x, alpha)


@onnx_op("HardSigmoid")
def _hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return torch.clamp(alpha * x + beta, 0.0, 1.0)


@onnx_op("ThresholdedRelu")
def _thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return torch.where(x > alpha, x, 0.0)


@onnx_op("Shrink")
def _shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, 0.0))


@onnx_op("Gelu")
def _gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


@onnx_op("Swish")
def _swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.silu(x) if alpha == 1.0 else x * torch.sigmoid(alpha * x)


@onnx_op("Dropout", numbers="ratio training_mode")
def _dropout(
    x: Tensor, ratio: float | None = None, training_mode: bool | None = None, *, seed: int | None = None
) -> tuple[Tensor, Tensor]:
    if training_mode and ratio != 0.0:
        raise ModelError("it drops elements at random, as in training", hint="export the model in evaluation mode")
    return x, torch.ones_like(x, dtype=torch.bool)
