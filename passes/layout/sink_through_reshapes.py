"""Transposes sink through reshapes too, as those around a channel shuffle, where they meet others and cancel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul
from typing import ClassVar

from tosaic.passes.layout.sink_transposes import PATTERNS
from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.permutation import inverse, transpose_behind
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.mlir import ir, shape_of
from tosaic.support.tosa_builder import reshape, transpose


@register
@dataclass(frozen=True)
class SinkThroughReshapes(ModulePass):
    """Move transposes towards the results, through reshapes that split and merge dimensions."""

    name: ClassVar[str] = "sink-through-reshapes"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [*PATTERNS, through_reshape])


@pattern("tosa.reshape")
def through_reshape(op: ir.Operation) -> Replacement:
    """`reshape(transpose(x))` -> `transpose(reshape(transpose(reshape(x))))`: first only what the reshape merges comes
    together, which often stands together already, then the whole dimensions move."""
    found = transpose_behind(op.operands[0])
    if found is None:
        return None
    x, perm = found
    before, after = shape_of(op.operands[0]), shape_of(op.results[0])
    sizes = _common(before, after)
    if sizes is None:
        return None
    made, read = _parts(sizes, before), _parts(sizes, after)
    source = [part for axis in inverse(perm) for part in made[axis]]
    order = sorted(range(len(after)), key=lambda axis: min(map(source.index, read[axis]), default=-1))
    if [axis for axis in order if read[axis]] == [axis for axis in range(len(after)) if read[axis]]:
        return None
    together = [source.index(part) for axis in order for part in read[axis]]
    parts = reshape(x, [sizes[part] for part in source])
    return transpose(reshape(transpose(parts, together), [after[axis] for axis in order]), inverse(tuple(order)))


def _common(first: Sequence[int], second: Sequence[int]) -> list[int] | None:
    """The fewest dimensions, none of size 1, of which both shapes are products; None where there are none."""
    ends = sorted({*accumulate(first, mul), *accumulate(second, mul)} - {1})
    pairs = list(pairwise([1, *ends]))
    return None if any(end % before for before, end in pairs) else [end // before for before, end in pairs]


def _parts(sizes: Sequence[int], shape: Sequence[int]) -> list[list[int]]:
    """For each dimension of `shape`, the numbers of the `sizes` that it is the product of."""
    parts: list[list[int]] = []
    left = iter(range(len(sizes)))
    for size in shape:
        own: list[int] = []
        while math.prod(sizes[part] for part in own) < size:
            own.append(next(left))
        parts.append(own)
    return parts
