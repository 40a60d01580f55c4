"""`tosaic accuracy`: layers, alternatives and a task's metric on a user's data, and the command that it advises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import NETS

BOARD = Path(__file__).parents[2] / "examples" / "targets" / "mps2-an386.toml"
CLASSIFIER = '''
import torch
from torch import nn

class Classifier(nn.Module):
    """Its logits share one scale, and one of them is large."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.classifier = nn.Linear(16, 16), nn.Linear(16, 4)
        with torch.no_grad():
            self.classifier.bias[3] = -60.0

    def forward(self, x):
        return self.classifier(torch.relu(self.layer(x)))

def model():
    torch.manual_seed(1)
    batches = [(torch.randn(1, 16),) for _ in range(32)]
    return Classifier(), batches[0], batches

def samples():
    torch.manual_seed(2)
    return torch.randn(24, 1, 16)

def labels():
    module, _, _ = model()
    return torch.cat([module(x) for x in samples()]).argmax(1)

class Coarse(nn.Module):
    """One channel of many is far larger than the others; an output reads it alone, and the other only these."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.act = nn.Linear(16, 16), nn.Hardswish()
        self.head, self.large = nn.Linear(16, 4), nn.Linear(16, 1)
        with torch.no_grad():
            self.layer.weight[0] *= 10
            self.layer.bias[0] = 30.0
            self.head.weight[:, 0] = 0
            self.large.weight[:, 1:] = 0

    def forward(self, x):
        y = self.act(self.layer(x))
        return self.head(y), self.large(y)

def coarse():
    _, example, batches = model()
    return Coarse(), example, batches

def nearness(outputs, labels):
    module, _, _ = coarse()
    with torch.no_grad():
        wanted = torch.stack([module(x)[0] for x in samples()]).numpy()
    return 1 - ((outputs[0] - wanted) ** 2).mean() / wanted.var()

def largest(outputs, labels):
    return max(abs(output).max() for output in outputs)
'''


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.py").write_text(CLASSIFIER)
    return f"{tmp_path / 'model.py'}"


def test_what_a_model_loses_and_what_would_cure_it(model, succeed, tmp_path):
    found = succeed(
        "accuracy", f"{model}:model", "--data", f"{model}:samples", "--labels", f"{model}:labels",
        "--metric", f"{model}:largest", "--layers", 1, "--goal", "55dB", "--target", BOARD,
        "--kernels", "generic", "--arena-size", 60000,
    )  # fmt: skip
    alone = [cause["alone_db"] for cause in found["causes"] if cause["alone_db"] is not None]
    assert alone == sorted(alone) and found["samples"] == 24 and found["exact"]
    assert {score["name"]: score["in_float"] for score in found["scores"]}["top-1"] == 1.0
    (largest,) = (score for score in found["scores"] if score["name"].endswith(":largest"))
    assert largest["integer"] == largest["board"] == pytest.approx(largest["in_float"], rel=0.05)
    assert len(found["raised"]) == 1 and found["raised"][0]["simulated_db"] > found["simulated_db"] + 3
    assert found["advice"]["value"] >= 55 and found["advice"]["in_budget"]
    assert found["advice"]["cost"]["sqnr_db"] == found["advice"]["value"] > found["cost"]["sqnr_db"]
    words = found["command"].split()
    assert words[:9] == [
        "tosaic", "compile", f"{model}:model", "--target", str(BOARD), "--arena-size", "60000", "--kernels", "generic",
    ]  # fmt: skip
    build = succeed(*words[1:], "-o", tmp_path / "build")
    assert build["accuracy"][0]["sqnr_db"] > 50


def test_the_tensor_that_makes_the_noise_comes_first(model, succeed):
    found = succeed("accuracy", f"{model}:coarse", "--data", f"{model}:samples", "--layers", 2)
    assert [(one["name"], one["kind"]) for one in found["causes"]][:2] == [
        ("act:hardswish", "activations"),
        ("layer:linear", "activations"),
    ]
    assert found["causes"][2]["alone_db"] > 30
    assert found["raised"][0]["names"] == ["act:hardswish"]
    assert found["raised"][0]["simulated_db"] > found["simulated_db"] + 6


def test_a_goal_of_the_metric_within_a_budget_builds(model, succeed, tmp_path):
    found = succeed(
        "accuracy", f"{model}:coarse", "--data", f"{model}:samples", "--metric", f"{model}:nearness",
        "--layers", 0, "--goal", "0.98", "--budget", "1x", "-o", tmp_path / "build",
    )  # fmt: skip
    assert found["advice"]["quantization"]["int16"] == ["act:hardswish"]
    assert found["advice"]["value"] >= 0.98 and not found["advice"]["in_budget"]
    assert (tmp_path / "build" / "manifest.json").is_file()


def test_the_tables(model, tosaic):
    result = tosaic("accuracy", f"{model}:model", "--data", f"{model}:samples", "--layers", 1, "--goal", "300dB")
    assert "classifier:linear" in result.stdout and "nothing" in result.stdout
    assert "300 dB: nothing that was tried gives it" in result.stdout


def test_a_goal_without_a_metric_is_refused(model, refused):
    message = refused("accuracy", f"{model}:model", "--data", f"{model}:samples", "--layers", 0, "--goal", "90%")
    assert "a metric of 0.9 needs a metric" in message and "--labels" in message


@pytest.mark.parametrize(
    ("option", "words"),
    [(("--goal", "much"), "'much' is no goal; write 30dB"), (("--budget", "0.5"), "'0.5' is no factor of 1 or more")],
)
def test_goals_and_budgets_that_are_none(tosaic, option, words):
    result = tosaic("accuracy", "zoo:resnet8", "--data", "x.npy", *option)
    assert result.exit_code == 2 and words in result.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--data", "absent.npz"), "there is no data file absent.npz"),
        (("--data", "{model}:model"), "a sample of {model}:model does not hold 1 arrays"),
        (("--data", "{model}:samples", "--labels", "{model}:samples"), "the labels in {model}:samples are float32"),
        (("--data", "{model}:samples", "--metric", "{model}:samples"), "{model}:samples raised"),
        (("--data", "{model}:nothing"), "has no function `nothing`"),
    ],
)
def test_data_that_do_not_fit(model, refused, options, words):
    message = refused("accuracy", f"{model}:model", "--layers", 0, *(option.format(model=model) for option in options))
    assert words.format(model=model) in message


def test_a_folder_of_samples(succeed, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in ("b", "a"):
        np.save(folder / f"{name}.npy", rng.normal(size=(3, 3, 12, 12)).astype(np.float32))
    found = succeed("accuracy", f"{NETS}:net", "--data", folder, "--layers", 0, "--samples", 5)
    assert found["samples"] == 5
