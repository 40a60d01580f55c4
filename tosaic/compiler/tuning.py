"""Which kernel each CPU function gets: prove, tune, remember, choose."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from tosaic.backends.cortex_m.cmsis_nn import LIBRARY, VARIABLE, CmsisNn
from tosaic.backends.cortex_m.footprint import Place
from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.sharing import adapted, one_knob_from, pack_alike
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.firmware.build import Library
from tosaic.backends.firmware.memory_plan import MemoryPlan, plan_memory, scratch_name, scratch_room
from tosaic.backends.firmware.program import CallSequence, KernelCall
from tosaic.backends.npu import NpuRegion
from tosaic.backends.simulators.execution import Machine
from tosaic.backends.simulators.measure import BatchMeasure
from tosaic.backends.simulators.runners import find_runner
from tosaic.backends.target import Core, Memory, Target
from tosaic.compiler.assembly import assemble
from tosaic.compiler.chosen import AnyTask, ChosenKernel
from tosaic.compiler.environment import ANY, environment
from tosaic.compiler.options import KernelChoice, Tuning, default_records
from tosaic.compiler.overwriting import with_states_written_over
from tosaic.compiler.proof import KernelProof, prove_kernels, tried
from tosaic.compiler.trial_inputs import wide_kernel_inputs
from tosaic.compiler.trials import Trials
from tosaic.runs.measuring import LOCAL, bench
from tosaic.support.errors import Error, OutOfMemoryError
from tosaic.support.functions import body_of, called, functions_on, returned
from tosaic.support.mlir import functions, ir
from tosaic.tuner.database import Database, Environment, Record
from tosaic.tuner.measure import LocalWorkers
from tosaic.tuner.measurement import Objective
from tosaic.tuner.progress import Listener, silent
from tosaic.tuner.space import Schedule
from tosaic.tuner.tune import TuningResult, best, tune

_WORTH = 1.03
"""Times the cost of kernels that equal weights in one place may have."""

FAMILIES: Mapping[KernelChoice, tuple[str, ...]] = {"all": (), "cmsis-nn": ("cmsis_nn",), "generic": ("linalg",)}


class Tuner:
    """Proofs, trials and choices of one target's kernels, all from one database.

    Args:
        target: whose kernels these are.
        library: CMSIS-NN, where it is at hand.
        options: what the user asks; its executor runs the batches, local processes where it names none.

    Raises:
        Error: nothing counts what the objective asks for, the runner is unknown, or what shall measure cannot be used.
        DatabaseError: the records cannot be read.
    """

    def __init__(self, target: Target, options: Tuning, library: CmsisNn | None) -> None:
        if options.measure != LOCAL and library != CmsisNn.find():
            hint = f"set {VARIABLE} here and where the workers are started"
            raise Error("workers do not know this checkout of CMSIS-NN", why=str(library and library.root), hint=hint)
        self.target, self.options, self.library = target, options, library
        self.archives = {LIBRARY: library.archive(target.core)} if library else {}
        self.headers = tuple(library.include) if library else ()
        self.runner = find_runner(options.runner, target)
        with ExitStack() as stack:
            on = stack.enter_context(bench(options.measure, target, self.runner))
            self.objective: Objective = _objective(target.core, options.objective, on.machine)
            self.environment = environment(target, on.machine, on.layout, self.archives)
            self.database = stack.enter_context(open_records(options.records, self.environment))
            local = stack.enter_context(LocalWorkers(options.workers or os.cpu_count() or 1))
            self._open = stack.pop_all()
        self.executor = options.executor or on.executor
        self.measure = BatchMeasure(
            on.machine,
            target.core,
            on.layout,
            options.seed,
            include=self.headers,
            libraries=tuple(self.archives.values()),
        )
        self._try_all = Trials(self.measure, self.executor or local)

    @property
    def libraries(self) -> dict[str, Library]:
        """What kernels may link, with its licenses.

        Raises:
            BackendError: a library has no license with it.
        """
        licenses = self.library.licenses if self.library else ()
        return {name: Library(archive, tuple(licenses)) for name, archive in self.archives.items()}

    @property
    def constants(self) -> Memory | None:
        """The memory that kernels wait for as they read their constants; None where the objective counts no waits."""
        return self.target.layout.constants if self.objective == "cycles" else None

    @property
    def tensors(self) -> Memory | None:
        """The memory that kernels wait for as they read and write tensors; None where the objective counts no waits."""
        return self.target.layout.arena[0] if self.objective == "cycles" else None

    def site(self, most_scratch: int | None = None) -> Site:
        """Where kernels run, with so much working memory at most."""
        return Site(self.constants, most_scratch, self.tensors)

    def __enter__(self) -> Tuner:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def tasks(
        self, placed: ir.Module, kernels: KernelChoice, model_inputs: Sequence[np.ndarray]
    ) -> dict[str, KernelTask]:
        """The task of each CPU function of a placed module by name, where its constants, tensors and states lie.

        Args:
            model_inputs: arguments that `main` allows.
        """
        inputs = wide_kernel_inputs(placed, model_inputs)
        libraries = {LIBRARY: self.library.root} if self.library else {}
        tasks = {
            name: KernelTask.of(
                function, self.target.core, FAMILIES[kernels], [a.tobytes() for a in inputs.get(name, ())], libraries
            ).at(self.site())
            for name, function in functions_on("cpu", placed).items()
        }
        return with_states_written_over(tasks, placed)

    def confine(
        self, tasks: Mapping[str, KernelTask], placed: ir.Module, regions: Mapping[str, NpuRegion]
    ) -> dict[str, KernelTask]:
        """The tasks without the schedules whose working memory would let the arena grow beyond that of the defaults."""
        program = program_of(tasks, placed, regions)
        room: dict[str, int] = {}
        for callee, most in zip(called(placed), scratch_room(program), strict=True):
            if callee in tasks:
                key = tasks[callee].key
                room[key] = min(most, room.get(key, most))
        return {name: task.at(self.site(room.get(task.key))) for name, task in tasks.items()}

    def lying(
        self, tasks: Mapping[str, AnyTask], placed: ir.Module, program: CallSequence, plan: MemoryPlan
    ) -> dict[str, AnyTask]:
        """The tasks of a program's kernels at the places that a plan gives their tensors and working memory.

        What lies in a slower memory stays there: a kernel that is guessed for a faster one may not fit into it again.
        """
        found = dict(tasks)
        for number, (name, call) in enumerate(zip(called(placed), program.calls, strict=True)):
            task = found.get(name)
            if isinstance(task, KernelTask) and isinstance(call, KernelCall):
                blocks = [*map(program.storage, (*call.inputs, *call.outputs)), scratch_name(number)]
                places = [plan.placements.get(block) for block in blocks]
                planned = tuple(place.memory if place else 0 for place in places)
                lie = tuple(map(max, planned, task.memories or planned))
                if any(lie):
                    found[name] = task.at(self._site_at(lie, len(call.inputs), task.site), lie)
        return found

    def _site_at(self, lie: Sequence[int], inputs: int, site: Site) -> Site:
        """The site of a kernel whose tensors lie so: of several inputs or outputs, where the slowest lies."""
        arena = self.target.layout.arena
        slowest: list[tuple[Place, int]] = [
            ("input", max(lie[:inputs], default=0)),
            ("output", max(lie[inputs:-1], default=0)),
            ("scratch", lie[-1]),
        ]
        return replace(site, elsewhere=tuple((place, arena[number]) for place, number in slowest))

    @property
    def sees_memories(self) -> bool:
        """Whether trials cost more or less by the memory that tensors lie in."""
        return self.objective == "cycles" and len(self.measure.layout.arena) == len(self.target.layout.arena) > 1

    def fits(self, tasks: Mapping[str, KernelTask], placed: ir.Module, regions: Mapping[str, NpuRegion]) -> bool:
        """Whether the target has the memory for a placed module with the default kernels of `tasks`."""
        try:
            plan_memory(program_of(tasks, placed, regions), self.target)
        except OutOfMemoryError:
            return False
        return True

    def prove(self, tasks: Mapping[str, AnyTask]) -> dict[str, KernelProof]:
        """Prove each exact task that no recorded trial has proven; see `prove_kernels`."""
        return prove_kernels(tasks, self.database, self._try_all, self.objective)

    def try_once(self, tasks: Sequence[AnyTask]) -> None:
        """Try the default of each task that has no record of its present code; what it gives is recorded."""
        self._try([(task, task.default()) for task in tasks])

    def _try(self, wanted: Iterable[tuple[AnyTask, Schedule]]) -> None:
        new = [(task, schedule) for task, schedule in wanted if schedule not in tried(task, self.database)]
        for (task, schedule), outcome in zip(new, self._try_all(new), strict=True):
            self.database.append([Record(task.key, schedule, outcome, task.features(schedule))])

    def record(self, task: AnyTask) -> Record | None:
        """The best trial of a task; None where it has none."""
        return best(self.database, task, self.objective)

    def tune(self, tasks: Iterable[tuple[KernelTask, int]], progress: Listener = silent) -> TuningResult:
        """Spend the trial budget on `tasks`, each with its calls in an inference; every trial is recorded.

        Raises:
            DatabaseError: the records cannot be written.
        """
        return tune(
            [(task, float(calls)) for task, calls in tasks if task.exact],
            self.measure,
            self.database,
            trials=self.options.trials,
            seed=self.options.seed,
            search=self.options.search,
            objective=self.objective,
            workers=self.options.workers or getattr(self.executor, "slots", None),
            executor=self.executor,
            progress=progress,
        )

    def choose(self, tasks: Mapping[str, AnyTask]) -> dict[str, ChosenKernel]:
        """The best recorded schedule of each task, else its default.

        Raises:
            DatabaseError: the records cannot be read.
            Error: a schedule cannot be generated.
        """
        chosen = {}
        for name, task in tasks.items():
            record = self.record(task)
            chosen[name] = self._chosen(task, record.schedule if record else task.default(), record)
        return chosen

    def _chosen(self, task: AnyTask, schedule: Schedule, record: Record | None) -> ChosenKernel:
        records = self.database.records(task.key)
        curve = tuple(_improvements(records, self.objective))
        return ChosenKernel(task, schedule, task.generate(schedule), record, len(records), curve)

    def packed_alike(self, chosen: Mapping[str, ChosenKernel]) -> dict[str, ChosenKernel]:
        """The same kernels, but for those of equal weights that another schedule lets share them at little cost.

        Raises:
            DatabaseError: the records cannot be read or written.
        """
        found, users = dict(chosen), dict[bytes, list[str]]()
        for name, kernel in chosen.items():
            if isinstance(kernel.task, KernelTask) and kernel.record and kernel.task.weights:
                users.setdefault(sha256(kernel.task.weights).digest(), []).append(name)
        for names in users.values():
            as_they_are = {name: chosen[name] for name in names}
            best = min(self._packed_as_one(as_they_are), key=self._cost_of, default=None)
            if best is not None and self._cost_of(best) <= _WORTH * self._cost_of(as_they_are):
                found |= best
        return found

    def _packed_as_one(self, chosen: Mapping[str, ChosenKernel]) -> list[dict[str, ChosenKernel]]:
        """Ways to pack equal weights alike: as one of the kernels does; else the first with another knob of one."""
        if len(chosen) < 2:
            return []
        if ways := [way for kernel in chosen.values() if (way := self._packed_as(kernel, chosen))]:
            return ways
        for kernel in sorted(chosen.values(), key=lambda one: -one.task.space.assignments):
            assert isinstance(kernel.task, KernelTask)
            for schedule in one_knob_from(kernel.task, kernel.schedule):
                like = self._chosen(kernel.task, schedule, None)
                alike = pack_alike(like.source, kernel.source)
                if not alike and (way := self._packed_as(like, chosen)):
                    return [way]
        return []

    def _packed_as(self, like: ChosenKernel, chosen: Mapping[str, ChosenKernel]) -> dict[str, ChosenKernel] | None:
        """Kernels of equal weights that pack them as `like`; None where one cannot."""
        others = dict[str, tuple[KernelTask, Schedule]]()
        for name, kernel in sorted(chosen.items(), key=lambda one: one[1].task.space.assignments):
            if pack_alike(kernel.source, like.source):
                continue
            task = kernel.task
            assert isinstance(task, KernelTask)
            schedule = adapted(task, kernel.schedule, like.source, like.schedule)
            if schedule is None:
                return None
            others[name] = task, schedule
        self._try(others.values())
        found = dict(chosen)
        for name, (task, schedule) in others.items():
            records = (each for each in self.database.records(task.key) if each.schedule == schedule)
            record = next((each for each in records if each.measurement.ok), None)
            if record is None:
                return None
            found[name] = self._chosen(task, schedule, record)
        return found

    def _cost_of(self, chosen: Mapping[str, ChosenKernel]) -> float:
        records = (kernel.record for kernel in chosen.values())
        return sum(record.measurement.cost(self.objective) or 0 for record in records if record)


def program_of(tasks: Mapping[str, AnyTask], placed: ir.Module, regions: Mapping[str, NpuRegion]) -> CallSequence:
    """A placed module with the default kernels of its CPU functions."""
    sources = {name: task.generate(task.default()) for name, task in tasks.items()}
    values = {"input": body_of(functions(placed)["main"]).arguments, "output": returned(functions(placed)["main"])}
    names = [[f"{kind}_{i}" for i in range(len(some))] for kind, some in values.items()]
    return assemble(placed, sources, regions, dict.fromkeys([*tasks, *regions], ""), *names)


def _improvements(records: Sequence[Record], objective: Objective) -> Iterator[tuple[int, int]]:
    """The number of each trial that was better than all before it, from 1, and its cost."""
    least = math.inf
    for number, record in enumerate(records, 1):
        cost = record.measurement.cost(objective) if record.measurement.ok else None
        if cost is not None and cost < least:
            least = cost
            yield number, cost


def _objective(core: Core, asked: Objective | None, machine: Machine) -> Objective:
    if machine.monitored:
        if asked not in (None, "cycles"):
            raise Error(f"a board does not count {asked}", hint="--objective cycles")
        return "cycles"
    if asked not in (None, "instructions") and core.pipeline is None:
        raise Error(f"no cycle model of `{core.name}` exists", hint="--objective instructions")
    if asked is not None:
        return asked
    return "instructions" if core.pipeline is None else "cycles"


def open_records(path: Path | None = None, stamp: Environment = ANY) -> Database:
    """The database of trials at `path`, the user's own where None.

    Raises:
        DatabaseError: the file is damaged or is something else.
    """
    path = path or default_records()
    path.parent.mkdir(parents=True, exist_ok=True)
    return Database(path, stamp)
