"""CMSIS-NN's int8 kernels as choices of the schedule space: which function covers what, and how it is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from tosaic.backends.cortex_m.cmsis_nn import (
    AVERAGE_POOL,
    CONVOLVE,
    DEPTHWISE,
    FULLY_CONNECTED,
    FULLY_CONNECTED_PER_CHANNEL,
    FUNCTIONS,
    LIBRARY,
    MAX_POOL,
    CmsisNn,
)
from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload, weights_at
from tosaic.backends.cortex_m.kernels.conv2d import Conv2d
from tosaic.backends.cortex_m.kernels.depthwise import Depthwise
from tosaic.backends.cortex_m.kernels.mve import round_up, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import (
    INT8,
    Geometry,
    constants_after_first,
    dtype_of,
    fold_zero_point,
    is_chain,
    number,
    workload,
)
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.target import Core
from tosaic.support.attributes import ints_of
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir, shape_of
from tosaic.support.values import is_argument
from tosaic.tuner.space import Schedule, Variant

# Of the block that MVE depthwise kernels copy windows of: CH_IN_BLOCK_MVE in arm_nnsupportfunctions.h.
_DEPTHWISE_BLOCK = 124


_library = lru_cache(maxsize=8)(CmsisNn)


@FAMILIES.register
class CmsisNnKernels(KernelFamily):
    """The kernel family of CMSIS-NN: a variant per library function that covers the workload; none without it."""

    name = "cmsis_nn"
    rank = 1

    def match(self, function: ir.Operation) -> Workload | None:
        found = Conv2d().match(function) or Depthwise().match(function)
        if found is None:
            return _match_pool(function)
        if found.attributes.get("result", "int8") != "int8":
            return None
        return workload(found.kind, {**found.attributes, "uniform": _is_uniform(found)}, found.constants)

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        if LIBRARY not in self.libraries or workload.attributes.get("table"):
            return ()
        library = _library(self.libraries[LIBRARY])
        return tuple(Variant(function) for function in _candidates(workload) if library.has(function))

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        function = schedule.variant
        glue, params, scratch, weights = _GENERATORS[function](workload, function, core)
        symbol, text = with_symbol("cmsis_nn", glue)
        return KernelSource(symbol, "c", text, params, scratch, libraries=(LIBRARY,), weights=weights)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        return {function: float(function == schedule.variant) for function in FUNCTIONS}


def _is_uniform(found: Workload) -> bool:
    """Whether all channels share one scale."""
    return all(len(set(found.constants[name].tolist())) == 1 for name in ("multiplier", "shift"))


def _match_pool(function: ir.Operation) -> Workload | None:
    ops = computing_ops(function)
    if len(ops) != 1 or ops[0].name not in ("tosa.max_pool2d", "tosa.avg_pool2d") or not is_chain(ops, function):
        return None
    (op,) = ops
    zeros = constants_after_first(op)
    if not is_argument(op.operands[0]) or dtype_of(op.operands[0]) != INT8 or zeros is None:
        return None
    kernel, stride, pad = (ints_of(op, name) for name in ("kernel", "stride", "pad"))
    batch, height, width, channels = shape_of(op.operands[0])
    _, rows, columns, _ = shape_of(op.results[0])
    if op.name == "tosa.avg_pool2d" and not _averages_agree(kernel, pad, zeros):
        return None
    geometry = Geometry(batch, height, width, channels, kernel, stride, pad, (1, 1), rows, columns)  # type: ignore[arg-type]
    return workload(op.name.removeprefix("tosa."), vars(geometry), {})


def _averages_agree(kernel: tuple[int, ...], pad: tuple[int, ...], zeros: Sequence[np.ndarray]) -> bool:
    """Whether CMSIS-NN's average, which rounds half away from zero, can meet no tie, and needs no zero point."""
    return kernel[0] * kernel[1] % 2 == 1 and not any(pad) and zeros[0].item() == zeros[1].item()


