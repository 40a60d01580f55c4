"""What the core waits for each block of the arena in each memory: counted in a run in which every block lies apart."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tosaic.backends.firmware.build import Library, build_firmware
from tosaic.backends.firmware.emit_header import arena_name
from tosaic.backends.firmware.memory_plan import MemoryPlan, plan_apart
from tosaic.backends.firmware.program import CallSequence, KernelCall
from tosaic.backends.firmware.records import Firmware
from tosaic.backends.simulators.execution import Runner
from tosaic.backends.simulators.faults import address_of
from tosaic.backends.simulators.run import run_firmware
from tosaic.backends.target import Memory, Target


def waits_by_block(
    program: CallSequence,
    target: Target,
    sample: Sequence[np.ndarray],
    runner: Runner,
    *,
    include: Sequence[Path],
    libraries: Mapping[str, Library],
    states: Sequence[np.ndarray],
) -> dict[str, tuple[float, ...]]:
    """By block the cycles that the core waits for it in each of the target's arena memories; empty where that cannot
    be counted: the core has no timing, an NPU is called, or no memory holds all blocks at once.

    Args:
        sample: the inputs of an inference, with the shapes and dtypes of the model's header.
    """
    pipeline, arena = target.core.pipeline, target.layout.arena
    largest = max(arena, key=lambda memory: memory.size)
    plan = plan_apart(program, largest)
    if pipeline is None or plan.arena_bytes > largest.size:
        return {}
    if not all(isinstance(call, KernelCall) for call in program.calls):
        return {}
    roomy = replace(target, layout=replace(target.layout, arena=(largest,)))
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        build = Path(folder)
        firmware = build_firmware(program, roomy, build, include=include, libraries=libraries, states=states, plan=plan)
        elf = build / "model.elf"
        begin = address_of(elf, arena_name(largest))
        waits = [_waits(plan, begin, memory, elf, firmware, sample, runner) for memory in arena]
    return {name: tuple(each.get(name, 0) for each in waits) for name in plan.placements}


def _waits(
    plan: MemoryPlan,
    begin: int,
    memory: Memory,
    elf: Path,
    firmware: Firmware,
    sample: Sequence[np.ndarray],
    runner: Runner,
) -> dict[str, int]:
    """By block the cycles that the core waits for it where all of them lie in `memory`; empty without a call."""
    watched = [
        replace(memory, name=name, base=begin + place.offset, size=place.block.size)
        for name, place in plan.placements.items()
    ]
    found = run_firmware(elf, firmware, [firmware.taken(sample)], runner, memories=watched).traffic
    return {asked.memory: asked.waits for asked in found}
