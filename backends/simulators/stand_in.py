"""Where a target is simulated: on the machine of QEMU's that it is, or on one that executes the same instructions.

A chip that QEMU does not have is simulated on another's machine: of Armv6-M on a micro:bit with larger memories, so
that an instruction that a Cortex-M0 lacks is a fault; all others on Arm's MPS3 with a Cortex-M55, which executes
the code of every Cortex-M. Its memories lie there one behind the other, as large and as fast as on the chip; the
addresses differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tosaic.backends.boards import MIB, MICROBIT, MPS3_AN547
from tosaic.backends.target import Board, Layout, Memory, Target
from tosaic.support.errors import Error

_ALIGNMENT = 16
_Area = tuple[int, int]

# Addresses and bytes of RAM, as the sources of QEMU 7.2 have them (hw/arm/mps2.c, mps2-tz.c, nrf51_soc.c).
_MPS2: Sequence[_Area] = ((0x0000_0000, 4 * MIB), (0x2000_0000, 4 * MIB), (0x2100_0000, 16 * MIB))
_IOT: Sequence[_Area] = (
    (0x0000_0000, 4 * MIB), (0x1000_0000, 4 * MIB), (0x2800_0000, 4 * MIB), (0x3800_0000, 4 * MIB),
    (0x8000_0000, 16 * MIB),
)  # fmt: skip
_NRF51: Sequence[_Area] = ((0x0000_0000, 4 * MIB), (0x2000_0000, 512 * MIB))
_MACHINES: Mapping[str, Sequence[_Area]] = {
    "microbit": _NRF51,
    "mps2-an385": _MPS2,
    "mps2-an386": _MPS2,
    "mps2-an500": _MPS2,
    "mps2-an505": _IOT,
    "mps2-an521": _IOT,
    "mps3-an547": (
        (0x0000_0000, MIB // 2), (0x0100_0000, 2 * MIB), (0x2000_0000, MIB // 2), (0x2100_0000, 4 * MIB),
        (0x6000_0000, 512 * MIB),
    ),
}  # fmt: skip
_CORES: Mapping[str, str] = {
    "microbit": "cortex-m0",
    "mps2-an385": "cortex-m3",
    "mps2-an386": "cortex-m4",
    "mps2-an500": "cortex-m7",
    "mps2-an505": "cortex-m33",
    "mps2-an521": "cortex-m33",
    "mps3-an547": "cortex-m55",
}
MACHINE_OPTIONS: Mapping[str, Sequence[str]] = {
    "microbit": [
        *("-global", f"nrf51-soc.flash-size={_NRF51[0][1]}"),
        *("-global", f"nrf51-soc.sram-size={_NRF51[1][1]}"),
    ]
}
"""What QEMU is told beside a machine's name, so that it has the memories above."""
_VECTORS = Memory("vectors", 0x0000_0000, MIB // 2)


@dataclass(frozen=True)
class Simulation:
    """A machine of QEMU's, and where things lie on it.

    Args:
        machine: QEMU's name of it.
        cpu: QEMU's name of the core; None takes the machine's own.
        core: the core that executes the code, where it is known.
        layout: of a firmware.
        trials: of a batch of candidates; each memory of the arena has one here.
        stands_in: whether the chip is another, with its memories at other addresses.
    """

    machine: str
    cpu: str | None
    core: str | None
    layout: Layout
    trials: Layout
    stands_in: bool


def simulation_of(target: Target) -> Simulation:
    """Where a target is simulated.

    Raises:
        Error: its memories are more than the machine has.
    """
    board = target.board
    areas = _MACHINES.get(board.machine or "")
    if board.machine is not None and (areas is None or _lies_in(areas, target.layout)):
        core = board.cpu or _CORES.get(board.machine)
        return Simulation(board.machine, board.cpu, core, target.layout, _trials(target, board), False)
    other = MICROBIT if target.core.triple.startswith("thumbv6m") else MPS3_AN547
    assert other.machine is not None
    layout = _moved(target, *_MACHINES[other.machine][-1])
    return Simulation(other.machine, other.cpu, _CORES[other.machine], layout, _trials(target, other), True)


def _lies_in(areas: Sequence[_Area], layout: Layout) -> bool:
    """Whether a machine has all memories of a layout where they lie."""
    return all(
        any(base <= memory.base and memory.base + memory.size <= base + size for base, size in areas)
        for memory in layout.memories
    )


def _moved(target: Target, first: int, size: int) -> Layout:
    """The layout of a target with its memories one behind the other in `size` bytes, and the vectors where the core
    starts."""
    bases: dict[int, int] = {}
    at = first
    for memory in sorted(target.layout.memories, key=lambda memory: (memory.base, -memory.size)):
        if memory.base not in bases:
            bases[memory.base] = at
            at += -(-memory.size // MIB) * MIB
    if at > first + size:
        raise Error(
            f"the memories of `{target.name}` have {(at - first) // MIB:,} MiB, and the simulator has {size // MIB}",
            hint="declare no more of a large memory than the model needs",
        )

    def move(memory: Memory) -> Memory:
        return replace(memory, base=bases[memory.base])

    return replace(target.layout.mapped(move), vectors=_VECTORS)


def _trials(target: Target, board: Board) -> Layout:
    """Where batches lie on a board: each memory is as fast as the one that it stands for, and those of the arena are
    equal parts of the board's."""
    layout, lie = target.layout, board.trials
    if lie is None:
        return layout
    whole, count = lie.arena[0], len(layout.arena)
    size = whole.size // count // _ALIGNMENT * _ALIGNMENT
    parts = [replace(memory, base=whole.base + i * size, size=size) for i, memory in enumerate(layout.arena)]
    return replace(replace(target, board=board).trials, arena=tuple(parts))
