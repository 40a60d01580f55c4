"""Models that keep states between calls: on the board as in PyTorch, from a reset on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import NETS
from torch import Tensor, nn

import tosaic as api
from tosaic.api import Build
from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.build import simulator_objects
from tosaic.backends.simulators.runners import find_runner
from tosaic.compiler.options import QuantizationOptions
from tosaic.runs.npu_execution import npu_for


@pytest.fixture(scope="module", params=["cortex-m55", "corstone-300"])
def causal(request, succeed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("causal") / "build"
    return folder, succeed("compile", f"{NETS}:causal", "--target", request.param, "-o", folder)


def test_states_are_no_inputs(causal):
    firmware = Build.load(causal[0]).manifest.firmware
    assert [tensor.name for tensor in firmware.inputs] == ["row"]
    assert [tensor.name for tensor in firmware.outputs] == ["output_0", "output_1"]
    assert [(state.name, state.shape, state.dtype) for state in firmware.states] == [
        ("rows_past", (1, 3, 12, 16), "int8"), ("calls", (1,), "int32"),
    ]  # fmt: skip


def test_the_npu_takes_its_part(causal):
    _, report = causal
    on_npu = {op["op"] for op in report["ops"] if op["processor"] == "npu"}
    assert ("CONV2D" in on_npu) == (report["accelerator"] is not None)


def test_each_call_finds_what_the_one_before_it_left(causal):
    build = Build.load(causal[0])
    rows = np.random.default_rng(5).normal(size=(9, 1, 16, 1, 12)).astype(np.float32)
    run = build.run(rows)
    assert run.exact and run.outputs[1].ravel().tolist() == list(range(1, 10))
    assert run.sqnr_db[0] is not None and run.sqnr_db[0] > 30
    alone = build.run(rows[8])
    assert alone.outputs[1].tolist() == [1]
    assert not np.array_equal(alone.outputs[0][0], run.outputs[0][8])


def test_a_build_runs_and_proves_its_samples(causal, succeed):
    folder, _ = causal
    ran = succeed("run", folder)
    assert ran["exact"] and ran["samples"] == 4
    verified = succeed("verify", folder)
    assert verified["exact"] and not verified["difference"]


def test_what_is_kept_is_said_in_the_header(causal):
    header = (causal[0] / "kit" / "include" / "model.h").read_text()
    assert " * Kept in the arena from call to call\n *   rows_past: int8 [1, 3, 12, 16]" in header
    assert "void model_reset(const model_instance *self);" in header


_SAVING = """
#include <string.h>

#include "model.h"
#include "semihosting.h"

static model_instance model;
static uint8_t saved[MODEL_STATE_BYTES], later[MODEL_OUTPUT_OUTPUT_BYTES];

static void run(host_file given)
{
    host_read(given, model.inputs[0], MODEL_INPUT_row_BYTES);
    model_invoke(&model);
}

