"""The zoo's trained networks do what they were trained for, in float and in int8."""

from __future__ import annotations

import pytest
import torch

from tosaic import zoo
from tosaic.frontend import capture, quantize
from tosaic.zoo.trained import calibration, calls, fresh, load_weights, save_weights, score

LEAST = {"resnet8": 0.75, "dscnn": 0.95, "mobilenet_v1": 0.7, "autoencoder": 0.9}
_FRESH = {"resnet8": 100, "dscnn": 100, "mobilenet_v1": 60, "autoencoder": 60}


def scored(name: str, run) -> float:
    samples, classes = fresh(name, _FRESH[name])
    with torch.no_grad():
        return score(samples, classes, torch.cat([run(one) for one in calls(samples).split(1)]))


@pytest.mark.parametrize("name", LEAST)
def test_trained_networks_keep_their_metric_in_int8(name):
    captured = capture(f"zoo:{name}:trained")
    exact = scored(name, captured.program.module())
    assert exact >= LEAST[name]
    assert scored(name, quantize(captured).module()) >= exact - 0.05


@pytest.mark.parametrize("name", LEAST)
def test_shapes_are_those_of_the_seeded_networks(name):
    _, (seeded,), _ = zoo.load(name)
    _, (example,), batches = zoo.load(f"{name}:trained")
    assert example.shape == seeded.shape and len(batches) == 64
    assert not torch.equal(calls(fresh(name, 1)[0])[:1], calibration(name)[0][0])


def test_the_score_of_an_autoencoder_is_the_area_under_the_curve():
    samples, classes = torch.zeros(4, 2, 3), torch.tensor([1, 0, 1, 0])
    outputs = torch.tensor([3.0, 2, 1, 0]).repeat_interleave(2)[:, None].expand(8, 3)
    assert score(samples, classes, outputs) == 3 / 4


def test_weights_are_kept_within_a_byte_of_their_root(tmp_path, monkeypatch):
    monkeypatch.setattr("tosaic.zoo.trained._weights_file", lambda name: tmp_path / f"{name}.npz")
    layer, again = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
    save_weights("layer", layer)
    load_weights("layer", again)
    largest = layer.weight.abs().max()
    assert (again.weight - layer.weight).abs().max() < largest / 127
    assert torch.equal(again.bias, layer.bias.half().float())
