"""Which kernel each CPU function gets: tune, remember, choose."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import tosaic
from tosaic import backends
from tosaic.backends.cortex_m.cmsis_nn import LIBRARY, CmsisNn
from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.cortex_m.toolchain import clang_version
from tosaic.backends.simulators.measure import SimulatedMeasure
from tosaic.backends.target import Core
from tosaic.kernel_inputs import as_bytes, wide_kernel_inputs
from tosaic.npu import cpu_functions
from tosaic.options import KernelChoice, Tuning, default_records
from tosaic.support.errors import BackendError
from tosaic.support.mlir import ir
from tosaic.tuner.database import Database, Environment, Record
from tosaic.tuner.measure import LocalWorkers
from tosaic.tuner.progress import Listener, silent
from tosaic.tuner.space import Schedule
from tosaic.tuner.tune import TuningResult, best, tune

FAMILIES: Mapping[KernelChoice, tuple[str, ...]] = {"all": (), "cmsis-nn": ("cmsis_nn",), "generic": ("linalg",)}


@dataclass(frozen=True)
class ChosenKernel:
    """The kernel of one CPU function, and how it was chosen: `record` is the trial it won, None where untuned."""

    task: KernelTask
    schedule: Schedule
    source: KernelSource
    record: Record | None


def kernel_tasks(placed: ir.Module, core: Core, kernels: KernelChoice, seed: int) -> dict[str, KernelTask]:
    """The task of each CPU function of a placed module by name."""
    inputs = as_bytes(wide_kernel_inputs(placed, seed))
    return {
        name: KernelTask.of(function, core, FAMILIES[kernels], inputs.get(name, ()))
        for name, function in cpu_functions(placed).items()
    }


def tune_tasks(tasks: Mapping[str, KernelTask], options: Tuning, progress: Listener = silent) -> TuningResult:
    """Spend the trial budget on `tasks`; every trial is recorded.

    Raises:
        DatabaseError: the records cannot be read or written.
    """
    with open_records(options.records, _core(tasks)) as database:
        return tune(
            [(task, 1.0) for task in tasks.values() if task.exact],
            simulated_measure(_core(tasks), options.seed),
            database,
            trials=options.trials,
            seed=options.seed,
            search=options.search,
            objective=options.objective,
            workers=options.workers,
            progress=progress,
        )


def prove_kernels(tasks: Mapping[str, KernelTask], options: Tuning) -> int:
    """Try the default of each exact task that no recorded trial has proven, and record it; the number of trials.

    A default that differs from the reference model gives way to the first schedule of the next variant. So every exact
    kernel of a build has equalled the reference once, tuned or not.

    Raises:
        BackendError: no variant of a kernel equals the reference.
        DatabaseError: the records cannot be read or written.
    """
    unproven = {task.key: task for task in tasks.values() if task.exact}
    trials = 0
    with ExitStack() as stack:
        database = stack.enter_context(open_records(options.records, _core(tasks)))
        unproven = {key: task for key, task in unproven.items() if best(database, task) is None}
        if not unproven:
            return 0
        measure = simulated_measure(_core(tasks), options.seed)
        workers = stack.enter_context(LocalWorkers(min(len(unproven), options.workers or os.cpu_count() or 1)))
        choices = {key: _first_choices(task, database) for key, task in unproven.items()}
        failures: dict[str, str] = {}
        while unproven:
            flying = []
            for key, task in unproven.items():
                schedule = next(choices[key], None)
                if schedule is None:
                    raise BackendError(
                        f"no kernel of `{task.name}` equals the reference model", why=failures.get(key, "")
                    )
                flying.append((task, schedule, workers.submit(measure, task, [schedule])))
            for task, schedule, pending in flying:
                (found,) = pending.result()
                database.append([Record(task.key, schedule, found)])
                trials += 1
                failures[task.key] = f"{schedule}: {found.status}, {found.message}"
                if found.ok:
                    del unproven[task.key]
    return trials


def _first_choices(task: KernelTask, database: Database) -> Iterator[Schedule]:
    """The first schedule of each variant that has no record yet."""
    known = {record.schedule for record in database.records(task.key)}
    for variant in task.space.variants:
        schedule = next(variant.schedules(), None)
        if schedule is not None and schedule not in known:
            yield schedule


def choose_kernels(tasks: Mapping[str, KernelTask], options: Tuning) -> dict[str, ChosenKernel]:
    """The best recorded schedule of each task, else its default.

    Raises:
        DatabaseError: the records cannot be read.
        Error: a schedule cannot be generated.
    """
    if not tasks:
        return {}
    with open_records(options.records, _core(tasks)) as database:
        chosen = {}
        for name, task in tasks.items():
            record = best(database, task, options.objective)
            schedule = record.schedule if record else task.default()
            chosen[name] = ChosenKernel(task, schedule, task.generate(schedule), record)
        return chosen


def _core(tasks: Mapping[str, KernelTask]) -> Core:
    return next(iter(tasks.values())).core


def simulated_measure(core: Core, seed: int) -> SimulatedMeasure:
    """The measure that runs candidates under QEMU, CMSIS-NN linked where it is there."""
    return SimulatedMeasure(core, seed, include=headers(), libraries=tuple(libraries(core).values()))


def headers() -> tuple[Path, ...]:
    """Header folders of CMSIS-NN; none without it."""
    library = CmsisNn.find()
    return tuple(library.include) if library else ()


def libraries(core: Core) -> dict[str, Path]:
    """The archives that kernels may name."""
    library = CmsisNn.find()
    return {LIBRARY: library.archive(core)} if library else {}


def open_records(path: Path | None = None, core: Core | None = None) -> Database:
    """The database of trials at `path`, the user's own where None.

    Raises:
        DatabaseError: the file is damaged or is something else.
    """
    path = path or default_records()
    path.parent.mkdir(parents=True, exist_ok=True)
    return Database(path, environment(core))


def environment(core: Core | None = None) -> Environment:
    """What a record of this installation depends on; records of another one are ignored."""
    name = core.name if core else "any"
    library = CmsisNn.find()
    linked = f"; cmsis-nn {library.archive(core).stem}" if library and core else ""
    return Environment(name, "tightly-coupled", clang_version().splitlines()[0] + linked, _generators_version())


@cache
def _generators_version() -> str:
    """tosaic's version and a digest of the code generators and the cycle model, whose change makes records stale."""
    room = Path(backends.__file__).parent
    sources = [*sorted((room / "cortex_m").rglob("*.py")), room / "simulators" / "cycle_model.py"]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources))
    return f"{tosaic.__version__}+{digest.hexdigest()[:12]}"