def _candidates(workload: Workload) -> Iterator[str]:
    if workload.kind == "max_pool2d":
        yield MAX_POOL
    elif workload.kind == "avg_pool2d":
        yield AVERAGE_POOL
    elif workload.kind == "depthwise_conv2d":
        yield DEPTHWISE
    else:
        geometry = Geometry.of(workload.attributes)
        if geometry.dense and (geometry.rows, geometry.columns) == (1, 1):
            yield FULLY_CONNECTED_PER_CHANNEL
            if workload.attributes["uniform"]:
                yield FULLY_CONNECTED
        yield CONVOLVE


_Call: TypeAlias = tuple[str, bytes, int, int | None]
"""C of the glue, the params, bytes of scratch memory, and where the weights begin."""

_HEAD = """\
#include "arm_nnfunctions.h"
void @SYMBOL@(const int8_t *in, int8_t *out, const int8_t *params, void *scratch)
{
"""


def _dims(name: str, n: int, h: int, w: int, c: int) -> str:
    return f"  const cmsis_nn_dims {name} = {{.n = {n}, .h = {h}, .w = {w}, .c = {c}}};"


def _tile(pair: tuple[int, ...]) -> str:
    """A cmsis_nn_tile of (height, width)."""
    return f"{{.w = {pair[1]}, .h = {pair[0]}}}"


class _LayerParams:
    """The params of a weighted layer: {zero point, low, high, input's zero point}, then what CMSIS-NN wants.

    Args:
        sums: of a fully connected layer; see `_fully_connected`.
    """

    def __init__(
        self, workload: Workload, weights: np.ndarray, bias: np.ndarray, sums: np.ndarray | None = None
    ) -> None:
        constants = workload.constants
        self.blob = Params()
        self.blob.add(np.append(constants["range"], constants["input_zero_point"]).astype(np.int32))
        self.bias = self.blob.add(bias.astype(np.int32))
        self.multiplier = self.blob.add(constants["multiplier"].astype(np.int32))
        # CMSIS-NN multiplies by multiplier * 2^(shift - 31).
        self.shift = self.blob.add(31 - constants["shift"].astype(np.int32))
        self.sums = 0 if sums is None else self.blob.add(sums)
        self.weights = self.blob.add(weights)

    @property
    def lines(self) -> list[str]:
        return [
            "  const int32_t *range = (const int32_t *)params;",
            f"  const cmsis_nn_per_channel_quant_params scale = {{(int32_t *)(params + {self.multiplier}), "
            f"(int32_t *)(params + {self.shift})}};",
            f"  const int32_t *bias = (const int32_t *)(params + {self.bias});",
            weights_at(self.weights),
        ]


_RANGE = ".input_offset = -range[3], .output_offset = range[0], .activation = {range[1], range[2]}"
_ARGUMENTS = "&input, in, &filter, packed, &one_per_channel, bias, &output, out"


def _window_lines(geometry: Geometry, channels: int) -> list[str]:
    return [
        _dims("input", geometry.batch, geometry.height, geometry.width, geometry.channels),
        _dims("output", geometry.batch, geometry.rows, geometry.columns, channels),
        _dims("one_per_channel", 1, 1, 1, channels),
    ]


def _window_params(geometry: Geometry) -> str:
    stride, pad, dilation = map(_tile, (geometry.stride, geometry.pad[::2], geometry.dilation))
    return f".stride = {stride}, .padding = {pad}, .dilation = {dilation}"


def _convolve(workload: Workload, function: str, core: Core) -> _Call:
    geometry, channels = Geometry.of(workload.attributes), number(workload, "out_channels")
    layer = _LayerParams(workload, workload.constants["weights"], workload.constants["bias"])
    scratch = 4 * round_up(geometry.depth, 16)
    lines = [
        *layer.lines,
        *_window_lines(geometry, channels),
        _dims("filter", channels, *geometry.kernel, geometry.channels),
        f"  const cmsis_nn_context context = {{scratch, {scratch}}};",
        f"  const cmsis_nn_conv_params how = {{{_RANGE}, {_window_params(geometry)}}};",
        f"  {function}(&context, &how, &scale, {_ARGUMENTS});",
    ]
    return _HEAD + "\n".join([*lines, "}", ""]), bytes(layer.blob), scratch, layer.weights


