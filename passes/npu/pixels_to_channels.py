"""Pixels of one channel become the channels of one pixel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import Form, reading, to_cheapest
from tosaic.support.attributes import bool_of
from tosaic.support.functions import inputs_of
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.support.tosa_builder import rebuild, reshape, tensor
from tosaic.support.tosa_ops import CONSTANT, POINTWISE, REDUCING, data_operands
from tosaic.support.values import producer, users


@register
@dataclass(frozen=True)
class PixelsToChannels(ModulePass):
    """Let what follows from a reduction of rows have channels for pixels where that costs the NPU of `target` fewer
    cycles; without one, leave it.

    Ethos-U computes blocks of channels, so that a pixel of one channel takes as long as one of several.
    """

    name: ClassVar[str] = "pixels-to-channels"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, _forms, *sorted(POINTWISE))


def _forms(op: ir.Operation) -> tuple[Sequence[ir.Operation], Sequence[Form]]:
    shape = shape_of(op.results[0])
    if not _is_of_pixels(op, shape) or all(_is_of_pixels(user, shape) for user in users(op.results[0])):
        return [op], []
    ops = list(dict.fromkeys(_chain(op, shape)))
    inputs = inputs_of(ops)
    if not all(math.prod(shape_of(value)) == 1 or producer(value, *REDUCING) for value in inputs):
        return [op], []
    return ops, [partial(_as_channels, ops, inputs)]


def _is_of_pixels(op: ir.Operation, shape: tuple[int, ...]) -> bool:
    """Whether it computes pixels of one channel, of this shape, from such and from single elements."""
    count = math.prod(shape)
    if op.name not in POINTWISE or shape_of(op.results[0]) != shape or shape[-1:] != (1,) or count == 1:
        return False
    if op.name == "tosa.rescale" and bool_of(op, "per_channel"):
        return False
    sizes = [math.prod(shape_of(value)) for value in data_operands(op)]
    known = [producer(value, *CONSTANT) is not None for value in data_operands(op)]
    return all(size == 1 or (size == count and not constant) for size, constant in zip(sizes, known, strict=True))


def _chain(op: ir.Operation, shape: tuple[int, ...]) -> list[ir.Operation]:
    """What computes it pixel by pixel, in order; an op may be there again."""
    makers = [maker for value in data_operands(op) if (maker := producer(value)) and _is_of_pixels(maker, shape)]
    return [*(before for maker in makers for before in _chain(maker, shape)), op]


def _as_channels(ops: Sequence[ir.Operation], inputs: Sequence[ir.Value], *read: ir.Value) -> ir.Value:
    known = {value: _in_channels(taken) for value, taken in zip(inputs, read, strict=True)}
    for op in ops:
        count = math.prod(shape_of(op.results[0]))
        shape = (*(1 for _ in shape_of(op.results[0])[1:]), count)
        known[op.results[0]] = rebuild(op, reading(op, known), tensor(shape, element_type(op.results[0])))
    result = ops[-1].results[0]
    return reshape(known[result], shape_of(result))


def _in_channels(x: ir.Value) -> ir.Value:
    shape = shape_of(x)
    return reshape(x, (*(1 for _ in shape[1:]), math.prod(shape)))
