"""Bilinear RESIZE of int8 with its RESCALE on MVE: rows are blended first, then the columns of what results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.mve import PRELUDE, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import (
    VectorEpilogue,
    constants_after_first,
    dtype_of,
    is_chain,
    match_epilogue,
    numbers,
    workload,
)
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.nest.blend_finish import Average
from tosaic.backends.cortex_m.nest.blends import Blends, scheduled, sketches
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.target import Core
from tosaic.support.attributes import enum_of
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir, shape_of
from tosaic.support.values import is_argument
from tosaic.tuner.space import Schedule, Variant

_LANES = 8
_MOST_WEIGHT, _MOST_COLUMN = 255, (1 << 15) - 1
"""Sums of int8 with weights of so much in all fit into int16; a weight of a column does."""
_MOST_OFFSET = (1 << 16) - 1


@FAMILIES.register
class Resize(KernelFamily):
    """Images (N, H, W, C) between whose pixels others are blended, in sums whose rows fit into sixteen bits.

    Its variants are those of `nest.blends`.
    """

    name = "resize"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if len(ops) != 2 or not is_argument(ops[0].operands[0]) or not is_chain(ops, function):
            return None
        op, rescale = ops
        if op.name != "tosa.resize" or enum_of(op, "mode") != "BILINEAR" or dtype_of(op.operands[0]) != np.int8:
            return None
        operands, epilogue = constants_after_first(op), match_epilogue([rescale], 1)
        if operands is None or epilogue is None or not _is_uniform(rescale):
            return None
        scale, offset, _ = (tuple(int(number) for number in numbers) for numbers in operands)
        shape, result = shape_of(op.operands[0]), shape_of(op.results[0])
        if scale[0] > _MOST_WEIGHT or scale[2] > _MOST_COLUMN or not _LANES <= shape[2] * shape[3] <= _MOST_OFFSET:
            return None
        attributes: dict[str, object] = {"shape": shape, "result": result, "scale": scale, "offset": offset}
        return workload(self.name, attributes, _scaling(epilogue))

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return sketches(_blends(workload), core.pipeline) if core.mve else ()

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        shape, result, scale, offset = (numbers(workload, name) for name in ("shape", "result", "scale", "offset"))
        kernel, params = scheduled(_blends(workload), schedule, core.pipeline), Params()
        batch, height, width, channels = shape
        average, row = kernel.what.average, width * channels
        factors = f"{average.multiplier}, {average.zero_point}"
        finished = [f"finished(scratch, params, out, 0, 0, {factors});", f"out += {result[2] * channels};"]
        if kernel.gathers:
            params.add(kernel.pack_neighbors(_neighbors(shape, result, scale, offset)))
        else:
            neighbors = ", ".join(f"scratch + x{n} * {2 * channels}" for n in (0, 1))
            finished = [
                f"for (int x = 0; x < {result[2]}; x++, out += {channels}) {{",
                *(f"  {line}" for line in _at("x", scale[2:], offset[1], width)),
                f"  finished({neighbors}, out, {scale[2]} - dx, dx, {factors});",
                "}",
            ]
        above, below = (f"in + (n * {height} + y{i}) * {row}" for i in (0, 1))
        lines = [
            *kernel.functions(),
            "void @SYMBOL@(const int8_t *restrict in, int8_t *restrict out, const int8_t *restrict params,",
            "              int8_t *restrict scratch)",
            "{",
            f"  for (int n = 0; n < {batch}; n++)",
            f"  for (int y = 0; y < {result[1]}; y++) {{",
            *(f"    {line}" for line in _at("y", scale[:2], offset[0], height)),
            f"    blended({above}, {below}, scratch, {scale[0]} - dy, dy, {factors});",
            *(f"    {line}" for line in finished),
            "  }",
            "}",
            "",
        ]
        symbol, text = with_symbol("resize", PRELUDE + "\n".join(lines))
        return KernelSource(symbol, "c", text, bytes(params), 2 * row)

    def trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        return scheduled(_blends(workload), schedule, core.pipeline).nest.trace

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        return self.site.promised(scheduled(_blends(workload), schedule, core.pipeline), core.pipeline)


def _blends(workload: Workload) -> Blends:
    (_, rows, columns, channels), (batch, height, width, _) = (numbers(workload, name) for name in ("result", "shape"))
    tall, wide = numbers(workload, "scale")[::2]
    average = Average.of(**workload.constants)
    return Blends(batch, rows, columns, height, width, channels, average, wide=tall * wide > _MOST_WEIGHT)


def _is_uniform(rescale: ir.Operation) -> bool:
    """Whether all channels have one scale."""
    operands = constants_after_first(rescale)
    return operands is not None and operands[0].size == 1


def _scaling(epilogue: VectorEpilogue) -> dict[str, np.ndarray]:
    return {
        "multiplier": epilogue.multiplier,
        "shift": epilogue.shift,
        "offset": np.array(0),
        "zero_point": np.array(epilogue.zero_point),
    }


def _at(axis: str, scale: Sequence[int], offset: int, extent: int) -> list[str]:
    """C of the two rows (or columns) around a result's, and the weight of the second (TOSA 1.0, RESIZE)."""
    numerator, denominator = scale
    at, floor = f"{axis} * {denominator} + {offset + numerator}", f"f{axis}"
    return [
        f"const int {floor} = ({at}) / {numerator} - 1, d{axis} = ({at}) % {numerator};",
        f"const int {axis}0 = {floor} < 0 ? 0 : {floor} < {extent} ? {floor} : {extent - 1};",
        f"const int {axis}1 = {floor} + 1 < {extent} ? {floor} + 1 : {extent - 1};",
    ]


def _neighbors(shape: Sequence[int], result: Sequence[int], scale: Sequence[int], offset: Sequence[int]) -> np.ndarray:
    """(4, elements of a row): where the left and the right neighbor lie, and their weights."""
    _, _, width, channels = shape
    at = np.arange(result[2]) * scale[3] + offset[1]
    floor, weight = np.divmod(at, scale[2])
    fields = []
    for column in (floor, floor + 1):
        fields.append((column.clip(0, width - 1)[:, None] * channels + np.arange(channels)).reshape(-1))
    fields += [np.repeat(scale[2] - weight, channels), np.repeat(weight, channels)]
    return np.stack(fields)
