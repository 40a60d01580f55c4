"""Channels that are constant or unread are dropped through chains, and no output changes."""

from __future__ import annotations

import numpy as np
import pytest
from tosa_graphs import Graph

from tosaic.backends.reference import evaluate
from tosaic.passes import first_difference, random_inputs, run_phases
from tosaic.support.functions import dropped_from
from tosaic.support.mlir import copy_of, functions, ir, shape_of, walk

ZERO = 3


class Chain(Graph):
    """A graph whose convolutions have dead channels."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)

    def conv(self, x: ir.Value, outputs: int, dead: range = range(0), size: int = 1, pad: int = 0) -> ir.Value:
        weights = self.rng.integers(-127, 128, (outputs, size, size, shape_of(x)[3]))
        weights[dead] = 0
        bias = self.rng.integers(-9999, 9999, outputs)
        y = self.conv2d(x, weights, bias, pad=(pad,) * 4, input_zero=ZERO)
        return self.requantize(y, "i8", scale=self.rng.uniform(1e-3, 3e-3, outputs), output_zero=ZERO)

    def depthwise(self, x: ir.Value, pad: int = 1, dead: range = range(0)) -> ir.Value:
        weights = self.rng.integers(-127, 128, (3, 3, shape_of(x)[3], 1))
        weights[:, :, dead] = 0
        bias = self.rng.integers(-9999, 9999, shape_of(x)[3])
        y = self.depthwise_conv2d(x, weights, bias, pad=(pad,) * 4, input_zero=ZERO)
        return self.requantize(y, "i8", scale=self.rng.uniform(1e-3, 3e-3, shape_of(x)[3]), output_zero=ZERO)


def widths(module: ir.Module) -> list[int]:
    """The channels that convolutions give."""
    ops = walk(functions(module)["main"])
    return [shape_of(op.results[0])[3] for op in ops if op.name in ("tosa.conv2d", "tosa.depthwise_conv2d")]


def dropped(graph: Graph, *results: ir.Value) -> ir.Module:
    """The module after the pass, which equals the one before on random inputs."""
    module = graph.module(*results)
    after = copy_of(module)
    run_phases(after, ["layout", "fuse"])
    inputs = random_inputs(module, seed=1)
    assert first_difference(evaluate(module, inputs), evaluate(after, inputs)) == ""
    return after


def test_a_chain_of_depthwise_and_pointwise():
    g = Chain(0)
    x = g.input((1, 6, 6, 3), "i8")
    y = g.table(g.conv(x, 16, dead=range(4, 12)), g.rng.integers(-128, 128, 256))
    module = dropped(g, g.conv(g.depthwise(y, pad=0), 8))
    assert widths(module) == [8, 8, 8]
    channels, weights, products = dropped_from(functions(module)["main"])
    assert (channels, weights) == (16, 8 * 3 + 8 * 9 + 8 * 8)
    assert products == 8 * 3 * 36 + 8 * 9 * 16 + 8 * 8 * 16


def test_padding_meets_zero_points_and_nothing_else():
    """Next to padding a constant adds less to the sums, unless it is the zero point."""
    g = Chain(1)
    x = g.input((1, 6, 6, 3), "i8")
    kept = g.conv(g.conv(x, 16, dead=range(8)), 8, size=3, pad=1)
    gone = g.conv(g.clamp(g.conv(x, 16, dead=range(8)), ZERO, ZERO), 8, size=3, pad=1)
    assert widths(dropped(g, kept, gone)) == [16, 8, 8, 8]


def test_what_nothing_reads_is_dropped_with_what_makes_it():
    g = Chain(2)
    x = g.input((1, 5, 5, 3), "i8")
    y = g.conv(x, 12)
    weights = g.rng.integers(-127, 128, (8, 1, 1, 12))
    weights[..., 4:] = 0
    z = g.requantize(g.conv2d(y, weights, np.arange(8), input_zero=ZERO), "i8", scale=np.full(8, 1e-3))
    assert widths(dropped(g, z)) == [4, 8]


def test_a_residual_drops_what_is_dead_on_both_sides():
    g = Chain(3)
    x = g.input((1, 5, 5, 8), "i8")
    one, other = g.conv(x, 16, dead=range(8)), g.conv(x, 16, dead=range(4, 12))
    wide = [g.requantize(side, "i32", scale=1.0, input_zero=ZERO) for side in (one, other)]
    total = g.requantize(g.binary("add", *wide), "i8", scale=0.5, output_zero=ZERO)
    weights = g.rng.integers(-127, 128, (8, 1, 1, 16))
    weights[..., 4:8] = 0
    module = dropped(
        g, g.requantize(g.conv2d(total, weights, np.arange(8), input_zero=ZERO), "i8", scale=np.full(8, 1e-3))
    )
    assert widths(module) == [12, 12, 8]


def test_a_concatenation_has_each_parts_channels():
    g = Chain(4)
    x = g.input((1, 5, 5, 3), "i8")
    joined = g.concat([g.conv(x, 8, dead=range(4)), g.conv(x, 12, dead=range(2, 10))], 3)
    assert widths(dropped(g, g.conv(joined, 8))) == [4, 4, 8]


@pytest.mark.parametrize("reads", ["result", "pool", "transpose"])
def test_what_other_ops_read_stays(reads):
    g = Chain(5)
    x = g.input((1, 4, 4, 3), "i8")
    y = g.conv(x, 16, dead=range(8))
    further = {
        "result": lambda: y,
        "pool": lambda: g.pool("max", y, (2, 2)),
        "transpose": lambda: g.transpose(y, (0, 2, 3, 1)),
    }
    assert widths(dropped(g, g.conv(y, 8), further[reads]())) == [16, 8]


def test_a_table_of_as_many_entries_as_channels_stays_whole():
    g = Chain(6)
    x = g.input((1, 2, 2, 3), "i8")
    y = g.table(g.conv(x, 256, dead=range(128)), g.rng.integers(-128, 128, 256))
    assert widths(dropped(g, g.conv(y, 4))) == [128, 4]


@pytest.mark.parametrize(("dead", "left"), [(6, 12), (3, 16), (16, 4)])
def test_whole_blocks_are_left(dead, left):
    g = Chain(7)
    x = g.input((1, 3, 3, 3), "i8")
    assert widths(dropped(g, g.conv(g.conv(x, 16, dead=range(dead)), 8))) == [left, 8]
