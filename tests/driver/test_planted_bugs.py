"""Every planted bug is caught when a model is compiled, by the check that the list names."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from conftest import NETS

from benchmarks.campaigns.planted_bugs import BUGS, MODEL, compile_with, sound, trial
from tosaic.backends.firmware.program import CallSequence, KernelCall
from tosaic.compiler import compilation

AFRESH = True
MIXED = f"{NETS.parent / 'mixed.py'}:mixed"


@pytest.mark.parametrize("number", range(len(BUGS)), ids=[bug.name for bug in BUGS])
def test_a_bug_is_caught(number):
    outcome = trial(number)
    assert outcome.kind == "caught", outcome


def test_without_bugs_nothing_is_caught(tmp_path):
    builds = [sound(target) / "build" for target in {bug.target for bug in BUGS}]
    for number, (model, target) in enumerate({(bug.model, bug.target) for bug in BUGS if bug.model != MODEL}):
        builds.append(tmp_path / str(number))
        assert compile_with(tmp_path / "records.db", model, target, builds[-1]).exit_code == 0
    for build in builds:
        manifest = (build / "manifest.json").read_text()
        assert not [bug.name for bug in BUGS if bug.caught in manifest]


def test_no_prove_builds_it_all_the_same(monkeypatch, succeed, tosaic, tmp_path):
    (bug,) = (bug for bug in BUGS if bug.name == "the arguments of a call are reversed")
    records = shutil.copy(sound(bug.target) / "records.db", tmp_path)
    bug.plant(monkeypatch)
    succeed("compile", MODEL, "-o", tmp_path / "build", "--records", records, "--no-prove")
    ran = tosaic("run", tmp_path / "build", "--random", 1)
    assert ran.exit_code == 1 and "NO: sample 0" in ran.stdout


def test_floats_beyond_their_bounds(monkeypatch, succeed, refused, tosaic, tmp_path):
    """Floats are judged call by call, by TOSA's bounds: roundings pass, other weights do not."""
    compiling = ("compile", MIXED, "--exclude", "second", "--exclude", "sigmoid", "-o", tmp_path / "build")
    right = compilation.assemble

    def plant(factor: float) -> None:
        def change(program: CallSequence) -> CallSequence:
            calls = list(program.calls)
            kernels = [(i, call) for i, call in enumerate(calls) if isinstance(call, KernelCall)]
            index, call = next(pair for pair in kernels if len(pair[1].kernel.params) >= 4 * 576)
            weights = np.frombuffer(call.kernel.params, np.float32) * np.float32(factor)
            calls[index] = replace(call, kernel=replace(call.kernel, params=weights.tobytes()))
            return replace(program, calls=tuple(calls))

        monkeypatch.setattr(compilation, "assemble", lambda *arguments: change(right(*arguments)))

    plant(1 + 1e-7)
    succeed(*compiling)
    assert succeed("run", tmp_path / "build", "--random", 3)["right"]
    assert "equals the reference" in tosaic("run", tmp_path / "build", "--random", 1).stdout  # each call is judged
    plant(-1.0)
    message = refused(*compiling)
    assert "the firmware does not compute the integer module" in message and "TOSA allows" in message
    assert "mixed.py" in message
    succeed(*compiling, "--no-prove")
    ran = tosaic("run", tmp_path / "build", "--random", 3)
    assert ran.exit_code == 1 and "TOSA allows" in ran.stdout
    assert tosaic("verify", tmp_path / "build").exit_code == 1
