"""A transpose in front of a flattened fully connected layer goes into its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.permutation import inverse, transpose_behind
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.mlir import constant, constant_value, element_type, ir, shape_of
from tosaic.support.tosa_builder import rebuild, reshape
from tosaic.support.values import producer


@register
@dataclass(frozen=True)
class TransposeIntoWeights(ModulePass):
    """Permute the weights of a fully connected layer instead of its flattened input."""

    name: ClassVar[str] = "transpose-into-weights"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [into_convolution])


@pattern("tosa.conv2d")
def into_convolution(op: ir.Operation) -> Replacement:
    """`conv1x1(reshape(transpose(x)), w)` -> `conv1x1(reshape(x), permuted w)` where one item is flattened whole."""
    flat, weight = op.operands[0], op.operands[1]
    flattening = producer(flat, "tosa.reshape")
    found = None if flattening is None else transpose_behind(flattening.operands[0])
    outputs, height, width, inputs = shape_of(weight)
    if flattening is None or found is None or found[1][0] != 0 or (height, width) != (1, 1):
        return None
    x, perm = found
    batch, *item = shape_of(flattening.operands[0])
    values = constant_value(weight) if str(element_type(weight)) == "i8" else None
    if values is None or shape_of(flat) != (batch, 1, 1, inputs) or int(np.prod(item)) != inputs:
        return None
    moved = np.transpose(values.reshape(outputs, *item), inverse(perm)).reshape(outputs, 1, 1, inputs)
    operands = [reshape(x, shape_of(flat)), constant(moved), *list(op.operands)[2:]]
    return rebuild(op, operands, op.results[0].type)
