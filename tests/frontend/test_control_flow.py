"""Branches and loops of torch.export: both ways of a branch, iterations one after the other, the same function."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops import map as rows_of
from torch._higher_order_ops import scan, while_loop

from tosaic.backends.reference import evaluate
from tosaic.builds.accuracy import sqnr_db
from tosaic.frontend import capture, import_program, quantize, run_float
from tosaic.passes import run_phases
from tosaic.support.errors import ModelError
from tosaic.support.mlir import functions, ir, walk
from tosaic.support.quantization import Quantization


class Net(nn.Module):
    """Two layers and a function of them and the input."""

    def __init__(self, function) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other, self.function = nn.Linear(4, 4), nn.Linear(4, 4), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def branch(net: Net, x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, net.one, lambda x: net.other(x).relu() - 1, (x,))


def branch_in_branch(net: Net, x: Tensor) -> Tensor:
    def inner(x: Tensor) -> Tensor:
        return torch.cond(x[0, 0] > 0.5, net.one, net.other, (x,))

    return torch.cond(x.sum() > 0, inner, lambda x: x * 2, (x,))


def known_branch(net: Net, x: Tensor) -> Tensor:
    return torch.cond(net.one.weight.sum() > -100, net.one, net.other, (x,))


def steps(net: Net, x: Tensor) -> Tensor:
    def step(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.tanh(net.one(state) + row)
        return state, state * 0.5

    last, rows = scan(step, torch.zeros(4), x)
    return rows + net.other(last)


def backward_steps(net: Net, x: Tensor) -> Tensor:
    return scan(lambda state, row: (state * 0.5 + row, state + row), torch.zeros(4), x, reverse=True)[1]


def iterations(net: Net, x: Tensor) -> Tensor:
    def iteration(number: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return number + 2, torch.tanh(net.one(x))

    return while_loop(lambda number, x: number < 5, iteration, (torch.tensor(0), x))[1]


def each_row(net: Net, x: Tensor) -> Tensor:
    rows: Callable[..., Tensor] = rows_of
    return rows(lambda row, first: net.one(row) + first, x, x[0].clone())


FUNCTIONS = {
    "branch": branch,
    "branch-in-branch": branch_in_branch,
    "known-branch": known_branch,
    "scan": steps,
    "scan-backward": backward_steps,
    "while-loop": iterations,
    "map": each_row,
}
LEAST_DB = 26


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_function(name):
    net = Net(FUNCTIONS[name])
    draw = torch.Generator().manual_seed(1)
    batches = [(torch.rand(3, 4, generator=draw) * sign,) for sign in (1, -1, 0.2)]
    captured = capture(net, batches, batches[0])
    module = import_program(quantize(captured))
    run_phases(module)
    assert not [op for op in walk(module) if any("f32" in str(result.type) for result in op.results)]
    main = functions(module)["main"]
    (given,), (result,) = (ir.ArrayAttr(main.attributes[kind]) for kind in ("arg_attrs", "res_attrs"))
    for (x,) in batches:
        want = net(x).detach().numpy()
        (real,) = evaluate(import_program(captured.program), [x.numpy()])
        np.testing.assert_allclose(real, want, rtol=1e-4, atol=1e-5)
        stored = quantization(given).quantize_as_torch(x.numpy()).astype(np.int8)
        got = quantization(result).dequantize(evaluate(module, [stored])[0])
        assert (sqnr_db([want], [got]) or math.inf) >= LEAST_DB


def quantization(attributes: ir.Attribute) -> Quantization:
    scale, point = attributes["tosaic.scale"], attributes["tosaic.zero_point"]
    return Quantization.per_tensor("i8", ir.FloatAttr(scale).value, ir.IntegerAttr(point).value)


def test_a_branch_that_an_input_chooses_is_selected():
    captured = capture(Net(branch), None, (torch.ones(3, 4),))
    assert [str(node.target) for node in captured.program.graph.nodes].count("aten.where.self") == 1
    assert not any("cond" in str(node.target) for node in captured.program.graph.nodes)


def test_a_branch_that_no_input_chooses_stands_alone():
    captured = capture(Net(known_branch), None, (torch.ones(3, 4),))
    assert [str(node.target) for node in captured.program.graph.nodes].count("aten.linear.default") == 1


def test_a_loop_that_inputs_end_is_refused():
    def until_small(net: Net, x: Tensor) -> Tensor:
        return while_loop(lambda x: x.abs().sum() > 1, lambda x: (x * 0.5,), (x,))[0]

    with pytest.raises(ModelError, match="how often the loop iterates depends on the inputs") as error:
        capture(Net(until_small), None, (torch.ones(3, 4),))
    assert "test_control_flow.py" in error.value.where


def test_a_loop_of_many_iterations_is_refused():
    def long(net: Net, x: Tensor) -> Tensor:
        return while_loop(lambda n, x: n < 5000, lambda n, x: (n + 1, x * 0.5), (torch.tensor(0), x))[1]

    with pytest.raises(ModelError, match="the loop iterates more than 1024 times"):
        capture(Net(long), None, (torch.ones(3, 4),))


@pytest.mark.parametrize("name", ["branch-in-branch", "scan", "while-loop"])
def test_a_file_holds_them(tmp_path, name):
    net, x = Net(FUNCTIONS[name]), torch.rand(3, 4)
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net.pt2")
    captured = capture(str(tmp_path / "net.pt2"))
    np.testing.assert_allclose(run_float(captured, (x,))[0], net(x).detach(), rtol=1e-5)
