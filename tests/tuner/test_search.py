import itertools
import math
import random
from collections import Counter
from functools import partial

import numpy as np
import pytest
from synthetic import POWERS, Gemm, Line, record

from tosaic.tuner.cost_model import CostModel
from tosaic.tuner.search.base import ENUMERABLE, STRATEGIES
from tosaic.tuner.search.evolutionary import CROWDING, Evolutionary
from tosaic.tuner.space import Schedule, Space, Variant

KINDS = ["evolutionary", "exhaustive", "random"]


def _search(kind, task, seed=0):
    model = CostModel(seed)
    score = partial(model.score, task) if STRATEGIES.find(kind).guided else lambda _: None
    return STRATEGIES.find(kind)(task.space, random.Random(seed), score), model


def _drive(kind, task, batches, size, cost):
    search, model = _search(kind, task)
    proposed = []
    for _ in range(batches):
        batch = search.propose(size)
        proposed.append(batch)
        for schedule in batch:
            search.observe(schedule, cost(schedule))
            model.observe(record(task, schedule, cost(schedule)), cost(schedule))
    return proposed


def test_the_table_holds_what_stands_in_the_folder():
    assert list(STRATEGIES.known()) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_space_is_proposed_whole_and_once(kind):
    task = Line("line", length=40)
    batches = _drive(kind, task, 6, 9, task.cost)
    assert [len(batch) for batch in batches] == [9, 9, 9, 9, 4, 0]
    flat = [schedule for batch in batches for schedule in batch]
    assert set(flat) == set(task.space.schedules()) and len(set(flat)) == 40


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_space_gives_only_new_legal_schedules(kind):
    task = Gemm()
    assert task.space.assignments > ENUMERABLE
    flat = [schedule for batch in _drive(kind, task, 12, 25, task.cost) for schedule in batch]
    assert len(flat) == len(set(flat)) == 300
    assert all(schedule in task.space for schedule in flat)


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_space_with_few_legal_schedules_is_known_to_end(kind):
    knobs = {name: tuple(range(30)) for name in "abc"}
    space = Space((Variant("diagonal", knobs, lambda k: k["a"] == k["b"] == k["c"]),))

    class Diagonal(Line):
        @property
        def space(self):
            return space

        def features(self, schedule):
            return {"a": float(schedule["a"])}

    assert space.assignments > ENUMERABLE
    batches = _drive(kind, Diagonal("diagonal"), 3, 20, lambda schedule: 1 + schedule["a"])
    assert [len(batch) for batch in batches] == [20, 10, 0]


def test_chance_finds_the_large_variant_among_many_small_ones():
    space = Space((*(Variant(f"v{i}") for i in range(7)), Gemm().space.variants[1]))
    search = STRATEGIES.find("random")(space, random.Random(0), lambda _: None)
    later = [search.propose(20) for _ in range(4)][-1]
    assert all(len({s[knob] for s in later}) > 2 for knob in ("rows", "columns", "depth", "prefetch"))


def test_observed_records_are_never_proposed():
    task = Line("line", length=30)
    for kind in KINDS:
        search, _ = _search(kind, task)
        known = list(task.space.schedules())[::2]
        for schedule in known:
            search.observe(schedule, 5.0)
        proposed = search.propose(100)
        assert len(proposed) == 15 and not set(proposed) & set(known)


def test_schedules_in_flight_are_not_proposed_again():
    task = Gemm()
    search, _ = _search("evolutionary", task)
    flying = [schedule for _ in range(10) for schedule in search.propose(20)]
    assert len(set(flying)) == 200


def test_the_default_and_each_variant_come_first():
    search, _ = _search("evolutionary", Gemm())
    assert [schedule.variant for schedule in search.propose(2)] == ["library", "tiled"]


def test_what_is_good_on_similar_tasks_comes_right_after_the_default():
    task = Gemm()
    hints = list(itertools.islice(task.space.variants[1].schedules(), 7, 10))
    search = STRATEGIES.find("evolutionary")(task.space, random.Random(5), lambda _: None, hints)
    assert search.propose(4) == [task.space.default(), *hints]


def _guided_by_rows(worth, count):
    """How often the model's picks have each number of rows, after one trial of every number but 64.

    Args:
        worth: the score of a number of rows, which is all that the model tells.
    """
    task = Gemm()

    def score(schedules):
        return np.array([worth(dict(schedule.knobs).get("rows")) for schedule in schedules])

    search = STRATEGIES.find("evolutionary")(task.space, random.Random(0), score)
    search.observe(task.space.default(), 1.0)
    first = dict(next(iter(task.space.variants[1].schedules())).knobs)
    for rows in set(POWERS) - {64}:
        search.observe(Schedule.of("tiled", **(first | {"rows": rows})), 1.0)
    assert isinstance(search, Evolutionary)
    return Counter(schedule["rows"] for schedule in search._guided(count, ()))


def test_schedules_that_the_model_cannot_tell_apart_take_turns_with_others_nearly_as_good():
    worth = {64: CROWDING / 2, 32: 0.0}
    assert _guided_by_rows(lambda rows: worth.get(rows, -1.0), 8) == Counter({64: 5, 32: 3})


def test_schedules_that_the_model_cannot_tell_apart_are_tried_where_the_others_are_worse():
    assert _guided_by_rows(lambda rows: 1.0 if rows == 32 else 0.0, 20) == Counter({32: 20})


def test_what_comes_first_has_descendants_before_it_is_measured():
    """The score knows nothing but the neighborhood of the hint, which chance does not hit."""
    task = Gemm()
    hint = Schedule.of("tiled", rows=64, columns=1, depth=1, unroll=8, prefetch=5, order="kji", pack=False)

    def score(schedules):
        alike = [sum(dict(s.knobs).get(knob) == value for knob, value in hint.knobs) for s in schedules]
        return np.array([float(count) if count >= 6 else 0.0 for count in alike])

    search = STRATEGIES.find("evolutionary")(task.space, random.Random(0), score, [hint])
    assert sum(score([schedule])[0] >= 6 for schedule in search.propose(10)) > 4


def test_equal_seeds_propose_equally():
    task = Gemm()
    assert _drive("evolutionary", task, 8, 20, task.cost) == _drive("evolutionary", task, 8, 20, task.cost)


def test_a_space_where_everything_fails_is_still_searched():
    batches = _drive("evolutionary", Gemm(), 6, 20, lambda _: math.inf)
    assert [len(batch) for batch in batches] == [20] * 6
