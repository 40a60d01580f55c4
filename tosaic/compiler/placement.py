"""Which processor runs what: as much on the NPU as it takes, as Vela compiles, and as comes out right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from tosaic.backends.npu import NpuOptions, NpuRefusal, NpuRegion
from tosaic.backends.npus import compile_region
from tosaic.backends.reference import serialize
from tosaic.backends.target import Target
from tosaic.compiler.proof import prove_region, region_difference
from tosaic.compiler.region_search import better_regions, bytes_beside, is_alone
from tosaic.compiler.trial_inputs import call_inputs
from tosaic.compiler.verdicts import costs_of
from tosaic.passes import Callback, npu_phases, place_phase, run_phase
from tosaic.passes.place.methods import join_methods
from tosaic.passes.place.place import refuse
from tosaic.support.attributes import int_of
from tosaic.support.functions import computing_ops, functions_on, inputs_of, main_of, standalone
from tosaic.support.mlir import bytecode, copy_of, ir, walk

Reads: TypeAlias = Mapping[str, Sequence[np.ndarray]]
"""What each region reads when the model is given a sample."""


@dataclass(frozen=True)
class Placement:
    """A module divided between the processors.

    Args:
        module: `main` calls one function per NPU region and CPU kernel.
        fused: what was divided, with the reasons why ops are not on the NPU.
        regions: the compiled command stream of each NPU function.
        looped: the same with loops that leave more to the CPU, which takes less flash.
    """

    module: ir.Module
    fused: ir.Module
    regions: Mapping[str, NpuRegion] = field(default_factory=dict)
    looped: Placement | None = None


def npu_forms(
    module: ir.Module, target: Target, callbacks: Sequence[Callback] = (), small: bool = False
) -> list[ir.Module]:
    """The distinct modules that the alternatives of the phase `npu` make of a copy of `module`: see `npu_phases`.

    Raises:
        PassError: a phase broke its invariant.
    """
    distinct: dict[bytes, ir.Module] = {}
    for phase in npu_phases(costs_of(target), small):
        form = copy_of(module)
        run_phase(form, phase, callbacks)
        distinct.setdefault(bytecode(form), form)
    return list(distinct.values())


def place_on(
    target: Target,
    alternatives: Sequence[ir.Module],
    samples: Sequence[Sequence[np.ndarray]],
    callbacks: Sequence[Callback] = (),
    smaller: Callable[[], Sequence[ir.Module]] = tuple,
) -> Placement:
    """Divide a copy of the cheapest of `alternatives` between the target's processors; `callbacks` see each attempt.

    The cheapest leaves the fewest ops to the CPU, and takes the NPU the fewest cycles. Where it exceeds the fastest
    memory of the arena, those of `smaller` are tried too, and the least excess comes before cycles. Ops that Vela
    refuses move to the CPU, its reason with them. Where a region's command stream computes something else than the
    reference model, the op with which that begins moves, too. The region is tried on what it reads when the model is
    given one of `samples`.

    Raises:
        PassError: placement broke its invariant.
    """
    if target.accelerator is None:
        (module,) = alternatives
        return Placement(divided(module, "", callbacks), module)
    attempts = [compiled(copy_of(module), target, callbacks) for module in alternatives]
    if _excess(min(attempts, key=_cost), target):
        attempts += [compiled(copy_of(module), target, callbacks) for module in smaller()]

    def in_all(attempt: Placement) -> tuple[int, int, int]:
        on_cpu, cycles = _cost(attempt)
        return on_cpu, _excess(attempt, target), cycles

    return settled(min(attempts, key=in_all), target, samples, callbacks)


def settled(
    attempt: Placement,
    target: Target,
    samples: Sequence[Sequence[np.ndarray]],
    callbacks: Sequence[Callback] = (),
) -> Placement:
    """What becomes of an attempt once each region is right on what it reads of `samples`, and as good as Vela makes it.

    Raises:
        PassError: placement broke its invariant.
    """
    while True:
        reads = [call_inputs(attempt.module, list(attempt.regions), inputs) for inputs in samples]
        news = next(filter(None, (_refuted(attempt, read) for read in reads)), None)
        if news is None:
            return _improved(attempt, target, reads)
        refuse(attempt.fused, news)
        attempt = compiled(attempt.fused, target, callbacks)


def _improved(placement: Placement, target: Target, reads: Sequence[Reads]) -> Placement:
    """The placement with the best region that Vela makes of each function for the fastest memory of the arena.

    Each region is right on all that it reads.
    """
    regions = dict(placement.regions)
    for name, function in functions_on("npu", placement.module).items():
        room = target.layout.arena[0].size - bytes_beside(placement.module, name)
        alone = is_alone(placement.module, name)
        for better in better_regions(serialize(standalone(function)), regions[name], room, alone):
            if not any(region_difference(better, function, read.get(name, ())) for read in reads):
                regions[name] = better
                break
    return replace(placement, regions=regions)


def compiled(fused: ir.Module, target: Target, callbacks: Sequence[Callback] = ()) -> Placement:
    """A placed copy of `fused` whose regions Vela compiles for the target's NPU; what it refuses is marked in `fused`.

    Raises:
        PassError: placement broke its invariant.
    """
    accelerator = target.accelerator or ""
    options = NpuOptions.of(target)
    while True:
        placed = divided(fused, accelerator, callbacks)
        regions = {}
        news: dict[int, str] = {}
        for name, function in functions_on("npu", placed).items():
            try:
                regions[name] = compile_region(serialize(standalone(function)), accelerator, options)
            except NpuRefusal as refusal:
                news |= _culprits(function, refusal, accelerator)
        if not news:
            return Placement(placed, fused, regions)
        refuse(fused, news)


def divided(fused: ir.Module, accelerator: str, callbacks: Sequence[Callback] = ()) -> ir.Module:
    """A copy of `fused`, placed, its methods one behind the other.

    Raises:
        PassError: placement broke its invariant.
    """
    placed = copy_of(fused)
    run_phase(placed, place_phase(accelerator), callbacks)
    join_methods(placed)
    return placed


def _cost(placement: Placement) -> tuple[int, int]:
    """Ops on the CPU, and cycles of the NPU."""
    on_cpu = sum(len(computing_ops(function)) for function in functions_on("cpu", placement.module).values())
    return on_cpu, sum(region.cycles for region in placement.regions.values())


def _excess(placement: Placement, target: Target) -> int:
    """Bytes that a region takes beyond the fastest memory of the arena, with the tensors that are live beside it."""

    def taken(name: str, region: NpuRegion) -> int:
        beside = 0 if is_alone(placement.module, name) else bytes_beside(placement.module, name)
        return region.scratch_bytes + region.fast_bytes + beside

    most = max((taken(name, region) for name, region in placement.regions.items()), default=0)
    return max(0, most - target.layout.arena[0].size)


def _refuted(placement: Placement, read: Reads) -> dict[int, str]:
    """The ops with which a region begins to differ from its meaning, by number, and how; empty where all are right."""
    known = functions_on("npu", placement.module)
    found: dict[int, str] = {}
    for name, region in placement.regions.items():
        proof = prove_region(region, known[name], read.get(name, ()))
        if proof.difference:
            reason = f"Vela's command stream computes it wrongly: {proof.difference}"
            found |= dict.fromkeys(map(_number, [proof.op] if proof.op else _ops(known[name])), reason)
    return found


def _culprits(function: ir.Operation, refusal: NpuRefusal, accelerator: str) -> dict[int, str]:
    """The ops that Vela refused, by number: those it also refuses alone, else all of the kind that it named."""
    ops = _ops(function)
    named = [op for op in ops if op.name.removeprefix("tosa.").upper() == refusal.op] or ops
    alone = [op for op in named if len(named) > 1 and _refused_alone(op, accelerator)]
    return dict.fromkeys(map(_number, alone or named), f"Vela refused it: {refusal.why}")


def _ops(function: ir.Operation) -> list[ir.Operation]:
    return [op for op in walk(function) if "tosaic.op" in op.attributes]


def _number(op: ir.Operation) -> int:
    return int_of(op, "tosaic.op")


def _refused_alone(op: ir.Operation, accelerator: str) -> bool:
    try:
        compile_region(serialize(main_of([op], inputs_of([op]), list(op.results))), accelerator)
    except NpuRefusal:
        return True
    return False
