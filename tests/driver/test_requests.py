"""What does not fit the fastest memory lies where the core waits least for it, as counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import NETS

from tosaic.api import Build
from tosaic.backends.target import Target
from tosaic.compiler import compilation
from tosaic.compiler.options import CompileOptions, Tuning
from tosaic.target_files.ready import find_target

_FAST = 7000
"""Bytes, in which some of the model's tensors lie."""


def with_little_fast_memory(size: int) -> Target:
    """A core without caches, so that it waits for every word of its slower memories."""
    target = find_target("cortex-m55")
    fastest, *slower = (replace(memory, caches=()) for memory in target.layout.arena)
    return replace(target, layout=replace(target.layout, arena=(replace(fastest, size=size), *slower)))


@pytest.fixture(scope="module")
def runs(succeed, tmp_path_factory):
    """What a model costs whose tensors lie by their bytes, and by what the core waits for them."""
    folder, found = tmp_path_factory.mktemp("requests"), {}
    options = CompileOptions(
        f"{NETS}:tall", with_little_fast_memory(_FAST), tuning=Tuning(records=folder / "records.db")
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in ("waits", "bytes"):
            compilation.compile_model(options, folder / name)
            found[name] = succeed("run", folder / name, "--random", 1), Build.load(folder / name).manifest
            patch.setattr(compilation, "waits_by_block", lambda *_, **__: {})
    return found


def test_both_memories_are_used_and_the_run_is_exact(runs):
    report, manifest = runs["waits"]
    firmware = manifest.firmware
    assert report["exact"]
    assert 0 < firmware.memories["dtcm"] <= _FAST < firmware.memories["dtcm"] + firmware.memories["sram"]


def test_the_core_waits_less_than_where_only_bytes_count(runs):
    by_waits, by_bytes = (runs[name][0]["cycles_with_memory"] for name in ("waits", "bytes"))
    assert by_waits < 0.95 * by_bytes


def test_trials_wait_for_memory_as_the_program_does(runs):
    """Kernels are tried with their tensors in the memories that the plan gives them."""
    report, manifest = runs["waits"]
    tried = sum(kernel.trial_cycles_with_memory for kernel in manifest.kernels)
    assert tried == pytest.approx(report["cycles_with_memory"], rel=0.05)
