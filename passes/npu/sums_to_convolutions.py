"""Sums of two images become convolutions of both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from tosaic.passes.integers import Rescale, rescale_of
from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import Form, convolved, copied, to_cheapest
from tosaic.support.functions import inputs_of
from tosaic.support.mlir import ir, shape_of
from tosaic.support.tosa_builder import emit, rebuild, rescale
from tosaic.support.values import producer, users

_MOST_WEIGHT, _LEAST_SHIFT = 127, 2


@register
@dataclass(frozen=True)
class SumsToConvolutions(ModulePass):
    """Write a RESCALE of an ADD of two int8 images as a 1x1 CONV2D on both; without a `target` with an NPU, leave them.

    A convolution makes at least one of the images, and the NPU takes fewer cycles so. It writes to its place beside the
    other image. What others read too is copied there by a 1x1 DEPTHWISE_CONV2D, which takes half the cycles of a copy.
    """

    name: ClassVar[str] = "sums-to-convolutions"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, _forms, "tosa.rescale")


@dataclass(frozen=True)
class _SumOperand:
    """An operand of a sum, `weight * (image - zero)`.

    Args:
        made: the ops that make the image, where nothing else reads it: a convolution and its RESCALE.
    """

    image: ir.Value
    zero: int
    weight: int
    made: tuple[ir.Operation, ...]

    def again(self, read: dict[ir.Value, ir.Value]) -> ir.Value:
        """The image, computed from what `read` gives for what its ops read, or copied."""
        if not self.made:
            return _copy(read[self.image])
        convolution, scale = self.made
        source, *constants = convolution.operands
        sums = rebuild(convolution, [read[source], *copied(constants)], convolution.results[0].type)
        return rebuild(scale, [sums, *copied(list(scale.operands)[1:])], self.image.type)


def _forms(op: ir.Operation) -> tuple[Sequence[ir.Operation], list[Form]]:
    scale, add = rescale_of(op), producer(op.operands[0], "tosa.add")
    if scale is None or add is None or scale.target != "i8" or len(users(add.results[0])) > 1:
        return [op], []
    widened = [producer(operand, "tosa.rescale") for operand in add.operands]
    parts = [found for each in widened if each is not None and (found := _part(each, add)) is not None]
    if len(parts) < 2 or not any(part.made for part in parts) or parts[0].image == parts[1].image:
        return [op], []
    common = math.gcd(*(part.weight for part in parts))
    bits = (common & -common).bit_length() - 1
    weights = [part.weight >> bits for part in parts]
    if max(weights) > _MOST_WEIGHT or scale.shift - bits < _LEAST_SHIFT:
        return [op], []
    made = [one for part in parts for one in part.made]
    ops = [*made, *(each for each in widened if each is not None), add, op]
    return ops, [partial(_convolved, op, scale, parts, weights, bits, inputs_of(ops))]


def _part(widened: ir.Operation, add: ir.Operation) -> _SumOperand | None:
    scale, image = rescale_of(widened), widened.operands[0]
    shape = shape_of(image)
    if scale is None or scale.source != "i8" or scale.output_zp or scale.multiplier % (1 << scale.shift):
        return None
    if len(shape) != 4 or shape[0] != 1 or shape != shape_of(add.results[0]) or len(users(widened.results[0])) > 1:
        return None
    return _SumOperand(image, scale.input_zp, scale.multiplier >> scale.shift, tuple(_made(image)))


def _made(image: ir.Value) -> Iterator[ir.Operation]:
    op = producer(image, "tosa.rescale")
    convolution = op and producer(op.operands[0], "tosa.conv2d", "tosa.depthwise_conv2d")
    if op and convolution and len(users(image)) == len(users(convolution.results[0])) == 1:
        yield from (convolution, op)


def _convolved(
    op: ir.Operation,
    scale: Rescale,
    parts: Sequence[_SumOperand],
    weights: Sequence[int],
    bits: int,
    read: Sequence[ir.Value],
    *given: ir.Value,
) -> ir.Value:
    values = dict(zip(read, given, strict=True))
    *image, channels = shape_of(op.results[0])
    both = emit("concat", [part.again(values) for part in parts], (*image, 2 * channels), "i8", axis=3)
    kernel = np.concatenate([np.eye(channels) * weight for weight in weights], axis=1).astype(np.int8)
    offset = -sum(part.zero * weight for part, weight in zip(parts, weights, strict=True))
    sums = convolved(both, kernel[:, None, None], (*image, channels), bias=offset)
    return rescale(sums, "i8", [scale.multiplier], [scale.shift - bits], output_zp=scale.output_zp)


def _copy(image: ir.Value) -> ir.Value:
    ones = np.ones((1, 1, shape_of(image)[-1], 1), np.int8)
    return rescale(convolved(image, ones, shape_of(image), name="depthwise_conv2d"), "i8", [1 << 30], [30])
