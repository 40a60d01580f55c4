"""Ranges that are cut where a tensor alone would spoil an output, and nowhere else."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tosaic.frontend import Capture, capture, quantize, run_float_on
from tosaic.frontend.bias_correction import ratio_db
from tosaic.frontend.calibrated import Calibrated
from tosaic.frontend.quantizer import prepare


class Uneven(nn.Module):
    """A channel of small values that counts, beside one of large values that hardly does."""

    def __init__(self, of_large: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([40.0, 0.3])[:, None, None])
        self.head = nn.Conv2d(2, 2, 3, groups=2, padding=1)
        self.sum = nn.Conv2d(2, 1, 1)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([of_large, 1.0]).reshape(2, 1, 1, 1) * torch.rand(2, 1, 3, 3))
            self.sum.weight.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.sum(self.head(F.hardswish(self.scale * x)))


def uneven(of_large: float) -> tuple[Capture, list[Tensor]]:
    """The model, calibrated with a few samples; and other samples."""
    torch.manual_seed(0)
    samples = list(torch.rand(24, 2, 8, 8).split(1))
    batches = [(one,) for one in samples[:12]]
    return capture(Uneven(of_large).eval(), batches, batches[0]), samples[12:]


def ends(captured: Capture) -> dict[str, tuple[float, float]]:
    module = prepare(captured).module
    graph = Calibrated(module)
    return {node.name: found.range for node in module.graph.nodes if (found := graph.result(node))}


def fresh_db(captured: Capture, samples: list[Tensor]) -> float:
    rounded, exact = ([torch.from_numpy(one) for (one,) in run_float_on(model, [[each] for each in samples])]
                      for model in (quantize(captured), captured))  # fmt: skip
    return ratio_db(zip(exact, rounded, strict=True))


def test_a_range_is_cut_where_small_values_count(monkeypatch):
    captured, fresh = uneven(1e-4)
    found, searched = ends(captured), fresh_db(captured, fresh)
    monkeypatch.setattr("tosaic.frontend.quantizer.search_worst_ranges", lambda *_: None)
    before, plain = ends(captured), fresh_db(captured, fresh)
    changed = {name for name in before if before[name] != found[name]}
    assert "hardswish" in changed and found["hardswish"][1] < before["hardswish"][1] / 4
    assert searched > plain + 8


def test_ranges_stay_where_no_tensor_spoils_an_output(monkeypatch):
    captured, _ = uneven(1.0)
    found = ends(captured)
    monkeypatch.setattr("tosaic.frontend.quantizer.search_worst_ranges", lambda *_: None)
    assert ends(captured) == found


def test_results_that_are_not_finite_are_the_worst():
    """The logarithm of what rounds to 0."""
    assert ratio_db([(torch.tensor([1.0, 2.0]), torch.tensor([1.0, -torch.inf]))]) == -torch.inf
    assert ratio_db([(torch.tensor([1.0, 2.0]), torch.tensor([1.0, torch.nan]))]) == -torch.inf
