"""Weights of several calls lie in one place, and the program stays exact."""

from __future__ import annotations

import pytest
from conftest import NETS

OF_HEAD, OF_WIDE, OF_TABLE = 32 * 32, 32 * 32 * 9, 256 * 32
BESIDE = 4096
"""Bytes of all other constants, at most."""
OTHERS_OF_TIED = 32 * 32 + 256 * (4 + 4 + 4 + 2) + 1024
"""The matrix inside, a bias, a multiplier, a shift and a scale of each row, and what the inner layer has of these."""


def constants(folder) -> int:
    files = [file for file in (folder / "constants").iterdir() if not file.name.startswith("selftest")]
    return sum(file.stat().st_size for file in files)


@pytest.mark.parametrize("options", [[], ["--kernels", "cmsis-nn"]], ids=["all", "cmsis-nn"])
def test_weights_of_two_calls_are_kept_once(succeed, tmp_path, options):
    succeed("compile", f"{NETS}:pyramid", *options, "--records", tmp_path / "records.db", "-o", tmp_path / "build")
    assert OF_HEAD + OF_WIDE < constants(tmp_path / "build") < OF_HEAD + OF_WIDE + BESIDE
    assert succeed("run", tmp_path / "build", "--random", 2)["exact"]


@pytest.mark.parametrize("options", [[], ["--kernels", "cmsis-nn"]], ids=["all", "cmsis-nn"])
def test_a_table_that_is_a_matrix_is_kept_once(succeed, tmp_path, options):
    succeed("compile", f"{NETS}:tied", *options, "--records", tmp_path / "records.db", "-o", tmp_path / "build")
    assert OF_TABLE < constants(tmp_path / "build") < OF_TABLE + OTHERS_OF_TIED
    assert succeed("run", tmp_path / "build", "--random", 2)["exact"]
