"""Fold an explicit PAD into the convolution or pool that reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tosaic.passes.integers import RANGES
from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.attributes import ints_of
from tosaic.support.mlir import constant_value, element_type, ir
from tosaic.support.tosa_builder import rebuild
from tosaic.support.values import producer

_ZERO_POINT = {"tosa.conv2d": 3, "tosa.depthwise_conv2d": 3}
_LIMIT = 8192  # the largest pad, stride or kernel of level 8k (TOSA 1.0, 1.5)


@register
@dataclass(frozen=True)
class FusePad(ModulePass):
    """Fold a pad with the zero point into a convolution, and a pad with the least value into a max pool."""

    name: ClassVar[str] = "fuse-pad"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [pad_into_window])


@pattern("tosa.conv2d", "tosa.depthwise_conv2d", "tosa.max_pool2d")
def pad_into_window(op: ir.Operation) -> Replacement:
    """`conv(pad(x, zp))` -> `conv{pad}(x)`: the convolution's own padding is its zero point, the max pool's the least
    value of the type. A pool's padding must stay smaller than its kernel.
    """
    pad = producer(op.operands[0], "tosa.pad")
    if pad is None:
        return None
    amounts, value = constant_value(pad.operands[1]), constant_value(pad.operands[2])
    if amounts is None or value is None or int(value.reshape(-1)[0]) != _neutral(op):
        return None
    pairs = np.reshape(amounts, (-1, 2))
    if pairs[[0, 3]].any():
        return None
    total = np.array(ints_of(op, "pad")) + pairs[1:3].reshape(-1)
    if total.max() > _LIMIT or (op.name == "tosa.max_pool2d" and not _fits_kernel(op, total)):
        return None
    return rebuild(op, [pad.operands[0], *list(op.operands)[1:]], op.results[0].type, pad=total.tolist())


def _neutral(op: ir.Operation) -> int | None:
    """The value that padding by the op itself stands for; None where it is not known."""
    kind = str(element_type(op.operands[0]))
    if kind not in RANGES:
        return None
    if op.name == "tosa.max_pool2d":
        return RANGES[kind][0]
    zero_point = constant_value(op.operands[_ZERO_POINT[op.name]])
    return None if zero_point is None else int(zero_point.reshape(-1)[0])


def _fits_kernel(op: ir.Operation, pad: np.ndarray) -> bool:
    height, width = ints_of(op, "kernel")
    return bool((pad < [height, height, width, width]).all())
