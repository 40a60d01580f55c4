"""Ops leave the NPU where the CPU is measured to be faster, hand-overs included, and only there."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import nn
from tosa_graphs import Graph

import tosaic
from tosaic.backends.firmware.kit import CYCLES_PER_NPU_CALL
from tosaic.builds.manifest import placed_ops
from tosaic.compiler.options import Tuning
from tosaic.compiler.placement import Placement, place_on
from tosaic.compiler.placement_by_cost import cheaper_placement, with_fewer_commands
from tosaic.compiler.tuning import Tuner
from tosaic.passes import random_inputs
from tosaic.support.errors import OutOfFlashError
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


def test_a_product_takes_the_transpose_of_its_operand_with_it():
    """A kernel of the core reads rows as well as columns."""
    rng, graph = np.random.default_rng(0), Graph()
    y = graph.conv2d(graph.input((1, 32, 1, 16)), rng.integers(-127, 128, (16, 1, 1, 16)), np.zeros(16))
    rows = graph.reshape(graph.requantize(y, "i8", 0.001), (2, 16, 16))
    keys = graph.transpose(graph.input((1, 2, 64, 16)), (0, 1, 3, 2))
    product = graph.matmul(rows, graph.reshape(keys, (2, 16, 64)))
    module = graph.module(graph.requantize(product, "i8", 0.01))
    samples = [random_inputs(module, 1)]
    placement = place_on(TARGET, [module], samples)
    found = cheaper_placement(placement, TARGET, samples, lambda divided: 3000.0 * len(functions_on("cpu", divided)))
    ops = {op.op: op.processor for op in placed_ops(found.module, found.regions)}
    assert (ops["MATMUL"], ops["TRANSPOSE"], ops["CONV2D"]) == ("cpu", "cpu", "npu")
    assert [len(functions_on("cpu", one.module)) for one in (placement, found)] == [0, 1]


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


def test_what_takes_most_commands_leaves_the_npu(placed):
    """A command for each of the product's 1,024 elements."""
    placement, samples = placed
    (region,) = placement.regions.values()
    fewer = with_fewer_commands(placement, TARGET, samples)
    assert fewer is not None
    on_cpu = [op for op in placed_ops(fewer.module, fewer.regions) if op.reason.startswith("the flash")]
    (product,) = on_cpu
    assert product.op == "MATMUL" and product.processor == "cpu"
    told = int(re.sub(r"\D", "", product.reason))
    left = sum(len(one.command_stream) for one in fewer.regions.values())
    assert 4 * 1024 < told <= len(region.command_stream)
    assert left < len(region.command_stream) - 0.9 * told
    assert with_fewer_commands(fewer, TARGET, samples) is None


class Beside(nn.Module):
    """A small product of many commands, beside a convolution that takes most of the cycles."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(32, 64, 3)

    def forward(self, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.conv(x), a @ b


def test_a_limit_of_flash_moves_what_takes_many_commands(tmp_path):
    torch.manual_seed(0)
    inputs = torch.randn(1, 32, 34, 34), torch.randn(1, 16, 32), torch.randn(1, 32, 16)

    def built(flash: int | None) -> tuple[tosaic.Build, str]:
        target = find_target("corstone-300", flash_size=flash)
        tuning = Tuning(records=tmp_path / "records.db")
        build = tosaic.compile(Beside(), inputs, target=target, output=tmp_path / f"{flash}", tuning=tuning)
        return build, next(op.processor for op in build.manifest.ops if op.op == "MATMUL")

    free, processor = built(None)
    assert processor == "npu"
    limit = free.manifest.firmware.flash_bytes - 1
    small, processor = built(limit)
    assert processor == "cpu" and small.manifest.firmware.flash_bytes <= limit and small.run().exact
    with pytest.raises(OutOfFlashError, match="needs more flash than 1000 B"):
        built(1000)


def test_a_placement_fits_or_not(placed, tmp_path):
    placement, samples = placed
    small = find_target("corstone-300", arena_size=2048)
    for target, fits in ((TARGET, True), (small, False)):
        with Tuner(target, Tuning(records=tmp_path / "records.db"), None) as tuner:
            tasks = tuner.tasks(placement.module, "all", samples[0])
            assert tuner.fits(tasks, placement.module, placement.regions) == fits
