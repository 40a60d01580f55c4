"""What each method of a model costs, and how fast a model generates that does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tosaic.builds.build import BuildFolder
from tosaic.runs.running import Run


@dataclass(frozen=True)
class MethodCost:
    """A method's cost.

    Args:
        cpu: the core's, in what the build minimizes, or with memory in a run; None where it is not known.
        npu: cycles, by the estimate of the NPU's compiler.
        milliseconds: both at the target's clocks; None where cycles or clocks are not known.
    """

    name: str
    cpu: int | None
    npu: int
    milliseconds: float | None


def compiled_methods(build: BuildFolder) -> list[MethodCost]:
    """The methods of a build by the trials of its kernels; of a model that is one nothing."""
    manifest = build.manifest
    trials = {kernel.name: kernel.curve[-1][1] if kernel.curve else None for kernel in manifest.kernels}
    in_cycles = manifest.objective == "cycles"
    return _costs(build, [trials.get(name, 0) for name in build.called], in_cycles)


def run_methods(report: Run) -> list[MethodCost]:
    """The methods of a build in a run; of a model that is one nothing."""
    return _costs(report.build, [call.cycles_with_memory for call in report.board.calls], in_cycles=True)


def _costs(build: BuildFolder, by_call: Sequence[int | None], in_cycles: bool) -> list[MethodCost]:
    manifest, found = build.manifest, list[MethodCost]()
    for method in manifest.firmware.methods:
        own = by_call[manifest.firmware.calls_of(method.name)]
        cpu = None if None in own else sum(cost or 0 for cost in own)
        npu = manifest.npu_cycles_of(method.name)
        taken = manifest.target.milliseconds(cpu, npu) if in_cycles else None
        found.append(MethodCost(method.name, cpu, npu, taken))
    return found


def method_facts(costs: Sequence[MethodCost]) -> list[tuple[str, str]]:
    """A line for each method."""
    return [(f"method {cost.name}", _described(cost)) for cost in costs]


def _described(cost: MethodCost) -> str:
    parts = ["core not known" if cost.cpu is None else f"core {cost.cpu:,}"]
    parts += [f"NPU {cost.npu:,}"] if cost.npu else []
    parts += [] if cost.milliseconds is None else [f"{cost.milliseconds:,.3f} ms"]
    return ", ".join(parts)


def generation_facts(
    build: BuildFolder, costs: Sequence[MethodCost], milliseconds: float | None
) -> list[tuple[str, str]]:
    """How fast a model generates, and what it keeps; nothing of one that does not.

    Args:
        milliseconds: that the model takes where it has no methods.
    """
    if (decoder := build.manifest.firmware.decoder) is None:
        return []
    taken = next((cost.milliseconds for cost in costs if cost.name == decoder.method), milliseconds)
    speed = f"{1000 / taken:,.1f} tokens/s; " if taken else ""
    return [("generates", f"{speed}states of {states_described(build)}")]


def states_described(build: BuildFolder) -> str:
    """What a model keeps from call to call, and how much of that is a token's."""
    kept, decoder = state_bytes(build), build.manifest.firmware.decoder
    context = decoder.places if decoder else None
    return f"{kept:,} B" + (f", {kept // context:,} B a token, for {context:,} tokens" if context else "")


def state_bytes(build: BuildFolder) -> int:
    """Bytes of all that the model keeps from call to call."""
    states = build.manifest.firmware.states
    return sum(prod(state.shape) * np.dtype(state.dtype).itemsize for state in states)
