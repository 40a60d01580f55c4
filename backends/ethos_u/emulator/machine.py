"""Execute a command stream: the one entry to the emulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from tosaic.backends.ethos_u.accelerators import find_accelerator
from tosaic.backends.ethos_u.emulator import dma
from tosaic.backends.ethos_u.emulator.activation import LARGE_LUT_BYTES, SMALL_LUT_BYTES, small_lut_base
from tosaic.backends.ethos_u.emulator.conv import convolve, convolve_depthwise
from tosaic.backends.ethos_u.emulator.elementwise import elementwise
from tosaic.backends.ethos_u.emulator.hazards import Hazards
from tosaic.backends.ethos_u.emulator.memory import ByteRange, RegionMemory, Span
from tosaic.backends.ethos_u.emulator.pool import pool
from tosaic.backends.ethos_u.emulator.registers import command_name
from tosaic.backends.ethos_u.emulator.resize import resize
from tosaic.backends.ethos_u.emulator.state import EmulatorState
from tosaic.backends.ethos_u.emulator.stream import Command, command_words, commands
from tosaic.backends.npu import EmulationError

_KERNELS: dict[str, Callable[[EmulatorState, int], None]] = {
    "CONV": convolve,
    "DEPTHWISE": lambda state, _: convolve_depthwise(state),
    "POOL": pool,
    "ELEMENTWISE": elementwise,
    "RESIZE": resize,
}


@dataclass(frozen=True)
class ExecutedOp:
    """A kernel or DMA that ran: its command, where that stands (bytes into the command words), what it touched."""

    offset: int
    command: str
    accesses: tuple[ByteRange, ...]


@dataclass(frozen=True)
class ExecutionReport:
    """What a run did, in order."""

    ops: tuple[ExecutedOp, ...]

    @property
    def counts(self) -> Counter[str]:
        """How often each kind of op ran."""
        return Counter(op.command for op in self.ops)


def execute(
    command_stream: bytes,
    memory: dict[int, np.ndarray],
    accelerator: str,
    *,
    written: Iterable[int | Span] = (0, 3),
) -> ExecutionReport:
    """Run a command stream to its STOP, sequentially, and check what the hardware would do in parallel.

    Args:
        command_stream: a COP1 or COP2 container, or the bare command words.
        memory: uint8 array behind each region's base pointer; changed in place.
        accelerator: what the stream was compiled for, e.g. `ethos-u55-128`.
        written: what holds data from the start (constants and inputs): regions, or bytes of one, (region, begin, end);
            reading another byte before something wrote it is an error.

    Raises:
        EmulationError: the stream or its weights are damaged, it uses memory outside its regions or that nothing has
            written, lacks a wait, or overlaps dependent blocks. The message places the command.
    """
    target = find_accelerator(accelerator)
    if target.generation == "u85":
        lut_bytes = LARGE_LUT_BYTES
    else:
        lut_bytes = small_lut_base(target.macs // target.cores) + SMALL_LUT_BYTES
    machine = _Machine(EmulatorState(target, RegionMemory(memory, written, lut_bytes)))
    for command in commands(command_words(command_stream)):
        name = "a command"
        try:
            name = command_name(command, target.generation)
            if name == "NPU_OP_STOP":
                return ExecutionReport(tuple(machine.ops))
            machine.step(name, command)
        except EmulationError as error:
            raise error.at(command.offset, name) from None
        except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
            raise EmulationError(f"cannot run: {error}", offset=command.offset, command=name) from error
    raise EmulationError("the command stream ends without NPU_OP_STOP")


class _Machine:
    def __init__(self, state: EmulatorState) -> None:
        self._state = state
        self._hazards = Hazards(state.accelerator)
        self.ops: list[ExecutedOp] = []

    def step(self, name: str, command: Command) -> None:
        if name.startswith("NPU_SET_"):
            self._state.registers.set(name.removeprefix("NPU_SET_"), command)
            return
        kind = name.removeprefix("NPU_OP_")
        if kind == "DMA_WAIT":
            self._hazards.wait_for_transfers(command.parameter)
        elif kind == "KERNEL_WAIT":
            self._hazards.wait_for_kernels(command.parameter)
        elif kind == "DMA_START":
            dma.copy(self._state)
            accesses = self._state.memory.take_accesses()
            self._hazards.transfer(accesses)
            self.ops.append(ExecutedOp(command.offset, name, tuple(accesses)))
        elif kind in _KERNELS:
            _KERNELS[kind](self._state, command.parameter)
            accesses = self._state.memory.take_accesses()
            self._hazards.kernel(self._state, kind, accesses)
            self.ops.append(ExecutedOp(command.offset, name, tuple(accesses)))
        elif kind not in ("IRQ", "PMU_MASK"):
            raise EmulationError(f"{name} is not modeled: Vela emits it for control flow only")
