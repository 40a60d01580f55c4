"""Ops in the form that is cheapest on the NPU, each alone, by the target's own costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tosaic.passes.npu.costs import COSTS, Cost
from tosaic.passes.rewrite import Pattern, Replacement, pattern, rewrite
from tosaic.support.attributes import ints_of
from tosaic.support.errors import unknown_name
from tosaic.support.functions import body_of, computing_ops, inputs_of, main_of
from tosaic.support.mlir import constant, constant_value, element_type, functions, ir, numpy_dtype, shape_of
from tosaic.support.tosa_builder import element, emit, rebuild, rescale, reshape, tensor, zero_point

Form: TypeAlias = Callable[..., ir.Value]
"""Computes the last result of some ops from the tensors that they read, in the order of first use."""
Forms: TypeAlias = Callable[[ir.Operation], "tuple[Sequence[ir.Operation], Sequence[Form]]"]
"""The ops up to this one that other forms can replace, and these forms."""

COMPARED = ("i8", "i16", "i32")
"""Types of which `or_least` takes the greater value."""
_SUMS = {"i8": "i32", "i16": "i48"}
_GENERATIONS = 3
"""How often a form may be written in another one: beside others, each may cost less than the other."""
_CHOSEN: dict[tuple[Cost, Forms, tuple[str, ...]], int] = {}
"""Which form costs least, 0 for the ops as they stand, whatever their constants hold."""


def to_cheapest(
    module: ir.Module,
    target: str,
    forms: Forms,
    *names: str,
    cheap: float = 0,
    gain: float = 0,
    most: Callable[[ir.Operation], float] = lambda _: math.inf,
) -> None:
    """Write each op of these names in the form that costs the NPU of `target` the fewest cycles, in place.

    Args:
        cheap: cycles for an element of the result at which an op is left as it stands, and no form tried.
        gain: the share of its cycles that a form must save.
        most: the cycles that a form of an op may take.

    Raises:
        Error: no such target.
    """
    if target not in COSTS:
        raise unknown_name("target", target, sorted(COSTS))
    rewrite(module, [_cheapest(COSTS[target], forms, names, cheap, gain, most)], _GENERATIONS)


def _cheapest(
    cost: Cost, forms: Forms, names: Sequence[str], cheap: float, gain: float, most: Callable[[ir.Operation], float]
) -> Pattern:
    @pattern(*names)
    def cheapest(op: ir.Operation) -> Replacement:
        ops, others = forms(op)
        read = inputs_of(ops)
        if not others or not read:
            return None
        alone = main_of(ops, read, list(op.results))
        key = cost, forms, tuple(map(_described, ops))
        if key not in _CHOSEN:
            usual = cost(alone)
            costs = [usual and (1 - gain) * usual]
            if usual is None or usual > cheap * math.prod(shape_of(op.results[0])):
                found, limit = [cost(_alone(form, ops, read)) for form in others], most(op)
                costs += [cycles if cycles is not None and cycles <= limit else None for cycles in found]
            _CHOSEN[key] = min(range(len(costs)), key=lambda index: (costs[index] is None, costs[index]))
        return others[_CHOSEN[key] - 1](*read) if _CHOSEN[key] else None

    return cheapest


def _described(op: ir.Operation) -> str:
    """The op without the names of its operands."""
    attributes = sorted(f"{name}={op.attributes[name]}" for name in op.attributes)
    return " ".join([op.name, *(str(value.type) for value in (*op.operands, *op.results)), *attributes])


def copied(constants: Sequence[ir.Value]) -> list[ir.Value]:
    """Constants where a form is built: the op's own may stand in another module."""
    return [value.owner.operation.clone().results[0] for value in constants]


def reading(op: ir.Operation, known: Mapping[ir.Value, ir.Value]) -> list[ir.Value]:
    """What an op reads in a form, which has these values for others; constants are copies."""
    return [known[value] if value in known else copied([value])[0] for value in op.operands]


