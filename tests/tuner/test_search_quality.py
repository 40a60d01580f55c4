"""The benchmark of search strategies, on spaces whose costs are known."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from synthetic import ENVIRONMENT, Convolution, Gemm, Line, analytic, record

from tosaic.tuner.database import Database

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("search_quality")


def trials_of(task):
    return lambda schedules: [record(task, schedule, task.cost(schedule)) for schedule in schedules]


@pytest.mark.parametrize("task", [Gemm(), Convolution(), Convolution(25, 256, 512), Convolution(49, 32, 17)])
def test_a_search_takes_a_fifth_of_the_trials_that_chance_takes(benchmark, task):
    assert task.space.assignments > 10**5
    found = benchmark.quality(task, trials_of(task), "evolutionary", 5000, range(5), 1000)
    assert found.share <= 0.2 and max(found.searched) < 1000


def test_what_chance_takes_is_what_random_trials_take(benchmark):
    task = Line("line", length=1000, valley=500, scale=1)
    found = benchmark.quality(task, trials_of(task), "random", 5000, range(40), 2000)
    assert found.by_chance == pytest.approx(500, rel=0.02)  # one of all
    assert found.share == pytest.approx(1, rel=0.25)


def test_no_trial_is_measured_twice(benchmark):
    measured = []

    def measure(task, schedules, best=None):
        measured.extend(schedules)
        return analytic(task, schedules)

    with Database(":memory:", ENVIRONMENT) as database, ThreadPoolExecutor(1) as pool:
        first, again = [
            benchmark.quality(
                Gemm(), benchmark.recorded(Gemm(), measure, pool, database), "evolutionary", 300, (0, 1), 200
            )
            for _ in range(2)
        ]
    assert first == again
    assert len(measured) == len(set(measured)) > 200
