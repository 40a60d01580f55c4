"""What the core waits for each block of the arena in each memory: counted in a run in which every block lies apart."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tosaic.backends.firmware.build import Library, build_firmware
from tosaic.backends.firmware.emit import arena_name
from tosaic.backends.firmware.memory_plan import plan_apart
from tosaic.backends.firmware.program import KernelCall, Program
from tosaic.backends.simulators.execution import Runner
from tosaic.backends.simulators.faults import address_of
from tosaic.backends.simulators.memory_model import waited
from tosaic.backends.simulators.run import run_firmware
from tosaic.backends.target import Memory, Target


def waits_by_block(
    program: Program,
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
        # A wait of one cycle for each jump, and none for bytes, counts jumps.
        watched = [
            Memory(name, begin + place.offset, place.block.size, pipeline.bytes_per_cycle, 1)
            for name, place in plan.placements.items()
        ]
        found = run_firmware(elf, firmware, [firmware.taken(sample)], runner, memories=watched).traffic
    return {
        asked.memory: tuple(waited(memory, asked.read + asked.written, asked.waits, pipeline) for memory in arena)
        for asked in found
    }
