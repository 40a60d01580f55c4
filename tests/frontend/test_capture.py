"""Models come in by file, factory or name; what cannot be used is answered with a message."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tosaic.frontend import capture, run_float
from tosaic.support.errors import ModelError

FACTORY = """
import torch
from torch import nn

def good():
    return nn.Conv2d(3, 4, 3), (torch.zeros(1, 3, 8, 8),)

def calibrated():
    return nn.Linear(4, 2), (torch.zeros(1, 4),), [(torch.ones(1, 4),), (torch.ones(1, 4),)]

def fails():
    raise ValueError("no weights here")

def wrong():
    return 7

def untraceable():
    class Model(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x
    return Model(), (torch.zeros(2),)

def poisoned():
    layer = nn.Linear(4, 2)
    layer.weight.data[0, 0] = float("nan")
    return layer, (torch.zeros(1, 4),)
"""


@pytest.fixture
def factory(tmp_path):
    path = tmp_path / "models.py"
    path.write_text(FACTORY)
    return lambda name: f"{path}:{name}"


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "linear.pt2"
    torch.export.save(torch.export.export(nn.Linear(4, 2), (torch.ones(1, 4),)), path)
    return str(path)


def samples(tmp_path: Path, **arrays: np.ndarray) -> Path:
    path = tmp_path / "calibration.npz"
    np.savez(path, **arrays)
    return path


def test_a_saved_program_brings_its_inputs(saved):
    got = capture(saved)
    assert got.name == "linear"
    assert got.inputs[0].shape == (1, 4)
    assert got.calibration == (got.inputs,)
    assert run_float(got, got.inputs)[0].shape == (1, 2)


def test_a_factory_brings_inputs_and_calibration(factory):
    assert len(capture(factory("calibrated")).calibration) == 2
    assert capture(factory("good")).name == "good"


def test_the_zoo_is_seeded():
    first, second = capture("zoo:dscnn"), capture("zoo:dscnn")
    np.testing.assert_array_equal(run_float(first, first.inputs)[0], run_float(second, second.inputs)[0])
    assert len(first.calibration) >= 8


@pytest.mark.parametrize("shape", [(5, 1, 4), (5, 4)])
def test_calibration_samples_may_leave_out_a_batch_of_one(saved, tmp_path, shape):
    got = capture(saved, samples(tmp_path, anything=np.zeros(shape, np.float32)))
    assert [batch[0].shape for batch in got.calibration] == [(1, 4)] * 5


def test_samples_may_leave_out_a_batch_of_one_wherever_they_come_from(tmp_path):
    layer, example = nn.Linear(4, 2), (torch.ones(1, 4),)
    for given in (torch.ones(5, 4), torch.ones(5, 1, 4), np.ones((5, 4), np.float32), list(torch.ones(5, 4)),
                  [(torch.ones(4),)] * 5, [torch.ones(1, 4)] * 5):  # fmt: skip
        assert [batch[0].shape for batch in capture(layer, given, example).calibration] == [(1, 4)] * 5
    for shape in ("5, 4", "5, 1, 4"):
        path = tmp_path / "model.py"
        path.write_text(
            f"from torch import nn, ones\ndef net(): return nn.Linear(4, 2), (ones(1, 4),), ones({shape})\n"
        )
        assert [batch[0].shape for batch in capture(f"{path}:net").calibration] == [(1, 4)] * 5


class Two(nn.Module):
    def forward(self, left, right):
        return left - right


def test_arrays_are_taken_by_their_names(tmp_path):
    one, two = np.full((3, 1, 4), 1, np.float32), np.full((3, 1, 4), 2, np.float32)
    example = (torch.ones(1, 4), torch.ones(1, 4))
    swapped = capture(Two(), samples(tmp_path, right=two, left=one), example)
    assert [batch[0][0, 0].item() for batch in swapped.calibration] == [1, 1, 1]
    np.savez(tmp_path / "plain.npz", one, two)
    assert [b[0][0, 0].item() for b in capture(Two(), tmp_path / "plain.npz", example).calibration] == [1, 1, 1]
    with pytest.raises(ModelError, match=r"there is no input `rihgt`\n  at: .*npz\n  try: did you mean `right`\?"):
        capture(Two(), samples(tmp_path, rihgt=two, left=one), example)


@pytest.mark.parametrize(
    "array, words",
    [
        (np.zeros((5, 3), np.float32), ["float32 [3]", "float32 [1, 4]", "`input`"]),
        (np.zeros((5, 4), np.float64), ["float64 [1, 4]"]),
        (np.full((5, 4), np.nan, np.float32), ["NaN"]),
        (np.zeros((0, 4), np.float32), ["at least one"]),
    ],
)
def test_calibration_data_of_the_wrong_form_is_refused(saved, tmp_path, array, words):
    with pytest.raises(ModelError) as caught:
        capture(saved, samples(tmp_path, input=array))
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_an_example_that_is_calibrated_with_is_checked():
    with pytest.raises(ModelError, match="the input `input` holds NaN or infinity"):
        capture(nn.Linear(4, 2), None, torch.full((1, 4), torch.nan))


def test_calibration_files_that_cannot_be_read_are_refused(saved, tmp_path):
    with pytest.raises(ModelError, match="no calibration file"):
        capture(saved, tmp_path / "absent.npz")
    (tmp_path / "text.npz").write_text("not arrays")
    with pytest.raises(ModelError, match=r"cannot be read as \.npz"):
        capture(saved, tmp_path / "text.npz")
    with pytest.raises(ModelError, match="the model takes 1 inputs, got 2 arrays"):
        capture(saved, samples(tmp_path, a=np.zeros(1), b=np.zeros(1)))


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(ModelError, match="there is no file"):
        capture(str(tmp_path / "absent.pt2"))
    (tmp_path / "corrupt.pt2").write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(ModelError, match=r"cannot be read as a \.pt2"):
        capture(str(tmp_path / "corrupt.pt2"))
    with pytest.raises(ModelError, match="is not a model"):
        capture("model.h5")
    with pytest.raises(ModelError, match="the zoo has no model `resnet9`") as caught:
        capture("zoo:resnet9")
    assert "resnet8" in str(caught.value)


@pytest.mark.parametrize(
    "name, words",
    [
        ("absent", ["no function `absent`", "good"]),
        ("fails", ["raised", "ValueError: no weights here"]),
        ("wrong", ["must return", "int"]),
        ("untraceable", ["depends on the values of the inputs", "torch.cond", "models.py:20"]),
        ("poisoned", ["`weight` holds NaN"]),
    ],
)
def test_factories_that_fail_are_answered(factory, name, words):
    with pytest.raises(ModelError) as caught:
        capture(factory(name))
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_dynamic_shape_is_refused(tmp_path):
    path = tmp_path / "dynamic.pt2"
    batch = torch.export.Dim("batch", min=2, max=8)
    program = torch.export.export(nn.Linear(4, 2), (torch.ones(3, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)
    with pytest.raises(ModelError, match="`input` has a dynamic shape"):
        capture(str(path))


def test_inputs_replace_the_programs_own(saved):
    got = capture(saved, inputs=[np.full((1, 4), 2, np.float32)])
    assert got.inputs[0][0, 0] == 2


def test_a_factory_imports_its_neighbors(tmp_path):
    (tmp_path / "neighbor_of_factory.py").write_text("WIDTH = 4")
    path = tmp_path / "models.py"
    path.write_text("from neighbor_of_factory import WIDTH\n" + FACTORY)
    before = list(sys.path)
    assert capture(f"{path}:good").name == "good"
    assert sys.path == before


def test_a_factorys_file_may_define_a_dataclass(tmp_path):
    path = tmp_path / "models_of_factory.py"
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n" + FACTORY
    path.write_text(text + "\n@dataclass\nclass Sizes:\n    width: int = 4\n")
    assert capture(f"{path}:good").name == "good"
    assert "models_of_factory" not in sys.modules


def test_importing_the_frontend_prints_nothing():
    done = subprocess.run([sys.executable, "-c", "import tosaic.frontend"], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
