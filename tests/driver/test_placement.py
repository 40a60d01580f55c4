"""Placement keeps off the NPU what Vela's command stream computes wrongly, also where no rule foresees it."""

from __future__ import annotations

import numpy as np
from tosa_graphs import Graph

from tosaic.builds.manifest import placed_ops
from tosaic.compiler.placement import place_on
from tosaic.passes import random_inputs
from tosaic.passes.place.verdicts import VERDICTS
from tosaic.target_files.ready import find_target


def test_an_op_computed_wrongly_goes_to_the_cpu_with_the_difference(monkeypatch):
    """Vela takes a nearest RESIZE by 2 and 4 for the U55, and computes it as if both were equal."""
    rng = np.random.default_rng(0)
    graph = Graph()
    x = graph.input((1, 8, 8, 16))
    weights = rng.integers(-127, 128, (16, 3, 3, 16))
    y = graph.requantize(graph.conv2d(x, weights, np.zeros(16), pad=(1, 1, 1, 1)), "i8", 0.002)
    module = graph.module(graph.resize(y, "NEAREST_NEIGHBOR", (2, 1, 4, 1), (0, 0), (0, 0)))
    monkeypatch.setitem(VERDICTS, "ethos-u55-128", lambda op: None)

    placed = place_on(find_target("corstone-300"), [module], [random_inputs(module, 1)])

    where = {op.op: op for op in placed_ops(placed.module, placed.regions)}
    assert where["CONV2D"].processor == "npu"
    assert where["RESIZE"].processor == "cpu"
    assert where["RESIZE"].reason.startswith("Vela's command stream computes it wrongly: output 0")
