"""Which kernel each CPU function gets: tune, remember, choose."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

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
from tosaic.support.mlir import ir
from tosaic.tuner.database import Database, Environment, Record
from tosaic.tuner.progress import Listener, silent
from tosaic.tuner.space import Schedule
from tosaic.tuner.tune import TuningResult, best, tune

FAMILIES: Mapping[KernelChoice, tuple[str, ...]] = {"all": (), "cmsis-nn": ("cmsis_nn",), "generic": ("linalg",)}


@dataclass(frozen=True)
class ChosenKernel:
    """The kernel of one CPU function, and how it was chosen.

    Args:
        record: the trial that won; None where no trial can tell right from wrong.
        trials: how many schedules of its task have a record; one is the proof of the default alone.
    """

    task: KernelTask
    schedule: Schedule
    source: KernelSource
    record: Record | None
    trials: int


def kernel_tasks(
    placed: ir.Module, core: Core, kernels: KernelChoice, model_inputs: Sequence[np.ndarray]
) -> dict[str, KernelTask]:
    """The task of each CPU function of a placed module by name; `model_inputs` are arguments that `main` allows."""
    inputs = as_bytes(wide_kernel_inputs(placed, model_inputs))
    return {
        name: KernelTask.of(function, core, FAMILIES[kernels], inputs.get(name, ()))
        for name, function in cpu_functions(placed).items()
    }


def tune_tasks(tasks: Mapping[str, KernelTask], options: Tuning, progress: Listener = silent) -> TuningResult:
    """Spend the trial budget on `tasks`; every trial is recorded.

    Raises:
        DatabaseError: the records cannot be read or written.
    """
    with open_records(options.records, core_of(tasks)) as database:
        return tune(
            [(task, 1.0) for task in tasks.values() if task.exact],
            simulated_measure(core_of(tasks), options.seed),
            database,
            trials=options.trials,
            seed=options.seed,
            search=options.search,
            objective=options.objective,
            workers=options.workers,
            progress=progress,
        )


def choose_kernels(tasks: Mapping[str, KernelTask], options: Tuning) -> dict[str, ChosenKernel]:
    """The best recorded schedule of each task, else its default.

    Raises:
        DatabaseError: the records cannot be read.
        Error: a schedule cannot be generated.
    """
    if not tasks:
        return {}
    with open_records(options.records, core_of(tasks)) as database:
        chosen = {}
        for name, task in tasks.items():
            record = best(database, task, options.objective)
            schedule = record.schedule if record else task.default()
            trials = len(database.records(task.key))
            chosen[name] = ChosenKernel(task, schedule, task.generate(schedule), record, trials)
        return chosen


def core_of(tasks: Mapping[str, KernelTask]) -> Core:
    """The core that all tasks of a model share."""
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
