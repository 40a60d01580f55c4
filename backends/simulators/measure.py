"""Measure candidates: many kernels in one ELF, one run, outputs verified in the guest."""

from __future__ import annotations

import itertools
import struct
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from tosaic.backends.cortex_m.kernel import KernelSource, Overlap
from tosaic.backends.cortex_m.toolchain import compile_kernels
from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.linker_script import CONSTANTS_SECTION, arena_section, linker_script
from tosaic.backends.simulators.execution import Machine
from tosaic.backends.simulators.trial_examples import Example, examples
from tosaic.backends.target import Core, Layout
from tosaic.support.errors import BackendError, Error
from tosaic.tuner.measurement import Measurement, Status, Task
from tosaic.tuner.space import Schedule

_HARNESS = Path(__file__).with_name("trial_harness.c")
_MAX_TENSORS = 66
_VERDICT = struct.Struct("<III")
_ISSUED_PER_CYCLE = 2
"""What executes more instructions than that for each cycle of another is slower."""
_RESTART = 2_000_000
"""Instructions of a vector kernel that QEMU executes in the time that a run takes to start."""
_MOST_PER_ELEMENT = 1_000
"""Instructions that a kernel may take for an element of its results."""
_NO_ROOM = 2
"""How the harness ends where the tensors and the working memory of its trials do not fit."""
_EXACT, _DIFFERENT, _, _INPUT_CHANGED = range(4)
_PATIENCE = 10  # times more, for a candidate that was late


class BuildableTask(Task, Protocol):
    """A task whose candidates can be built: what `BatchMeasure` asks beyond `Task`."""

    @property
    def module(self) -> str | bytes:
        """The kernel's meaning: a TOSA module as text or bytecode, whose `main` has its arguments and results."""
        ...

    @property
    def inputs(self) -> tuple[bytes, ...]:
        """Dense bytes of the arguments to measure with; random ones when empty."""
        ...

    @property
    def memories(self) -> tuple[int, ...]:
        """The number of the arena's memory in which each input and output and the working memory lie; empty for the
        first."""
        ...

    @property
    def over(self) -> tuple[Overlap, ...]:
        """The inputs that lose their place to an output, if the kernel allows it; both are of one size."""
        ...

    def generate(self, schedule: Schedule) -> KernelSource:
        """The kernel of one schedule.

        Raises:
            Error: this schedule cannot be generated.
        """
        ...


class _Limit(NamedTuple):
    """Instructions after which a candidate is ended, and whether only because others are known to be faster."""

    instructions: int
    slow: bool


class Candidate(NamedTuple):
    """A kernel that is to be measured.

    Args:
        tried: what it is tried on; the first is measured.
        memories: see `BuildableTask`.
        over: the inputs that lose their place to an output.
    """

    source: KernelSource
    tried: Sequence[Example]
    memories: tuple[int, ...] = ()
    over: tuple[Overlap, ...] = ()

    @staticmethod
    def of(task: BuildableTask, source: KernelSource, tried: Sequence[Example]) -> Candidate:
        """A kernel of a task."""
        return Candidate(source, tried, task.memories, tuple(pair for pair in task.over if pair in source.in_place))


_Candidates = Mapping[int, Candidate]
"""By their numbers; those of one task, which share their examples, one behind the other."""


@dataclass(frozen=True)
class _Batch:
    """What the candidates of a batch share."""

    folder: Path
    objects: Sequence[Path]
    limit: _Limit


