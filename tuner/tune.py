"""The tuning run: search, measure, learn, record."""

from __future__ import annotations

import itertools
import math
import os
import random
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tosaic.support.errors import Error
from tosaic.tuner.database import Database, Record
from tosaic.tuner.interrupts import held_interrupt
from tosaic.tuner.measure import SECONDS_PER_TRIAL, Executor, LocalWorkers, Pending
from tosaic.tuner.measurement import Measure, Measurement, Objective, Task, TaskT
from tosaic.tuner.progress import Listener, Progress, TaskProgress, silent
from tosaic.tuner.scheduler import SCHEDULERS, History, Pick, SchedulerName
from tosaic.tuner.search.base import ENUMERABLE, STRATEGIES, Score, Search
from tosaic.tuner.search.exhaustive import Exhaustive
from tosaic.tuner.space import Schedule
from tosaic.tuner.transfer import nearest

if TYPE_CHECKING:
    from tosaic.tuner.cost_model import CostModel

_FLYING = 96
_LEAST_BATCH = 8
FLOOR_SHARE = 0.25
HINTS = 4
TRIALS_OF_OTHERS = 4_096


@dataclass(frozen=True)
class TuningResult:
    """What a tuning run gave.

    Args:
        best: the best record by task key; a task without a success is missing.
        measured: trials of this run.
        reused: records of these tasks that were already there.
        failed: trials of this run that failed, by status.
        ignored: records of these tasks that belong to other environments.
        seconds: duration.
        interrupted: whether Ctrl-C ended it.
    """

    best: Mapping[str, Record]
    measured: int
    reused: int
    failed: Mapping[str, int]
    ignored: int
    seconds: float
    interrupted: bool


