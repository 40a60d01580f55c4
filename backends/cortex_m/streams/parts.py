"""A stream whose images are cut into parts side by side, made one after the other in each step.

So only a part of most rows is in use at once. Columns at the cuts that both parts need are computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tosaic.backends.cortex_m.streams.row_map import RowMap, cut_resize, resize_reads
from tosaic.backends.cortex_m.streams.stage import WINDOWS, Argument, Stage, span_of, stage_of
from tosaic.backends.cortex_m.streams.stream import Stream
from tosaic.support.attributes import int_of, ints_of
from tosaic.support.functions import body_of, computing_ops, returned, retype, standalone
from tosaic.support.mlir import constant_value, element_type, functions, ir, parse, shape_of
from tosaic.support.tosa_ops import POINTWISE, data_operands
from tosaic.support.values import is_argument

_COLUMNS = 2
"""The axis of columns of an image with its channels last."""
_PART = ", part "


@dataclass(frozen=True)
class _Columns:
    """Columns of an image: from `begin`, up to `end` exclusive."""

    begin: int
    end: int


def whole_name(tensor: str) -> str:
    """What the tensor is called of which `tensor` is a part, or all."""
    return tensor.partition(_PART)[0]


def side_by_side(stream: Stream, parts: int) -> Stream | None:
    """The stream, which has no copies yet, of so many parts; None where its stages do not keep columns apart, or where
    readers of a tensor need different ones."""
    if stream.slides or len(stream.outputs) > 1 or not all(stage.module for stage in stream.stages):
        return None
    modules = [parse(stage.module) for stage in stream.stages]
    made = [function for module in modules for function in functions(module).values()]
    (result,) = returned(made[-1])
    width = shape_of(result)[_COLUMNS]
    cuts = [width * part // parts for part in range(parts + 1)]
    if len(set(cuts)) <= parts:
        return None
    stages, copies = list[_Made](), list[_Made]()
    for part, (begin, end) in enumerate(pairwise(cuts)):
        found = _part(stream, made, _Columns(begin, end), f"{_PART}{part}")
        if found is None:
            return None
        if stream.fed:  # a row is taken by all parts at once
            copies += found[0]
            stages += found[1]
        else:
            stages += [*found[0], *found[1]]
    everything = [*copies, *stages]
    return replace(
        stream,
        stages=tuple(each.stage for each in everything),
        reads=tuple(each.reads for each in everything),
        writes=tuple(each.write for each in everything),
    )


@dataclass(frozen=True)
class _Made:
    stage: Stage
    reads: tuple[str, ...]
    write: str


def _part(
    stream: Stream, made: Sequence[ir.Operation], columns: _Columns, suffix: str
) -> tuple[list[_Made], list[_Made]] | None:
    """The copies and the other stages that make some columns of the result."""
    needed, stages, (output,) = {stream.writes[-1]: columns}, list[_Made](), stream.outputs
    copies = dict[str, _Made]()
    for stage, function, reads, write in reversed(
        [*zip(stream.stages, made, stream.reads, stream.writes, strict=True)]
    ):
        found = _narrowed(function, needed[write])
        if found is None:
            return None
        narrow, columns_read = found
        for name, argument, read, extents in zip(
            reads, stage.arguments, columns_read, map(shape_of, body_of(function).arguments), strict=True
        ):
            if read is None or argument.rows is None or needed.setdefault(name, read) != read:
                return None
            if name in stream.inputs:
                pixel = argument.bytes // extents[_COLUMNS]
                taken = Argument(
                    RowMap(), argument.height, (read.end - read.begin) * pixel, pitch=argument.bytes,
                    offset=read.begin * pixel,
                )  # fmt: skip
                copies[name] = _Made(Stage(b"", (taken,), taken.height, taken.bytes), (name,), name + suffix)
        if write == output:
            (result,) = returned(function)
            pixel = stage.bytes // shape_of(result)[_COLUMNS]
            narrow = replace(narrow, pitch=stage.bytes, offset=columns.begin * pixel)
        own = write if write == output else write + suffix
        stages.append(_Made(narrow, tuple(name + suffix for name in reads), own))
    return list(copies.values()), stages[::-1]


def _narrowed(function: ir.Operation, columns: _Columns) -> tuple[Stage, list[_Columns | None]] | None:
    """The stage that makes some columns of a function's result, and the columns of each argument that it reads."""
    module = standalone(function)
    (function,) = functions(module).values()
    found = _needed(function, columns)
    if found is None:
        return None
    arguments = [found.get(argument) for argument in body_of(function).arguments]
    with function.context, function.location:
        for op in computing_ops(function):
            if op.name in WINDOWS:
                begin, end = _window(op, found[op.results[0]])
                top, bottom, *_ = ints_of(op, "pad")
                width = shape_of(op.operands[0])[_COLUMNS]
                pad = [top, bottom, max(0, -begin), max(0, end - width)]
                op.attributes["pad"] = ir.DenseI64ArrayAttr.get(pad)
        for value, part in found.items():
            extents = list(shape_of(value))
            extents[_COLUMNS] = part.end - part.begin
            value.set_type(ir.RankedTensorType.get(extents, element_type(value)))
        for op in computing_ops(function):
            if op.name == "tosa.resize":
                made, read = found[op.results[0]], found[op.operands[0]]
                cut_resize(op, _COLUMNS, made.begin, read.begin, made.end - made.begin)
        retype(function)
    stage = stage_of(function)
    return (stage, arguments) if stage and stage.module else None


def _needed(function: ir.Operation, columns: _Columns) -> dict[ir.Value, _Columns] | None:
    """For each value the columns behind some of the result; None where an op does not keep columns apart."""
    (result,) = returned(function)
    found = {result: columns}
    for op in reversed(computing_ops(function)):
        (made,) = op.results
        if made not in found or len(shape_of(made)) != 4:
            return None
        if op.name in WINDOWS and is_argument(op.operands[0]):
            begin, end = _window(op, found[made])
            behind = {op.operands[0]: _Columns(max(0, begin), min(end, shape_of(op.operands[0])[_COLUMNS]))}
        elif op.name == "tosa.resize" and is_argument(op.operands[0]):
            first, last = resize_reads(op, _COLUMNS, found[made].begin, found[made].end - 1)
            behind = {op.operands[0]: _Columns(max(0, first), min(last + 1, shape_of(op.operands[0])[_COLUMNS]))}
        elif op.name == "tosa.concat" and int_of(op, "axis") == 3:
            behind = dict.fromkeys(op.operands, found[made])
        elif op.name in POINTWISE and all(_fits(operand, made) for operand in data_operands(op)):
            behind = {o: found[made] for o in data_operands(op) if constant_value(o) is None}
        else:
            return None
        if any(found.setdefault(value, part) != part for value, part in behind.items()):
            return None
    return found


def _fits(operand: ir.Value, made: ir.Value) -> bool:
    """Whether an operand of a pointwise op has the result's columns, or is a constant that is the same in all."""
    extents = shape_of(operand)
    if constant_value(operand) is not None:
        return len(extents) <= 1 or extents[-2] == 1
    return len(extents) == 4 and extents[_COLUMNS] == shape_of(made)[_COLUMNS]


def _window(op: ir.Operation, columns: _Columns) -> tuple[int, int]:
    """The columns behind some of a window's result, where those before the first and behind the last are padding."""
    _, stride = ints_of(op, "stride")
    _, _, left, _ = ints_of(op, "pad")
    return stride * columns.begin - left, stride * (columns.end - 1) - left + span_of(op, 1)
