"""Coarser steps of weights: as many as a loss allows, or as save what is asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tosaic.frontend import Capture, WeightBudget, coarsen, prepare, quantize
from tosaic.frontend.canonical import canonical
from tosaic.frontend.quantizer import Prepared
from tosaic.support.quantization import CoarserWeights


def captured() -> Capture:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).eval()
    with torch.no_grad():
        model.get_parameter("2.weight").mul_(torch.logspace(-3, 0, 64)[:, None])
    mixing = torch.eye(24) + 0.5
    batches = tuple((one[None] @ mixing,) for one in torch.randn(32, 24))
    return Capture("model", canonical(torch.export.export(model, batches[0])), batches[0], batches)


def entropy(weights: np.ndarray) -> int:
    """Bytes of an ideal code."""
    assert weights.dtype == np.int8
    share = np.unique(weights, return_counts=True)[1] / weights.size
    return round(-weights.size * float((share * np.log2(share)).sum()) / 8)


def coarse(budget: str) -> tuple[CoarserWeights, Prepared, Capture]:
    model = captured()
    prepared = prepare(model)
    with torch.no_grad():
        found = coarsen(prepared, model.calibration, WeightBudget.parse(budget), entropy)
    return found, prepared, model


def integers(model: Capture, budget: str) -> list[torch.Tensor]:
    def adjust(prepared: Prepared) -> None:
        coarsen(prepared, model.calibration, WeightBudget.parse(budget), entropy)

    program = quantize(model, adjust=adjust)
    return [one for one in program.state_dict.values() if one.dtype == torch.int8]


def test_a_loss_buys_bytes_and_no_more_is_lost():
    by_loss = [coarse(loss)[0] for loss in ("0.5dB", "1.5dB", "3dB")]
    for one, loss in zip(by_loss, (0.5, 1.5, 3), strict=True):
        assert one.sqnr_db and one.finest_db and one.sqnr_db >= one.finest_db - loss
        assert one.of_layers == 3 and one.layers > 0
    sizes = [one.encoded_bytes for one in by_loss]
    assert sizes[0] > sizes[1] > sizes[2] and sizes[0] < by_loss[0].finest_bytes


@pytest.mark.parametrize("share", [0.05, 0.2, 0.35])
def test_a_share_is_saved(share):
    found, *_ = coarse(f"{100 * share:g}%")
    saved = 1 - found.encoded_bytes / found.finest_bytes
    assert share <= saved < share + 0.15
    assert found.sqnr_db and found.finest_db and found.sqnr_db < found.finest_db


def test_what_is_told_is_what_the_program_has():
    model = captured()
    found = coarsen(prepare(model), model.calibration, WeightBudget.parse("25%"), entropy)
    stored = integers(model, "25%")
    assert sum(entropy(one.numpy()) for one in stored) == pytest.approx(found.encoded_bytes, rel=0.03)
    reach = [int(one.abs().max()) for one in stored]
    assert sum(one < 127 for one in reach) == found.layers


def test_nothing_asked_is_nothing_changed():
    found, prepared, model = coarse("0%")
    assert found.layers == 0 and found.encoded_bytes == found.finest_bytes
    plain = prepare(model)
    ranges = {name: one for name, one in plain.module.named_buffers() if name.endswith("max_val")}
    assert ranges and all(one.equal(prepared.module.get_buffer(name)) for name, one in ranges.items())


@pytest.mark.parametrize("text", ["1", "dB", "-1dB", "100%", "150%", "-3%", "much"])
def test_what_is_no_budget(text):
    with pytest.raises(ValueError, match=r"."):
        WeightBudget.parse(text)


def test_budgets_are_written_as_they_are_read():
    assert [str(WeightBudget.parse(text)) for text in ("1dB", "0.5dB", "20%")] == ["1dB", "0.5dB", "20%"]