def tune(
    tasks: Iterable[tuple[TaskT, float]],
    measure: Measure[TaskT],
    database: Database,
    *,
    trials: int,
    seed: int = 0,
    search: str = "evolutionary",
    objective: Objective = "cycles",
    scheduler: SchedulerName = "gradient",
    batch: int | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    seconds_per_trial: float = SECONDS_PER_TRIAL,
    progress: Listener = silent,
) -> TuningResult:
    """Search the spaces of `tasks` for the schedules of least cost, and record every trial.

    Tasks with equal keys are tuned once, with the sum of their weights. Records in the database count as trials done,
    so that the same call again continues where the last one ended. A quarter of the trials is dealt out evenly, also to
    a task whose companions have spent the budget in earlier runs. A budget that covers every space measures them whole.
    With equal arguments and records, the same schedules are measured in the same order, however long each takes.

    Args:
        tasks: each with its weight, the number of calls in one inference.
        measure: builds and runs candidates; importable by worker processes.
        database: where records are found and written.
        trials: budget over all tasks.
        seed: of every random choice.
        search: the strategy that searches each space, a name in `search.base.STRATEGIES`.
        objective: what is minimized.
        scheduler: how tasks share the budget.
        batch: most trials in flight, that is, not yet recorded; fewer fly where tasks have small shares of the budget.
            96 when None, and more where that would leave batches of less than 8.
        workers: batches measured at once, the number of processors when None; another number gives another run.
        executor: runs the batches; local processes when None.
        seconds_per_trial: limit of a local process, for each trial of its batch.
        progress: called at the start and after each batch.

    Raises:
        Error: no strategy is called `search`, the measure broke its contract, or worker processes do not start.
        DatabaseError: the database cannot be read or written.
    """
    run = _Run(tasks, database, trials, seed, search, objective, progress)
    run.report(None)
    with ExitStack() as stack:
        try:
            if run.budget() > 0:
                workers = workers or os.cpu_count() or 1
                if executor is None:
                    executor = stack.enter_context(LocalWorkers(workers, seconds_per_trial))
                depth = workers + 1
                flying = batch or max(_FLYING, _LEAST_BATCH * depth)
                size = _batch_size(min(flying // depth, trials // (4 * depth)), trials // max(1, len(run.jobs)))
                run.loop(measure, executor, SCHEDULERS[scheduler], depth, size)
        except KeyboardInterrupt:
            run.interrupted = True
    return run.result()


def best(database: Database, task: Task, objective: Objective = "cycles") -> Record | None:
    """The best record of a task, None where no trial of present code in its present space has succeeded."""
    for record in _ranked(database.records(task.key), objective):
        if record.schedule in task.space and record.measurement.code == task.code(record.schedule):
            return record
    return None


class _Job:
    """A task of the run, with its search and its place in the schedule."""

    def __init__(self, task: Task, weight: float, records: list[Record]) -> None:
        self.task, self.weight, self.records = task, weight, records
        self.history = History(weight, trials=len(records))
        self.best: Record | None = None
        self.search: Search

    def progress(self) -> TaskProgress:
        first = next(filter(math.isfinite, self.search.costs.values()), None)
        best = None if first is None else self.history.best
        return TaskProgress(self.task.name, self.weight, len(self.records), first, best)


class _Run:
    def __init__(
        self,
        tasks: Iterable[tuple[Task, float]],
        database: Database,
        trials: int,
        seed: int,
        search: str,
        objective: Objective,
        progress: Listener,
    ) -> None:
        self.started = time.monotonic()
        self.database, self.trials, self.progress = database, trials, progress
        self.objective: Objective = objective
        self.jobs = [_Job(task, weight, self._known(task)) for task, weight in _unique(tasks)]
        self.reused = sum(len(job.records) for job in self.jobs)
        self.measured = 0
        self.failed: Counter[str] = Counter()
        self.interrupted = False
        strategy = STRATEGIES.find(search)
        if strategy.guided and _coverable([job.task for job in self.jobs], trials):
            strategy = Exhaustive
        self.model = _cost_model(seed) if strategy.guided else None
        bests = database.bests(objective) if strategy.guided else []
        if self.model is not None:
            others = database.recent(TRIALS_OF_OTHERS, [job.task.key for job in self.jobs])
            self.model.start_from((record, _cost(record.measurement, objective)) for record in others)
        for job in self.jobs:
            job.history.floor = int(FLOOR_SHARE * trials / len(self.jobs))
            rng = random.Random(f"{seed} {len(job.records)} {job.task.key}")
            job.search = strategy(job.task.space, rng, self._score(job.task), nearest(job.task, bests, HINTS))
            self._learn(job, job.records, self._costs(job.records))

    def _known(self, task: Task) -> list[Record]:
        space = task.space
        return [record for record in self.database.records(task.key) if record.schedule in space]

    def _score(self, task: Task) -> Score:
        return partial(self.model.score, task) if self.model is not None else lambda _: None

    def _costs(self, records: Sequence[Record]) -> list[float]:
        return [_cost(record.measurement, self.objective) for record in records]

    def _learn(self, job: _Job, records: Sequence[Record], costs: Sequence[float]) -> None:
        for record, cost in zip(records, costs, strict=True):
            job.search.observe(record.schedule, cost)
            if self.model is not None:
                self.model.observe(record, cost)
        job.best = next(iter(_ranked([*([job.best] if job.best else []), *records], self.objective)), None)
        if records:
            job.history.curve.append((len(job.search.costs), min(job.history.best, *costs)))

    def budget(self) -> int:
        """Trials still to be measured, besides those in flight."""
        done = sum(job.history.trials for job in self.jobs)
        return max(self.trials - done, sum(job.history.owed for job in self.jobs))

    def loop(self, measure: Measure[Any], executor: Executor, pick: Pick, depth: int, size: int) -> None:
        """Keep `depth` batches of `size` in flight and take them back in order, which keeps the run deterministic."""
        flying: deque[tuple[_Job, list[Schedule], Pending]] = deque()
        while True:
            while len(flying) < depth and (step := self._next(pick, size)) is not None:
                job, schedules = step
                pending = executor.submit(measure, job.task, schedules, job.best.measurement if job.best else None)
                flying.append((job, schedules, pending))
            if not flying:
                return
            job, schedules, pending = flying.popleft()
            self._record(job, schedules, pending.result())

    def _next(self, pick: Pick, size: int) -> tuple[_Job, list[Schedule]] | None:
        while (budget := self.budget()) > 0:
            choice = pick([job.history for job in self.jobs])
            if choice is None:
                return None
            job = self.jobs[choice]
            count = min(size, budget, job.history.owed or size)
            schedules = job.search.propose(count)
            job.history.exhausted = len(schedules) < count
            job.history.trials += len(schedules)
            if schedules:
                return job, schedules
        return None

    def _record(self, job: _Job, schedules: Sequence[Schedule], measurements: Sequence[Measurement]) -> None:
        if len(measurements) != len(schedules):
            raise Error(f"the measure gave {len(measurements)} measurements for {len(schedules)} schedules")
        pairs = zip(schedules, measurements, strict=True)
        records = [Record(job.task.key, s, measurement, job.task.features(s)) for s, measurement in pairs]
        costs = self._costs(records)
        with held_interrupt():  # what is on the disk is counted
            self.database.append(records)
            job.records += records
            self.measured += len(records)
            self.failed.update(m.status for m in measurements if not m.ok)
        self._learn(job, records, costs)
        self.report(job)

    def report(self, job: _Job | None) -> None:
        done = self.reused + self.measured
        inference = sum(each.weight * each.history.best for each in self.jobs)
        self.progress(
            Progress(
                task=job.task.name if job else "",
                done=done,
                total=max(self.trials, done),
                reused=self.reused,
                failed=dict(self.failed),
                inference=inference if math.isfinite(inference) else None,
                seconds=time.monotonic() - self.started,
                tasks=[job.progress() for job in self.jobs],
            )
        )

    def result(self) -> TuningResult:
        return TuningResult(
            best={job.task.key: job.best for job in self.jobs if job.best},
            measured=self.measured,
            reused=self.reused,
            failed=dict(self.failed),
            ignored=self.database.ignored([job.task.key for job in self.jobs]),
            seconds=time.monotonic() - self.started,
            interrupted=self.interrupted,
        )


def _unique(tasks: Iterable[tuple[Task, float]]) -> list[tuple[Task, float]]:
    first: dict[str, Task] = {}
    weights: Counter[str] = Counter()
    for task, weight in tasks:
        first.setdefault(task.key, task)
        weights[task.key] += weight  # type: ignore[assignment]
    return [(task, weights[key]) for key, task in first.items()]


def _batch_size(most: int, share: int) -> int:
    """Trials of one batch: a tenth of a task's even share, so that it learns on the way, but not too few to batch."""
    return max(1, min(most, max(_LEAST_BATCH, share // 10)))


def _coverable(tasks: Sequence[Task], trials: int) -> bool:
    """Whether the budget measures every space whole."""
    if sum(min(ENUMERABLE + 1, task.space.assignments) for task in tasks) > ENUMERABLE:
        return False
    schedules = itertools.chain.from_iterable(task.space.schedules() for task in tasks)
    return sum(1 for _ in itertools.islice(schedules, trials + 1)) <= trials


def _cost_model(seed: int) -> CostModel:
    from tosaic.tuner.cost_model import CostModel  # Importing xgboost takes half a second.

    return CostModel(seed)


def _cost(measurement: Measurement, objective: Objective) -> float:
    if not measurement.ok:
        return math.inf
    cost = measurement.cost(objective)
    if not cost or cost < 0:
        raise Error(f"a successful trial has no {objective}", why=f"the measure gave {measurement}")
    return cost


def _ranked(records: Iterable[Record], objective: Objective) -> list[Record]:
    """The successes, best first."""
    successes = [record for record in records if record.measurement.ok]

    def rank(record: Record) -> tuple[float, int, str]:
        found = record.measurement
        return _cost(found, objective), (found.cycles or 0) + found.instructions, record.schedule.to_json()

    return sorted(successes, key=rank)
