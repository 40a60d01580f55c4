"""What is cut out of a concatenation is read where its parts lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.attributes import int_of
from tosaic.support.mlir import constant_value, element_type, ir, shape_of
from tosaic.support.tosa_builder import emit, reshape, sliced
from tosaic.support.values import producer, readers


@register
@dataclass(frozen=True)
class SlicesOfParts(ModulePass):
    """`slice(concat(x, y))` -> `slice(x)`, or `concat(slice(x), slice(y))` where nothing reads the whole: so a state
    that drops its first frames, and takes one more, moves once."""

    name: ClassVar[str] = "slices-of-parts"
    phase: ClassVar[str] = "cpu"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [slice_of_parts])


@pattern("tosa.slice")
def slice_of_parts(op: ir.Operation) -> Replacement:
    """A SLICE of a CONCAT, or of one with further dimensions of one."""
    x, start, size = op.operands[0], *(_numbers(operand) for operand in list(op.operands)[1:])
    view = producer(x, "tosa.reshape")
    concat = producer(x if view is None else view.operands[0], "tosa.concat")
    axis = None if concat is None else _axis_of(concat, x)
    if concat is None or axis is None:
        return None
    found, at = [], 0
    for part in concat.operands:
        extent = shape_of(part)[int_of(concat, "axis")]
        first, end = max(start[axis], at), min(start[axis] + size[axis], at + extent)
        if first < end:
            shape, begin, taken = list(shape_of(x)), list(start), list(size)
            shape[axis], begin[axis], taken[axis] = extent, first - at, end - first
            found.append((part, shape, begin, taken))
        at += extent
    if len(found) > 1 and any(reader.name != "tosa.slice" for reader in readers(concat.results[0])):
        return None
    made = [sliced(reshape(part, shape), begin, taken) for part, shape, begin, taken in found]
    return made[0] if len(made) == 1 else emit("concat", made, shape_of(op.results[0]), element_type(x), axis=axis)


def _axis_of(concat: ir.Operation, view: ir.Value) -> int | None:
    """The axis of a view along which a CONCAT joins its parts; None where they are not whole in it."""
    joined, axis = shape_of(concat.results[0]), int_of(concat, "axis")
    seen = [number for number, extent in enumerate(shape_of(view)) if extent > 1]
    wide = [number for number, extent in enumerate(joined) if extent > 1]
    if axis not in wide or [shape_of(view)[number] for number in seen] != [joined[number] for number in wide]:
        return None
    return seen[wide.index(axis)]


def _numbers(value: ir.Value) -> list[int]:
    numbers = constant_value(value)
    assert numbers is not None, "a slice begins and ends at constants"
    return [int(number) for number in numbers.reshape(-1)]
