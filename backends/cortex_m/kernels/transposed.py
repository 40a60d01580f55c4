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
from tosaic.backends.cortex_m.kernels.mve import COPY, PORTABLE_COPY, PRELUDE, VECTOR, round_up, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import constants_after_first, is_chain
from tosaic.backends.cortex_m.phases import Axis
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.cortex_m.sharing import as_one
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.target import Core
from tosaic.support.attributes import ints_of
from tosaic.support.functions import body_of, computing_ops, retype, standalone
from tosaic.support.mlir import constant, constant_value, element_type, functions, ir, numpy_dtype, parse, shape_of
from tosaic.support.tosa_builder import emit, rebuild, tensor
from tosaic.support.values import is_argument
from tosaic.tuner.space import Schedule, Variant

_EPILOGUE = {"tosa.rescale", "tosa.clamp", "tosa.table"}
_CONVOLUTIONS = ("conv2d", "conv2d_i16", "cmsis_nn")
_WITH_VECTORS = f"""\
{PRELUDE}{COPY}
INLINE void fill(int8_t *to, int8_t value, int bytes)
{{
  for (; bytes > 0; bytes -= 16, to += 16) vstrbq_p_s8(to, vdupq_n_s8(value), vctp8q(bytes));
}}
"""
_WITHOUT_VECTORS = f"""\
{PORTABLE_COPY}INLINE void fill(int8_t *to, int8_t value, int bytes)
{{
  memset(to, value, bytes);
}}
"""


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
        problem = _Problem.of(function)
        row = parse(problem.rows[0])
        known = (family().match(functions(row)["main"]) for family in (Conv2d, Conv2dI16))
        found = next((each for each in known if each is not None), None)
        if found is None:
            return None
        weights = constant_value(ops[0].operands[1])
        assert weights is not None
        key = f"{problem.geometry} {found.key}"
        return Workload(self.name, key, {"function": str(function)}, {"weights": weights})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        found = self._parts(workload, core).convolutions[0].space.variants
        return [variant for variant in found if variant.name.partition(".")[0] in _CONVOLUTIONS]

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        return self._parts(workload, core).source(schedule, core)

    def trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        return self._parts(workload, core).convolutions[0].trace(schedule)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        parts = self._parts(workload, core)
        row, rows = parts.convolutions[0].features(schedule), float(parts.problem.geometry.rows)
        told = next((count for name, count in row.items() if name.endswith(".scratch")), None)
        scratch = parts.convolutions[0].generate(schedule).scratch_bytes if told is None else int(told)
        found = {
            name: count * rows if name.rpartition(".")[2] in ("estimate", "estimate_with_waits") else count
            for name, count in row.items()
        }
        return {**found, "rows": rows, "scratch": float(parts.scratch(scratch))}

    def _parts(self, workload: Workload, core: Core) -> _Parts:
        return _parts(str(workload.attributes["function"]), core, tuple(self.libraries.items()), self.site)


class _TransposedAxis(Axis):
    """One axis of a TRANSPOSE_CONV2D (TOSA 1.0, 2.3), whose convolution also reads inputs that make no result."""

    @property
    def pad(self) -> tuple[int, int]:
        """Of the convolution that makes groups, before the first input and behind the last."""
        before = self.taps - 1 - self.first
        return before, max(0, self.groups - self.size - before + self.taps - 1)

    @property
    def made(self) -> int:
        """Groups that the convolution makes."""
        return self.size + sum(self.pad) - self.taps + 1

    def weight(self, phase: int, tap: int) -> int | None:
        """The weight by which a tap of the convolution counts for a pixel of a group; None where it does not."""
        at = phase + (self.taps - 1 - tap) * self.stride
        return at if at < self.kernel else None


@dataclass(frozen=True)
class _Geometry:
    """Bytes of an element of the input, and of the result."""

    batch: int
    down: _TransposedAxis
    along: _TransposedAxis
    channels: int
    results: int
    element: int
    result: int

    @property
    def rows(self) -> int:
        """Rows of the result, each a call of a convolution."""
        return self.batch * self.down.result

    @property
    def row(self) -> int:
        """Bytes of a row of the input."""
        return self.along.size * self.channels * self.element

    @property
    def out_row(self) -> int:
        return self.along.result * self.results * self.result

    @property
    def reads_whole(self) -> bool:
        """Whether all that calls read are aligned rows of the image."""
        inside = self.down.taps == 1 and self.down.first == 0 and self.down.groups <= self.down.size
        return inside and self.row % VECTOR == 0

    @property
    def writes_whole(self) -> bool:
        """Whether what a call makes is an aligned row of the result."""
        return self.out_row == self.made_row and self.out_row % VECTOR == 0

    @property
    def made_row(self) -> int:
        """Bytes of what a call makes."""
        return self.along.made * self.along.stride * self.results * self.result


@dataclass(frozen=True)
class _Problem:
    """What is computed: `rows` are the texts of modules, of each row of a group of rows."""

    geometry: _Geometry
    zero_point: int
    rows: tuple[str, ...]

    @property
    def places(self) -> tuple[int, int]:
        """Two offsets in working memory: of what a call makes, and of the working memory of its kernel.

        What a call reads lies at 0 if it is no part of the image. What it makes lies here only if it is no row of the
        result.
        """
        geometry = self.geometry
        window = 0 if geometry.reads_whole else round_up(geometry.down.taps * geometry.row, VECTOR)
        return window, window + (0 if geometry.writes_whole else round_up(geometry.made_row, VECTOR))

    @staticmethod
    def of(function: ir.Operation) -> _Problem:
        op, *_, last = computing_ops(function)
        batch, height, width, channels = shape_of(op.operands[0])
        (_, tall, wide, _), stride, out_pad = shape_of(op.operands[1]), ints_of(op, "stride"), ints_of(op, "out_pad")
        _, rows, columns, results = shape_of(op.results[0])
        sizes = [numpy_dtype(element_type(value)).itemsize for value in (op.operands[0], last.results[0])]
        down = _TransposedAxis(height, tall, stride[0], out_pad[0], rows)
        along = _TransposedAxis(width, wide, stride[1], out_pad[2], columns)
        zero_point = constant_value(op.operands[3])
        assert zero_point is not None
        geometry = _Geometry(batch, down, along, channels, results, *sizes)
        texts = tuple(_row_of(function, geometry, phase) for phase in range(down.stride))
        return _Problem(geometry, int(zero_point.item()), texts)


