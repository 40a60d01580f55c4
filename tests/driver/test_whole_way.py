"""compile, then run, on every target: what is printed, what is written, and that the board equals the reference."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import NETS

from tosaic.api import Build
from tosaic.backends.ethos_u.emulator.stream import command_words
from tosaic.builds.build import seal
from tosaic.runs.running import reference_outputs
from tosaic.target_files.ready import find_target

MODEL = f"{NETS}:net"
TARGETS = {"cortex-m55": None, "corstone-300": "ethos-u55-128", "corstone-320": "ethos-u85-256"}
COMPILE_KEYS = {
    "model", "target", "regions", "ops_per_processor", "ops", "arena_bytes", "flash_bytes", "npu_cycles", "trials",
    "seconds",
}  # fmt: skip
RUN_KEYS = {
    "exact",
    "instructions",
    "cycles",
    "cycles_with_memory",
    "traffic",
    "npu_cycles",
    "npu",
    "kernels",
    "sqnr_db",
    "outputs",
}
DMA_WAIT, KERNEL_WAIT = 17, 18
FILES = {
    "manifest.json", "SHA256SUMS", "module.mlirbc", "placed.mlirbc", "float.pt2", "model.c", "model.elf",
    "memory_plan.txt", "kit",
}  # fmt: skip


@pytest.fixture(scope="module")
def builds(succeed, tmp_path_factory):
    """What `compile --json` printed, by target."""
    folder = tmp_path_factory.mktemp("builds")
    return {name: succeed("compile", MODEL, "--target", name, "-o", folder / name) for name in TARGETS}


@pytest.mark.parametrize("target", TARGETS)
def test_compile_says_where_each_op_runs(builds, target):
    report = builds[target]
    assert set(report) >= COMPILE_KEYS
    assert (report["model"], report["target"], report["accelerator"]) == (MODEL, target, TARGETS[target])
    assert sum(report["ops_per_processor"].values()) == len(report["ops"]) > 5
    assert {op["processor"] for op in report["ops"]} == set(report["ops_per_processor"])
    convolution = next(op for op in report["ops"] if op["op"] == "CONV2D")
    lines = NETS.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "self.first(x)" in text)
    assert convolution["where"] == f"nets.py:{line} aten.conv2d.default"
    assert report["arena_bytes"] > 12 * 12 * 8
    assert report["flash_bytes"] > 8 * 8 * 9
    assert set(report["seconds"]) == {
        "capture",
        "quantize",
        "import",
        "passes",
        "place",
        "fit",
        "prove",
        "generate",
        "firmware",
        "write",
        "prove firmware",
        "check",
        *(["place by cost"] if TARGETS[target] else []),
    }


def test_without_an_npu_all_is_kernels(builds):
    report = builds["cortex-m55"]
    assert report["regions"] == {"npu": 0, "cpu": len(report["kernels"])}
    assert report["npu_cycles"] == 0 and set(report["ops_per_processor"]) == {"cpu"}


@pytest.mark.parametrize("target", ["corstone-300", "corstone-320"])
def test_an_npu_takes_the_net_as_one_region(builds, target):
    report = builds[target]
    assert report["regions"]["npu"] == 1
    assert report["npu_cycles"] == report["npu_regions"][0]["cycles"] > 0
    assert all(op["reason"] for op in report["ops"] if op["processor"] == "cpu")


@pytest.mark.parametrize("target", TARGETS)
def test_a_build_folder_is_whole(builds, target):
    build = Build.load(Path(builds[target]["build"]))
    assert {path.name for path in build.folder.iterdir()} >= FILES
    assert build.manifest.target == find_target(target)
    assert not [path for path in build.folder.parent.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("target", TARGETS)
def test_the_board_equals_the_reference(succeed, builds, target):
    report = succeed("run", builds[target]["build"], "--random", 3)
    assert set(report) >= RUN_KEYS
    assert report["exact"] is True and report["difference"] == ""
    assert report["npu"] == ("emulator" if TARGETS[target] else "none")
    assert report["instructions"] == sum(k["instructions"] for k in report["kernels"] if k["processor"] == "cpu")
    assert (report["instructions"] > 0) == (builds[target]["regions"]["cpu"] > 0)
    assert report["npu_cycles"] == builds[target]["npu_cycles"]
    assert report["sqnr_db"][0] > 15
    (output,) = report["outputs"]
    assert np.load(output).shape == (3, 1, 5)


def test_npu_regions_may_be_executed_by_the_reference(succeed, builds):
    report = succeed("run", builds["corstone-300"]["build"], "--random", 1, "--npu", "reference")
    assert report["exact"] and report["npu"] == "reference"


def test_both_npus_compute_the_same(succeed, builds, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(2, 3, 12, 12)).astype(np.float32))
    outputs = []
    for target in ("corstone-300", "corstone-320"):
        report = succeed("run", builds[target]["build"], "--input", tmp_path / "x.npy", "-o", tmp_path / target)
        outputs.append(np.load(report["outputs"][0]))
    assert outputs[0].shape == (2, 1, 5) and len(np.unique(outputs[0])) > 3
    assert np.array_equal(*outputs)


def test_a_second_compile_replaces_the_build(succeed, builds, tmp_path):
    first = succeed("compile", f"{NETS}:small", "-o", tmp_path / "build")
    (tmp_path / "build" / "stray").write_text("of the old build")
    second = succeed("compile", f"{NETS}:small", "-o", tmp_path / "build")
    assert not (tmp_path / "build" / "stray").exists()
    assert first["flash_bytes"] == second["flash_bytes"] and first["kernels"] == second["kernels"]
    assert [path.name for path in tmp_path.iterdir()] == ["build"]


def test_reports_for_people(tosaic, builds):
    compiled = tosaic("compile", f"{NETS}:small", "-o", builds["cortex-m55"]["build"] + "-small")
    assert compiled.exit_code == 0
    assert all(word in compiled.stdout for word in ("runs on", "nets.py", "arena", "flash", "trials"))
    ran = tosaic("run", builds["corstone-300"]["build"], "--random", 2)
    assert "yes, 2 samples" in ran.stdout
    assert "NPU command streams executed by tosaic's emulator" in ran.stdout


def test_the_api_does_the_same(builds):
    build = Build.load(Path(builds["corstone-300"]["build"]))
    samples = [[np.zeros((1, 3, 12, 12), np.float32)]]
    report = build.run(np.zeros((1, 3, 12, 12), np.float32))
    assert report.exact
    assert np.array_equal(report.board.outputs[0][0], reference_outputs(build, samples)[0][0])


def test_a_model_of_the_zoo(succeed, tmp_path):
    report = succeed("compile", "zoo:dscnn", "--target", "corstone-300", "-o", tmp_path / "dscnn")
    assert report["regions"]["npu"] == 1
    assert succeed("run", tmp_path / "dscnn", "--random", 1)["exact"]


@pytest.mark.parametrize("target", TARGETS)
def test_layers_that_are_decomposed_run_on_the_board(succeed, tmp_path, target):
    compiled = succeed("compile", f"{NETS}:decomposed", "--target", target, "-o", tmp_path / "build")
    assert compiled["regions"]["npu"] == (0 if target == "cortex-m55" else 1)
    report = succeed("run", tmp_path / "build", "--random", 2)
    assert report["exact"], report["difference"]


def test_targets(succeed):
    listed = {row["name"]: row["accelerator"] for row in succeed("targets")["targets"]}
    assert {name: listed[name] for name in TARGETS} == TARGETS


def test_the_ops_that_an_npu_takes(succeed, tosaic):
    conditions = {row["op"]: row["conditions"] for row in succeed("npu", "ops")["ops"]}
    assert "a kernel one deep" in conditions["CONV3D"]
    listing = tosaic("npu", "ops").stdout
    assert all(op in listing for op in conditions)


def test_command_streams_are_listed_with_the_line_of_the_model(tosaic, builds):
    listing = tosaic("npu", "disasm", builds["corstone-300"]["build"]).stdout
    line = next(op["where"] for op in builds["corstone-300"]["ops"] if op["op"] == "CONV2D")
    assert "; ethos-u55-128" in listing
    assert re.search(rf"NPU_OP_CONV.*; CONV2D #\d+ at {re.escape(line)}", listing)
    assert listing.rstrip().endswith("NPU_OP_STOP")


def test_without_an_npu_there_is_nothing_to_list(refused, builds):
    assert "has no NPU region" in refused("npu", "disasm", builds["cortex-m55"]["build"])


def test_a_hazard_is_reported_with_the_op_and_the_line_of_the_model(refused, builds, tmp_path):
    """The firmware's own command stream, with one wait for the weights' transfer made a wait for kernels."""
    built = Path(builds["corstone-300"]["build"])
    broken = tmp_path / "broken"
    shutil.copytree(built, broken)
    (stream,) = (built / "npu").iterdir()
    words = np.frombuffer(command_words(stream.read_bytes()).tobytes(), "<u4").copy()
    wait = next(index for index, word in enumerate(words) if word & 0xFFFF == DMA_WAIT)
    elf = bytearray((built / "model.elf").read_bytes())
    at = elf.index(words.tobytes()) + 4 * wait
    elf[at : at + 4] = (KERNEL_WAIT | 3 << 16).to_bytes(4, "little")
    (broken / "model.elf").write_bytes(elf)
    seal(broken)
    message = refused("run", broken, "--random", 1)
    line = next(op["where"] for op in builds["corstone-300"]["ops"] if op["op"] == "CONV2D")
    assert "a DMA_WAIT is missing before it" in message
    assert f"CONV2D of npu_0 from {line}, NPU_OP_CONV at byte" in message
