"""CMSIS-NN's int8 kernels as choices of the schedule space: which function covers what, and how it is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

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
from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.conv2d import Conv2d
from tosaic.backends.cortex_m.kernels.depthwise import Depthwise
from tosaic.backends.cortex_m.kernels.mve import round_up
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
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.kernel import scheduled
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import nested
from tosaic.backends.cortex_m.program.structs import Element, Field, Struct, struct
from tosaic.backends.cortex_m.program.tree import Access, Alloc, Buffer, Callee, Invoke, Statement
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
        call = _GENERATORS[function](workload, function, core)
        source = scheduled(call.program(function), (), core).source("cmsis_nn", call.constants)
        return replace(source, libraries=(LIBRARY,))

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


@dataclass(frozen=True)
class _LibraryCall:
    """A call of a function of the library, for each image by itself or for all at once.

    Args:
        takes: its arguments: `x` and `y` are the input and the result, `context` is its working memory.
        sizes: of `x` and of `y` in one call.
        constants: other windows.
        scratch: bytes of working memory.
    """

    takes: tuple[Struct | str, ...]
    sizes: tuple[int, int]
    constants: Mapping[str, np.ndarray]
    scratch: int = 0
    images: int = 1

    def program(self, function: str) -> Program:
        """The call as a program."""
        x, y = self.sizes
        windows = [Buffer("x", "i8", (x,), "in"), Buffer("y", "i8", (y,), "out")]
        constants = [_constant(name, array) for name, array in self.constants.items()]
        context = [Buffer("context", "i8", (self.scratch,), "scratch")] if self.scratch else []
        callee = Callee(function, (*windows, *constants, *context), 1, "arm_nnfunctions.h", self.takes)
        image, zero = Affine.of("image"), Affine()
        places = (Access(b.name, (image, zero) if b in windows else (zero,)) for b in callee.arguments)
        body: Statement = nested(Invoke(callee, tuple(places)), image=self.images)
        tensors = (replace(b, shape=(self.images, *b.shape)) for b in windows)
        return Program((*tensors, *constants), Alloc(context[0], body) if context else body)


def _constant(name: str, array: np.ndarray) -> Buffer:
    return Buffer(name, "i8" if array.dtype == np.int8 else "i32", (array.size,), "const")


def _dims(n: int, h: int, w: int, c: int) -> Struct:
    return struct("cmsis_nn_dims", n=n, h=h, w=w, c=c)


def _tile(pair: tuple[int, ...]) -> Struct:
    """Of (height, width)."""
    return struct("cmsis_nn_tile", w=pair[1], h=pair[0])


def _context(window: str, size: int) -> Struct:
    return struct("cmsis_nn_context", buf=window, size=size)


def _layer(workload: Workload, weights: np.ndarray, **others: np.ndarray) -> dict[str, np.ndarray]:
    """The constants of a weighted layer: {zero point, low, high, input's zero point}, then what CMSIS-NN wants."""
    known = workload.constants
    return {
        "limits": np.append(known["range"], known["input_zero_point"]).astype(np.int32),
        "bias": known["bias"].astype(np.int32),
        "multiplier": known["multiplier"].astype(np.int32),
        # CMSIS-NN multiplies by multiplier * 2^(shift - 31).
        "shift": 31 - known["shift"].astype(np.int32),
        **others,
        "w": weights,
    }


_PER_CHANNEL = struct("cmsis_nn_per_channel_quant_params", multiplier="multiplier", shift="shift")
_PER_TENSOR = struct("cmsis_nn_per_tensor_quant_params", multiplier=Element("multiplier", 0), shift=Element("shift", 0))
_RANGE: Mapping[str, Field] = {
    "input_offset": Element("limits", 3, -1),
    "output_offset": Element("limits", 0),
    "activation": struct("cmsis_nn_activation", min=Element("limits", 1), max=Element("limits", 2)),
}


def _weighted(geometry: Geometry, filters: Struct, channels: int) -> tuple[Struct | str, ...]:
    """The arguments of a weighted layer that are tensors, each behind its dimensions."""
    x, y = _ends(geometry, channels)
    return x, "x", filters, "w", _dims(1, 1, 1, channels), "bias", y, "y"


def _ends(geometry: Geometry, channels: int) -> tuple[Struct, Struct]:
    """The dimensions of the input and of the result."""
    return (
        _dims(geometry.batch, geometry.height, geometry.width, geometry.channels),
        _dims(geometry.batch, geometry.rows, geometry.columns, channels),
    )


def _sizes(geometry: Geometry, channels: int) -> tuple[int, int]:
    """Elements of the input and of the result."""
    image, pixels = geometry.height * geometry.width * geometry.channels, geometry.rows * geometry.columns
    return geometry.batch * image, geometry.batch * pixels * channels


def _windows(geometry: Geometry) -> dict[str, Field]:
    return {"stride": _tile(geometry.stride), "padding": _tile(geometry.pad[::2])}


def _convolve(workload: Workload, function: str, core: Core) -> _LibraryCall:
    geometry, channels = Geometry.of(workload.attributes), number(workload, "out_channels")
    scratch = 4 * round_up(geometry.depth, 16)
    how = struct("cmsis_nn_conv_params", **_RANGE, **_windows(geometry), dilation=_tile(geometry.dilation))
    tensors = _weighted(geometry, _dims(channels, *geometry.kernel, geometry.channels), channels)
    takes = (_context("context", scratch), how, _PER_CHANNEL, *tensors)
    return _LibraryCall(takes, _sizes(geometry, channels), _layer(workload, workload.constants["weights"]), scratch)


def _depthwise(workload: Workload, function: str, core: Core) -> _LibraryCall:
    geometry, multiples = Geometry.of(workload.attributes), number(workload, "multiples")
    channels, window = geometry.channels * multiples, geometry.kernel[0] * geometry.kernel[1]
    scratch = 2 * window * channels
    if core.mve:
        scratch = 4 * window * max(geometry.channels, _DEPTHWISE_BLOCK) + window * channels + 4 * round_up(window, 16)
    how = struct(
        "cmsis_nn_dw_conv_params",
        **_RANGE,
        ch_mult=multiples,
        **_windows(geometry),
        dilation=_tile(geometry.dilation),
    )
    tensors = _weighted(geometry, _dims(1, *geometry.kernel, channels), channels)
    takes = (_context("context", scratch), how, _PER_CHANNEL, *tensors)
    weights = workload.constants["weights"].transpose(1, 2, 0)
    return _LibraryCall(takes, _sizes(geometry, channels), _layer(workload, weights), scratch)


def _fully_connected(workload: Workload, function: str, core: Core) -> _LibraryCall:
    """The context is the bias with the input's zero point folded in, which `arm_vector_sum_s8` would compute."""
    geometry, channels = Geometry.of(workload.attributes), number(workload, "out_channels")
    weights, bias = workload.constants["weights"], workload.constants["bias"]
    sums = fold_zero_point(bias, weights, int(workload.constants["input_zero_point"].item()))
    rows = replace(geometry, height=1, width=1, channels=geometry.depth)
    takes = (
        _context("sums", 4 * channels),
        struct("cmsis_nn_fc_params", **_RANGE),
        _PER_TENSOR if function == FULLY_CONNECTED else _PER_CHANNEL,
        *_weighted(rows, _dims(geometry.depth, 1, 1, channels), channels),
    )
    return _LibraryCall(takes, _sizes(rows, channels), _layer(workload, weights, sums=sums.astype(np.int32)))


def _pool(workload: Workload, function: str, core: Core) -> _LibraryCall:
    """Version 4.0.0 knows no batches."""
    geometry = Geometry.of(workload.attributes)
    single, scratch = replace(geometry, batch=1), 4 * geometry.channels
    activation = struct("cmsis_nn_activation", min=-128, max=127)
    how = struct("cmsis_nn_pool_params", **_windows(geometry), activation=activation)
    x, y = _ends(single, geometry.channels)
    takes = (_context("context", scratch), how, x, "x", _dims(1, *geometry.kernel, 1), y, "y")
    return _LibraryCall(takes, _sizes(single, geometry.channels), {}, scratch, geometry.batch)


_GENERATORS = {
    CONVOLVE: _convolve,
    DEPTHWISE: _depthwise,
    FULLY_CONNECTED: _fully_connected,
    FULLY_CONNECTED_PER_CHANNEL: _fully_connected,
    MAX_POOL: _pool,
    AVERAGE_POOL: _pool,
}
