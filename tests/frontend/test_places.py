"""What is computed of a place alone is a row of a table, where the places are known and few."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tosaic.frontend import capture
from tosaic.frontend.raising import raise_core_aten

aten = torch.ops.aten


class Turned(nn.Module):
    """Rows turned by angles that are computed from their place, as transformers does it, and kept."""

    rows: Tensor
    speeds: Tensor

    def __init__(self, places: int = 48, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(1, places, 8))
        self.register_buffer("speeds", 100.0 ** -(torch.arange(8) / 8))
        self.dtype = dtype

    def angles(self, place: Tensor) -> Tensor:
        return place.unsqueeze(0).to(self.dtype) * self.speeds

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        angles = self.angles(place)
        self.rows.index_copy_(1, place, (x * angles.cos() + x.flip(-1) * angles.sin())[None])
        seen = torch.where(torch.arange(self.rows.shape[1]) <= place, 0.0, -60.0)
        return (self.rows.sum(-1) + seen).softmax(-1)


class Inverse(Turned):
    """Computes an infinity at place 0."""

    def angles(self, place: Tensor) -> Tensor:
        return 1 / place.float() * self.speeds


class Unwritten(Turned):
    """Reads places that nothing bounds."""

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        return x * self.angles(place).cos()


def _raised(model: nn.Module):
    generator = torch.Generator().manual_seed(0)
    calls = [(torch.randn(1, 8, generator=generator), torch.tensor([place])) for place in range(1, 40, 3)]
    captured = capture(model, calls, calls[0])
    module = captured.program.module()
    before = [module(*call)[0] for call in captured.calibration]
    raise_core_aten(module)
    return module, captured.calibration, before


def _targets(module) -> list:
    return [node.target for node in module.graph.nodes]


def test_angles_of_a_place_are_a_row_of_a_table():
    module, calls, before = _raised(Turned())
    targets = _targets(module)
    assert aten.cos.default not in targets and aten.sin.default not in targets and aten._to_copy.default not in targets
    assert targets.count(aten.embedding.default) == 2
    assert aten.le.Tensor in targets  # a mask is a comparison, in integers
    for call, expected in zip(calls, before, strict=True):
        assert torch.equal(module(*call)[0], expected)


def test_each_place_has_its_row():
    module, _, _ = _raised(Turned(places=40))
    tables = [buffer for name, buffer in module.named_buffers() if name.endswith("_places")]
    angles = torch.arange(40).float()[:, None] * 100.0 ** -(torch.arange(8) / 8)
    assert {tuple(table.shape) for table in tables} == {(40, 8)}
    assert any(torch.equal(table, angles.cos()) for table in tables)


@pytest.mark.parametrize("model", [Turned(places=2**15), Inverse(), Unwritten()], ids=["many", "infinite", "unbounded"])
def test_other_functions_of_a_place_stay(model):
    module, calls, before = _raised(model)
    assert aten.embedding.default not in _targets(module) and aten.cos.default in _targets(module)
    assert torch.allclose(module(*calls[0])[0], before[0])
