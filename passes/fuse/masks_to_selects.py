"""A sum with a mask of two numbers, one of which drowns all others, is a choice by the mask's condition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tosaic.passes.integers import RANGES, Rescale, domain, rescale_of
from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.mlir import constant, constant_shape, constant_value, element_type, ir, numpy_dtype, shape_of
from tosaic.support.tosa_builder import emit, rebuild, reshape
from tosaic.support.values import producer, users


@register
@dataclass(frozen=True)
class MasksToSelects(ModulePass):
    """`f(x) + select(c, 0, low)` -> `select(c, g(x), least)`, where the rescaled sum with `low` is one number for every
    x: so scores that have the format of what a softmax reads are chosen, and nothing is computed from them.

    They are chosen before a reshape, right behind the op that computes them. That is done where all rows have one
    condition, or those of each matrix have conditions in turn.
    """

    name: ClassVar[str] = "masks-to-selects"
    phase: ClassVar[str] = "cpu"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [chosen_by_mask, raise_select])


@pattern("tosa.rescale")
def chosen_by_mask(op: ir.Operation) -> Replacement:
    total, outer = producer(op.operands[0], "tosa.add"), rescale_of(op)
    if total is None or outer is None or len(users(op.operands[0])) > 1:
        return None
    for scores, mask in (total.operands, reversed(list(total.operands))):
        first, chosen = producer(scores, "tosa.rescale"), _chosen(mask)
        inner = rescale_of(first) if first is not None else None
        if first is None or inner is None or chosen is None or inner.source == "i32":
            continue
        condition, *numbers = chosen
        reached = [inner(domain(inner.source)) + number for number in numbers]
        fits = all(RANGES["i32"][0] <= each.min() and each.max() <= RANGES["i32"][1] for each in reached)
        sums = [outer(each) for each in reached]
        if not fits or shape_of(scores) != shape_of(op.results[0]) or sum(map(_is_one, sums)) != 1:
            continue
        branches = [_branch(op, first, each, number) for each, number in zip(sums, numbers, strict=True)]
        condition = reshape(condition, shape_of(mask))
        return emit("select", [condition, *branches], shape_of(scores), element_type(op.results[0]))
    return None


@pattern("tosa.select")
def raise_select(op: ir.Operation) -> Replacement:
    """`select(c, reshape(x), k)` -> `reshape(select(c, x, k))` where rows stay rows, and x has those of c in
    turn."""
    condition, x, least = op.operands
    first, known = producer(x, "tosa.reshape"), constant_value(least)
    if first is None or known is None or known.size > 1 or producer(first.operands[0], "tosa.rescale") is None:
        return None
    source, (*_, given, row) = first.operands[0], (1, *shape_of(op.results[0]))
    if len(users(x)) > 1 or len(users(source)) > 1 or shape_of(condition)[-1] != row or shape_of(source)[-1] != row:
        return None
    (*_, rows, _), different = (1, *shape_of(source)), math.prod(shape_of(condition)) // row
    if different > 1 and (different != given or different != shape_of(condition)[-2] or rows % different):
        return None
    ones = (1,) * (len(shape_of(source)) - 1)
    condition = reshape(condition, (*ones[1:], different, row) if different > 1 else (*ones, row))
    if 1 < different < rows:
        repeats = constant_shape((*ones[1:], rows // different, 1))
        condition = emit("tile", [condition, repeats], (*ones[1:], rows, row), "i1")
    operands = [condition, source, reshape(least, (*ones, 1))]
    chosen = emit("select", operands, shape_of(source), element_type(source))
    return reshape(chosen, shape_of(x))


def _is_one(values: np.ndarray) -> bool:
    return values.min() == values.max()


def _chosen(mask: ir.Value) -> tuple[ir.Value, int, int] | None:
    """The condition of a mask, and its number where that holds, and where it does not."""
    scales, value = list[Rescale](), mask
    while (above := producer(value, "tosa.rescale", "tosa.reshape")) is not None:
        if above.name == "tosa.rescale":
            scale = rescale_of(above)
            if scale is None:
                return None
            scales.append(scale)
        value = above.operands[0]
    select = producer(value, "tosa.select")
    if select is None or shape_of(select.operands[0]) != shape_of(value):
        return None
    numbers = [constant_value(operand) for operand in list(select.operands)[1:]]
    found = [one.reshape(-1)[:1] for one in numbers if one is not None and _is_one(one)]
    for scale in reversed(scales):
        found = [scale(one) for one in found]
    if len(found) < len(numbers):
        return None
    return select.operands[0], int(found[0].item()), int(found[1].item())


def _branch(op: ir.Operation, first: ir.Operation, sums: np.ndarray, number: int) -> ir.Value:
    """What a sum of each score and a number becomes: a constant, the scores themselves, or what is computed of them.

    Args:
        op: the RESCALE of the sum.
        first: that of the scores.
        sums: the results, of each score that there may be in order.
    """
    scores, result = first.operands[0], op.results[0]
    one = (1,) * len(shape_of(result))
    if _is_one(sums):
        return constant(np.full(one, sums[0], numpy_dtype(element_type(result))))
    if element_type(scores) == element_type(result) and (sums == domain(str(element_type(scores)))).all():
        return scores
    total = emit("add", [first.results[0], constant(np.full(one, number, np.int32))], shape_of(result), "i32")
    return rebuild(op, [total, *list(op.operands)[1:]], result.type)