def repeated(value: ir.Value, times: int) -> ir.Value:
    """A constant for each channel, for so many groups of them; one for all stays one."""
    values = constant_value(value)
    assert values is not None
    return constant(values if values.size == 1 else np.tile(values, times), element_type(value))


def is_pointwise(op: ir.Operation) -> bool:
    """Whether a CONV2D takes one pixel for each result, by constant weights of int8, so that it may be `as_image`."""
    weights = constant_value(op.operands[1])
    if weights is None or str(element_type(op.operands[1])) != "i8" or weights.shape[1:3] != (1, 1):
        return False
    return ints_of(op, "stride") == (1, 1) and not any(ints_of(op, "pad")) and shape_of(op.operands[0])[0] == 1


def as_image(op: ir.Operation, image: tuple[int, int, int], x: ir.Value) -> ir.Value:
    """A 1x1 convolution of the same pixels as another image (batch, height, width)."""
    result = tensor((*image, shape_of(op.results[0])[-1]), element_type(op.results[0]))
    moved = reshape(x, (*image, shape_of(x)[-1]))
    return reshape(rebuild(op, [moved, *copied(list(op.operands)[1:])], result), shape_of(op.results[0]))


def convolved(
    x: ir.Value, weights: np.ndarray, shape: Sequence[int], zero: int = 0, bias: np.ndarray | int = 0,
    name: str = "conv2d",
) -> ir.Value:  # fmt: skip
    """Sums by a CONV2D, or the convolution of another name, of stride 1 without padding, as int32 of `shape`; of int16
    as int48.

    Args:
        weights: int8, (outputs, rows, columns, channels); of a DEPTHWISE_CONV2D (rows, columns, channels, 1).
        zero: the zero point of `x`.
        bias: of each output, or of all.
    """
    sums = element(_SUMS[str(element_type(x))])
    offsets = constant(np.broadcast_to(bias, shape[-1:]).astype(numpy_dtype(sums)), sums)
    zeros = [zero_point(zero, element_type(x)), zero_point(0, "i8")]
    window = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": sums}
    return emit(name, [x, constant(weights), offsets, *zeros], shape, sums, **window)


def or_least(shape: Sequence[int], x: ir.Value) -> ir.Value:
    """The greater of `x` and the least value of its type, repeated to a shape: `x`, broadcast, by a MAXIMUM."""
    dtype = numpy_dtype(element_type(x))
    return of_two("maximum", x, constant(np.full(shape, np.iinfo(dtype).min, dtype)))


def of_two(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """A MAXIMUM, MINIMUM or ADD of two tensors of one type, which it computes in int32; they broadcast."""
    kind, shape = element_type(a), np.broadcast_shapes(shape_of(a), shape_of(b))
    if str(kind) == "i32":
        return emit(name, [a, b], shape, kind)
    wide = [rescale(each, "i32", [1 << 30], [30]) for each in (a, b)]
    return rescale(emit(name, wide, shape, "i32"), kind, [1 << 30], [30])


def rescaled(op: ir.Operation, sums: ir.Value, times: int) -> ir.Value:
    """A RESCALE of other sums, whose channels are those of its own, so many times."""
    _, multiplier, shift, *rest = op.operands
    scales = [repeated(multiplier, times), repeated(shift, times)]
    return rebuild(op, [sums, *scales, *copied(rest)], tensor(shape_of(sums), element_type(op.results[0])))


def _alone(form: Form, ops: Sequence[ir.Operation], read: Sequence[ir.Value]) -> ir.Module:
    """A module whose `main` is a form of `ops`."""
    module = main_of(ops, read, list(ops[-1].results))
    main = functions(module)["main"]
    *_, end = body_of(main).operations
    with ir.InsertionPoint(end), end.location:
        end.operation.operands[0] = form(*body_of(main).arguments)
    for op in reversed(computing_ops(main)[: len(ops)]):
        op.erase()
    return module
