"""RMSNorm, however it is written, is one op; what looks like it stays."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tosaic.frontend import capture
from tosaic.frontend.normalization import fold_affines
from tosaic.frontend.raising import raise_core_aten
from tosaic.frontend.rms_norm import RMS_NORM, raise_rms_norms


class Written(nn.Module):
    """A function of x and a weight of its channels."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.linspace(0.5, 2, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight)


def _square_mean(x: Tensor) -> Tensor:
    return x.pow(2).mean(-1, keepdim=True)


def _raised(model: nn.Module):
    x = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    captured = capture(model, [(x,)], x)
    module = captured.program.module()
    expected = module(*captured.calibration[0])[0]
    raise_core_aten(module)
    raise_rms_norms(module)
    module.recompile()
    torch.testing.assert_close(module(*captured.calibration[0])[0], expected)
    return module, captured.calibration[0], expected


def _norms(module) -> list:
    return [node for node in module.graph.nodes if node.target is RMS_NORM]


_WAYS = {
    "Llama": lambda x, w: w * (x * torch.rsqrt(_square_mean(x) + 1e-5)),
    "product first": lambda x, w: torch.rsqrt(1e-5 + _square_mean(x)) * x * w,
    "x times x": lambda x, w: x * torch.rsqrt((x * x).mean(2, keepdim=True) + 1e-5) * w,
    "square": lambda x, w: x * (x.square().mean(-1, True) + 1e-5).rsqrt() * w,
    "quotient": lambda x, w: x / torch.sqrt(_square_mean(x) + 1e-5) * w,
    "power": lambda x, w: x * (_square_mean(x) + 1e-5).pow(-0.5) * w,
    "Gemma": lambda x, w: x * torch.rsqrt(_square_mean(x) + 1e-5) * (1.0 + w),
}


@pytest.mark.parametrize("way", _WAYS)
def test_each_way_is_one_op(way):
    module, _, _ = _raised(Written(_WAYS[way]))
    (norm,) = _norms(module)
    assert norm.args[2] is not None and norm.args[3] == pytest.approx(1e-5)
    assert torch.ops.aten.rsqrt.default not in [node.target for node in module.graph.nodes]


def test_pytorchs_own_layer_is_one_op():
    module, _, _ = _raised(nn.RMSNorm(8, eps=1e-6))
    assert len(_norms(module)) == 1


def test_without_a_weight_it_is_one_op():
    module, _, _ = _raised(Written(lambda x, w: x * torch.rsqrt(_square_mean(x) + 1e-5) + w))
    (norm,) = _norms(module)
    assert norm.args[2] is None


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-5) * w,
        lambda x, w: (x + 1) * torch.rsqrt(_square_mean(x) + 1e-5) * w,
        lambda x, w: x * torch.rsqrt(x.pow(4).mean(-1, keepdim=True) + 1e-5) * w,
        lambda x, w: x * torch.rsqrt(_square_mean(x) + w.sum()) * w,
        lambda x, w: x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-5) * w,
    ],
    ids=["another axis", "another x", "another power", "a computed epsilon", "a sum"],
)
def test_what_looks_like_it_stays(function):
    module, _, _ = _raised(Written(function))
    assert not _norms(module)


def test_linear_layers_take_over_its_weight():
    class Read(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.one, self.other = nn.RMSNorm(8), nn.Linear(8, 4), nn.Linear(8, 4, bias=False)
            self.norm.weight.data = torch.linspace(0.5, 2, 8)

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(x)
            return self.one(y) + self.other(y)

    module, given, expected = _raised(Read())
    fold_affines(module)
    module.recompile()
    (norm,) = _norms(module)
    assert len(norm.all_input_nodes) == 1
    torch.testing.assert_close(module(*given)[0], expected)
