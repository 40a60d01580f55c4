import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from synthetic import Gemm, record

from tosaic.tuner.cost_model import ENOUGH_SAMPLES, CostModel
from tosaic.tuner.space import Schedule


@dataclass(frozen=True)
class Promising(Gemm):
    """Its features promise what a schedule costs, but for the order of its loops."""

    promise: str = "nest.estimate"

    def features(self, schedule: Schedule) -> Mapping[str, float]:
        if schedule.variant == "library":
            return super().features(schedule)
        ordered = Schedule.of("tiled", **{**dict(schedule.knobs), "order": "ikj"})
        return {**super().features(schedule), self.promise: self.cost(ordered)}


def _schedules(task, count, seed):
    rng = random.Random(seed)
    return [task.space.sample(rng) for _ in range(count)]


def _trained(task, count, seed=0):
    model = CostModel(seed)
    for schedule in _schedules(task, count, seed=1):
        model.observe(record(task, schedule, task.cost(schedule)), task.cost(schedule))
    return model


def _score(model, task, probe) -> np.ndarray:
    scores = model.score(task, probe)
    assert scores is not None
    return scores


def _rank_correlation(scores, costs):
    return np.corrcoef(np.argsort(np.argsort(scores)), np.argsort(np.argsort(-np.array(costs))))[0, 1]


def test_it_says_nothing_until_it_has_seen_enough():
    task = Gemm()
    probe = _schedules(task, 3, seed=2)
    assert _trained(task, ENOUGH_SAMPLES - 1).score(task, probe) is None
    assert len(_score(_trained(task, ENOUGH_SAMPLES), task, probe)) == 3


def test_it_ranks_schedules_it_has_not_seen():
    task = Gemm()
    probe = _schedules(task, 300, seed=2)
    scores = _score(_trained(task, 400), task, probe)
    assert _rank_correlation(scores, [task.cost(s) for s in probe]) > 0.8


def test_a_new_task_profits_from_its_kin():
    other = Gemm(512)
    probe = _schedules(other, 300, seed=2)
    scores = _score(_trained(Gemm(64), 400), other, probe)
    assert _rank_correlation(scores, [other.cost(s) for s in probe]) > 0.8


def test_what_is_known_of_other_tasks_serves_before_the_first_trial():
    known, other = Gemm(64), Gemm(512)
    model, probe = CostModel(0), _schedules(other, 300, seed=2)
    model.start_from((record(known, s, known.cost(s)), known.cost(s)) for s in _schedules(known, 400, seed=1))
    assert _rank_correlation(_score(model, other, probe), [other.cost(s) for s in probe]) > 0.8
    before = _score(model, other, probe)
    for schedule in _schedules(other, ENOUGH_SAMPLES, seed=3):
        model.observe(record(other, schedule, other.cost(schedule)), other.cost(schedule))
    assert not np.array_equal(_score(model, other, probe), before)  # it learns from the first trials


def test_equal_observations_and_seed_predict_equally():
    task = Gemm()
    probe = _schedules(task, 50, seed=2)
    first, second = (_score(_trained(task, 100, seed=7), task, probe) for _ in range(2))
    assert np.array_equal(first, second)


def test_failures_are_ranked_last():
    task, model = Gemm(), CostModel(0)
    for schedule in _schedules(task, 300, seed=1):
        packed = dict(schedule.knobs).get("pack", True)
        cost = task.cost(schedule) if packed else math.inf
        model.observe(record(task, schedule, cost), cost)
    probe = [s for s in _schedules(task, 200, seed=2) if s.variant == "tiled"]
    scores = _score(model, task, probe)
    packed = np.array([s["pack"] for s in probe])
    assert scores[~packed].max() < np.median(scores[packed])


@pytest.mark.parametrize("promise", ["estimate", "nest.estimate", "nest.estimate_with_waits"])
def test_promises_rank_schedules_before_the_first_trial(promise):
    task = Promising(promise=promise)
    probe = _schedules(task, 300, seed=2)
    scores = _score(CostModel(0), task, probe)
    promised = [s.variant == "tiled" for s in probe]
    costs = [task.cost(s) for s in probe]
    assert _rank_correlation(scores[promised], np.array(costs)[promised]) > 0.9


def test_the_greatest_promise_counts():
    class Waiting(Promising):
        def features(self, schedule):
            counts = dict(super().features(schedule))
            return {"nest.estimate_with_waits": counts["nest.estimate"], "nest.estimate": 1.0}

    probe = [s for s in _schedules(Promising(), 100, seed=2) if s.variant == "tiled"]
    waiting, promising = (_score(CostModel(0), task, probe) for task in (Waiting(), Promising()))
    assert np.array_equal(waiting, promising)


def test_few_trials_teach_what_promises_miss():
    task, model = Promising(), CostModel(0)
    for schedule in _schedules(task, 96, seed=1):
        model.observe(record(task, schedule, task.cost(schedule)), task.cost(schedule))
    probe = _schedules(task, 1000, seed=2)
    costs = [task.cost(s) for s in probe]
    assert _rank_correlation(_score(model, task, probe), costs) > 0.95
