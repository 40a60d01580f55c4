"""Random quantized layers for tests of the MVE kernels: a TOSA module, an input, and what the oracle puts out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from board import Case
from tosa_graphs import Graph, random_input

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import KernelFamily, Site, Workload
from tosaic.backends.reference import evaluate
from tosaic.backends.target import Core
from tosaic.support.mlir import element_type, functions, ir, shape_of
from tosaic.tuner.space import Schedule, Space

UNCOMPARED = Site(compared=False)
"""Spaces begin with any legal schedule: as all must be exact, it often does not matter whether that is a good one."""


@dataclass(frozen=True)
class Layer:
    """A module whose `main` is one kernel, its input and its output."""

    module: ir.Module
    inputs: tuple[np.ndarray, ...]
    expected: tuple[np.ndarray, ...]

    @property
    def function(self) -> ir.Operation:
        return functions(self.module)["main"]

    def workload(self, family: KernelFamily) -> Workload:
        found = family.match(self.function)
        assert found is not None, f"{family.name} does not recognize\n{self.module}"
        return found

    def space(self, family: KernelFamily, core: Core = CORTEX_M55, *, compared: bool = False) -> Space:
        """Its schedules; good ones first where they are `compared`."""
        asked = type(family)(family.libraries, replace(family.site, compared=compared))
        return Space(tuple(asked.variants(self.workload(family), core)))

    def case(
        self,
        family: KernelFamily,
        schedule: Schedule | None = None,
        libraries: tuple[Path, ...] = (),
        core: Core = CORTEX_M55,
    ) -> Case:
        """The kernel of `schedule`, by default of any."""
        schedule = schedule or self.space(family, core).default()
        source = family.generate(self.workload(family), schedule, core)
        return Case(source, self.inputs, self.expected, f"{schedule}", libraries)


def layer_of(graph: Graph, result: ir.Value | Sequence[ir.Value], *inputs: np.ndarray) -> Layer:
    """The layer that returns `result` on `inputs`."""
    module = graph.module(*([result] if isinstance(result, ir.Value) else result))
    return Layer(module, inputs, tuple(evaluate(module, inputs)))


def drawn(graph: Graph, result: ir.Value, rng: np.random.Generator) -> Layer:
    """The layer that returns `result` on random inputs."""
    return layer_of(graph, result, *(random_input(rng, shape_of(x), str(element_type(x))) for x in graph.inputs))


def _multipliers(rng: np.random.Generator, channels: int, depth: int, shifts: tuple[int, int] | None):
    """Multipliers and shifts: such that outputs spread over int8, or shifts drawn from the closed range `shifts`."""
    multiplier = rng.integers(1 << 30, (1 << 31) - 1, channels).astype(np.int32)
    if shifts is None:
        middle = 31 + int(np.ceil(np.log2(48 * np.sqrt(depth))))
        return multiplier, rng.integers(middle, middle + 3, channels).astype(np.int8)
    return multiplier, rng.integers(shifts[0], shifts[1] + 1, channels).astype(np.int8)


def _activated(graph: Graph, y: ir.Value, clamp: tuple[int, int] | None, rng: np.random.Generator | None) -> ir.Value:
    """`y` after an optional CLAMP and, given a generator, a random TABLE."""
    if clamp:
        y = graph.clamp(y, *clamp)
    if rng is None:
        return y
    entries = graph.const(rng.integers(-128, 128, 256), "i8")
    return graph.op("table", [y, entries], shape_of(y), "i8")


def conv2d(
    rng: np.random.Generator,
    shape: tuple[int, int, int, int],
    channels: int,
    kernel: tuple[int, int],
    *,
    shifts: tuple[int, int] | None = None,
    clamp: tuple[int, int] | None = None,
    table: bool = False,
    per_channel: bool = True,
    element: str = "i8",
    least: int = -128,
    group: int = 0,
    unit: int = 0,
    biased: bool = True,
    **options,
) -> Layer:
    """CONV2D of an NHWC `shape` to `channels` of type `element`, with weights from `least` to 127, or of 4 bits with
    a factor for each `group` of the input's channels, and multipliers that are bytes times a `unit`; unless it is
    `biased`, zero points and biases are 0. `options` as in `Graph.conv2d`."""
    graph = Graph()
    x = graph.input(shape)
    depth = kernel[0] * kernel[1] * shape[3]
    weights = rng.integers(least, 128, (channels, *kernel, shape[3])).astype(np.int8)
    if group:
        factors = rng.integers(1, 17, (channels, 1, 1, -(-depth // group))).repeat(group, -1)[..., :depth]
        weights = (rng.integers(-8, 8, weights.shape) * factors).clip(-128, 127 // factors * factors).astype(np.int8)
    bias = rng.integers(-4000, 4000, channels) * biased
    if shifts is not None and shifts[0] < 32:
        # |accumulator| stays below 1 << (shift - 1), which the spec demands.
        weights, bias = np.sign(weights) * (weights % 2) if group else weights // 12, bias // 100
    y = graph.conv2d(x, weights, bias, input_zero=int(rng.integers(-128, 128)) * biased, **options)
    multiplier, shift = _multipliers(rng, channels if per_channel else 1, depth, shifts)
    if unit:
        multiplier = (unit * rng.integers(1, 128, channels)).astype(np.int32)
    zero = int(rng.integers(-128, 128)) if element == "i8" else 0
    y = graph.rescale(y, element, multiplier, shift, output_zero=zero)
    return drawn(graph, _activated(graph, y, clamp, rng if table else None), rng)


def depthwise(
    rng: np.random.Generator,
    shape: tuple[int, int, int, int],
    kernel: tuple[int, int],
    multiples: int = 1,
    *,
    shifts: tuple[int, int] | None = None,
    clamp: tuple[int, int] | None = None,
    table: bool = False,
    element: str = "i8",
    **options,
) -> Layer:
    """DEPTHWISE_CONV2D of an NHWC `shape` to type `element`; `options` as in `Graph.depthwise_conv2d`."""
    graph = Graph()
    x = graph.input(shape)
    channels = shape[3] * multiples
    weights = rng.integers(-128, 128, (*kernel, shape[3], multiples)).astype(np.int8)
    bias = rng.integers(-4000, 4000, channels)
    if shifts is not None and shifts[0] < 32:
        weights, bias = weights // 64, bias // 100
    y = graph.depthwise_conv2d(x, weights, bias, input_zero=int(rng.integers(-128, 128)), **options)
    multiplier, shift = _multipliers(rng, channels, kernel[0] * kernel[1], shifts)
    zero = int(rng.integers(-128, 128)) if element == "i8" else 0
    y = graph.rescale(y, element, multiplier, shift, output_zero=zero)
    return drawn(graph, _activated(graph, y, clamp, rng if table else None), rng)


def conv2d_i16(
    rng: np.random.Generator,
    shape: tuple[int, int, int, int],
    channels: int,
    kernel: tuple[int, int],
    *,
    largest_bias: int = 1 << 20,
    **options,
) -> Layer:
    """CONV2D of int16; the first channel has the `largest_bias`. `options` as in `_int16`."""
    graph = Graph()
    x = graph.input(shape, "i16")
    weights = rng.integers(-128, 128, (channels, *kernel, shape[3]))
    bias = rng.integers(-largest_bias, largest_bias, channels)
    bias[0] = largest_bias
    return _int16(graph, graph.conv2d, x, weights, bias, rng, weights[0].size, **options)


def depthwise_i16(
    rng: np.random.Generator,
    shape: tuple[int, int, int, int],
    kernel: tuple[int, int],
    multiples: int = 1,
    **options,
) -> Layer:
    """DEPTHWISE_CONV2D of int16; `options` as in `_int16`."""
    graph = Graph()
    x = graph.input(shape, "i16")
    weights = rng.integers(-128, 128, (*kernel, shape[3], multiples))
    bias = rng.integers(-(1 << 20), 1 << 20, shape[3] * multiples)
    return _int16(graph, graph.depthwise_conv2d, x, weights, bias, rng, kernel[0] * kernel[1], **options)


def _int16(
    graph: Graph,
    weighted,
    x: ir.Value,
    weights: np.ndarray,
    bias: np.ndarray,
    rng: np.random.Generator,
    depth: int,
    *,
    shifts: tuple[int, int] | None = None,
    clamp: tuple[int, int] | None = None,
    per_channel: bool = True,
    element: str = "i16",
    **options,
) -> Layer:
    """A weighted op and its RESCALE to `element`: outputs spread over int16, or shifts of the closed range `shifts`.

    `options` are those of the op.
    """
    y = weighted(x, weights.astype(np.int8), bias, **options)
    count = len(bias) if per_channel else 1
    multiplier = rng.integers(1 << 14, 1 << 15, count)
    if shifts is None:
        middle = 15 + int(np.ceil(np.log2(max(80 * np.sqrt(depth), np.abs(bias).max() / (1 << 15)))))
        shifts = (middle - 1, middle + 1)
    elif shifts[0] < 16:
        # The scaled sum stays within int32, which the spec demands.
        multiplier = rng.integers(0, 1 << max(1, shifts[0] - 2), count)
    y = graph.rescale(y, element, multiplier, rng.integers(shifts[0], shifts[1] + 1, count), scale32=False)
    return drawn(graph, graph.clamp(y, *clamp) if clamp else y, rng)


def random_window(rng: np.random.Generator, largest_kernel: int = 4) -> dict:
    """Random geometry that TOSA admits: shape, kernel and the options stride, pad, dilation with whole outputs."""
    while True:
        batch, channels = int(rng.integers(1, 3)), int(rng.integers(1, 36))
        height, width = (int(v) for v in rng.integers(1, 13, 2))
        kernel = tuple(int(v) for v in rng.integers(1, largest_kernel + 1, 2))
        stride, dilation = (tuple(int(v) for v in rng.integers(1, 3, 2)) for _ in range(2))
        pad = tuple(int(rng.integers(0, kernel[i // 2])) for i in range(4))
        extents = [height + pad[0] + pad[1], width + pad[2] + pad[3]]
        left = [e - (k - 1) * d - 1 for e, k, d in zip(extents, kernel, dilation, strict=True)]
        if all(rest >= 0 and rest % s == 0 for rest, s in zip(left, stride, strict=True)):
            return {
                "shape": (batch, height, width, channels),
                "kernel": kernel,
                "stride": stride,
                "pad": pad,
                "dilation": dilation,
            }


def matmul(
    rng: np.random.Generator,
    batch: int,
    rows: int,
    depth: int,
    columns: int,
    *,
    clamp: tuple[int, int] | None = None,
    table: bool = False,
    swap: bool = False,
    transposed: bool = False,
    per_column: bool = False,
    scale: tuple[int, int] | None = None,
    centered: bool = False,
) -> Layer:
    """MATMUL (batch, rows, depth) x (batch, depth, columns); `swap` gives `main` its arguments the other way round, and
    `transposed` behind a TRANSPOSE of the second, which is the first one then; `scale` is a multiplier and its shift.

    Args:
        centered: whether the zero point of the first, or of a second of one column, is 0.
    """
    graph = Graph()
    shapes = [(batch, rows, depth), (batch, columns, depth) if transposed else (batch, depth, columns)]
    apart = swap or transposed
    a, b = (graph.input(shape) for shape in shapes) if not apart else reversed([graph.input(s) for s in shapes[::-1]])
    b = graph.op("transpose", [b], (batch, depth, columns), "i8", perms=(0, 2, 1)) if transposed else b
    zeros = [int(v) for v in rng.integers(-128, 128, 2)]
    if centered:
        zeros[columns == 1] = 0
    y = graph.matmul(a, b, *zeros)
    multiplier, shift = scale or _multipliers(rng, columns if per_column else 1, depth, None)
    y = graph.rescale(y, "i8", multiplier, shift, output_zero=int(rng.integers(-128, 128)))
    y = _activated(graph, y, clamp, rng if table else None)
    return drawn(graph, y, rng)


def matmul_i16(
    rng: np.random.Generator, batch: int, rows: int, depth: int, columns: int, *, transposed: bool = False, **drawn: int
) -> Layer:
    """MATMUL of int16, of which the second is perhaps behind a TRANSPOSE, and the first argument then.

    Args:
        drawn: `least` and `most`, between which elements are drawn; by default all are.
    """
    graph, least, most = Graph(), drawn.get("least", -1 << 15), drawn.get("most", (1 << 15) - 1)
    shapes = [(batch, rows, depth), (batch, columns, depth) if transposed else (batch, depth, columns)]
    given = [graph.input(shape, "i16") for shape in (shapes[::-1] if transposed else shapes)]
    a, b = reversed(given) if transposed else given
    b = graph.op("transpose", [b], (batch, depth, columns), "i16", perms=(0, 2, 1)) if transposed else b
    zero = graph.const([0], "i16")
    y = graph.op("matmul", [a, b, zero, zero], (batch, rows, columns), "i48")
    multiplier, shift = rng.integers(1 << 14, 1 << 15, 1), np.array([29 + depth.bit_length()])
    y = graph.rescale(y, "i16", multiplier, shift, scale32=False)
    return layer_of(graph, y, *(rng.integers(least, most + 1, shape_of(x)).astype(np.int16) for x in given))