def _row_of(function: ir.Operation, geometry: _Geometry, phase: int) -> str:
    """The text of a module whose `main` makes a row of the result, that of a phase of its group, with the epilogue."""
    module = standalone(function)
    (row,) = functions(module).values()
    down, along = geometry.down, geometry.along
    phases = along.stride
    op, *epilogue = computing_ops(row)
    with module.context, ir.Location.unknown():
        (x,) = body_of(row).arguments
        x.set_type(tensor((1, down.taps, along.size, geometry.channels), element_type(x)))
        shape = (1, 1, along.made, phases * geometry.results)
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
    return str(module)


def _weights_of(op: ir.Operation, down: _TransposedAxis, along: _TransposedAxis, phase: int) -> np.ndarray:
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

    problem: _Problem
    convolutions: tuple[KernelTask, ...]

    def scratch(self, row: int) -> int:
        """Bytes of working memory, of which the kernel of a row takes some."""
        return self.problem.places[1] + row

    def source(self, schedule: Schedule, core: Core) -> KernelSource:
        """The kernel, with that of a row as its part.

        Raises:
            BackendError: the kernels of the rows differ in more than their params.
        """
        geometry = self.problem.geometry
        row, down = as_one([task.generate(schedule) for task in self.convolutions]), geometry.down
        apart = round_up(len(row.params) // down.stride, VECTOR)
        lines = [
            f"void {row.symbol}(const int8_t *, int8_t *, const int8_t *, int8_t *);",
            "void @SYMBOL@(const int8_t *in, int8_t *out, const int8_t *params, int8_t *scratch)",
            "{",
            f"  for (int n = 0; n < {geometry.batch}; n++, in += {down.size * geometry.row}, "
            f"out += {down.result * geometry.out_row}) {{",
            f"    for (int m = {down.first}; m < {down.first + down.groups}; m++) {{",
            *(f"      {line}" for line in self._window()),
            f"      for (int p = 0; p < {down.stride}; p++) {{",
            f"        const int y = {down.stride} * m + p + {down.before};",
            f"        if (y >= 0 && y < {down.result}) {{",
            *(f"          {line}" for line in self._made(f"{row.symbol}(rows, %s, params + p * {apart}, %s);")),
            "        }",
            "      }",
            "    }",
            "  }",
            "}",
            "",
        ]
        prelude = _WITH_VECTORS if core.mve else _WITHOUT_VECTORS
        symbol, text = with_symbol("transpose_conv2d", prelude + "\n".join(lines))
        scratch = self.scratch(row.scratch_bytes)
        return KernelSource(symbol, "c", text, row.params, scratch, libraries=row.libraries, parts=(row,))

    def _made(self, call: str) -> list[str]:
        """C that makes row `y` of the result."""
        geometry, (made, inner) = self.problem.geometry, self.problem.places
        row, result = geometry.out_row, f"out + y * {geometry.out_row}"
        if geometry.writes_whole:
            return [call % (result, f"scratch + {inner}")]
        skipped = geometry.along.cropped * geometry.results * geometry.result
        return [
            call % (f"scratch + {made}", f"scratch + {inner}"),
            f"copy({result}, scratch + {made + skipped}, {row});",
        ]

    def _window(self) -> list[str]:
        """C of the rows that a call reads: the image's own, or copies with zero points around them."""
        geometry, down = self.problem.geometry, self.problem.geometry.down
        rows = f"const int8_t *rows = in + (m - {down.taps - 1}) * {geometry.row};"
        if geometry.reads_whole:
            return [rows]
        inside = f"first >= 0 && first + {down.taps} <= {down.size}" if geometry.row % VECTOR == 0 else "0"
        return [
            f"const int first = m - {down.taps - 1};",
            rows,
            f"if (!({inside})) {{",
            f"  for (int t = 0; t < {down.taps}; t++) {{",
            f"    int8_t *row = scratch + t * {geometry.row};",
            f"    if (first + t >= 0 && first + t < {down.size})",
            f"      copy(row, rows + t * {geometry.row}, {geometry.row});",
            "    else",
            f"      fill(row, {self.problem.zero_point}, {geometry.row});",
            "  }",
            "  rows = scratch;",
            "}",
        ]


@lru_cache(maxsize=64)
def _parts(text: str, core: Core, libraries: tuple[tuple[str, Path], ...], site: Site) -> _Parts:
    module = parse(text)
    (function,) = functions(module).values()
    problem = _Problem.of(function)
    rows = [parse(row) for row in problem.rows]
    tasks = (KernelTask.of(functions(row)["main"], core, _CONVOLUTIONS, (), dict(libraries)) for row in rows)
    most = None if site.most_scratch is None else site.most_scratch - problem.places[1]
    return _Parts(problem, tuple(replace(task, site=replace(site, most_scratch=most, alike=True)) for task in tasks))