int main(void)
{
    host_file given = host_open("given.bin", HOST_READ), again = host_open("given.bin", HOST_READ);
    if (model_init_static(&model))
        return 1;
    run(given);
    run(again);
    model_save(&model, saved);
    run(given);
    memcpy(later, model.outputs[0], sizeof later);
    run(given);
    int changed = memcmp(later, model.outputs[0], sizeof later) != 0;
    model_restore(&model, saved);
    uint8_t *past = model_state(&model, MODEL_STATE_rows_past);
    int held = !memcmp(past, saved, model_states[MODEL_STATE_rows_past].bytes) && !model_state(&model, MODEL_STATES);
    run(again);
    int same = !memcmp(later, model.outputs[0], sizeof later);
    past[0] ^= 1;
    model_save(&model, saved);
    host_print(changed && held && same && saved[0] == past[0] ? "restored" : "lost");
    return 0;
}
"""


def test_states_are_saved_and_restored(causal, tmp_path):
    folder, _ = causal
    build = Build.load(folder)
    firmware, core = build.manifest.firmware, build.manifest.target.core
    (tmp_path / "main.c").write_text(_SAVING.replace("OUTPUT_OUTPUT", f"OUTPUT_{firmware.outputs[0].name}"))
    toolchain.compile_c(tmp_path / "main.c", tmp_path / "main.o", core, f"-I{folder / 'kit' / 'include'}")
    parts = simulator_objects(folder, "model", core, firmware.has_npu, str(tmp_path / "main.o"))
    toolchain.link(parts, folder / "model.ld", tmp_path / "main.elf", core)
    given = np.random.default_rng(1).integers(-128, 128, (4, *firmware.inputs[0].shape)).astype(np.int8)
    on = find_runner("qemu", build.manifest.target)
    ran = on.run(tmp_path / "main.elf", {"given.bin": given.tobytes()}, count=False, npu=npu_for(build, "emulator"))
    assert ran.check("saving").console.strip() == "restored"


def test_rows_cannot_be_fed_to_it(refused, tmp_path):
    message = refused("compile", f"{NETS}:causal", "--stream-input", "-o", tmp_path / "build")
    assert "`rows_past`" in message and "--stream-input" in message


class Keeping(nn.Module):
    """The base of models with buffers."""

    def __init__(self, **buffers: Tensor) -> None:
        super().__init__()
        for name, value in buffers.items():
            self.register_buffer(name, value)


class Turning(Keeping):
    """Three states that go round."""

    def __init__(self) -> None:
        super().__init__(a=torch.ones(1, 5), b=torch.zeros(1, 5), c=torch.full((1, 5), 0.5))

    def forward(self, x):
        result = x + self.a
        self.a, self.b, self.c = self.b.clone(), self.c.clone(), self.a.clone()
        return result


class Delay(Keeping):
    """The result is the state itself, which is written then."""

    def __init__(self) -> None:
        super().__init__(last=torch.zeros(1, 5))

    def forward(self, x):
        old = self.last.clone()
        self.last = x * 1
        return old


class Line(Keeping):
    """A chain: each state takes what the one before it held, the first one the input."""

    def __init__(self) -> None:
        super().__init__(first=torch.zeros(1, 5), second=torch.zeros(1, 5))

    def forward(self, x):
        result = x + self.second
        self.second = self.first.clone()
        self.first = x.clone()
        return result


class Cell(Keeping):
    """A step of a recurrent layer."""

    def __init__(self) -> None:
        super().__init__(h=torch.zeros(1, 1, 8), c=torch.zeros(1, 1, 8))
        self.layer = nn.LSTM(5, 8, batch_first=True)

    def forward(self, x):
        result, (self.h, self.c) = self.layer(x[:, None], (self.h, self.c))
        return result[:, 0]


class Rounded(Keeping):
    """A state of the float part of a model."""

    def __init__(self) -> None:
        super().__init__(mean=torch.zeros(1, 5))

    def forward(self, x):
        self.mean = (self.mean * 0.5).floor() + x
        return self.mean * 2


@pytest.mark.parametrize("model, exclude", [
    (Turning, ()), (Delay, ()), (Line, ()), (Cell, ()), (Rounded, ("floor", "add", "mul")),
])  # fmt: skip
def test_the_firmware_is_the_model(model, exclude):
    torch.manual_seed(0)
    samples = [(torch.randn(1, 5),) for _ in range(12)]
    net = model().eval()
    build = api.compile(net, samples[0], target="cortex-m55", calibration=samples,
                        quantization=QuantizationOptions(exclude=exclude))  # fmt: skip
    run = build.run(np.stack([x.numpy() for (x,) in samples]))
    assert run.exact or not run.defined
    expected = torch.cat([net(*sample) for sample in samples]).detach().numpy()
    error = np.square(expected - run.outputs[0]).sum()
    assert error == 0 or 10 * np.log10(np.square(expected).sum() / error) > 35


class Writes(Keeping):
    """Rows written at a place that each call says, each in another way, and read by all."""

    copied: Tensor
    put: Tensor
    scattered: Tensor
    several: Tensor
    selected: Tensor
    shifted: Tensor
    heard: Tensor

    def __init__(self) -> None:
        super().__init__(**{name: torch.zeros(2, 16, 8) for name in ("copied", "put", "scattered", "several")})
        self.register_buffer("selected", torch.zeros(1, 144, 8))
        self.register_buffer("shifted", torch.zeros(2, 16, 8))
        self.register_buffer("heard", torch.zeros(1, 2, 8))
        self.layer = nn.Conv1d(8, 8, 3, groups=8)

    def forward(self, x, place):
        self.copied.index_copy_(1, place, x)
        self.put[:, place - 16] = x * 0.5
        self.scattered.scatter_(1, place.reshape(1, 1, 1).expand(2, 1, 8), x)
        self.several.index_copy_(1, torch.cat([place, place, 15 - place]), torch.cat([x, -x, x * 2], 1))
        self.selected = torch.where((torch.arange(144) == place).view(1, 144, 1), x[:1], self.selected)
        self.shifted = torch.cat([self.shifted[:, 1:], x], 1)
        window = torch.cat([self.heard, x[:1]], 1)
        self.heard = window[:, 1:]
        seen = self.copied + self.put + self.scattered + self.several + self.shifted
        return seen.sum(1) + self.selected.sum(1) + self.layer(window.transpose(1, 2)).squeeze(2)


@pytest.fixture(scope="module")
def written():
    torch.manual_seed(0)
    samples = [(torch.randn(2, 1, 8), torch.tensor([place])) for place in (3, 15, 0, 3, 7, 8, 1, 14)]
    net = Writes().eval()
    return net, samples, api.compile(net, samples[0], target="cortex-m55", calibration=samples)


def test_rows_are_written_where_the_model_says(written):
    net, samples, build = written
    run = build.run(*(np.stack([one[number].numpy() for one in samples]) for number in range(2)))
    assert run.exact
    fresh = Writes().eval()
    fresh.load_state_dict(
        {**net.state_dict(), **{name: torch.zeros_like(value) for name, value in net.named_buffers()}}
    )
    expected = np.concatenate([fresh(*sample).detach().numpy()[None] for sample in samples])
    error = np.square(expected - run.outputs[0]).sum()
    assert 10 * np.log10(np.square(expected).sum() / error) > 30


class Shifts(Keeping):
    """Frames of which a dilated convolution reads each fourth, and all of which another one reads."""

    far: Tensor
    near: Tensor

    def __init__(self) -> None:
        super().__init__(far=torch.zeros(1, 16, 8), near=torch.zeros(1, 16, 3))
        self.skips, self.all = nn.Conv1d(16, 16, 3, dilation=4), nn.Conv1d(16, 16, 3)

    def forward(self, x):
        seen = torch.cat([self.far, x], 2)
        self.far = seen[:, :, 1:]
        self.near = torch.cat([self.near[:, :, 1:], self.skips(seen)], 2)
        return self.all(self.near)


def test_frames_move_up_in_place():
    torch.manual_seed(0)
    samples = [(torch.randn(1, 16, 1),) for _ in range(24)]
    build = api.compile(Shifts().eval(), samples[0], target="cortex-m55", calibration=samples)
    run = build.run(np.stack([x.numpy() for (x,) in samples]))
    assert run.exact and run.sqnr_db[0] is not None and run.sqnr_db[0] > 30
    assert "keep(" not in (build.folder / "model.c").read_text()
    moved = [kernel for kernel in build.manifest.kernels if kernel.task == "slice+concat 1x8x16"]
    assert len(moved) == 1 and {state.shape for state in build.manifest.firmware.states} == {(1, 8, 16), (1, 3, 16)}


def test_states_that_are_written_by_rows_lie_once(written):
    _, _, build = written
    source = (build.folder / "model.c").read_text()
    assert "keep(" not in source
    sizes = [line.split()[5] for line in (build.folder / "memory_plan.txt").read_text().splitlines()]
    assert sizes.count("256") >= 5 and sizes.count("1152") == 1
