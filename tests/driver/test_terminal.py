"""What commands print and read beside their results: versions, stdin, samples of the build, missing tools."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
from click.testing import CliRunner
from conftest import NETS
from rich.console import Console

from tosaic.api import Build
from tosaic.cli import main
from tosaic.runs.running import random_advice, random_samples
from tosaic.support.processes import TOOLS
from tosaic.terminal.progress import Stations


def test_a_run_without_inputs_takes_the_samples_of_the_build(succeed, net):
    found = succeed("run", net)
    samples = Build.load(net).samples
    assert found["exact"] and found["samples"] == len(samples) >= 1
    assert np.array_equal(np.load(found["outputs"][0])[0], samples[0].outputs[0])


def test_a_run_prints_each_op_with_its_cycles_and_bound(tosaic, net):
    lines = tosaic("run", net).stdout.splitlines()
    manifest = Build.load(net).manifest
    for op in manifest.ops:
        if op.npu_cycles is not None:
            (line,) = [line for line in lines if op.where in line and line.split()[0] == op.op and op.module in line]
            assert f"{op.npu_cycles:,}" in line and line.split()[-1] == op.npu_bound


def test_the_summary_has_no_rescales_and_sums_modules(tosaic, succeed, net, tmp_path):
    text = tosaic("compile", f"{NETS}:net", "--target", "corstone-300", "-o", tmp_path / "build").stdout
    assert "RESCALE" in [op.op for op in Build.load(net).manifest.ops] and "RESCALE" not in text
    found = succeed("compile", f"{NETS}:net", "--target", "corstone-300", "-o", tmp_path / "build")
    for part in found["modules"]:
        assert part["module"] in text
    assert sum(part["npu"] or 0 for part in found["modules"]) == sum(op["npu_cycles"] or 0 for op in found["ops"])
    assert "RESCALE" not in tosaic("run", net).stdout


def test_the_summary_has_what_the_core_takes(tosaic, succeed, tmp_path):
    text = tosaic("compile", f"{NETS}:net", "-o", tmp_path / "build").stdout
    found = succeed("compile", f"{NETS}:net", "-o", tmp_path / "build")
    assert sum(part["cpu"] for part in found["modules"]) == found["cpu_cost"] > 0
    assert f"{found['cpu_cost']:,} cycles with memory in trials" in text
    ran = succeed("run", tmp_path / "build", "-o", tmp_path / "outputs")
    assert sum(part["cpu"] for part in ran["modules"]) == ran["cycles_with_memory"]


def test_random_samples_stay_within_the_range_of_the_calibration_data(net):
    build = Build.load(net)
    seen = build.manifest.calibration[0]
    drawn = np.stack([sample[0] for sample in random_samples(build, 200, 0)])
    assert drawn.min() == np.float32(seen.min) and drawn.max() == np.float32(seen.max)


def test_a_low_ratio_on_random_samples_says_that_they_are_random(net):
    run = Build.load(net).run(Build.load(net).samples[0].inputs[0])
    assert random_advice(run) is None
    advice = random_advice(replace(run, sqnr_db=[12.0]))
    assert advice and "random samples say little of the accuracy" in advice.what and "--input" in advice.hint


def test_inputs_and_random_ones_exclude_each_other(refused, net):
    assert "exclude each other" in refused("run", net, "--input", "x.npy", "--random", 1)


def test_a_module_comes_from_stdin():
    module = "func.func @main(%x: tensor<2xi8>) -> tensor<2xi8> { return %x : tensor<2xi8> }"
    result = CliRunner().invoke(main, ["opt", "-", "--pass-pipeline=fuse"], input=module)
    assert result.exit_code == 0 and "func.func @main" in result.stdout
    result = CliRunner().invoke(main, ["opt", "-"], input="no module")
    assert result.exit_code == 1 and result.stderr.startswith("error: ")


def test_every_part_has_a_version(tosaic, monkeypatch):
    shown = dict(line.split(maxsplit=1) for line in tosaic("--version").stdout.splitlines())
    assert {"tosaic", "python", "torch", "ethos-u-vela", *TOOLS} <= set(shown)
    assert shown["ethos-u-vela"] == "5.2.0" and shown["clang-22"].startswith("22.")
    monkeypatch.setenv("PATH", "/nowhere")
    shown = dict(line.split(maxsplit=1) for line in tosaic("--version").stdout.splitlines())
    assert shown["qemu-system-arm"] == "not installed: apt-get install qemu-system-arm"


def test_missing_tools_are_named_together(refused, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/nowhere")
    message = refused("compile", f"{NETS}:net", "-o", tmp_path / "build")
    assert all(f"`{tool}`" in message for tool in TOOLS)
    assert "try: apt-get install clang-22 lld-22 llvm-22" in message


def test_listings_and_records_as_json(succeed, net, tmp_path):
    assert "NPU_OP_STOP" in succeed("npu", "disasm", net)["regions"]["npu_0"]
    database = tmp_path / "records.db"
    assert succeed("records", "export", tmp_path / "out.jsonl", "--records", database) == {"records": 0}
    assert succeed("records", "import", tmp_path / "out.jsonl", "--records", database) == {"records": 0}


def test_every_command_that_prints_takes_json():
    def commands(group, path=()):
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from commands(command, (*path, name))
            else:
                yield (*path, name), command

    without = [path for path, command in commands(main) if all(p.name != "as_json" for p in command.params)]
    assert without == [("targets", "schema"), ("worker",)], "the one prints JSON, the other nothing"


def test_the_live_line_says_what_is_done(monkeypatch):
    shown = Console(file=io.StringIO(), force_terminal=True, width=80)
    monkeypatch.setattr("tosaic.terminal.progress.stderr", shown)
    stations = Stations()
    with stations.live():
        stations.seconds["capture"] = 2.4
        with stations.station("quantize"):
            pass
    assert "quantize ...  (capture 2 s)" in shown.file.getvalue()  # type: ignore[attr-defined]


def test_completion_knows_the_commands():
    result = CliRunner().invoke(
        main,
        prog_name="tosaic",
        env={"_TOSAIC_COMPLETE": "bash_complete", "COMP_WORDS": "tosaic re", "COMP_CWORD": "1"},
    )
    assert "plain,report" in result.stdout and "plain,records" in result.stdout
