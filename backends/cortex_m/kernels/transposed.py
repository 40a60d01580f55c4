"""TRANSPOSE_CONV2D, a row of the result at a time.

With a stride of s, pixel `s m + p` of a result is a convolution of the input around m. Its weights are every s-th
weight of the kernel from p on (Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016). So
each row of the result is a convolution of some rows of the input, whose channels are the pixels of a group of columns.
It is a kernel of its own, and is called row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Site, Workload
from tosaic.backends.cortex_m.kernels.conv2d import Conv2d
from tosaic.backends.cortex_m.kernels.conv2d_i16 import Conv2dI16
from tosaic.backends.cortex_m.kernels.movement import ELEMENTS
from tosaic.backends.cortex_m.kernels.mve import VECTOR, round_up
from tosaic.backends.cortex_m.kernels.mve_match import constants_after_first, is_chain
from tosaic.backends.cortex_m.kernels.transposed_sketch import TransposedAxis, TransposedRows
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.cortex_m.sharing import as_one
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.target import Core
from tosaic.support.attributes import ints_of
from tosaic.support.functions import body_of, computing_ops, retype, standalone
from tosaic.support.mlir import constant, constant_value, element_type, functions, ir, numpy_dtype, parse, shape_of
from tosaic.support.tosa_builder import emit, rebuild, tensor
from tosaic.support.values import is_argument
from tosaic.tuner.space import Choice, Schedule, Space, Variant

_EPILOGUE = {"tosa.rescale", "tosa.clamp", "tosa.table"}
_CONVOLUTIONS = ("conv2d", "conv2d_i16", "cmsis_nn")


@FAMILIES.register
class TransposedConvolution(KernelFamily):
    """TRANSPOSE_CONV2D of int8 or int16 by constant weights, with a RESCALE, and what a convolution's kernel takes
    behind it. Its variants are those of the convolution of a row."""

    name = "transpose_conv2d"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if len(ops) < 2 or ops[0].name != "tosa.transpose_conv2d" or not is_chain(ops, function):
            return None
        if not is_argument(ops[0].operands[0]) or constants_after_first(ops[0]) is None:
            return None
        sums = element_type(ops[0].results[0])
        if any(op.name not in _EPILOGUE for op in ops[1:]) or not isinstance(sums, ir.IntegerType):
            return None
        calls = rows_of(function)
        row = row_of(function, calls, 0)
        known = (family().match(functions(row)["main"]) for family in (Conv2d, Conv2dI16))
        found = next((each for each in known if each is not None), None)
        if found is None:
            return None
        weights = constant_value(ops[0].operands[1])
        assert weights is not None
        key = f"{calls} {found.key}"
        return Workload(self.name, key, {"function": str(function)}, {"weights": weights})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        first, *others = (task.space for task in self._parts(workload, core).convolutions)
        known = (variant for variant in first.variants if variant.name.partition(".")[0] in _CONVOLUTIONS)
        return [replace(variant, knobs=_of_all(variant, others)) for variant in known]

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        return self._parts(workload, core).source(schedule, core)

    def trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        return self._parts(workload, core).convolutions[0].trace(schedule)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        parts = self._parts(workload, core)
        row, rows = parts.convolutions[0].features(schedule), float(parts.calls.rows)
        told = next((count for name, count in row.items() if name.endswith(".scratch")), None)
        scratch = parts.convolutions[0].generate(schedule).scratch_bytes if told is None else int(told)
        found = {
            name: count * rows if name.rpartition(".")[2] in ("estimate", "estimate_with_waits") else count
            for name, count in row.items()
        }
        return {**found, "rows": rows, "scratch": float(parts.scratch(scratch, core))}

    def _parts(self, workload: Workload, core: Core) -> _Parts:
        return _parts(str(workload.attributes["function"]), core, tuple(self.libraries.items()), self.site)


def _of_all(variant: Variant, others: Sequence[Space]) -> Mapping[str, tuple[Choice, ...]]:
    """The choices of a variant that all rows of a group have, as some depend on their weights."""
    alike = [known.knobs for space in others if (known := space.variant(variant.name)) is not None]
    return {
        name: tuple(choice for choice in choices if all(choice in knobs[name] for knobs in alike))
        for name, choices in variant.knobs.items()
    }


def rows_of(function: ir.Operation) -> TransposedRows:
    """The calls of a function that begins with a TRANSPOSE_CONV2D."""
    op, *_, last = computing_ops(function)
    batch, height, width, channels = shape_of(op.operands[0])
    (_, tall, wide, _), stride, out_pad = shape_of(op.operands[1]), ints_of(op, "stride"), ints_of(op, "out_pad")
    _, rows, columns, results = shape_of(op.results[0])
    down = TransposedAxis(height, tall, stride[0], out_pad[0], rows)
    along = TransposedAxis(width, wide, stride[1], out_pad[2], columns)
    given, made = (ELEMENTS[numpy_dtype(element_type(value)).itemsize] for value in (op.operands[0], last.results[0]))
    zero_point = constant_value(op.operands[3])
    assert zero_point is not None
    return TransposedRows(batch, down, along, channels, results, (given, made), int(zero_point.item()))


def row_of(function: ir.Operation, calls: TransposedRows, phase: int) -> ir.Module:
    """A module whose `main` makes a row of the result, that of a phase of its group, with the epilogue."""
    module = standalone(function)
    (row,) = functions(module).values()
    down, along = calls.down, calls.along
    phases = along.stride
    op, *epilogue = computing_ops(row)
    with module.context, ir.Location.unknown():
        (x,) = body_of(row).arguments
        x.set_type(tensor((1, down.taps, along.size, calls.channels), element_type(x)))
        shape = (1, 1, along.made, phases * calls.results)
        with ir.InsertionPoint(op):
            weights, bias = constant(_weights_of(op, down, along, phase)), _tiled(op.operands[2], phases)
            window = {"pad": (0, 0, *along.pad), "stride": (1, 1), "dilation": (1, 1)}
            window |= {"acc_type": op.attributes["acc_type"]}
            operands = [x, weights, bias, *list(op.operands)[3:]]
            value = emit("conv2d", operands, shape, element_type(op.results[0]), **window)
        for each in epilogue:
            with ir.InsertionPoint(each):
                rest = list(each.operands)[1:]
                if each.name == "tosa.rescale":
                    rest[:2] = (_tiled(constants, phases) for constants in rest[:2])
                value = rebuild(each, [value, *rest], tensor(shape, element_type(each.results[0])))
        epilogue[-1].results[0].replace_all_uses_with(value)
        for each in reversed([op, *epilogue]):
            each.erase()
        retype(row)
    return module


def _weights_of(op: ir.Operation, down: TransposedAxis, along: TransposedAxis, phase: int) -> np.ndarray:
    """(columns of a group x outputs, rows, columns, channels) of the weights that make a row of a group."""
    weights = constant_value(op.operands[1])
    assert weights is not None
    outputs, _, _, channels = weights.shape
    found = np.zeros((along.stride, outputs, down.taps, along.taps, channels), weights.dtype)
    for x, v, u in np.ndindex(along.stride, down.taps, along.taps):
        row, column = down.weight(phase, v), along.weight(x, u)
        if row is not None and column is not None:
            found[x, :, v, u] = weights[:, row, column]
    return found.reshape(-1, down.taps, along.taps, channels)


def _tiled(value: ir.Value, times: int) -> ir.Value:
    """A constant for each output, again for each pixel of a group; one for all stays one."""
    values = constant_value(value)
    assert values is not None
    return value if values.size == 1 else constant(np.tile(values, times), element_type(value))


@dataclass(frozen=True)
class _Parts:
    """The kernels of the rows of a group, which differ in their weights."""

    calls: TransposedRows
    convolutions: tuple[KernelTask, ...]

    def scratch(self, row: int, core: Core) -> int:
        """Bytes of working memory, of which the kernel of a row takes some."""
        return round_up(row, VECTOR) + self.calls.built("", 0, 0, core).scratch

    def source(self, schedule: Schedule, core: Core) -> KernelSource:
        """The kernel, with that of a row as its part.

        Raises:
            BackendError: the kernels of the rows differ in more than their params.
        """
        row, calls = as_one([task.generate(schedule) for task in self.convolutions]), self.calls
        built = calls.built(row.symbol, len(row.params), row.scratch_bytes, core)
        made = built.source("transpose_conv2d", {"kernels": np.frombuffer(row.params, np.int8)})
        return replace(made, libraries=row.libraries, parts=(row,))


@lru_cache(maxsize=64)
def _parts(text: str, core: Core, libraries: tuple[tuple[str, Path], ...], site: Site) -> _Parts:
    module = parse(text)
    (function,) = functions(module).values()
    calls = rows_of(function)
    rows = [row_of(function, calls, phase) for phase in range(calls.down.stride)]
    tasks = tuple(KernelTask.of(functions(row)["main"], core, _CONVOLUTIONS, (), dict(libraries)) for row in rows)
    parts = _Parts(calls, tasks)
    most = None if site.most_scratch is None else site.most_scratch - parts.scratch(0, core)
    return _Parts(calls, tuple(replace(task, site=replace(site, most_scratch=most, alike=True)) for task in tasks))