def _depthwise(workload: Workload, function: str, core: Core) -> _Call:
    geometry, multiples = Geometry.of(workload.attributes), number(workload, "multiples")
    channels, window = geometry.channels * multiples, geometry.kernel[0] * geometry.kernel[1]
    layer = _LayerParams(workload, workload.constants["weights"].transpose(1, 2, 0), workload.constants["bias"])
    scratch = 2 * window * channels
    if core.mve:
        scratch = 4 * window * max(geometry.channels, _DEPTHWISE_BLOCK) + window * channels + 4 * round_up(window, 16)
    lines = [
        *layer.lines,
        *_window_lines(geometry, channels),
        _dims("filter", 1, *geometry.kernel, channels),
        f"  const cmsis_nn_context context = {{scratch, {scratch}}};",
        f"  const cmsis_nn_dw_conv_params how = {{{_RANGE}, .ch_mult = {multiples}, {_window_params(geometry)}}};",
        f"  {function}(&context, &how, &scale, {_ARGUMENTS});",
    ]
    return _HEAD + "\n".join([*lines, "}", ""]), bytes(layer.blob), scratch, layer.weights


def _fully_connected(workload: Workload, function: str, core: Core) -> _Call:
    """The context is the bias with the input's zero point folded in, which `arm_vector_sum_s8` would compute."""
    geometry, channels = Geometry.of(workload.attributes), number(workload, "out_channels")
    weights, bias = workload.constants["weights"], workload.constants["bias"]
    sums = fold_zero_point(bias, weights, int(workload.constants["input_zero_point"].item()))
    layer = _LayerParams(workload, weights, bias, sums)
    per_tensor = "{scale.multiplier[0], scale.shift[0]}"
    lines = [
        *layer.lines,
        _dims("input", geometry.batch, 1, 1, geometry.depth),
        _dims("filter", geometry.depth, 1, 1, channels),
        _dims("output", geometry.batch, 1, 1, channels),
        _dims("one_per_channel", 1, 1, 1, channels),
        f"  const cmsis_nn_context context = {{(void *)(params + {layer.sums}), {4 * channels}}};",
        f"  const cmsis_nn_fc_params how = {{{_RANGE}}};",
        f"  const cmsis_nn_per_tensor_quant_params one = {per_tensor};",
        f"  {function}(&context, &how, {'&one' if function == FULLY_CONNECTED else '&scale'}, {_ARGUMENTS});",
    ]
    return _HEAD + "\n".join([*lines, "}", ""]), bytes(layer.blob), 0, layer.weights


def _pool(workload: Workload, function: str, core: Core) -> _Call:
    geometry = Geometry.of(workload.attributes)
    scratch = 4 * geometry.channels
    image_in = geometry.height * geometry.width * geometry.channels
    image_out = geometry.rows * geometry.columns * geometry.channels
    single = replace(geometry, batch=1)  # Version 4.0.0 knows no batches here.
    lines = [
        *_window_lines(single, geometry.channels),
        _dims("filter", 1, *geometry.kernel, 1),
        f"  const cmsis_nn_context context = {{scratch, {scratch}}};",
        f"  const cmsis_nn_pool_params how = {{.stride = {_tile(geometry.stride)}, "
        f".padding = {_tile(geometry.pad[::2])}, .activation = {{-128, 127}}}};",
        f"  for (int image = 0; image < {geometry.batch}; image++)",
        f"    {function}(&context, &how, &input, in + image * {image_in}, &filter,",
        f"      &output, out + image * {image_out});",
    ]
    return _HEAD + "\n".join([*lines, "}", ""]), b"", scratch, None


_GENERATORS = {
    CONVOLVE: _convolve,
    DEPTHWISE: _depthwise,
    FULLY_CONNECTED: _fully_connected,
    FULLY_CONNECTED_PER_CHANNEL: _fully_connected,
    MAX_POOL: _pool,
    AVERAGE_POOL: _pool,
}
