"""MobileNetV2 with random weights as a TOSA module, quantized to i8: a whole network for the emulator.

    python tests/backends/ethos_u/mobilenet_v2.py ethos-u55-128 --size 224

compiles it, runs it on the emulator and on the reference model, and prints whether they agree and how long each took.
Exits with 1 where they do not.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from tosa_graphs import Graph, random_inputs

from tosaic.backends import reference
from tosaic.backends.ethos_u.emulation import emulate
from tosaic.backends.ethos_u.vela import compile_region
from tosaic.support.mlir import ir, shape_of

# expansion, channels, repeats, stride (Sandler et al. 2018, table 2)
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
_RELU_ZERO, _LINEAR_ZERO = -128, 3


class _Builder:
    def __init__(self, width: float, seed: int) -> None:
        self.graph, self.rng, self.width = Graph(), np.random.default_rng(seed), width

    def channels(self, count: int) -> int:
        return max(8, int(count * self.width + 4) // 8 * 8)

    def conv(self, x: ir.Value, channels: int, kernel=1, stride=1, depthwise=False, zeros=(_RELU_ZERO, _RELU_ZERO)):
        _, height, _, depth = shape_of(x)
        pad = (0,) * 4 if kernel == 1 else ((0, 1, 0, 1) if stride == 2 and height % 2 == 0 else (1,) * 4)
        shape = (kernel, kernel, depth, 1) if depthwise else (channels, kernel, kernel, depth)
        weights = self.rng.normal(0, 35, shape).clip(-127, 127).astype(int)
        bias = self.rng.integers(-4000, 4000, channels)
        build = self.graph.depthwise_conv2d if depthwise else self.graph.conv2d
        y = build(x, weights, bias, pad=pad, stride=(stride, stride), input_zero=zeros[0])
        fan_in = kernel * kernel * (1 if depthwise else depth)
        scales = self.rng.uniform(0.6, 1.2, channels) * 50 / (1600 * np.sqrt(fan_in))
        return self.graph.requantize(y, "i8", scales, output_zero=zeros[1])

    def residual(self, x: ir.Value, y: ir.Value) -> ir.Value:
        wide = [self.graph.requantize(v, "i32", s * 2**20, input_zero=_LINEAR_ZERO) for v, s in ((x, 0.5), (y, 0.375))]
        total = self.graph.binary("add", *wide)
        return self.graph.requantize(total, "i8", 0.08 / 0.045 / 2**20, output_zero=_LINEAR_ZERO)

    def network(self, size: int) -> ir.Module:
        x = self.conv(self.graph.input((1, size, size, 3)), self.channels(32), 3, 2, zeros=(-1, _RELU_ZERO))
        zero = _RELU_ZERO
        for expansion, count, repeats, stride in _STAGES:
            for index in range(repeats):
                y, inner = x, zero
                if expansion > 1:
                    y, inner = self.conv(y, shape_of(y)[3] * expansion, zeros=(zero, _RELU_ZERO)), _RELU_ZERO
                step = stride if index == 0 else 1
                y = self.conv(y, shape_of(y)[3], 3, step, depthwise=True, zeros=(inner, _RELU_ZERO))
                y = self.conv(y, self.channels(count), zeros=(_RELU_ZERO, _LINEAR_ZERO))
                x = self.residual(x, y) if shape_of(x) == shape_of(y) and zero == _LINEAR_ZERO else y
                zero = _LINEAR_ZERO
        x = self.conv(x, 1280, zeros=(zero, _RELU_ZERO))
        x = self.graph.pool("avg", x, shape_of(x)[1:3], zero=_RELU_ZERO)
        return self.graph.module(self.graph.reshape(self.conv(x, 1000, zeros=(_RELU_ZERO, -10)), (1, 1000)))


def mobilenet_v2(size: int, width: float = 1.0, seed: int = 0) -> tuple[Graph, ir.Module]:
    """The network for images of (1, size, size, 3)."""
    builder = _Builder(width, seed)
    module = builder.network(size)
    return builder.graph, module


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("accelerators", nargs="+")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--width", type=float, default=1.0)
    arguments = parser.parse_args()
    graph, module = mobilenet_v2(arguments.size, arguments.width)
    flatbuffer = reference.serialize(module)
    inputs = random_inputs(np.random.default_rng(1), graph)
    began = time.time()
    expected = reference.evaluate(flatbuffer, inputs)[0]
    print(f"reference model {time.time() - began:.1f} s, {len(np.unique(expected))} distinct outputs")
    wrong = 0
    for accelerator in arguments.accelerators:
        began = time.time()
        region = compile_region(flatbuffer, accelerator)
        compiled = time.time()
        run = emulate(region, inputs)
        wrong += int((run.outputs[0] != expected).sum())
        print(
            f"{accelerator}: compiled in {compiled - began:.1f} s, emulated in {time.time() - compiled:.1f} s, "
            f"{wrong} outputs differ, {region.cycles} cycles estimated, {dict(run.report.counts)}",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
