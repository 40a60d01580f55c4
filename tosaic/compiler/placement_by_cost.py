"""Ops that leave the NPU because the CPU computes them in fewer cycles, or because their commands exceed the flash.

The CPU's cycles include the calls of the NPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import TypeAlias

import numpy as np

from tosaic.backends.firmware.kit import CYCLES_PER_NPU_CALL
from tosaic.backends.npu import NpuRegion
from tosaic.backends.target import Memory, Target
from tosaic.compiler.placement import Placement, compiled, divided, settled
from tosaic.passes import Callback
from tosaic.passes.place.place import refuse
from tosaic.passes.place.turning import product_that_turns
from tosaic.support.attributes import int_of
from tosaic.support.functions import computing_ops, functions_on
from tosaic.support.mlir import copy_of, ir, shape_of
from tosaic.support.tosa_ops import CONSTANT
from tosaic.support.values import byte_size, multiplications, producer, tensor_operands

CpuCycles: TypeAlias = Callable[[ir.Module], float]
"""Measured cycles of the CPU's kernels of a placed module."""

_PRODUCTS_PER_CYCLE, _ELEMENTS_PER_CYCLE = 8, 2
"""What kernels of a Cortex-M do not exceed: products of int8, and elements that they read and write."""
LEAST_GAIN, _STEP = 1 / 20, 1 / 100
"""Of all cycles, for which a region is torn, as estimates are no better; and what each move adds to that."""
_TRIES = 4
_KERNEL_BYTES = 2048
"""What a kernel takes of flash, about; its constants the NPU reads, too."""


@dataclass
class _Alike:
    """Ops of one kind and shape on the NPU, with what a kernel of the CPU does for them while it reads.

    Args:
        least: what the CPU takes for one at the very least.
        cycles: that the NPU takes for each, by the op's number.
        numbers: of those that are of the kind.
        commands: bytes of all that the NPU is told for them.
    """

    least: float
    cycles: dict[int, int] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    commands: int = 0

    @property
    def promise(self) -> float:
        """Cycles that moving all of them may save at most; each ends a region."""
        return sum(self.cycles.values()) - len(self.numbers) * (self.least + CYCLES_PER_NPU_CALL)

    @property
    def reasons(self) -> dict[int, str]:
        return {n: f"the CPU is faster: the NPU takes {cycles:,} cycles for it" for n, cycles in self.cycles.items()}


def cheaper_placement(
    placement: Placement,
    target: Target,
    samples: Sequence[Sequence[np.ndarray]],
    cpu_cycles: CpuCycles,
    callbacks: Sequence[Callback] = (),
) -> Placement:
    """The placement, or another that takes at least a twentieth fewer cycles with some ops on the CPU.

    What the NPU takes is Vela's estimate, what the CPU takes is measured; both clocks count alike. Ops of one kind and
    shape move together, those first that promise most, and regions are proven on `samples` as `place_on` proves them.

    Raises:
        PassError: placement broke its invariant.
    """
    groups = [group for group in _groups(placement, target) if group.promise > _STEP * cycles_of(placement, 0)]
    if not groups:
        return placement
    best, least = placement, cycles_of(placement, cpu_cycles(placement.module))
    wanted = (1 - LEAST_GAIN) * least
    promising = [group for group in groups if group.promise > _STEP * least]
    for group in sorted(promising, key=lambda group: -group.promise)[:_TRIES]:
        moved = copy_of(best.fused)
        refuse(moved, group.reasons)
        placed = divided(moved, target.accelerator or "")
        on_cpu = cpu_cycles(placed)
        staying = sum(region.cycles for region in best.regions.values()) - sum(group.cycles.values())
        enough = (1 - _STEP) * least
        if on_cpu + staying + CYCLES_PER_NPU_CALL * len(functions_on("npu", placed)) > enough:
            continue
        attempt = settled(compiled(moved, target, callbacks), target, samples, callbacks)
        if (cycles := cycles_of(attempt, cpu_cycles(attempt.module))) <= enough:
            best, least = attempt, cycles
    return best if least <= wanted else placement


def with_fewer_commands(
    placement: Placement, target: Target, samples: Sequence[Sequence[np.ndarray]]
) -> Placement | None:
    """The placement with its loops as they were, or else with ops of one kind and shape on the CPU.

    These ops are those whose commands take the most bytes of flash, as those of a matrix product that an Ethos-U55
    makes element by element. None where a kernel takes as many.

    Raises:
        PassError: placement broke its invariant.
    """
    if placement.looped is not None:
        return placement.looped
    most = max(_groups(placement, target), key=lambda group: group.commands, default=None)
    if most is None or most.commands <= _KERNEL_BYTES:
        return None
    moved = copy_of(placement.fused)
    refuse(moved, dict.fromkeys(most.cycles, f"the flash is too small for {most.commands:,} B of commands"))
    return settled(compiled(moved, target), target, samples)


def cycles_of(placement: Placement, on_cpu: float) -> float:
    """What a placement takes of both processors, the calls of the NPU included."""
    return on_cpu + sum(region.cycles + CYCLES_PER_NPU_CALL for region in placement.regions.values())


def _groups(placement: Placement, target: Target) -> Iterator[_Alike]:
    """The ops of each kind and shape that Vela scheduled by themselves."""
    found: dict[str, _Alike] = {}
    for name, function in functions_on("npu", placement.module).items():
        ops, region = computing_ops(function), placement.regions[name]
        commands = _commands(region)
        for part in region.ops:
            if part.index < 0:
                continue
            op = ops[part.index]
            reader = product_that_turns(op) or op
            kind = " ".join([reader.name, *(str(value.type) for value in (*reader.operands, *reader.results))])
            alike = found.setdefault(kind, _Alike(_least(reader, target.layout.constants)))
            number = int_of(op, "tosaic.op")
            alike.cycles[number] = alike.cycles.get(number, 0) + part.cycles
            alike.numbers.add(int_of(reader, "tosaic.op"))
            alike.commands += sum(commands[end] for end in part.offsets)
    yield from found.values()


def _commands(region: NpuRegion) -> dict[int, int]:
    """The bytes of a region's commands by the offset of their end."""
    ends = sorted({end for part in region.ops for end in part.offsets})
    return {end: end - begin for begin, end in pairwise([0, *ends])}


def _least(op: ir.Operation, constants: Memory) -> float:
    """What the CPU takes at the very least; a SCATTER in place moves nothing but rows."""
    operands = tensor_operands(op)
    moved = (*operands[1:], operands[2]) if op.name == "tosa.scatter" else (*operands, *op.results)
    elements = sum(prod(shape_of(value)) for value in moved)
    weights = sum(byte_size(value) for value in operands if producer(value, *CONSTANT))
    return max(
        multiplications(op) / _PRODUCTS_PER_CYCLE,
        elements / _ELEMENTS_PER_CYCLE,
        weights / constants.bytes_per_cycle if constants.bytes_per_cycle else 0,
    )
