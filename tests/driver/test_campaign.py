"""A slice of each long campaign; `benchmarks/campaign.py` runs them for hours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from benchmarks.campaigns import files, kills, known_compiles, models, trials

CLAMPED = """func.func @main(%x: tensor<1x8xi8>) -> tensor<1x8xi8> {
  %y = tosa.clamp %x {max_val = 5 : i8, min_val = -3 : i8} : (tensor<1x8xi8>) -> tensor<1x8xi8>
  return %y : tensor<1x8xi8>
}
"""


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_random_module(seed):
    outcome = models.trial(seed)
    assert not outcome.fault, outcome


def test_damaged_files():
    outcomes = [files.trial(number) for number in range(len(files.KINDS))]
    assert not [outcome for outcome in outcomes if outcome.fault]
    assert len({outcome.kind for outcome in outcomes}) > 1


def test_a_file_that_reads_as_one_before_is_not_compiled_again(tmp_path):
    known: list[str] = []

    def compiled(text: str) -> str:
        (tmp_path / "model.mlir").write_text(text)
        (tmp_path / "records.db").unlink(missing_ok=True)
        places = "-o", tmp_path / "build", "--records", tmp_path / "records.db"
        command = partial(files.tosaic, "compile", tmp_path / "model.mlir", *places, "--no-prove")
        result, digest = known_compiles.reading(known.__contains__, command)
        assert result.exit_code == 0, result.output
        known.append(digest)
        return digest

    first = compiled(CLAMPED)
    with pytest.raises(known_compiles.Known, match=first):
        compiled(f"{CLAMPED}// of the same module")
    assert compiled(CLAMPED.replace("-3", "-4")) != first


def test_a_tuning_run_that_is_killed():
    outcome = kills.kill_trial(0, kills=1, trials=24)
    assert outcome.kind == "whole", outcome


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_campaign_that_is_ended_leaves_no_process(tmp_path, number, code):
    campaign = Path(trials.__file__).parents[1] / "campaign.py"
    command = [sys.executable, campaign, "models", "--first", "2", "--target", "cortex-m0plus"]
    process = subprocess.Popen(
        command, env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stderr and process.stderr.readline().startswith(b"models 2: ")  # its worker has work
    assert len(session(process.pid)) > 1
    process.send_signal(number)
    process.communicate()
    assert process.returncode == code
    limit = time.monotonic() + 30
    while session(process.pid) and time.monotonic() < limit:
        time.sleep(0.1)
    assert session(process.pid) == []
    assert number == signal.SIGKILL or list(tmp_path.iterdir()) == []


def session(leader: int) -> list[int]:
    """The processes of a session that run."""
    found = subprocess.run(["ps", "-s", str(leader), "-o", "pid=,stat="], capture_output=True, text=True).stdout
    return [int(pid) for pid, state in map(str.split, found.splitlines()) if not state.startswith("Z")]
