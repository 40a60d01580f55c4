"""Single-bit flips in command streams and weights: the emulator answers each with an error or a result, and never dies.

    python tests/backends/ethos_u/mutate.py ethos-u55-128 ethos-u85-256 --flips 300

prints for each accelerator how many flips an EmulationError named, how many changed an output, and how many passed
unnoticed (a register that the op does not use, a strip of padding, an input that does not reach the bit).
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from tosa_graphs import Graph, random_inputs

from tosaic.backends import reference
from tosaic.backends.ethos_u.emulation import emulate
from tosaic.backends.ethos_u.vela import compile_region
from tosaic.backends.npu import EmulationError, NpuRegion


def network(rng: np.random.Generator) -> tuple[Graph, bytes]:
    """Convolution, depthwise convolution, residual addition, pool and table: every kind of command and weight."""
    graph = Graph()
    x = graph.input((1, 10, 10, 16))
    y = graph.conv2d(x, rng.integers(-127, 128, (32, 1, 1, 16)), rng.integers(-999, 999, 32))
    y = graph.requantize(y, "i8", rng.uniform(0.001, 0.003, 32), output_zero=-9)
    y = graph.depthwise_conv2d(y, rng.integers(-99, 99, (3, 3, 32, 1)), np.zeros(32), pad=(1, 1, 1, 1), input_zero=-9)
    y = graph.requantize(y, "i8", 0.002)
    y = graph.conv2d(y, rng.integers(-127, 128, (16, 1, 1, 32)) * (rng.random((16, 1, 1, 32)) < 0.4), np.zeros(16))
    y = graph.requantize(y, "i8", 0.002)
    wide = [graph.requantize(v, "i32", scale * 2**19) for v, scale in ((x, 0.5), (y, 0.4))]
    y = graph.requantize(graph.binary("add", *wide), "i8", 2.0**-19)
    y = graph.table(graph.pool("max", y, (2, 2), (2, 2)), rng.integers(-128, 128, 256))
    return graph, reference.serialize(graph.module(y))


def flip(region: NpuRegion, rng: np.random.Generator) -> NpuRegion:
    """The region with one bit of its commands or constants turned."""
    name = str(rng.choice(["command_stream", "constants"]))
    data = bytearray(getattr(region, name))
    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    return dataclasses.replace(region, **{name: bytes(data)})


def fate(region: NpuRegion, inputs: list[np.ndarray], expected: list[np.ndarray]) -> str:
    """`error`, `different` or `unnoticed`."""
    try:
        found = emulate(region, inputs).outputs
    except EmulationError:
        return "error"
    return "unnoticed" if all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True)) else "different"


def mutations(accelerator: str, flips: int, seed: int = 0) -> Counter[str]:
    """The fates of `flips` mutations of a small network."""
    rng = np.random.default_rng(seed)
    graph, flatbuffer = network(rng)
    inputs = random_inputs(rng, graph)
    expected = reference.evaluate(flatbuffer, inputs)
    region = compile_region(flatbuffer, accelerator)
    assert fate(region, inputs, expected) == "unnoticed", "the unchanged region must be exact"
    return Counter(fate(flip(region, rng), inputs, expected) for _ in range(flips))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("accelerators", nargs="+")
    parser.add_argument("--flips", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for accelerator in arguments.accelerators:
        began = time.time()
        fates = mutations(accelerator, arguments.flips, arguments.seed)
        print(f"{accelerator}: {dict(fates)} of {arguments.flips} in {time.time() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
