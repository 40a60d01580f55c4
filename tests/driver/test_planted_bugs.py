"""Bugs planted behind the proofs of kernels and regions: the run of the finished firmware finds each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest
from conftest import NETS

from tosaic import compilation
from tosaic.backends.firmware import build as firmware_build
from tosaic.backends.firmware.program import KernelCall, NpuCall, Program

MIXED = f"{NETS.parent / 'mixed.py'}:mixed"
CAUGHT = "the firmware does not compute the integer module\n  because: sample 0: output 0"


@pytest.fixture
def planted(monkeypatch, refused, tmp_path):
    """Compile with a bug in the assembled program, expect the refusal, and see that nothing is left."""

    def planted(break_program, target: str = "cortex-m55", words: str = CAUGHT) -> None:
        right = compilation.assemble
        monkeypatch.setattr(compilation, "assemble", lambda *arguments: break_program(right(*arguments)))
        assert words in refused("compile", f"{NETS}:net", "--target", target, "-o", tmp_path / "build")
        assert not (tmp_path / "build").exists()

    return planted


Call = TypeVar("Call", KernelCall, NpuCall)


def with_call(program: Program, index: int, call: KernelCall | NpuCall) -> Program:
    calls = list(program.calls)
    calls[index] = call
    return replace(program, calls=tuple(calls))


def first(program: Program, kind: type[Call], condition: Callable[[Call], bool]) -> tuple[int, Call]:
    return next((i, call) for i, call in enumerate(program.calls) if isinstance(call, kind) and condition(call))


def test_a_weight_that_changes_after_its_kernels_proof(planted):
    def change(program: Program) -> Program:
        index, call = first(program, KernelCall, lambda call: len(call.kernel.params) > 64)
        params = bytes(byte ^ 0x10 for byte in call.kernel.params[:64]) + call.kernel.params[64:]
        return with_call(program, index, replace(call, kernel=replace(call.kernel, params=params)))

    planted(change)


def test_a_weight_that_changes_after_its_regions_proof(planted):
    def change(program: Program) -> Program:
        index, call = first(program, NpuCall, lambda call: True)
        return with_call(program, index, replace(call, constants=bytes(len(call.constants))))

    planted(change, "corstone-300", words="the NPU call failed on the host")


def test_the_arguments_of_a_call_in_the_wrong_order(planted):
    def change(program: Program) -> Program:
        index, call = first(program, KernelCall, lambda call: len(call.inputs) == 2)
        return with_call(program, index, replace(call, inputs=call.inputs[::-1]))

    planted(change)


def test_a_plan_in_which_tensors_overlap(planted, monkeypatch):
    right = firmware_build.plan_memory

    def overlapping(*arguments):
        plan = right(*arguments)
        places = {name: replace(place, offset=0, memory=0) for name, place in plan.placements.items()}
        return replace(plan, placements=places)

    monkeypatch.setattr(firmware_build, "plan_memory", overlapping)
    monkeypatch.setattr(firmware_build, "check_plan", lambda program, plan: None)
    planted(lambda program: program)


def test_no_prove_builds_it_all_the_same(monkeypatch, succeed, tosaic, tmp_path):
    def change(program: Program) -> Program:
        index, call = first(program, KernelCall, lambda call: len(call.inputs) == 2)
        return with_call(program, index, replace(call, inputs=call.inputs[::-1]))

    right = compilation.assemble
    monkeypatch.setattr(compilation, "assemble", lambda *arguments: change(right(*arguments)))
    succeed("compile", f"{NETS}:net", "-o", tmp_path / "build", "--no-prove")
    ran = tosaic("run", tmp_path / "build", "--random", 1)
    assert ran.exit_code == 1 and "NO: sample 0" in ran.stdout


def test_floats_beyond_their_bounds(monkeypatch, succeed, tosaic, tmp_path):
    """Floats are judged call by call, by TOSA's bounds: roundings pass, other weights do not."""
    compiling = ("compile", MIXED, "--exclude", "second", "--exclude", "sigmoid", "--no-prove")
    right = compilation.assemble

    def plant(factor: float) -> None:
        def change(program: Program) -> Program:
            index, call = first(program, KernelCall, lambda call: len(call.kernel.params) >= 4 * 576)
            weights = np.frombuffer(call.kernel.params, np.float32) * np.float32(factor)
            return with_call(program, index, replace(call, kernel=replace(call.kernel, params=weights.tobytes())))

        monkeypatch.setattr(compilation, "assemble", lambda *arguments: change(right(*arguments)))
        succeed(*compiling, "-o", tmp_path / "build")

    plant(1 + 1e-7)
    assert succeed("run", tmp_path / "build", "--random", 3)["right"]
    plant(-1.0)
    ran = tosaic("run", tmp_path / "build", "--random", 3)
    assert ran.exit_code == 1 and "TOSA allows" in ran.stdout
    assert tosaic("verify", tmp_path / "build").exit_code == 1
