"""The calls of a placed module: their program, their kernels alone, and the rows that they could be made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.streams.across import stage_across
from tosaic.backends.cortex_m.streams.stage import Stage, stage_of
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.firmware.memory_plan import lifetimes
from tosaic.backends.firmware.program import CallSequence
from tosaic.backends.npu import NpuRegion
from tosaic.compiler.assembly import assemble
from tosaic.compiler.tuning import Tuner
from tosaic.support.errors import Error
from tosaic.support.functions import body_of, callee_of, computing_ops, returned
from tosaic.support.locations import describe
from tosaic.support.mlir import element_type, functions, ir
from tosaic.support.values import multiplications


class Calls:
    """What is known of the calls of `main` before any of them runs as a stream.

    Args:
        placed: `main` calls one function per NPU region and CPU kernel.
        regions: the compiled command stream of each NPU function.
        tasks: of the CPU functions, proven.
        stream_input: the first stream takes the input row by row.
        sliding: further rows then move the window on; what counts is what they cost.

    Raises:
        Error: the input is to be taken row by row, and the model has several.
    """

    def __init__(
        self,
        tuner: Tuner,
        placed: ir.Module,
        regions: Mapping[str, NpuRegion],
        tasks: Mapping[str, KernelTask],
        *,
        stream_input: bool,
        sliding: bool,
    ) -> None:
        self.placed, self.tasks, self.sliding = placed, tasks, sliding
        self._regions = regions
        self.kernels = tuner.choose(tasks)
        self.program = self.assembled(placed, {name: kernel.source for name, kernel in self.kernels.items()})
        main = body_of(functions(placed)["main"])
        self.names = [callee_of(op.operation) for op in main.operations if op.operation.name == "func.call"]
        self.fed = self._only_input() if stream_input else None

    def __len__(self) -> int:
        return len(self.names)

    def assembled(self, module: ir.Module, sources: Mapping[str, KernelSource]) -> CallSequence:
        """The program of a placed module, with the names of its interface numbered."""
        main = functions(module)["main"]
        inputs = [f"input_{i}" for i in range(len(body_of(main).arguments))]
        outputs = [f"output_{i}" for i in range(len(returned(main)))]
        where = {name: describe(function.location) for name, function in functions(module).items()}
        return assemble(module, sources, self._regions, where, inputs, outputs)

    def source(self, number: int) -> KernelSource:
        """The kernel of a call alone, with weights of its own."""
        return self.kernels[self.names[number]].source

    def slides(self, first: int) -> bool:
        """Whether the stream that begins with a call is to go on from window to window."""
        return self.sliding and first in self.fed_calls

    def not_by_rows(self) -> Error:
        """Why the input cannot be taken row by row."""
        first = min(self.fed_calls)
        call, task = self.program.calls[first], self.tasks.get(self.names[first])
        if task is not None and task.given is not None:
            why = f"the schedule of `{self.names[first]}` is given by hand, and a kernel that makes rows takes none"
            return Error("the input cannot be taken row by row", where=call.where, why=why)
        why = f"`{call.name}` is not made of rows of the input, or they are not all that reads it"
        hint = "an image comes in rows with --input-layout nhwc"
        if self.sliding:
            why += "; or its results at the ends of a window are made of padding, or not of all rows at one pace"
            hint = "a window slides over layers without padding in time; without --sliding each stands for itself"
        return Error("the input cannot be taken row by row", where=call.where, why=why, hint=hint)

    @cached_property
    def products(self) -> list[int]:
        """The multiply-accumulates of each call."""
        known = functions(self.placed)
        return [sum(map(multiplications, computing_ops(known[name]))) for name in self.names]

    @cached_property
    def spans(self) -> dict[str, tuple[int, int]]:
        """The first and the last call during which each buffer lives."""
        return lifetimes(self.program)

    @cached_property
    def fed_calls(self) -> list[int]:
        """The calls that read what is fed."""
        reads = [map(self.program.storage, call.reads) for call in self.program.calls]
        return [number for number, names in enumerate(reads) if self.fed and self.fed in names]

    @cached_property
    def stages(self) -> list[Stage | None]:
        """The stage of each call; None of one that cannot be part of a stream."""
        return self._made_stages(stage_of)

    @cached_property
    def stages_across(self) -> list[Stage | None]:
        """The stage of each call whose rows are groups of channels; None of one that has none."""
        return self._made_stages(stage_across)

    def _made_stages(self, make: Callable[[ir.Operation], Stage | None]) -> list[Stage | None]:
        known, tasks = functions(self.placed), self.tasks
        return [
            make(known[name]) if name in tasks and _may_stream(known[name], tasks[name]) else None
            for name in self.names
        ]

    def _only_input(self) -> str:
        """The buffer of the input."""
        if len(self.program.inputs) != 1:
            raise Error("--stream-input needs a model with one input", why=f"this one has {len(self.program.inputs)}")
        return self.program.storage(self.program.inputs[0].buffer)


def _may_stream(function: ir.Operation, task: KernelTask) -> bool:
    """Whether a function's kernels for strips can be proven, and their schedules are not given by hand."""
    return task.exact and task.given is None and _has_data(function, task)


def _has_data(function: ir.Operation, task: KernelTask) -> bool:
    """Whether there is something to try a function of int8 or int16 on: random bytes, or what it takes in the model."""
    kinds = {str(element_type(argument)) for argument in body_of(function).arguments}
    return kinds <= {"i8"} or (kinds <= {"i8", "i16"} and bool(task.inputs))
