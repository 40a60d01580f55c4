"""`tosaic weights`: builds of ever fewer weight bytes, what each gives on a user's data, and the one that is chosen."""

from __future__ import annotations

import pytest
from conftest import NETS

from tosaic.api import Build
from tosaic.compiler import weight_front
from tosaic.compiler.goals import BuildCost
from tosaic.frontend.coarser_weights import WeightBudget
from tosaic.support.quantization import CoarserWeights

NET = f"{NETS}:net"
DATA = """
import torch

def samples():
    torch.manual_seed(3)
    return torch.randn(6, 1, 3, 12, 12)

def others():
    return torch.randn(6, 1, 3, 16, 16)

def largest(outputs, labels):
    return max(abs(output).max() for output in outputs)
"""


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data.py").write_text(DATA)
    return f"{tmp_path / 'data.py'}"


def test_each_build_has_fewer_bytes_and_one_is_kept(data, succeed, tmp_path, monkeypatch):
    monkeypatch.setattr(weight_front, "_SAVED", (0.0, 0.25, 0.25))
    measured = ("--data", f"{data}:samples", "--metric", f"{data}:largest")
    chosen = ("--target", "corstone-300", "--point", 2, "-o", tmp_path / "build")
    finest, coarse = succeed("weights", NET, *measured, *chosen)["points"]
    assert (finest["budget"], coarse["budget"]) == ("0%", "25%")
    whole, left = (point["weights"]["encoded_bytes"] for point in (finest, coarse))
    assert left <= 0.75 * whole == 0.75 * finest["weights"]["finest_bytes"]
    assert (
        coarse["cost"]["sqnr_db"] < finest["cost"]["sqnr_db"] and coarse["cost"]["cycles"] <= finest["cost"]["cycles"]
    )
    assert coarse["cost"]["flash_bytes"] < finest["cost"]["flash_bytes"]
    assert all(0 < point["metrics"][f"{data}:largest"] < 100 for point in (finest, coarse))
    build = Build.load(tmp_path / "build")
    assert build.manifest.weights is not None and build.manifest.weights.encoded_bytes == left
    assert build.manifest.firmware.flash_bytes == coarse["cost"]["flash_bytes"]


def test_the_fewest_bytes_within_a_loss_are_built(data, succeed, tmp_path, monkeypatch):
    """Between the last build that loses no more and the next, another one is tried."""
    monkeypatch.setattr(weight_front, "_SAVED", (0.0, 0.4))
    monkeypatch.setattr(weight_front, "_HALVED", 1)
    named = ("--data", f"{data}:samples", "--target", "corstone-300", "--loss", "0.05dB", "-o", tmp_path / "build")
    report = succeed("weights", NET, *named)
    points, within = report["points"], report["within"]
    assert [point["budget"] for point in points] == ["0%", "20%", "40%"]
    lost = [points[0]["cost"]["sqnr_db"] - point["cost"]["sqnr_db"] for point in points]
    assert lost[within - 1] <= 0.05 and all(more > 0.05 for more in lost[within:])
    build = Build.load(tmp_path / "build").manifest.weights
    assert build is not None and build.encoded_bytes == points[within - 1]["weights"]["encoded_bytes"]


def test_a_loss_of_a_metric_is_told_of_the_first():
    def point(metric: float, decibels: float | None) -> weight_front.WeightPoint:
        cost = BuildCost(decibels, cycles=1, flash_bytes=1, arena_bytes=1)
        return weight_front.WeightPoint(
            WeightBudget(0, False), CoarserWeights(0, 1, 1, 1, None, None), cost, {"top-1": metric}
        )

    points = [point(0.9, None), point(0.897, None), point(0.894, 40.0)]
    assert weight_front._last_within(points, WeightBudget.parse("0.5%")) == 1
    assert weight_front._last_within(points, WeightBudget.parse("1%")) == 2
    assert weight_front._last_within(points, WeightBudget.parse("10dB")) == 0


def test_what_cannot_be_listed(data, refused, monkeypatch):
    monkeypatch.setattr(weight_front, "_SAVED", (0.0,))
    assert "cortex-m55 reads weights as they are" in refused("weights", NET, "--data", f"{data}:samples")
    message = refused("weights", NET, "--data", f"{data}:others", "--target", "corstone-300")
    assert "data for the input `x` is float32 [1, 3, 16, 16]" in message and "takes float32 [1, 3, 12, 12]" in message
    named = ("--data", f"{data}:samples", "--target", "corstone-300")
    message = refused("weights", NET, *named, "--point", 2)
    assert "there is no build number 2" in message and "the list has 1" in message
    assert "--weights is what this command tries" in refused("weights", NET, *named, "--weights", "1dB")
    assert "0.5% is allowed of no metric" in refused("weights", NET, *named, "--loss", "0.5%")
    assert "--loss and --point each choose a build" in refused("weights", NET, *named, "--loss", "1dB", "--point", 1)
