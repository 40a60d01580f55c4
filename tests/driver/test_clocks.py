"""Milliseconds beside cycles, where cycles and clocks are known."""

from __future__ import annotations

import pytest
from conftest import NETS

from tosaic.target_files.ready import find_target


def test_an_inference_takes_its_cycles_at_the_clock(succeed, tosaic, tmp_path):
    options = ("--clock", "100MHz", "--records", tmp_path / "records.db", "-o", tmp_path / "build")
    compiled = succeed("compile", f"{NETS}:small", *options)
    assert compiled["milliseconds"] == pytest.approx(compiled["cpu_cost"] / 100_000)
    found = succeed("run", tmp_path / "build", "--random", 1)
    assert found["milliseconds"] == pytest.approx(found["cycles_with_memory"] / 100_000)
    assert f"{found['milliseconds']:,.3f} ms an inference" in tosaic("run", tmp_path / "build", "--random", 1).stdout


def test_the_npu_has_a_clock_of_its_own():
    target = find_target("corstone-300", clock=200_000_000, npu_clock=400_000_000)
    assert target.milliseconds(1_000_000, 2_000_000) == pytest.approx(10)
    assert find_target("corstone-300", clock=200_000_000).milliseconds(1_000_000, 2_000_000) is None
    assert find_target("corstone-300").milliseconds(0, 0) == 0


def test_instructions_are_no_time(succeed, tmp_path):
    options = ("--objective", "instructions", "--records", tmp_path / "records.db", "-o", tmp_path / "build")
    assert succeed("compile", f"{NETS}:small", *options)["milliseconds"] is None


def test_a_frequency_that_is_none(tosaic):
    result = tosaic("compile", f"{NETS}:small", "--npu-clock", "fast")
    assert result.exit_code == 2 and "'fast' is no frequency; write 480MHz" in result.stderr
