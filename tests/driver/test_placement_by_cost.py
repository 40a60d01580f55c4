"""Ops leave the NPU where the CPU is measured to be faster, hand-overs included, and only there."""

from __future__ import annotations

import numpy as np
import pytest
from tosa_graphs import Graph

from tosaic.backends.firmware.kit import CYCLES_PER_NPU_CALL
from tosaic.builds.manifest import placed_ops
from tosaic.compiler.options import Tuning
from tosaic.compiler.placement import Placement, place_on
from tosaic.compiler.placement_by_cost import cheaper_placement
from tosaic.compiler.tuning import Tuner
from tosaic.passes import random_inputs
from tosaic.support.functions import functions_on
from tosaic.support.mlir import ir
from tosaic.target_files.ready import find_target

TARGET = find_target("corstone-300")


def attention() -> ir.Module:
    """A product, of which Ethos-U55 makes each element by itself, between two convolutions."""
    rng, graph = np.random.default_rng(0), Graph()

    def convolved(x: ir.Value) -> ir.Value:
        image = (1, 32, 1, 32)
        y = graph.conv2d(graph.reshape(x, image), rng.integers(-127, 128, (32, 1, 1, 32)), np.zeros(32))
        return graph.reshape(graph.requantize(y, "i8", 0.001), (2, 16, 32))

    a, b = graph.input((2, 16, 32)), graph.input((2, 32, 32))
    return graph.module(convolved(graph.requantize(graph.matmul(convolved(a), b), "i8", 0.001)))


@pytest.fixture(scope="module")
def placed() -> tuple[Placement, list]:
    module = attention()
    samples = [random_inputs(module, 1)]
    return place_on(TARGET, [module], samples), samples


def cycles(placement: Placement) -> int:
    return sum(region.cycles + CYCLES_PER_NPU_CALL for region in placement.regions.values())


def test_products_go_to_the_cpu_where_it_is_faster(placed):
    placement, samples = placed
    assert len(placement.regions) == 1

    def cpu_cycles(divided: ir.Module) -> float:
        return 3000.0 * len(functions_on("cpu", divided))

    found = cheaper_placement(placement, TARGET, samples, cpu_cycles)
    ops = {op.op: op for op in placed_ops(found.module, found.regions)}
    assert ops["MATMUL"].processor == "cpu" and ops["CONV2D"].processor == "npu" and len(found.regions) == 2
    assert ops["MATMUL"].reason.startswith("the CPU is faster: the NPU takes ")
    assert cycles(found) + cpu_cycles(found.module) < cycles(placement)


def test_nothing_moves_where_the_cpu_is_slower(placed):
    placement, samples = placed
    asked = []

    def cpu_cycles(divided: ir.Module) -> float:
        asked.append(len(functions_on("cpu", divided)))
        return 50_000.0 * asked[-1]

    assert cheaper_placement(placement, TARGET, samples, cpu_cycles) is placement
    assert asked[0] == 0 and max(asked) >= 1


def test_hand_overs_count(placed):
    """What the CPU saves of a product is less than the calls of the NPU that it ends."""
    placement, samples = placed
    saved = max(op.npu_cycles or 0 for op in placed_ops(placement.module, placement.regions))

    def cpu_cycles(divided: ir.Module) -> float:
        return (saved - CYCLES_PER_NPU_CALL / 2) * len(functions_on("cpu", divided))

    assert cheaper_placement(placement, TARGET, samples, cpu_cycles) is placement


def test_a_placement_fits_or_not(placed, tmp_path):
    placement, samples = placed
    small = find_target("corstone-300", arena_size=2048)
    for target, fits in ((TARGET, True), (small, False)):
        with Tuner(target, Tuning(records=tmp_path / "records.db"), None) as tuner:
            tasks = tuner.tasks(placement.module, "all", samples[0])
            assert tuner.fits(tasks, placement.module, placement.regions) == fits
