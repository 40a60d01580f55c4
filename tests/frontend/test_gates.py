"""Channels of gated products are made alike; the model stays the same function."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tosaic.frontend.gates import balance_gates
from tosaic.frontend.parameters import parameter


class GatedLayers(nn.Module):
    """SwiGLU of which one channel is 100 times the others; `twice` reads the product beside its layer."""

    def __init__(self, bias: bool, twice: bool = False) -> None:
        super().__init__()
        self.gate, self.factor = nn.Linear(32, 64), nn.Linear(32, 64, bias=bias)
        self.out, self.twice = nn.Linear(64, 4, bias=bias), twice
        self.factor.weight.data[3] *= 100
        self.factor.weight.data[5] = 0

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.silu(self.gate(x)) * self.factor(x)
        return self.out(y) + (y[..., :4] if self.twice else 0.0)


def _balanced(model: nn.Module, named: tuple[str, ...] = ()):
    batches = [(torch.randn(2, 3, 32),) for _ in range(4)]
    module = torch.export.export(model.eval(), batches[0]).module()
    expected = module(*batches[0])
    balance_gates(module, batches, named, 32)
    torch.testing.assert_close(module(*batches[0]), expected, rtol=1e-4, atol=1e-5)
    linears = [node for node in module.graph.nodes if node.target is torch.ops.aten.linear.default]
    return batches, [parameter(module, node.args[1]) for node in linears]


@pytest.mark.parametrize("bias", [False, True])
def test_channels_lose_the_root_of_how_much_greater_they_are(bias):
    torch.manual_seed(0)
    model = GatedLayers(bias)
    batches, (_, rows, columns) = _balanced(model)
    with torch.no_grad():
        products = torch.cat([nn.functional.silu(model.gate(x)) * model.factor(x) for (x,) in batches])
    greatest = products.abs().flatten(0, -2).amax(0)
    scales = (greatest / greatest[greatest > 0].median()).clamp(1 / 256, 256).rsqrt()
    torch.testing.assert_close(rows, model.factor.weight.detach() * scales[:, None])
    torch.testing.assert_close(columns, model.out.weight.detach() / scales)
    assert scales[3] < 0.3


@pytest.mark.parametrize(("twice", "named"), [(True, ()), (False, ("out",)), (False, ("factor",))])
def test_what_others_read_and_weights_of_four_bits_stay(twice, named):
    torch.manual_seed(0)
    model = GatedLayers(False, twice)
    _, (_, rows, columns) = _balanced(model, named)
    assert rows.equal(model.factor.weight) and columns.equal(model.out.weight)


def test_methods_that_share_their_weights_keep_sharing_them():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = GatedLayers(False)
            self.other = GatedLayers(False)
            self.other.load_state_dict(self.one.state_dict())

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.one(x), self.other(3 * x)

    torch.manual_seed(0)
    batches = [(torch.randn(2, 3, 32),) for _ in range(4)]
    module = torch.export.export(Twice().eval(), batches[0]).module()
    balance_gates(module, batches)
    linears = [node for node in module.graph.nodes if node.target is torch.ops.aten.linear.default]
    _, rows, columns, _, other_rows, other_columns = [parameter(module, node.args[1]) for node in linears]
    assert rows.equal(other_rows) and columns.equal(other_columns)
