import random

import pytest
from synthetic import Gemm

from tosaic.support.errors import Error
from tosaic.tuner.space import Schedule, Space, Variant

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
        schedule = space.mutate(rng, schedule)
        assert schedule in space


def test_a_mutation_changes_one_knob():
    space, rng = Gemm().space, random.Random(0)
    parent = Schedule.of("tiled", rows=1, columns=1, depth=1, unroll=1, prefetch=0, order="ijk", pack=False)
    for _ in range(100):
        assert len(set(space.mutate(rng, parent).knobs) - set(parent.knobs)) == 1


def test_a_sparse_space_is_sampled_all_over():
    rng = random.Random(0)
    space = Space((SPARSE,))
    assert len({space.sample(rng, attempts=2) for _ in range(400)}) == 20
    assert space.assignments == 8000


def test_next_legal_finds_each_and_goes_round():
    assert SPARSE.next_legal(0) == Schedule.of("sparse", a=0, b=0, c=0)
    assert SPARSE.next_legal(1) == Schedule.of("sparse", a=1, b=1, c=1)
    assert SPARSE.next_legal(7999) == Schedule.of("sparse", a=19, b=19, c=19)
    assert EMPTY.next_legal(1) is None


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
