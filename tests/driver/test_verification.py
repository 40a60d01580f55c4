"""verify: that a sound build is found sound, and that each kind of damage is found where it was done."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from conftest import NETS
from tosa_graphs import Graph

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.ethos_u.emulator import machine
from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.build import simulator_objects
from tosaic.backends.npu import EmulationError
from tosaic.builds.build import seal
from tosaic.builds.manifest import Manifest
from tosaic.support.mlir import dense, dense_values, functions, ir, parse, walk
from tosaic.support.processes import run_tool


@pytest.fixture(scope="module")
def builds(succeed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("builds")
    for target in ("cortex-m55", "corstone-300"):
        succeed("compile", f"{NETS}:net", "--target", target, "-o", folder / target)
    return folder


@pytest.fixture
def differing(tosaic):
    """Verify a build that must differ: the JSON object."""

    def run(folder):
        result = tosaic("verify", folder, "--inputs", 2, "--json")
        assert result.exit_code == 1
        report = json.loads(result.stdout)
        assert report["exact"] is False
        return report

    return run


def relinked(build, folder, name):
    """A copy of `build` with bits of a constant flipped, linked again."""
    shutil.copytree(build, folder)
    constant = folder / "constants" / f"{name}.bin"
    data = np.frombuffer(constant.read_bytes(), np.uint8).copy()
    data[:: len(data) // 16] ^= 0x10
    constant.write_bytes(data.tobytes())
    fresh = folder / "objects" / "constants.o"
    toolchain.compile_c(folder / "constants.s", fresh, CORTEX_M55, f"-Wa,-I{folder}")
    run_tool("arm-none-eabi-ar", ["r", folder / "kit" / "lib" / "libmodel.a", fresh])
    link(folder)
    return folder


def link(folder):
    objects = simulator_objects(folder, "model", CORTEX_M55, bool(Manifest.read(folder).regions))
    toolchain.link(objects, folder / "model.ld", folder / "model.elf", CORTEX_M55)
    seal(folder)


@pytest.mark.parametrize("target", ["cortex-m55", "corstone-300"])
def test_a_sound_build(succeed, builds, target):
    report = succeed("verify", builds / target, "--inputs", 2)
    assert report["exact"] and report["samples"] == 2
    assert (report["difference"], report["begins"]) == ("", None)
    assert report["npu"] == ("none" if target == "cortex-m55" else "emulator")
    assert report["calls"] and all(call["exact"] and call["ops"] for call in report["calls"])
    assert any("CONV2D" in call["ops"] and "nets.py" in call["where"] for call in report["calls"])


def test_calls_of_one_kernel_may_read_tensors_of_several_sizes(succeed, tmp_path):
    graph = Graph()
    slices = [graph.slice(graph.input((rows, 16)), (1, 0), (2, 16)) for rows in (6, 4, 5)]
    (tmp_path / "slices.mlir").write_text(str(graph.module(*slices)))
    succeed("compile", tmp_path / "slices.mlir", "-o", tmp_path / "build")
    report = succeed("verify", tmp_path / "build")
    assert report["exact"] and len({call["name"] for call in report["calls"]}) == 1 < len(report["calls"])


def test_a_kernel_that_is_called_may_be_a_part_of_another_one_too(succeed, tmp_path):
    (tmp_path / "states.py").write_text(_STATES)
    succeed("compile", f"{tmp_path / 'states.py'}:states", "--activations", "int16", "-o", tmp_path / "build")
    report = succeed("verify", tmp_path / "build")
    loops = "".join(path.read_text() for path in (tmp_path / "build" / "kernels").glob("loop_*.c"))
    assert any(f"  {call['name']}(" in loops for call in report["calls"])
    assert report["exact"]


_STATES = """
import torch


