import random

import pytest
from synthetic import Gemm

from tosaic.support.errors import Error
from tosaic.tuner.space import DRAWS, STEPS, Schedule, Space, Variant

SPARSE = Variant("sparse", {name: tuple(range(20)) for name in "abc"}, lambda k: k["a"] == k["b"] == k["c"])
EMPTY = Variant("empty", {"a": (1, 2)}, lambda _: False)


def test_json_round_trip_keeps_types():
    schedule = Schedule.of("gemm", rows=4, order="ijk", pack=True)
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert schedule["pack"] is True and str(schedule) == "gemm(order=ijk, pack=True, rows=4)"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"variant": 3}', '{"variant": "a", "x": [1]}', '{"variant": "a", "x": 1.5}']
)
def test_what_is_not_a_schedule_is_refused(text):
    with pytest.raises(Error, match="not a schedule"):
        Schedule.from_json(text)


def test_samples_and_mutations_are_legal():
    space, rng = Gemm().space, random.Random(0)
    schedule = space.default()
    for _ in range(500):
        assert space.sample(rng) in space
        schedule = space.neighbor(rng, schedule) or schedule
        assert schedule in space


def test_a_neighbor_differs_in_one_knob():
    space, rng = Gemm().space, random.Random(0)
    parent = Schedule.of("tiled", rows=1, columns=1, depth=1, unroll=1, prefetch=0, order="ijk", pack=False)
    for _ in range(100):
        neighbor = space.neighbor(rng, parent)
        assert neighbor is not None and len(set(neighbor.knobs) - set(parent.knobs)) == 1


def test_a_neighbor_differs_in_two_knobs_where_one_alone_is_not_legal():
    tied = Variant("tied", {"a": tuple(range(4)), "b": tuple(range(4))}, lambda k: k["a"] == k["b"])
    space, rng = Space((tied,)), random.Random(0)
    found = {space.neighbor(rng, Schedule.of("tied", a=1, b=1)) for _ in range(100)}
    assert found == {Schedule.of("tied", a=x, b=x) for x in (0, 2, 3)} | {None}
    assert Space((Variant("alone"),)).neighbor(rng, Schedule("alone")) is None


def test_a_space_too_large_to_enumerate_with_few_legal_schedules_is_sampled_all_over():
    asked = 0

    def legal(knobs):
        nonlocal asked
        asked += 1
        return sum(value > 1 for value in knobs.values()) <= 3

    space, rng = Space((Variant("wide", {name: tuple(range(10)) for name in "abcdefghij"}, legal),)), random.Random(0)
    assert space.assignments == 10**10
    found = {space.sample(rng) for _ in range(300)}
    assert len(found) > 200 and all(len({s[knob] for s in found}) == 10 for knob in "abcdefghij")
    assert asked < 300 * STEPS * DRAWS


def test_the_first_legal_schedule_is_looked_for_so_long():
    assert SPARSE.first() == Schedule.of("sparse", a=0, b=0, c=0)
    assert EMPTY.first() is None
    wide = Variant("wide", {name: tuple(range(100)) for name in "abcd"}, lambda k: k["a"] == 99)
    assert wide.first() is None
    assert Space((wide, SPARSE)).default() == SPARSE.first()
    with pytest.raises(ValueError, match="a space without a legal schedule"):
        Space((wide, EMPTY)).default()


def test_variants_of_one_name_are_refused():
    with pytest.raises(ValueError, match="share a name"):
        Space((Variant("a"), Variant("a")))


def test_membership_needs_the_variant_its_knobs_and_legality():
    space = Space((SPARSE,))
    assert Schedule.of("sparse", a=1, b=1, c=1) in space
    assert Schedule.of("sparse", a=1, b=1, c=2) not in space
    assert Schedule.of("sparse", a=1, b=1) not in space
    assert Schedule.of("dense", a=1, b=1, c=1) not in space
    assert Schedule.of("sparse", a=99, b=99, c=99) not in space
