"""What an NPU is to tosaic: the protocol of a family of NPUs, and the data of the regions that it compiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from tosaic.backends.target import Target
from tosaic.support.errors import BackendError, SimulatorError
from tosaic.support.mlir import ir


class NpuRefusal(BackendError):  # noqa: N818 (an answer of the compiler's, more than an error)
    """The compiler did not take the region. `op` is the TOSA op it names, e.g. `CONV2D`; empty where it names none."""

    op: str = ""


class EmulationError(SimulatorError):
    """A command stream that cannot be executed as written.

    Args:
        offset: byte offset of the command in the command words, -1 where it is not known.
        command: the command, e.g. `NPU_OP_CONV`.
    """

    def __init__(self, what: str, *, offset: int = -1, command: str = "", why: str = "", hint: str = "") -> None:
        self.offset, self.command = offset, command
        where = f"{command} at byte {offset} of the command stream" if offset >= 0 else ""
        super().__init__(what, where=where, why=why, hint=hint)

    def at(self, offset: int, command: str) -> EmulationError:
        """The same error, placed at a command unless it has a place."""
        if self.offset >= 0:
            return self
        return EmulationError(self.what, offset=offset, command=command, why=self.why, hint=self.hint)


@dataclass(frozen=True)
class Accelerator:
    """One NPU configuration.

    Args:
        name: e.g. `ethos-u55-128`.
        generation: accelerators of one generation see memories alike.
        macs: multiply-accumulates per cycle.
        system_config, memory_mode: the usual ones of `NpuOptions`.
        registers: where secure code of the system around it sees its registers.
        reads_only: ports (`NpuPort`s of a memory) through which it cannot write.
    """

    name: str
    generation: str
    macs: int
    system_config: str = ""
    memory_mode: str = ""
    registers: int = 0
    reads_only: tuple[str, ...] = ()


@dataclass(frozen=True)
class NpuOptions:
    """How a region shall be compiled.

    Args:
        memory_mode, system_config: how the compiler sees the memories, and their speeds: names among the family's
            `sections`; None takes the accelerator's usual one.
        optimize: `Performance`, or `Size` for the smallest arena.
        arena_limit: bytes that `Performance` may use for the arena (fast memory where it is dedicated).
        separate_io: whether inputs and outputs have regions of their own, else they lie in region 1.
        config: further sections, as text; for Vela in the format of `vela.ini`.
    """

    memory_mode: str | None = None
    system_config: str | None = None
    optimize: str = "Performance"
    arena_limit: int | None = None
    separate_io: bool = True
    config: str = ""

    @staticmethod
    def of(target: Target) -> NpuOptions:
        """As a target says."""
        return NpuOptions(target.memory_mode, target.system_config, config=target.vela_config)


USUAL = NpuOptions()


@dataclass(frozen=True)
class NpuPort:
    """An input or output tensor of a region: `size` bytes at `address` of memory region `region`, dense, row-major.

    `dtype` is numpy's; a TOSA boolean is one byte.
    """

    region: int
    address: int
    size: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class NpuOp:
    """One op of the scheduled region.

    Args:
        op: the TOSA op it came from, e.g. `CONV2D`; empty where the compiler made it of its own.
        index: position of that op in `main`, constants not counted; -1 where there is none.
        cycles: the compiler's estimate.
        busy: the cycles that each part of the machine works for it, beside the others: `MAC`, `output` (scaling,
            activations, elementwise functions), `commands`, and the memories by name.
        macs: multiply-accumulates.
        traffic: bytes read and written, by memory.
        time: when it runs, as `NpuTensor` counts time.
        offsets: byte offsets, in the command words, of the ends of its commands.
    """

    op: str
    index: int
    cycles: int
    busy: Mapping[str, int]
    macs: int
    traffic: Mapping[str, int]
    time: int
    offsets: tuple[int, ...]

    @property
    def bound(self) -> str:
        """What is busy longest; empty where the compiler does not tell."""
        return max(self.busy, key=lambda part: self.busy[part], default="")


@dataclass(frozen=True)
class NpuTensor:
    """Bytes of a region's working memory that are in use from time `first` to time `last`, both included.

    Args:
        index: as `NpuOp.index`, of the op whose result it is, or for which weights wait there.
        weights: whether it is a buffer of weights.
        region: memory region 1 or 2, see `NpuRegion`.
    """

    index: int
    weights: bool
    region: int
    address: int
    size: int
    first: int
    last: int


def op_of_command(ops: Sequence[NpuOp], offset: int) -> NpuOp | None:
    """The op of a TOSA graph whose commands include the one at this byte offset; `NpuOp.offsets` are where they end."""
    ends = ((end, op) for op in ops for end in op.offsets if end >= offset and op.op)
    return min(ends, key=lambda pair: pair[0], default=(0, None))[1]


@dataclass(frozen=True)
class NpuRegion:
    """A compiled region, all plain data.

    Memory regions: 0 the constants, 1 the scratch arena, 2 the fast memory (where `fast_bytes` > 0), 3 the inputs,
    4 the outputs. Base pointers are multiples of 16.

    Args:
        accelerator: the NPU that it was compiled for.
        options: how it was compiled.
        command_stream: as the NPU's driver takes it; for Ethos-U the COP1 container.
        constants: bytes of region 0.
        scratch_bytes, fast_bytes: sizes of regions 1 and 2.
        inputs, outputs: in the order of `main`'s arguments and results.
        cycles: the compiler's estimate for one run.
        ops: the schedule, in order.
        tensors: what lies in regions 1 and 2.
        memory: peak bytes per memory, as the compiler names them.
        header_bytes: of the command stream that stand before the bare commands.
    """

    accelerator: str
    options: NpuOptions
    command_stream: bytes
    constants: bytes
    scratch_bytes: int
    fast_bytes: int
    inputs: tuple[NpuPort, ...]
    outputs: tuple[NpuPort, ...]
    cycles: int
    ops: tuple[NpuOp, ...]
    tensors: tuple[NpuTensor, ...]
    memory: Mapping[str, int]
    header_bytes: int = 0

    @property
    def commands(self) -> bytes:
        """The commands without what stands before them."""
        return self.command_stream[self.header_bytes :]

    @property
    def header(self) -> bytes:
        """What stands before the commands."""
        return self.command_stream[: self.header_bytes]


@dataclass(frozen=True)
class FileValue:
    """A tensor of a compiled file; `dtype` is numpy's."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class CompiledStep:
    """An op of a compiled file.

    Args:
        number: its place in the file.
        op: as the file names it.
        inputs, outputs: numbers of tensors; constants and variables are not among them.
        region: what the NPU executes; None for an op that the core executes.
    """

    number: int
    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    region: NpuRegion | None


