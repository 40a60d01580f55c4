"""What a machine lacks is said before it is needed, and tools have the names that the machine gives them."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from tosaic.reports.doctor import CPU_INDEX
from tosaic.support.errors import BackendError
from tosaic.support.processes import installed, program, run_tool, variable


def findings(result) -> dict[str, dict]:
    return {one["name"]: one for one in json.loads(result.stdout)["findings"]}


def test_a_machine_that_has_all(tosaic):
    result = tosaic("doctor", "--json")
    found = findings(result)
    assert result.exit_code == 0 and {one["state"] for one in found.values()} == {"ok"}
    assert found["clang-22"]["found"].startswith("22.") and "/clang-22" in found["clang-22"]["found"]


def test_a_build_of_torch_for_cuda_is_told_with_what_to_do(tosaic, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    result = tosaic("doctor", "--json")
    torchs = findings(result)["torch"]
    assert result.exit_code == 0 and torchs["state"] == "warning" and "the build for CUDA 12.6" in torchs["found"]
    assert f"torch==2.13.0 --index-url {CPU_INDEX}" in torchs["hint"]
    assert CPU_INDEX in tosaic("doctor").stderr


def test_a_tool_that_is_missing(tosaic, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    result = tosaic("doctor", "--json")
    clang = findings(result)["clang-22"]
    assert result.exit_code == 1 and clang["state"] == "missing"
    assert clang["hint"] == "apt-get install clang-22, or let TOSAIC_CLANG name it"
    (qemu,) = [line for line in tosaic("doctor").stderr.splitlines() if "qemu" in line]
    assert qemu.startswith(
        "missing: qemu-system-arm: not installed; it executes firmware: proof, tuning, `tosaic run`; apt"
    )


def test_a_tool_is_what_its_variable_names(monkeypatch, tmp_path):
    assert (variable("llvm-ar-22"), variable("ld.lld-22")) == ("TOSAIC_LLVM_AR", "TOSAIC_LD_LLD")
    (tmp_path / "mine").symlink_to(shutil.which("llvm-nm-22") or "")
    monkeypatch.setenv("TOSAIC_LLVM_NM", str(tmp_path / "mine"))
    assert installed("llvm-nm-22") == str(tmp_path / "mine")
    assert "LLVM" in run_tool("llvm-nm-22", ["--version"])
    monkeypatch.setenv("TOSAIC_LLVM_NM", str(tmp_path / "absent"))
    with pytest.raises(BackendError, match=r"`llvm-nm-22` is not installed\n  try: .*TOSAIC_LLVM_NM"):
        installed("llvm-nm-22")


@pytest.mark.parametrize(("version", "found"), [("22.1.3", True), ("14.0.6", False)])
def test_a_tool_without_a_version_in_its_name_is_taken_if_it_has_that_version(monkeypatch, tmp_path, version, found):
    (tmp_path / "clang").write_text(f"#!/bin/sh\necho clang version {version}\n")
    (tmp_path / "clang").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program("clang-22") == (str(tmp_path / "clang") if found else None)
