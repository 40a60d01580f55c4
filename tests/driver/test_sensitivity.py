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

class Twice(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x.flip(1) * torch.sigmoid(x)

def twice():
    _, example, batches = model()
    return Twice(), example, batches

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
        "--metric", f"{model}:largest", "--layers", 1, "--auto-exclude", 55, "--target", BOARD,
        "--kernels", "generic", "--arena-size", 60000,
    )  # fmt: skip
    ratios = [layer["sqnr_db"] for layer in found["layers"]]
    assert ratios == sorted(ratios) and found["samples"] == 24 and found["exact"]
    assert {score["name"]: score["in_float"] for score in found["scores"]}["top-1"] == 1.0
    (largest,) = (score for score in found["scores"] if score["name"].endswith(":largest"))
    assert largest["integer"] == largest["board"] == pytest.approx(largest["in_float"], rel=0.05)
    wide, floating, whole = found["alternatives"]
    assert (wide["kind"], floating["kind"], whole["layer"]) == ("int16", "f32", None)
    assert whole["cost"]["sqnr_db"] > found["cost"]["sqnr_db"] + 3
    assert floating["cost"]["cycles"] > found["cost"]["cycles"]
    assert found["advice"]["cost"]["sqnr_db"] >= 55
    words = found["command"].split()
    assert words[:9] == [
        "tosaic", "compile", f"{model}:model", "--target", str(BOARD), "--arena-size", "60000", "--kernels", "generic",
    ]  # fmt: skip
    build = succeed(*words[1:], "-o", tmp_path / "build")
    assert build["accuracy"][0]["sqnr_db"] > 50


def test_layers_of_one_name_are_raised_once(model, succeed):
    found = succeed("accuracy", f"{model}:twice", "--data", f"{model}:samples", "--layers", 4)
    assert [layer["op"] for layer in found["layers"]].count("aten.mul.Tensor") == 2
    raised = [(*one["layer"]["names"], one["kind"]) for one in found["alternatives"] if one["layer"]]
    assert ("mul", "int16") in raised and len(raised) == len(set(raised))


def test_the_tables(model, tosaic):
    result = tosaic("accuracy", f"{model}:model", "--data", f"{model}:samples", "--layers", 0, "--auto-exclude", 99)
    assert "aten.linear.default  classifier" in result.stdout and "everything" in result.stdout
    assert "99 dB: nothing that was tried gives them; try more layers with --layers" in result.stdout


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
