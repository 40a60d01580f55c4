"""How many trials a search saves: `python benchmarks/search_quality.py zoo:dscnn --tasks 3`.

For the tasks of a model with the largest spaces, as `tosaic compile` has them: the trials that chance takes to come
within 2 % of the best of many random ones, and those that a strategy takes, seed by seed. Every trial is kept in a
database, so that a second run, or another strategy, measures only what is new.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from tosaic.tuner.cost_model import CostModel
from tosaic.tuner.database import Database, Record
from tosaic.tuner.measure import Executor, LocalWorkers
from tosaic.tuner.measurement import Measure, Task
from tosaic.tuner.search.base import STRATEGIES
from tosaic.tuner.space import Schedule

WITHIN = 0.98
BATCH = 8
POOL_BATCH = 32  # half the processor time of a trial in batches of 8
IN_FLIGHT = 3  # as the tuner has them on two processors

Trials = Callable[[Sequence[Schedule]], list[Record]]
"""Measures schedules of one task."""


@dataclass(frozen=True)
class Quality:
    """How fast a strategy finds what is within 2 % of the best of random trials.

    Args:
        by_chance: trials that chance is expected to take.
        searched: trials that the strategy took, for each seed.
    """

    task: str
    assignments: int
    by_chance: float
    searched: Sequence[int]

    @property
    def share(self) -> float:
        """Of the trials that chance takes."""
        return sum(self.searched) / len(self.searched) / self.by_chance


def quality(task: Task, trials: Trials, strategy: str, pool: int, seeds: Sequence[int], most: int) -> Quality:
    """Measure `pool` random trials of a task, and search it once for each seed, for `most` trials at most."""
    rng = random.Random(f"pool {task.key}")
    drawn = list(dict.fromkeys(task.space.sample(rng) for _ in range(pool)))
    costs = [_cost(record) for record in trials(drawn)]
    goal = min(costs) / WITHIN
    reached = sum(cost <= goal for cost in costs)
    searched = [trials_to(goal, task, trials, strategy, seed, most) for seed in seeds]
    return Quality(task.name, task.space.assignments, (len(costs) + 1) / (reached + 1), searched)


def trials_to(goal: float, task: Task, trials: Trials, strategy: str, seed: int, most: int) -> int:
    """Trials until a search finds a schedule that costs no more than `goal`; `most` where it finds none."""
    model, kind = CostModel(seed), STRATEGIES.find(strategy)
    search = kind(task.space, random.Random(seed), partial(model.score, task) if kind.guided else lambda _: None)
    flying: deque[list[Schedule]] = deque()
    done = 0
    while done < most:
        while len(flying) < IN_FLIGHT:
            flying.append(search.propose(BATCH))
        for record in trials(flying.popleft()):
            done, cost = done + 1, _cost(record)
            if cost <= goal:
                return done
            search.observe(record.schedule, cost)
            if kind.guided:
                model.observe(record, cost)
        if not any(flying):
            return most
    return most


def recorded(task: Task, measure: Measure[Any], executor: Executor, database: Database) -> Trials:
    """Trials of a task, each measured once and for all; features are those of the task as it is placed now."""
    known = {record.schedule: record.measurement for record in database.records(task.key)}

    def trials(schedules: Sequence[Schedule]) -> list[Record]:
        new = [schedule for schedule in schedules if schedule not in known]
        size = BATCH if len(schedules) <= BATCH else POOL_BATCH
        batches = [new[i : i + size] for i in range(0, len(new), size)]
        pending = [(batch, executor.submit(measure, task, batch)) for batch in batches]
        for batch, answer in pending:
            known.update(zip(batch, answer.result(), strict=True))
            database.append(Record(task.key, schedule, known[schedule], task.features(schedule)) for schedule in batch)
        return [Record(task.key, schedule, known[schedule], task.features(schedule)) for schedule in schedules]

    return trials


def _cost(record: Record) -> float:
    found = record.measurement
    return (found.cycles_with_memory or found.instructions) if found.ok else math.inf


@click.command()
@click.argument("model", default="zoo:dscnn")
@click.option("--target", default="cortex-m55", show_default=True)
@click.option("--arena", multiple=True, help="The memories of the tensors, as `tosaic compile --arena` takes them.")
@click.option("--tasks", default=3, show_default=True, help="Those with the largest spaces.")
@click.option("--match", default="", help="Only those with this in their names.")
@click.option("--anywhere", is_flag=True, help="Guesses that know no memory, spaces that no memory bounds.")
@click.option("--pool", default=5000, show_default=True, help="Random trials of each task.")
@click.option("--seeds", default=5, show_default=True)
@click.option("--most", default=1000, show_default=True, help="Trials after which a search is given up.")
@click.option("--strategy", default="evolutionary", show_default=True)
@click.option("--records", type=click.Path(path_type=Path), default=Path("build/search_quality.db"), show_default=True)
def main(
    model: str,
    target: str,
    arena: tuple[str, ...],
    tasks: int,
    match: str,
    anywhere: bool,
    pool: int,
    seeds: int,
    most: int,
    strategy: str,
    records: Path,
) -> None:
    """Print a Markdown table, a row for each task."""
    from tosaic.backends.cortex_m.cmsis_nn import CmsisNn
    from tosaic.compiler.compilation import lower_model
    from tosaic.compiler.options import CompileOptions, Tuning
    from tosaic.compiler.tuning import Tuner
    from tosaic.target_files.ready import find_target
    from tosaic.terminal.progress import Stations

    options = CompileOptions(model, find_target(target, arena=arena), tuning=Tuning(records=records))
    with Tuner(options.target, options.tuning, CmsisNn.find(None)) as tuner, LocalWorkers(2) as workers:
        middle = lower_model(options, Stations(quiet=True))
        placement = middle.placement
        found = tuner.tasks(placement.module, options.kernels, middle.samples.drawn)
        if not anywhere:
            found = tuner.confine(found, placement.module, placement.regions)
        distinct = {task.key: task for task in found.values() if task.exact and match in task.name}
        largest = sorted(distinct.values(), key=lambda task: -task.space.assignments)[:tasks]
        click.echo("| task | assignments | trials by chance | trials searched | share |\n|---|---|---|---|---|")
        for task in largest:
            trials = recorded(task, tuner.measure, workers, tuner.database)
            row = quality(task, trials, strategy, pool, range(seeds), most)
            searched = ", ".join(map(str, row.searched))
            click.echo(f"| {row.task} | {row.assignments:,} | {row.by_chance:,.0f} | {searched} | {row.share:.2f} |")


if __name__ == "__main__":
    main()
