"""Recurrent layers: composites that iterate once for each step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.fx import Node

from tosaic.frontend.builder import Builder, Operand, shape
from tosaic.frontend.constant import Constant
from tosaic.frontend.lowerings.op_quantization import Recurrent
from tosaic.frontend.lowerings.registry import lowers
from tosaic.frontend.recurrent import LAYERS
from tosaic.support.errors import ModelError
from tosaic.support.loops import over_rows
from tosaic.support.mlir import ir

_Step = Callable[[Builder, ir.Value, ir.Value, ir.Value, ir.Value], tuple[ir.Value, ir.Value]]


_RAW = ("state", "cell", "weight_x", "weight_h", "bias_x", "bias_h")


def _before_gates(x: Tensor, state: Tensor, cell: Tensor, weight_x: Tensor, weight_h: Tensor, *_: object) -> Tensor:
    """The largest sums of products that a gate may read, where float32 knows them to better than 1."""
    sums = weight_x.abs().sum(1) * x.abs().max() + weight_h.abs().sum(1) * state.abs().max().clamp(min=1)
    return sums.masked_fill(sums > 2.0**24, math.inf)


@lowers(LAYERS["rnn_relu"], raw=_RAW, quantized=Recurrent())
@lowers(*(LAYERS[kind] for kind in ("gru", "lstm", "rnn_tanh")), raw=_RAW, quantized=Recurrent(_before_gates))
def recurrent(
    b: Builder,
    node: Node,
    x: ir.Value,
    state: Operand,
    cell: Operand,
    weight_x: Operand,
    weight_h: Operand,
    bias_x: Operand,
    bias_h: Operand,
    *_format: Any,
) -> tuple[ir.Value, ...]:
    """x is [N, T, I], the states are [N, H]: h after each step as [N, T, H], and c after the last."""
    kind = next(kind for kind, op in LAYERS.items() if op is node.target)
    (n, _, _), (_, h) = shape(x), shape(state)
    kernels = [_kernel(weight) for weight in (weight_x, weight_h)]
    dims = (n, 1, 1, h)
    states = [one.reshape(dims) if isinstance(one, Constant) else b.reshape(one, dims) for one in (state, cell)]

    def body(*values: ir.Value) -> Sequence[ir.Value]:
        sequence, before, memory, kernel_x, kernel_h, offset_x, offset_h = values

        def step(row: ir.Value, known: Sequence[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
            fresh = _product(b, row, kernel_x, offset_x)
            after, kept = _STEPS[kind](b, fresh, _product(b, known[0], kernel_h, offset_h), *known)
            return after, [after, kept]

        rows, (_, kept) = over_rows(sequence, h, b.f32, [before, memory], step)
        return rows, b.reshape(kept, (n, h))

    return tuple(b.composite(kind, [x, *states, *kernels, bias_x, bias_h], body))


def _kernel(weight: Operand) -> Constant:
    if not isinstance(weight, Constant):
        raise ModelError("a recurrent layer's weights are computed", hint="make them parameters")
    rows, inner = weight.shape
    return weight.reshape((rows, 1, 1, inner), axis=weight.axis)


def _product(b: Builder, image: ir.Value, kernel: ir.Value, offset: ir.Value) -> ir.Value:
    return b.op(
        "conv2d",
        [image, kernel, offset, b.zero_point(image), b.zero_point(kernel)],
        [shape(image)[0], 1, 1, shape(kernel)[0]],
        pad=ir.DenseI64ArrayAttr.get([0, 0, 0, 0]),
        stride=ir.DenseI64ArrayAttr.get([1, 1]),
        dilation=ir.DenseI64ArrayAttr.get([1, 1]),
        acc_type=ir.TypeAttr.get(b.f32),
    )


def _gates(b: Builder, value: ir.Value, count: int) -> list[ir.Value]:
    size = shape(value)[3] // count
    return [b.narrow(value, 3, number * size, size) for number in range(count)]


def _gru(b: Builder, x: ir.Value, h: ir.Value, state: ir.Value, cell: ir.Value) -> tuple[ir.Value, ir.Value]:
    (reset_x, update_x, new_x), (reset_h, update_h, new_h) = _gates(b, x, 3), _gates(b, h, 3)
    reset = b.pointwise("sigmoid", b.pointwise("add", reset_x, reset_h))
    update = b.pointwise("sigmoid", b.pointwise("add", update_x, update_h))
    new = b.pointwise("tanh", b.pointwise("add", new_x, b.pointwise("mul", reset, new_h)))
    return b.pointwise("add", new, b.pointwise("mul", update, b.pointwise("sub", state, new))), cell


def _lstm(b: Builder, x: ir.Value, h: ir.Value, state: ir.Value, cell: ir.Value) -> tuple[ir.Value, ir.Value]:
    take, keep, new, give = _gates(b, b.pointwise("add", x, h), 4)
    kept = b.pointwise("mul", b.pointwise("sigmoid", keep), cell)
    taken = b.pointwise("mul", b.pointwise("sigmoid", take), b.pointwise("tanh", new))
    cell = b.pointwise("add", kept, taken)
    return b.pointwise("mul", b.pointwise("sigmoid", give), b.pointwise("tanh", cell)), cell


def _rnn_tanh(b: Builder, x: ir.Value, h: ir.Value, state: ir.Value, cell: ir.Value) -> tuple[ir.Value, ir.Value]:
    return b.pointwise("tanh", b.pointwise("add", x, h)), cell


def _rnn_relu(b: Builder, x: ir.Value, h: ir.Value, state: ir.Value, cell: ir.Value) -> tuple[ir.Value, ir.Value]:
    return b.clamp(b.pointwise("add", x, h), 0.0, None), cell


_STEPS: dict[str, _Step] = {"gru": _gru, "lstm": _lstm, "rnn_tanh": _rnn_tanh, "rnn_relu": _rnn_relu}
