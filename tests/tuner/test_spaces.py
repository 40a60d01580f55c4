"""The benchmark of spaces, on those whose legal schedules are known."""

from __future__ import annotations

import importlib
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tosaic.tuner.space import Schedule, Space, Variant

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("spaces")


def ordered(size: int) -> Variant:
    """Three numbers below `size` in strictly rising order: size choose 3 of them."""
    numbers = tuple(range(size))
    return Variant("ordered", dict.fromkeys("abc", numbers), lambda k: int(k["a"]) < int(k["b"]) < int(k["c"]))


@dataclass(frozen=True)
class Known:
    space: Space
    key: str = "known"
    name: str = field(default="known")


def test_a_small_variant_is_enumerated(benchmark):
    found = benchmark.legal(ordered(20), random.Random(0))
    assert (found.number, found.error, len(found.found)) == (1140, 0, 1140)


def test_the_share_of_a_large_one_is_estimated_within_its_error(benchmark):
    """Of 40 estimates some 68 % are within a standard error, and their mean is the number."""
    known = 100 * 99 * 98 // 6
    found = [benchmark.legal(ordered(100), random.Random(seed)) for seed in range(40)]
    assert sum(each.number for each in found) / 40 == pytest.approx(known, rel=0.05)
    assert 18 <= sum(abs(each.number - known) < each.error for each in found) <= 37
    assert all(each.error < 0.1 * each.number for each in found)
    assert all(each.found[0]["a"] < each.found[0]["b"] < each.found[0]["c"] for each in found)


def test_where_nothing_legal_is_drawn_none_is_claimed(benchmark):
    never = Variant("never", dict.fromkeys("abc", tuple(range(100))), lambda _: False)
    found = benchmark.legal(never, random.Random(0))
    assert (found.number, found.error, found.found) == (0, 0, [])


def test_numbers_of_variants_add_up_and_programs_are_told_apart(benchmark):
    """Knob `b` is printed, `a` is not."""
    space = Space((Variant("one"), Variant("two", {"a": tuple(range(50)), "b": tuple(range(40))})))
    found = benchmark.size(
        Known(space), "label", lambda _, schedule: f"{schedule.variant} {dict(schedule.knobs).get('b')}"
    )
    assert (found.legal, found.error, found.assignments, found.printed) == (2001, 0, 2001, 50)
    assert found.programs <= 41
    assert found.changed / found.changes == pytest.approx(39 / 88, abs=0.2)
    assert found.row == f"| label | 2,001 | 2,001 | {found.programs} of 50 | {found.changed / found.changes:.2f} |"


def test_a_small_space_is_printed_whole(benchmark):
    found = benchmark.size(Known(Space((Variant("v", {"a": (1, 2, 3)}),))), "label", lambda _, s: str(s["a"]))
    assert (found.printed, found.programs, found.changes, found.changed) == (3, 3, 3, 3)


def test_one_change_is_legal_and_of_one_knob(benchmark):
    variant, rng = ordered(5), random.Random(0)
    schedule = Schedule.of("ordered", a=0, b=1, c=2)
    for _ in range(20):
        other = benchmark.one_change(Space((variant,)), schedule, rng)
        assert sum(other[knob] != schedule[knob] for knob in "abc") == 1
        assert variant.legal(dict(other.knobs))
    alone = Variant("alone", {"a": (1, 2)}, lambda k: k["a"] == 1)
    assert benchmark.one_change(Space((alone,)), Schedule.of("alone", a=1), rng) is None
