"""Python programs: models as objects in, builds as objects out, and no paths."""

from __future__ import annotations

import copy
import gc

import numpy as np
import pytest
import torch
from torch import nn

import tosaic as api
from tosaic.runs.running import reference_outputs


class Net(nn.Module):
    """One convolution, batch norm that must be folded, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.last = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.norm(self.first(x))).mean((2, 3)))


X = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))
SAMPLES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def build():
    return api.compile(Net(), X, target="corstone-300", calibration=SAMPLES)


def test_a_module_stays_as_it_is_and_the_folder_goes_with_the_build():
    net = Net().train()
    before = copy.deepcopy(net.state_dict())
    build = api.compile(net, X)
    assert net.training and net.norm.training and net.last.training
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert build.manifest.model == "Net" and build.manifest.target.name == "cortex-m55"
    folder = build.folder
    assert folder.is_dir()
    del build
    gc.collect()
    assert not folder.parent.exists()


def test_a_run_takes_one_sample_or_many_and_gives_what_the_reference_gives(build):
    one, many = build.run(X), build.run(SAMPLES)
    assert one.exact and many.exact
    assert one.outputs[0].shape == (1, 4) and many.outputs[0].shape == (6, 4)
    wanted = reference_outputs(build, [[sample[None].numpy()] for sample in SAMPLES])
    assert np.array_equal(many.outputs[0], np.concatenate([build.dequantize_outputs(row)[0] for row in wanted]))
    floats = Net().eval()(SAMPLES).detach().numpy()
    assert np.abs(many.outputs[0] - floats).max() < 0.05 * np.abs(floats).max()


def test_a_run_without_inputs_is_on_the_samples_that_the_build_carries(build):
    assert len(build.samples) == 4
    run = build.run()
    assert run.exact and len(run.samples) == 4
    for row, sample in zip(run.board.outputs, build.samples, strict=True):
        assert np.array_equal(row[0], sample.outputs[0])
    kind = build.manifest.firmware.inputs[0].quantization
    assert np.array_equal(build.samples[2].inputs[0], kind.quantize_as_torch(SAMPLES[2:3].numpy()).astype(np.int8))


def test_an_exported_program_stays_as_it_is_and_gives_the_same(build):
    program = torch.export.export(Net().eval(), (X,))
    code = program.graph_module.code
    other = api.compile(program, target="corstone-300", calibration=[sample[None] for sample in SAMPLES])
    assert program.graph_module.code == code and torch.equal(program.module()(X), Net().eval()(X))
    assert np.array_equal(other.run(X).outputs[0], build.run(X).outputs[0])


def test_a_profile_has_every_op_and_adds_up(build):
    table = build.profile()
    assert list(table.op) == [op.op for op in build.manifest.ops]
    assert table.npu_cycles.sum() == sum(op.cycles for region in build.manifest.regions for op in region.ops if op.op)
    assert table.instructions.sum() == build.measured.board.instructions
    convolution = table[table.op == "CONV2D"].iloc[0]
    assert convolution.module == "first" and convolution.macs == 8 * 8 * 8 * 27 and convolution.sqnr_db > 20
    assert convolution.bound in ("MAC", "output", "Sram", "OffChipFlash") and convolution.traffic > 8 * 8 * 3
    assert (table[table.processor == "cpu"].reason != "").all()


@pytest.mark.parametrize(
    "model, inputs, words",
    [(Net(), None, "`Net` needs example inputs"), (3, X, "a int is no model"), ("zoo:none", None, "none")],
)
def test_what_is_no_model_is_refused(model, inputs, words, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(api.Error, match=words):
        api.compile(model, inputs)
    assert list(tmp_path.iterdir()) == []


def test_calibration_that_does_not_fit_is_refused():
    with pytest.raises(api.Error, match="calibration data for the input `x` is float32"):
        api.compile(Net(), X, calibration=[torch.randn(1, 3, 4, 4)])
    with pytest.raises(TypeError, match="no_such_option"):
        api.compile(Net(), X, no_such_option=1)


def test_inputs_that_do_not_fit_are_refused(build):
    with pytest.raises(api.Error, match="takes 1 inputs, got 2"):
        build.run(X, X)
    with pytest.raises(api.Error, match="has the shape"):
        build.run(torch.randn(3, 3))
