"""Every planted bug is caught when a model is compiled, by the check that the list names."""

from __future__ import annotations

import pytest

from benchmarks.campaigns.planted_bugs import BUGS, MODEL, Bug


@pytest.fixture
def compiled(monkeypatch, tosaic, tmp_path):
    """Compile with a bug, and see that there is a build only where the bug was avoided."""

    def compiled(bug: Bug, *arguments: str):
        bug.plant(monkeypatch)
        options = ("--target", bug.target, "-o", tmp_path / "build", "--records", tmp_path / "records.db")
        return tosaic("compile", MODEL, *options, *arguments)

    return compiled


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_caught(bug, compiled, succeed, tmp_path):
    result = compiled(bug)
    assert result.exit_code == bug.refused, result.stderr
    if bug.refused:
        assert bug.caught in result.stderr and not (tmp_path / "build").exists()
    else:
        assert bug.caught in (tmp_path / "build" / "manifest.json").read_text()
        assert succeed("run", tmp_path / "build", "--random", 1)["exact"]


def test_without_bugs_nothing_is_caught(succeed, tmp_path):
    for target in {bug.target for bug in BUGS}:
        succeed("compile", MODEL, "--target", target, "-o", tmp_path / target)
        manifest = (tmp_path / target / "manifest.json").read_text()
        assert not [bug.name for bug in BUGS if bug.caught in manifest]


def test_no_prove_builds_it_all_the_same(compiled, tosaic, tmp_path):
    (bug,) = (bug for bug in BUGS if bug.name == "the arguments of a call are reversed")
    assert compiled(bug, "--no-prove").exit_code == 0
    ran = tosaic("run", tmp_path / "build", "--random", 1)
    assert ran.exit_code == 1 and "NO: sample 0" in ran.stdout
