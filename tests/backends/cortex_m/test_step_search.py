"""A search that mutates steps: a mutation wins, its record replays, and a later run goes on from such records."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from board import M4
from tosa_graphs import Graph

from tosaic.backends.cortex_m.kernel import STEPS, Site
from tosaic.backends.cortex_m.program.schedule import parse_steps, print_steps
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.simulators.measure import BatchMeasure
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.support.mlir import functions
from tosaic.tuner.database import Database, Environment
from tosaic.tuner.space import Schedule
from tosaic.tuner.tune import best, tune

ENVIRONMENT = Environment(core="cortex-m4", memory="", toolchain="", simulator="", compiler="")


@pytest.fixture(scope="module")
def task() -> KernelTask:
    """A dense layer, of 64 inputs and 12 results."""
    rng, g = np.random.default_rng(0), Graph()
    weights, bias = rng.integers(-127, 128, (12, 1, 1, 64)), rng.integers(-1000, 1000, 12)
    y = g.conv2d(g.input((1, 1, 1, 64)), weights, bias)
    (function,) = functions(g.module(g.requantize(y, "i8", rng.uniform(0.001, 0.02, 12)))).values()
    return KernelTask.of(function, M4.core, ("conv2d",))


def test_a_mutation_of_steps_wins_and_a_later_run_goes_on_from_its_record(task, tmp_path):
    measure = BatchMeasure(Qemu(M4.core, M4.board), M4.core, M4.layout)

    def run(trials):
        with Database(tmp_path / "records.db", ENVIRONMENT) as database, ThreadPoolExecutor(1) as pool:
            options = {"trials": trials, "seed": 1, "workers": 1, "executor": pool, "objective": "instructions"}
            result = tune([(task, 1.0)], measure, database, **options)
            return result, database.records(task.key), best(database, task, "instructions")

    _, early, _ = run(24)
    result, records, winner = run(32)
    assert [record for record in early if is_stepped(record.schedule)]
    assert (result.reused, result.measured) == (24, 8) and records[:24] == early
    assert len({record.schedule for record in records}) == 32
    assert not [record for record in records if record.measurement.status in ("wrong", "illegal", "crash")]
    assert winner is not None and is_stepped(winner.schedule) and winner.schedule in task.space
    numbers = [r.measurement.instructions for r in records if r.measurement.ok and not is_stepped(r.schedule)]
    assert winner.measurement.instructions < min(numbers)
    steps = str(winner.schedule[STEPS])
    assert print_steps(task.trace(winner.schedule)) == steps
    assert task.generate(task.stepped(parse_steps(steps), "conv2d").default()) == task.generate(winner.schedule)
    assert str(winner.schedule) == "conv2d.steps"


def is_stepped(schedule: Schedule) -> bool:
    return schedule.variant == "conv2d.steps"


def test_mutations_are_legal_new_kernels_and_alike_for_alike_seeds(task):
    def drawn():
        rng, found = random.Random(1), [task.default()]
        while len(found) < 8:
            if (neighbor := task.space.mutations.neighbor(rng, found[-1])) is not None:
                assert neighbor in task.space
                assert task.generate(neighbor).symbol != task.generate(found[-1]).symbol
                found.append(neighbor)
        return found

    assert drawn() == drawn()


def test_what_is_no_legal_list_of_steps_is_none_of_the_space(task):
    trace = print_steps(task.trace(task.default()))
    assert task.stepped(parse_steps(trace), "conv2d").default() in task.space
    for steps in ("unroll(nowhere)\n", trace + "block(n)\n"):
        assert Schedule.of("conv2d.steps", steps=steps) not in task.space
    assert Schedule.of("conv2d.steps", trace=trace) not in task.space
    assert Schedule.of("pool.steps", steps=trace) not in task.space
    assert Schedule.of("conv2d.steps", steps=trace) not in replace(task, site=Site(most_scratch=0)).space


def test_kernels_that_are_no_programs_are_not_mutated(task):
    generic = replace(task, families=("linalg",))
    assert generic.space.mutations.neighbor(random.Random(0), generic.default()) is None