@dataclass(frozen=True)
class CompiledFile:
    """A model for another runtime, some of whose ops are compiled for an NPU.

    Args:
        values: tensors by number, those of inputs, outputs and steps.
        inputs, outputs: numbers of tensors.
        steps: in order.
        made_of: what it was made of: one file of LiteRT's, or a TOSA flatbuffer for each region.
    """

    values: Mapping[int, FileValue]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: tuple[CompiledStep, ...]
    made_of: Literal["tflite", "tosa"] = "tflite"


@dataclass(frozen=True)
class Driver:
    """A way for firmware to call an NPU: C that defines `tosaic_npu_invoke` of `tosaic.h`.

    Args:
        title, description: for the kit.
        sources: C files, with the flags that they are compiled with.
        of_chip: further ones, which read `TOSAIC_NPU_ADDRESS` and `TOSAIC_NPU_MEMORIES` of the target.
    """

    title: str
    description: str
    sources: tuple[str | Path, ...]
    flags: tuple[str, ...] = ()
    of_chip: tuple[str | Path, ...] = ()


SPARSE = "2:4"
"""What weights are called of which, of each four neighbors along the input channels, two are 0."""


class NpuFamily(Protocol):
    """A family of NPUs: what it takes, its compiler, and what executes its command streams on the host."""

    @property
    def accelerators(self) -> Mapping[str, Accelerator]:
        """Every configuration by name."""
        ...

    def refusal(self, op: ir.Operation, accelerator: str) -> str | None:
        """Why the NPU does not take an op; None where it does."""
        ...

    def suspicion(self, op: ir.Operation, accelerator: str) -> str | None:
        """An error of the compiler's that the op may meet, which an execution then decides; None for none."""
        ...

    def is_view(self, op: ir.Operation) -> bool:
        """Whether the compiler drops an op: it moves nothing."""
        ...

    def sparsity(self, op: ir.Operation, weights: np.ndarray, accelerator: str) -> str:
        """`SPARSE` where the NPU leaves out the zeros of an op's weights, else why not; empty where it never does.

        Args:
            weights: as TOSA has them.
        """
        ...

    def encoded_bytes(self, weights: np.ndarray) -> int:
        """The bytes of an op's weights as the compiler stores them, less what it adds for its order and its blocks.

        Args:
            weights: int8 [outputs, ..., inputs].
        """
        ...

    def compile(self, flatbuffer: bytes, accelerator: str, options: NpuOptions) -> NpuRegion:
        """Compile `main` of a serialized TOSA module.

        Raises:
            NpuRefusal: the region cannot be compiled.
            BackendError: there is no such memory mode, system configuration or strategy.
        """
        ...

    def emulate(self, region: NpuRegion, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs of a region whose command stream runs on fresh memory.

        Args:
            inputs: arrays of the shapes and dtypes of `region.inputs`.

        Raises:
            EmulationError: the command stream would misbehave.
            SimulatorError: the inputs do not fit.
        """
        ...

    def execute(
        self, commands: bytes, memory: dict[int, np.ndarray], accelerator: str, inputs: Sequence[NpuPort]
    ) -> None:
        """Run commands on memory that is there, bytes by region.

        Args:
            inputs: what was written before, beside the constants.

        Raises:
            EmulationError: the commands would misbehave.
        """
        ...

    def read(self, path: Path) -> CompiledFile | None:
        """A model for another runtime that the family's compiler compiled; None where a file is no such model.

        Raises:
            BackendError: the file is damaged.
        """
        ...

    def disassemble(self, stream: bytes, accelerator: str, ops: Sequence[NpuOp], where: Sequence[str]) -> str:
        """A command stream as text.

        Args:
            ops: of its region.
            where: the user's line behind each op of the TOSA function.
        """
        ...

    def supported_ops(self) -> list[dict[str, str]]:
        """The TOSA ops that the family takes, a row each: op, condition, and what else its table has."""
        ...

    def sections(self, config: str) -> Mapping[str, Sequence[str]]:
        """The names of each `memory mode` and `system configuration` that there is, those of `config` included."""
        ...

    def drivers(self, accelerator: str) -> Mapping[str, Driver]:
        """The ways to call it, by the end of the archive's name; `npu` needs nothing else."""
        ...