class States(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = torch.nn.GRU(6, 10, 2, batch_first=True)

    def forward(self, x, states):
        return self.gru(x, states)


def states():
    torch.manual_seed(0)
    return States().eval(), (torch.randn(1, 4, 6), torch.randn(2, 1, 10))
"""


def test_damaged_weights_of_a_kernel_name_its_call(differing, builds, tmp_path):
    folder = relinked(builds / "cortex-m55", tmp_path / "build", "params_1")
    report = differing(folder)
    begins = report["begins"]
    assert begins["call"] == 1
    assert begins["name"] == report["calls"][1]["name"] and begins["where"] == report["calls"][1]["where"]
    assert begins["op"].split("+") == report["calls"][1]["ops"]
    assert "nets.py" in begins["where"]
    assert [call["exact"] for call in report["calls"]] == [index != 1 for index in range(len(report["calls"]))]


def test_the_report_for_people_names_the_op(tosaic, builds, tmp_path):
    folder = relinked(builds / "cortex-m55", tmp_path / "build", "params_1")
    result = tosaic("verify", folder, "--inputs", 1)
    assert result.exit_code == 1 and "Traceback" not in result.output
    assert (
        "the difference begins in" in result.stdout and "nets.py" in result.stdout and "NO: sample 0" in result.stdout
    )


def test_damaged_weights_of_a_region_are_told_from_a_wrong_npu(differing, builds, tmp_path):
    (name,) = [path.stem for path in (builds / "corstone-300" / "constants").glob("weights_*.bin")]
    report = differing(relinked(builds / "corstone-300", tmp_path / "build", name))
    assert report["begins"]["name"] == "npu_0"
    assert "weights are not what Vela makes of this region: compile again" in report["begins"]["why"]


def test_an_npu_that_computes_wrongly_names_the_op(differing, builds, monkeypatch):
    """The emulator's depthwise convolution flips a bit of what it stores."""
    right = machine._KERNELS["DEPTHWISE"]

    def wrong(state, parameter):
        right(state, parameter)
        stored = state.memory.accesses[-1]
        state.memory._bytes[stored.region][stored.low : stored.high] ^= 0x40

    monkeypatch.setitem(machine._KERNELS, "DEPTHWISE", wrong)
    begins = differing(builds / "corstone-300")["begins"]
    assert begins["name"] == "npu_0"
    assert begins["op"].startswith(("DEPTHWISE_CONV2D", "RESCALE"))
    assert "nets.py" in begins["where"] and "the region cut behind this op" in begins["why"]


def test_a_stream_that_the_npu_refuses_is_no_end(differing, builds, monkeypatch):
    def refuse(state, parameter):
        raise EmulationError("there is no such thing as a depthwise convolution")

    monkeypatch.setitem(machine._KERNELS, "DEPTHWISE", refuse)
    report = differing(builds / "corstone-300")
    assert report["begins"]["name"] == "npu_0"
    assert "no such thing as a depthwise convolution" in report["begins"]["why"]
    assert [call["name"] for call in report["calls"] if not call["exact"]] == ["npu_0"]


def test_an_elf_that_is_not_of_its_library(differing, builds, tmp_path):
    damaged = relinked(builds / "cortex-m55", tmp_path / "damaged", "params_1")
    folder = tmp_path / "build"
    shutil.copytree(builds / "cortex-m55", folder)
    shutil.copy(damaged / "model.elf", folder / "model.elf")
    seal(folder)
    begins = differing(folder)["begins"]
    assert (begins["call"], begins["name"]) == (None, "model.elf")
    assert "compile again" in begins["why"]


def test_a_module_that_a_pass_changed(differing, builds, tmp_path):
    """Other biases in the integer module stand for a pass that did not keep its meaning."""
    folder = tmp_path / "build"
    shutil.copytree(builds / "cortex-m55", folder)
    module = parse((folder / "module.mlirbc").read_bytes())
    bias = next(op.operands[2] for op in walk(functions(module)["main"]) if op.name == "tosa.conv2d").owner
    with module.context, ir.Location.unknown():
        bias.attributes["values"] = dense(dense_values(bias.attributes["values"]) + np.int32(1000))
    (folder / "module.mlirbc").write_text(str(module))
    seal(folder)
    begins = differing(folder)["begins"]
    assert (begins["call"], begins["name"]) == (None, "passes")
    assert "--verify-each" in begins["why"]
