"""Tuning from the command line: budget, reuse, resumption after a kill, and a clean Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import NETS

from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.task import KernelTask

SMALL = f"{NETS}:small"
TOSAIC = Path(sys.executable).with_name("tosaic")
PROOFS = 20
"""More than the net has kernels, each of which is tried once before the tuning begins."""
PATIENCE = 120  # seconds


def rows(records: Path) -> int:
    """The trials recorded so far, of a database that another process may be writing."""
    if not records.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{records}?mode=ro", uri=True) as connection:
            return connection.execute("SELECT COUNT(*) FROM trials").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


@pytest.fixture(scope="module")
def tuned(succeed, tmp_path_factory):
    """A model tuned with 24 trials: its records, and what the command printed."""
    records = tmp_path_factory.mktemp("records") / "records.db"
    return records, succeed("tune", SMALL, "--tune-trials", 24, "--records", records, "--workers", 2)


def test_tune_spends_its_budget_and_records_it(tuned):
    records, report = tuned
    assert 0 < report["trials"] <= 24 and report["trials_reused"] == 0 and not report["interrupted"]
    assert rows(records) == report["trials"]
    assert set(report) >= {"trials", "trials_failed", "seconds", "best"}
    (best,) = report["best"]
    assert best["instructions"] > 0 and best["cycles"] > 0 and best["schedule"]
    assert best["milliseconds"] == pytest.approx(best["cycles_with_memory"] / 400e3)


def test_schedules_are_guessed_for_where_kernels_lie_alone(succeed, tmp_path, monkeypatch):
    sites, variants = list[Site](), KernelTask._variants

    def asked(task, matches):
        sites.append(task.site)
        return variants(task, matches)

    monkeypatch.setattr(KernelTask, "_variants", asked)
    succeed("compile", SMALL, "--records", tmp_path / "records.db", "-o", tmp_path / "build")
    assert sites and all(site.constants and site.tensors for site in sites)


def test_the_same_again_measures_nothing(succeed, tuned):
    records, first = tuned
    again = succeed("tune", SMALL, "--tune-trials", 24, "--records", records)
    assert (again["trials"], again["trials_reused"]) == (0, first["trials"])
    assert again["best"] == first["best"]


def test_a_compilation_takes_the_best_record(succeed, tuned, tmp_path):
    records, report = tuned
    built = succeed("compile", SMALL, "--tune-trials", 24, "--records", records, "-o", tmp_path / "build")
    assert (built["trials"], built["trials_reused"]) == (0, report["trials"])
    (kernel,) = built["kernels"]
    (best,) = report["best"]
    assert kernel["trials"] > 1 and kernel["schedule"] == best["schedule"]
    assert kernel["trial_instructions"] == best["instructions"]
    ran = succeed("run", tmp_path / "build", "--random", 2)
    assert ran["exact"] and abs(ran["instructions"] - best["instructions"]) < 40


def test_trials_that_weigh_placements_are_measured_ones(succeed, tmp_path):
    """Where placement weighs what runs on the CPU, more kernels are proven than tuned."""
    records = tmp_path / "records.db"
    arguments = (f"{NETS}:attention", "--target", "corstone-300", "--tune-trials", 6, "--records", records)
    first = succeed("compile", *arguments, "-o", tmp_path / "build")
    assert (first["trials"], first["trials_reused"]) == (rows(records), 0) and rows(records) > 6
    again = succeed("compile", *arguments, "-o", tmp_path / "build")
    assert (again["trials"], again["trials_reused"] > 0) == (0, True)


def test_without_trials_the_records_still_count(succeed, tuned, tmp_path):
    records, _ = tuned
    assert succeed("compile", SMALL, "--records", records, "-o", tmp_path / "a")["kernels"][0]["trials"] > 1
    assert succeed("compile", SMALL, "-o", tmp_path / "b")["kernels"][0]["trials"] == 1


def test_records_move_between_machines(succeed, tosaic, tuned, tmp_path):
    records, report = tuned
    lines, other = tmp_path / "lines.jsonl", tmp_path / "other.db"
    assert tosaic("records", "export", lines, "--records", records).exit_code == 0
    assert f"{report['trials']} new records" in tosaic("records", "import", lines, "--records", other).stderr
    assert "0 new records" in tosaic("records", "import", lines, "--records", other).stderr
    assert succeed("tune", SMALL, "--tune-trials", 24, "--records", other)["trials"] == 0


@pytest.fixture
def started(tmp_path):
    """A real `tosaic compile --tune-trials` in a process group of its own, with trials recorded beyond the proofs."""
    process = None

    def start(records: Path) -> subprocess.Popen:
        nonlocal process
        arguments = ["compile", f"{NETS}:net", "--tune-trials", "4000", "--workers", "2", "--search", "random"]
        process = subprocess.Popen(
            [TOSAIC, *arguments, "--records", records, "-o", tmp_path / "outputs" / "build", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        until = time.monotonic() + PATIENCE
        while rows(records) <= PROOFS:
            assert process.poll() is None and time.monotonic() < until, process.communicate()
            time.sleep(0.1)
        return process

    yield start
    if process and process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_killed_and_started_again_it_loses_at_most_what_was_in_flight(succeed, started, tmp_path):
    records = tmp_path / "records.db"
    process = started(records)
    seen = rows(records)
    process.kill()
    process.communicate()
    kept = rows(records)
    assert kept >= seen > 0
    assert not (tmp_path / "outputs" / "build").exists()
    resumed = succeed(
        "compile", f"{NETS}:net", "--tune-trials", kept + 8, "--records", records, "--search", "random",
        "-o", tmp_path / "resumed",
    )  # fmt: skip
    assert resumed["trials_reused"] >= seen
    assert resumed["trials"] == kept + 8 - resumed["trials_reused"]
    assert rows(records) == kept + 8
    assert succeed("run", tmp_path / "resumed", "--random", 1)["exact"]


def test_interrupted_it_keeps_the_records_and_builds_with_them(started, tmp_path):
    records = tmp_path / "records.db"
    process = started(records)
    seen = rows(records)
    os.killpg(process.pid, signal.SIGINT)  # what Ctrl-C sends, to the workers too
    out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err
    assert rows(records) >= seen
    assert process.returncode == 130
    report = json.loads(out)
    assert report["tuning_interrupted"] and report["trials"] == rows(records) < 4000
    assert (
        json.loads((tmp_path / "outputs" / "build" / "manifest.json").read_text())["trials"]["measured"]
        == report["trials"]
    )
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["build"]
