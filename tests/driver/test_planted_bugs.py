"""Every planted bug is caught when a model is compiled, by the check that the list names."""

from __future__ import annotations

import pytest

from benchmarks.campaigns.planted_bugs import BUGS, MODEL, trial


@pytest.mark.parametrize("number", range(len(BUGS)), ids=[bug.name for bug in BUGS])
def test_a_bug_is_caught(number):
    outcome = trial(number)
    assert outcome.kind == "caught", outcome


def test_without_bugs_nothing_is_caught(succeed, tmp_path):
    for target in {bug.target for bug in BUGS}:
        succeed("compile", MODEL, "--target", target, "-o", tmp_path / target)
        manifest = (tmp_path / target / "manifest.json").read_text()
        assert not [bug.name for bug in BUGS if bug.caught in manifest]


def test_no_prove_builds_it_all_the_same(monkeypatch, succeed, tosaic, tmp_path):
    (bug,) = (bug for bug in BUGS if bug.name == "the arguments of a call are reversed")
    bug.plant(monkeypatch)
    succeed("compile", MODEL, "-o", tmp_path / "build", "--no-prove")
    ran = tosaic("run", tmp_path / "build", "--random", 1)
    assert ran.exit_code == 1 and "NO: sample 0" in ran.stdout
