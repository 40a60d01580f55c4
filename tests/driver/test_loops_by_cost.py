"""What an NPU computes of recurrent layers: nothing, products of all rows, or every iteration, as their cycles say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import nn

import tosaic
from tosaic.compiler.loops_by_cost import cheaper_loops
from tosaic.compiler.middle import Middle, lower_model
from tosaic.compiler.options import CompileOptions, Tuning
from tosaic.compiler.placement import Placement
from tosaic.compiler.placement_by_cost import with_fewer_commands
from tosaic.support.functions import computing_ops, functions_on
from tosaic.support.mlir import ir
from tosaic.target_files.ready import find_target
from tosaic.terminal.progress import Stations

ITERATIONS, FEATURES, STATE = 6, 24, 48


class Last(nn.Module):
    """[N, T, I] to what the last step of a recurrent layer gives."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0][:, -1]


def network(features: int = FEATURES, state: int = STATE) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Last(nn.LSTM(features, state, batch_first=True)).eval(), torch.randn(1, ITERATIONS, features)


@pytest.fixture(scope="module")
def lowered() -> Callable[[str], tuple[CompileOptions, Middle]]:
    def lower(target: str) -> tuple[CompileOptions, Middle]:
        options = CompileOptions(network()[0], find_target(target), inputs=network()[1])
        return options, lower_model(options, Stations())

    return lower


def ops_on(processor: str, placement: Placement) -> Counter[str]:
    placed = functions_on(processor, placement.module).values()
    return Counter(op.name.removeprefix("tosa.") for function in placed for op in computing_ops(function))


def chosen(lowered: tuple[CompileOptions, Middle], for_a_loop: float) -> tuple[Placement, Placement]:
    """What there was, and what is chosen where the core takes so many cycles for each loop; a third less for one that
    no product of rows is left in."""
    options, middle = lowered

    def cpu_cycles(placed: ir.Module) -> float:
        loops = [f for f in functions_on("cpu", placed).values() if computing_ops(f)[0].name == "tosa.while_loop"]
        return sum(for_a_loop * (1 if "tensor<1x6x24xi8>" in str(f) else 2 / 3) for f in loops)

    return middle.placement, cheaper_loops(middle.placement, options.target, middle.samples, cpu_cycles)


def test_every_iteration_goes_to_an_npu_that_is_far_faster(lowered):
    before, found = chosen(lowered("corstone-320"), 1e7)
    assert ops_on("cpu", before)["while_loop"] == 1 and not before.regions
    assert len(found.regions) == 1 and not ops_on("cpu", found)
    on_npu = ops_on("npu", found)
    assert on_npu["conv2d"] == 1 + ITERATIONS  # one of all rows
    assert on_npu["mul"] == 3 * ITERATIONS - 1  # the first state is empty
    assert not on_npu["concat"]  # as the last row alone is read


def test_flash_that_is_too_small_brings_the_loops_back(lowered):
    options, middle = lowered("corstone-320")
    _, found = chosen((options, middle), 1e7)
    ahead = with_fewer_commands(found, options.target, middle.samples)
    assert ahead is not None and ops_on("npu", ahead)["conv2d"] == 1 and ops_on("cpu", ahead)["while_loop"] == 1
    assert with_fewer_commands(ahead, options.target, middle.samples) is middle.placement


@pytest.mark.parametrize("target", ["corstone-300", "corstone-320"])
def test_products_of_all_rows_go_ahead_where_iterations_do_not_pay(lowered, target):
    _, found = chosen(lowered(target), 50_000)
    assert ops_on("cpu", found)["while_loop"] == 1
    assert ops_on("npu", found)["conv2d"] == 1 and len(found.regions) == 1


def test_nothing_moves_where_the_core_is_faster(lowered):
    before, found = chosen(lowered("corstone-320"), 5_000)
    assert found is before


@pytest.mark.parametrize(("target", "state", "loops"), [("corstone-300", 64, 1), ("corstone-320", 128, 0)])
def test_the_firmware_is_exact_in_either_form(tmp_path, target, state, loops):
    """Weights that exceed the cache, without the products of all rows or even with them."""
    net, example = network(40, state)
    tuning = Tuning(records=tmp_path / "records.db")
    build = tosaic.compile(net, example, target=target, output=tmp_path / "build", tuning=tuning)
    ops = Counter(op.op for op in build.manifest.ops)
    assert ops["WHILE_LOOP"] == loops and build.manifest.regions
    assert build.run().exact
