"""The way into the integer module: noise is told and can be refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import NETS

from tosaic.api import Build
from tosaic.builds.accuracy import OutputAccuracy, agreement_db, channel_db, sqnr_db
from tosaic.compiler import layers
from tosaic.compiler.accuracy import check_accuracy
from tosaic.passes.quantize import compute
from tosaic.support.errors import Error
from tosaic.support.mlir import dense, dense_values, ir, shape_of, walk


def test_the_ratio_stands_in_the_report(succeed, tosaic, tmp_path):
    (output,) = succeed("compile", f"{NETS}:net", "-o", tmp_path / "build")["accuracy"]
    assert output["name"] == "output_0" and 25 < output["sqnr_db"] < 60 and output["quanta"] <= 1
    assert abs(output["sqnr_db"] - output["simulated_db"]) < 6
    table = tosaic("compile", f"{NETS}:net", "-o", tmp_path / "build").stdout
    assert f"{output['sqnr_db']:.1f}" in table and "dB against float on calibration data" in table


def test_every_layer_stands_in_the_manifest(succeed, tosaic, tmp_path):
    rows = succeed("compile", f"{NETS}:net", "-o", tmp_path / "build")["layers"]
    assert {layer["op"] for layer in rows} >= {"x", "aten.relu.default", "aten.adaptive_avg_pool2d.default"}
    assert all(layer["sqnr_db"] > 20 and layer["quanta"] <= 1 and layer["differing"] < 0.1 for layer in rows)
    convolution = next(layer for layer in rows if layer["op"] == "aten.relu.default")
    assert convolution["where"].startswith("nets.py:") and convolution["outputs"] == ["output_0"]
    assert "noisiest layers" in tosaic("run", tmp_path / "build", "--random", 1).stdout


def test_a_layer_whose_weights_are_negated_is_named(monkeypatch, refused, tmp_path):
    right = layers.import_program

    def wrong(*arguments):
        module = right(*arguments)
        with module.context, ir.Location.unknown():
            constants = [op for op in walk(module) if op.name == "tosa.const"]
            constant = next(op for op in constants if shape_of(op.results[0]) == (8, 3, 3, 8))
            constant.attributes["values"] = dense(-dense_values(constant.attributes["values"]))
        return module

    monkeypatch.setattr(layers, "import_program", wrong)
    message = refused("compile", f"{NETS}:net", "-o", tmp_path / "build")
    assert "the integer module computes something else than the quantized model in `aten." in message
    assert "\n  at: nets.py:" in message and "given the same integers, 9" in message


def test_a_zero_point_off_by_one(monkeypatch, refused, tmp_path):
    right = compute.requantize

    def wrong(x, real, out, **rest):
        return right(x, real, replace(out, zero_points=(out.zero_point + (out.zero_point < 127),)), **rest)

    monkeypatch.setattr(compute, "requantize", wrong)
    message = refused("compile", f"{NETS}:net", "-o", tmp_path / "build")
    assert "by 1 steps at most and +" in message and "not the model but tosaic is at fault" in message


def test_more_than_int8_gives_can_be_asked_for(refused, succeed, tmp_path):
    ask = ("compile", f"{NETS}:net", "-o", tmp_path / "build", "--min-sqnr", 60)
    message = refused(*ask)
    assert "dB against the float model, 60 are asked" in message and "--activations int16" in message
    assert succeed(*ask, "--activations", "int16")["accuracy"][0]["sqnr_db"] > 60


NOISY = '''
import torch
from torch import nn

class Cancelling(nn.Module):
    """Two large terms that nearly cancel."""

    def forward(self, x):
        return (x * 100 + 1000) * 1.0 - (x * 99.9 + 1000) * torch.ones_like(x)

def cancelling():
    x = torch.linspace(-1, 1, 64).reshape(1, 64)
    return Cancelling(), (x,), [(x,)]
'''


def test_a_noisy_model_is_warned_of(tosaic, tmp_path):
    (tmp_path / "model.py").write_text(NOISY)
    result = tosaic("compile", f"{tmp_path / 'model.py'}:cancelling", "-o", tmp_path / "build")
    assert result.exit_code == 0
    assert "warning: `output_0` has only" in result.stderr
    assert "dB against the float model on calibration data; it is lost first in `aten.sub.Tensor`" in result.stderr
    assert "at: model.py:9 aten.sub.Tensor" in result.stderr and "try: --exclude sub" in result.stderr
    assert f"`tosaic accuracy {tmp_path / 'model.py'}:cancelling` advises" in result.stderr


def test_what_an_input_loses_is_told_without_a_name_to_exclude():
    sound = layers.LayerAccuracy("sound", "", "", 12.0, 0, 0.0, 0.0, None, 64, False, ("output_0",), ())
    (advice,) = layers.noisy_outputs([OutputAccuracy("output_0", 12.0, 12.0, None, 0)], [sound], "model.py:net")
    assert "it is lost first in `sound`, which has 12.0 dB" in advice.what
    assert advice.hint.startswith("--exclude a module, --activations int16")


NOTHING_LEFT = """
import torch
from torch import nn
from torch.nn import functional as F

