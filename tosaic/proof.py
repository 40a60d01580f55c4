"""No kernel reaches the firmware that did not equal the reference model once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from tosaic.backends.cortex_m.task import KernelTask
from tosaic.options import Tuning
from tosaic.support.errors import BackendError
from tosaic.tuner.database import Database, Record
from tosaic.tuner.measure import LocalWorkers
from tosaic.tuner.measurement import Measurement
from tosaic.tuner.space import Schedule
from tosaic.tuner.tune import best
from tosaic.tuning import core_of, open_records, simulated_measure


def prove_kernels(tasks: Mapping[str, KernelTask], options: Tuning) -> int:
    """Try the default of each exact task that no recorded trial has proven, and record it; the number of trials.

    A default that differs from the reference gives way to the first schedule of the next variant.

    Raises:
        BackendError: no variant of a kernel equals the reference.
        DatabaseError: the records cannot be read or written.
    """
    if not tasks:
        return 0
    with open_records(options.records, core_of(tasks)) as database:
        exact = {task.key: task for task in tasks.values() if task.exact}
        unproven = [_Unproven(task, database) for task in exact.values() if best(database, task) is None]
        if not unproven:
            return 0
        measure = simulated_measure(core_of(tasks), options.seed)
        trials = 0
        with LocalWorkers(min(len(unproven), options.workers or os.cpu_count() or 1)) as workers:
            while unproven:
                tries = [(each, each.next_choice()) for each in unproven]
                flying = [workers.submit(measure, each.task, [schedule]) for each, schedule in tries]
                for (each, schedule), pending in zip(tries, flying, strict=True):
                    (each.outcome,) = pending.result()
                    database.append([Record(each.task.key, schedule, each.outcome)])
                trials += len(tries)
                unproven = [each for each in unproven if not each.outcome.ok]
    return trials


class _Unproven:
    """A task and the schedules that remain to be tried: the first of each variant, where it has no record."""

    def __init__(self, task: KernelTask, database: Database) -> None:
        self.task = task
        self.outcome = Measurement("wrong", message="every variant has failed before")
        self._choices = self._first_of_each_variant({record.schedule for record in database.records(task.key)})

    def next_choice(self) -> Schedule:
        """The next schedule to try.

        Raises:
            BackendError: none is left.
        """
        schedule = next(self._choices, None)
        if schedule is None:
            why = f"{self.outcome.status}: {self.outcome.message}"
            raise BackendError(f"no kernel of `{self.task.name}` equals the reference model", why=why)
        return schedule

    def _first_of_each_variant(self, known: set[Schedule]) -> Iterator[Schedule]:
        for variant in self.task.space.variants:
            schedule = next(variant.schedules(), None)
            if schedule is not None and schedule not in known:
                yield schedule