@dataclass(frozen=True)
class BatchMeasure:
    """A `tuner.measurement.Measure`; picklable, and the same results in every process.

    Args:
        machine: runs the trials.
        core: the core to build for.
        layout: where they lie on its board, and how fast the memories are that these stand for; what does not fit its
            memory of the arena lies in the largest, or where there is room.
        seed: of the random inputs.
        region_limit: instructions after which a candidate counts as hanging; more where it gives many elements.
        timeout: seconds of wall time for one candidate.
        include: header folders of C kernels.
        libraries: archives to link.
    """

    machine: Machine
    core: Core
    layout: Layout
    seed: int = 0
    region_limit: int = 400_000_000
    timeout: float = 60.0
    include: tuple[Path, ...] = ()
    libraries: tuple[Path, ...] = ()

    def __call__(
        self, task: BuildableTask, schedules: Sequence[Schedule], best: Measurement | None = None, /
    ) -> list[Measurement]:
        """One measurement per schedule, in order; where there is a `best`, a candidate that costs more may be `slow`.

        Raises:
            Error: the tools or the task are at fault, not a candidate.
        """
        illegal: dict[int, Measurement] = {}
        candidates: dict[int, Candidate] = {}
        tried = examples(task.module, self.seed, task.inputs)
        for number, schedule in enumerate(schedules):
            try:
                candidates[number] = Candidate.of(task, task.generate(schedule), tried)
            except Error as error:
                illegal[number] = Measurement("illegal", message=str(error))
        results = illegal | self.kernels(candidates, best)
        return [results[number] for number in range(len(schedules))]

    def kernels(self, candidates: _Candidates, best: Measurement | None = None) -> dict[int, Measurement]:
        """One measurement per kernel, by its number.

        Raises:
            Error: the tools are at fault, not a kernel.
        """
        results: dict[int, Measurement] = {}
        left = dict(candidates)
        with tempfile.TemporaryDirectory(prefix="tosaic-") as name:
            folder = Path(name)
            sources = [candidate.source for candidate in candidates.values()]
            compiled = compile_kernels(sources, self.core, folder / "objects", self.include)
            for number, candidate in candidates.items():
                if error := compiled.errors.get(candidate.source.symbol):
                    results[number] = Measurement("compile-error", message=error)
                    del left[number]
            batch = _Batch(folder, compiled.objects, self._limit(best, candidates.values()))
            while left:
                measured = self._run_batch(left, batch)
                results |= measured
                for number in measured:
                    del left[number]
        return {number: replace(results[number], code=one.source.symbol) for number, one in candidates.items()}

    @property
    def _entry(self) -> str:
        return "start" if self.machine.monitored else "Reset_Handler"

    def _limit(self, best: Measurement | None, candidates: Iterable[Candidate]) -> _Limit:
        """When a candidate need not run on: one that gives many elements may take more."""
        elements = (sum(array.size for array in candidate.tried[0].outputs) for candidate in candidates)
        most = max(self.region_limit, _MOST_PER_ELEMENT * max(elements, default=0))
        if best is None:
            return _Limit(most, False)
        enough = max(_ISSUED_PER_CYCLE * max(best.instructions, best.cycles_with_memory or 0), _RESTART)
        return _Limit(min(most, enough), enough < most)

    def _run_batch(self, candidates: _Candidates, batch: _Batch, patience: int = 1) -> dict[int, Measurement]:
        """What one run settled: everything, or all up to the first candidate that ended it or wrote out of bounds.

        A batch that does not link, or has no room in memory, is halved until the candidate at fault stands alone. One
        that takes too long is tried again by itself with more time.
        """
        elf, script = batch.folder / "trials.elf", batch.folder / "trials.ld"
        parts = self._parts([candidate.source for candidate in candidates.values()], batch.folder)
        try:
            toolchain.link([*parts, *batch.objects, *self.libraries], script, elf, self.core, entry=self._entry)
        except BackendError as error:
            return self._divided(candidates, batch, Measurement("compile-error", message=str(error)))
        timeout = self.timeout * len(candidates) * patience
        files = {"tasks.bin": _encode_tasks(list(candidates.values()))}
        execution = self.machine.run(
            elf, files, timeout=timeout, region_limit=batch.limit.instructions, memories=self.layout.memories
        )
        if execution.exit_code == _NO_ROOM and not execution.failure:
            return self._divided(candidates, batch, Measurement("illegal", message=execution.console.strip()))
        if execution.exit_code and not execution.failure:
            raise BackendError("the trial harness failed", why=execution.console.strip())
        verdicts = _VERDICT.iter_unpack(execution.files.get("verdicts.bin", b""))
        results: dict[int, Measurement] = {}
        calls = itertools.accumulate((len(candidate.tried) for candidate in candidates.values()), initial=0)
        costs = [execution.costs[first] for first in calls if first < len(execution.costs)]
        for number, (outcome, tensor, offset), cost in zip(candidates, verdicts, costs, strict=False):
            if outcome == _EXACT:
                results[number] = Measurement("ok", cost.instructions, cost.cycles, cost.waits)
            elif outcome == _DIFFERENT:
                results[number] = Measurement("wrong", message=f"output {tensor} differs at byte {offset}")
            elif outcome == _INPUT_CHANGED:
                results[number] = Measurement("wrong", message=f"wrote to its input {tensor} at byte {offset}")
            else:
                results[number] = Measurement("wrong", message=f"wrote beyond the ends of argument {tensor}")
                return results
        if execution.failure:
            culprit = list(candidates)[len(results)]
            if execution.late and patience < _PATIENCE:
                alone = {culprit: candidates[culprit]}
                return results | self._run_batch(alone, batch, _PATIENCE)
            limited: Status = "slow" if batch.limit.slow else "timeout"
            status: Status = "late" if execution.late else limited if execution.timed_out else "crash"
            results[culprit] = Measurement(status, message=execution.failure)
        elif len(results) < len(candidates):
            raise BackendError(f"{self.machine.version()} does not tell what a trial costs")
        return results

    def _divided(self, candidates: _Candidates, batch: _Batch, alone: Measurement) -> dict[int, Measurement]:
        """What a run of half of the candidates settles; `alone` is what becomes of one that is none with others."""
        numbers = list(candidates)
        if len(numbers) == 1:
            return {numbers[0]: alone}
        return self._run_batch({number: candidates[number] for number in numbers[: len(numbers) // 2]}, batch)

    def _parts(self, sources: Sequence[KernelSource], folder: Path) -> list[Path]:
        """The objects of a batch beside its kernels; the linker script is written too."""
        (folder / "trials.ld").write_text(linker_script(self.layout))
        (folder / "trials.s").write_text(_areas(self.layout) + _trial_table(sources, folder / "params.bin"))
        toolchain.compile_c(folder / "trials.s", folder / "trials.o", self.core)
        flags = []
        if self.machine.monitored:
            runtime = toolchain.monitored_objects(self.core)
            flags.append(toolchain.UNDER_MONITOR)
        else:
            runtime = toolchain.runtime_objects(self.core)
        return [*runtime, toolchain.runtime_object(_HARNESS, self.core, *flags), folder / "trials.o"]


def _areas(layout: Layout) -> str:
    """Assembly that defines `areas`, all that the arena's memories have to give: half of one that has more to hold."""
    others = {memory.base for memory in (layout.code, layout.stack, layout.constants)}
    sizes = [memory.size // (2 if memory.base in others else 1) for memory in layout.arena]
    sections = "\n".join(
        f'.section {arena_section(memory)}, "aw", %nobits\n.balign 16\narea_{number}: .space {size}'
        for number, (memory, size) in enumerate(zip(layout.arena, sizes, strict=True))
    )
    table = "\n".join(f".word area_{number}, {size}" for number, size in enumerate(sizes))
    return f"""\
{sections}
.section .rodata.areas, "a"
.balign 4
.global areas, largest_area, area_count
largest_area: .word {sizes.index(max(sizes))}
area_count: .word {len(sizes)}
areas:
{table}
"""


def _trial_table(sources: Sequence[KernelSource], params: Path) -> str:
    """Assembly that defines `trials`, `trial_count` and the parameters, each distinct block once."""
    data = bytearray()
    offsets: dict[bytes, int] = {}
    rows = []
    for source in sources:
        if source.params not in offsets:
            data.extend(bytes(-len(data) % 16))
            offsets[source.params] = len(data)
            data.extend(source.params)
        rows.append(f".word {source.symbol}, params + {offsets[source.params]}, {source.scratch_bytes}")
    params.write_bytes(data)
    functions_ = "\n".join(f".type {symbol}, %function" for symbol in dict.fromkeys(s.symbol for s in sources))
    table = "\n".join(rows)
    return f"""\
.section {CONSTANTS_SECTION}, "a"
.balign 16
params: .incbin "{params}"
.section .rodata.trials, "a"
.balign 4
.global trials, trial_count
{functions_}
trial_count: .word {len(sources)}
trials:
{table}
"""


def _encode_tasks(candidates: Sequence[Candidate]) -> bytes:
    """`tasks.bin` as the harness reads it."""
    tasks = itertools.groupby(candidates, key=lambda candidate: (id(candidate.tried), *candidate[2:]))
    return b"".join(_encode_task(list(of_task)) for _, of_task in tasks)


def _encode_task(candidates: Sequence[Candidate]) -> bytes:
    """One of these, by all its candidates."""
    _, tried, memories, over = candidates[0]
    sets = [[np.ascontiguousarray(array).tobytes() for array in (*one.inputs, *one.outputs)] for one in tried]
    inputs, sizes = len(tried[0].inputs), [len(tensor) for tensor in sets[0]]
    if len(sizes) > _MAX_TENSORS:
        raise BackendError(f"a kernel of {len(sizes)} inputs and outputs cannot be measured: more than {_MAX_TENSORS}")
    lie = memories or [0] * (len(sizes) + 1)
    place = list(range(len(sizes)))
    for pair in over:
        place[inputs + pair.output] = pair.input
    words = [len(candidates), len(sets), inputs, len(sizes) - inputs, *sizes, *lie, *place]
    header = struct.pack(f"<{len(words)}I", *words)
    return header + b"".join(tensor + bytes(-len(tensor) % 16) for tensors in sets for tensor in tensors)