class Sum(nn.Module):
    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:]).sum(2)

def nothing_left():
    torch.manual_seed(0)
    x = torch.randn(3, 9, 17)
    return Sum(), (x,), [(x,)]
"""


def test_a_sum_of_which_floats_leave_roundings_alone_is_no_other_function(succeed, tmp_path):
    (tmp_path / "model.py").write_text(NOTHING_LEFT)
    rows = succeed("compile", f"{tmp_path / 'model.py'}:nothing_left", "-o", tmp_path / "build")["layers"]
    assert rows[-1]["op"] == "aten.sum.dim_IntList" and rows[-1]["differing"] == 0


def test_what_is_another_function():
    def row(sqnr: float | None, simulated: float | None, quanta: int) -> OutputAccuracy:
        return OutputAccuracy("y", sqnr, simulated, sqnr, quanta)

    check_accuracy(
        [row(30, 42, 1), row(18.5, 19.7, 5), row(None, None, 0), row(37.8, 37.5, 34), row(57.5, 67.9, 9)], None
    )
    for wrong in (row(-3, 38, 90), row(33.9, 51.3, 3)):
        with pytest.raises(Error, match="computes something else"):
            check_accuracy([wrong], None)


def test_the_ratio_of_a_known_noise():
    signal, noise = np.tile([10.0, 10.0, -10.0, -10.0], 25), np.tile([1.0, -1.0], 50)
    assert sqnr_db([signal], [signal + noise]) == pytest.approx(20.0)
    assert sqnr_db([signal], [signal]) is None and sqnr_db([0 * signal], [noise]) is None


def test_a_mean_is_no_signal():
    signal, noise = np.tile([10.0, 10.0, -10.0, -10.0], 25), np.tile([1.0, -1.0], 50)
    assert sqnr_db([signal + 1000], [signal + 1000 + noise]) == pytest.approx(20.0)
    ratio = sqnr_db([signal + 1000, signal - 1000], [signal + 1000 + noise, signal - 1000 + noise])
    assert ratio is not None and ratio > 50
    assert agreement_db([signal + 1000], [signal + 1000 + noise]) == pytest.approx(60.0, abs=0.01)
    assert sqnr_db([np.full(100, 10.0)], [10 + noise]) is None


def test_what_is_the_same_for_every_input_is_no_signal_either():
    """Two channels that differ by far more from each other than from one sample to the next."""
    changes = np.random.default_rng(0).standard_normal((8, 1, 1))
    floats = [np.array([[100.0, -100.0]]) + change for change in changes]
    ours = [row + np.array([[0.1, -0.1]]) for row in floats]
    assert sqnr_db(floats, ours) == pytest.approx(60.0, abs=0.1)
    assert channel_db(floats, ours) == pytest.approx(10 * np.log10(changes.var(ddof=1) / 0.01))
    assert channel_db(floats[:3], ours[:3]) is None
    told = OutputAccuracy("y", 60.0, 60.0, None, 1, channel_db(floats, ours))
    assert told.told_db == told.channel_db
    assert OutputAccuracy("y", 22.0, 22.0, None, 1, 20.0).told_db == 22.0


SOFT = """
import torch
from torch import nn

def soft():
    torch.manual_seed(1)
    layer = nn.Linear(16, 50)
    layer.weight.data *= 0.001
    return nn.Sequential(layer, nn.Softmax(-1)).eval(), (torch.randn(1, 16),), torch.randn(64, 16)
"""


def test_a_softmax_that_says_little_is_warned_of(tosaic, succeed, tmp_path):
    (tmp_path / "model.py").write_text(SOFT)
    result = tosaic("compile", f"{tmp_path / 'model.py'}:soft", "-o", tmp_path / "build")
    (output,) = Build.load(tmp_path / "build").manifest.accuracy
    assert output.sqnr_db is not None and output.channel_db is not None
    assert output.sqnr_db > 30 and output.channel_db < 15
    assert f"`output_0` has only {output.channel_db:.1f} dB within channels against the float model" in result.stderr
    assert f"{output.sqnr_db:.1f} ({output.channel_db:.1f} within channels) dB against float" in result.stdout


FRESH = """
import torch
from torch import nn

def made(far):
    torch.manual_seed(0)
    x = torch.randn(64, 64)
    x[63] *= far
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU()).eval(), (x[:1],), x

def same(): return made(1)
def far(): return made(40)
"""


@pytest.mark.parametrize(("name", "warned"), [("same", False), ("far", True)])
def test_tensors_that_fresh_data_exceed_are_named(tosaic, tmp_path, name, warned):
    (tmp_path / "model.py").write_text(FRESH)
    result = tosaic("compile", f"{tmp_path / 'model.py'}:{name}", "-o", tmp_path / "build")
    assert result.exit_code == 0
    assert ("fresh data exceed the ranges of 2 tensors" in result.stderr) == warned
    assert ("`input` (" in result.stderr and "calibrate on more samples" in result.stderr) == warned
