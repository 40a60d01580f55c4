"""Pointers of a block: each access finds its address, in every iteration, however pointers move."""

from __future__ import annotations

import random
import re
from collections.abc import Hashable

import pytest

from tosaic.backends.cortex_m.isa.isa import rows_of
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.pointer_uses import PointerUse
from tosaic.backends.cortex_m.program.pointers import SPREADS, WAYS, Pointers, planned
from tosaic.backends.cortex_m.program.tree import For, Seq

ROWS = {row.name: row for row in rows_of("mve")}
ITERATIONS = 4


def use(number: int, const: int, stride: int = 0, *, row: str = "vldrw.i8", iterations: bool = True) -> PointerUse:
    return PointerUse(number, "a", Affine.of("x") * stride + const, ROWS[row], iterations=iterations)


def reached(plan: Pointers, uses: list[PointerUse]) -> list[tuple[Hashable, int]]:
    """The number of each access and the address that it has, in the order of execution: those before a loop, its
    iterations, those behind."""
    at = {name: start.const for name, (_, start) in plan.starts.items()}
    first = next((n for n, each in enumerate(uses) if each.iterations), len(uses))
    behind = next((n for n in range(len(uses), first, -1) if uses[n - 1].iterations), first)
    found = list[tuple[Hashable, int]]()

    def run(some: list[PointerUse]) -> None:
        for each in some:
            address = plan.addresses[each.key]
            found_text = re.fullmatch(r"\[\{\w+\}(?:, #(-?\d+))?\](?:, #(-?\d+))?", address.text)
            assert found_text is not None
            place, moved = int(found_text[1] or 0), found_text[2]
            assert moved or each.row.reach[0] <= place <= each.row.reach[1]
            found.append((each.key, at[address.pointer] + place))
            at[address.pointer] += int(moved or 0) + address.behind

    run(uses[:first])
    for _ in range(ITERATIONS):
        run(uses[first:behind])
        for pointer, distance in plan.advances.items():
            at[pointer] += distance
    run(uses[behind:])
    return found


def wanted(uses: list[PointerUse]) -> list[tuple[Hashable, int]]:
    first = [each for n, each in enumerate(uses) if not each.iterations and not any(u.iterations for u in uses[:n])]
    inside, last = [u for u in uses if u.iterations], [u for u in uses if not u.iterations and u not in first]
    inner = [(u.key, u.where.at({"x": iteration}).const) for iteration in range(ITERATIONS) for u in inside]
    return [*((u.key, u.where.const) for u in first), *inner, *((u.key, u.where.const) for u in last)]


CASES = {
    "far from each other, some before the loop": [use(0, 0, iterations=False), use(1, 960, iterations=False)]
    + [use(2 + n, at) for n, at in enumerate((16, 976, 1936, 32))],
    "some behind the loop": [
        use(0, 700),
        use(1, 0),
        use(2, 1400),
        use(3, 64, iterations=False),
        use(4, 900, iterations=False),
    ],
    "the first is the only one that may move the pointer": [use(n, 4 * 900 * n, 8, row="str.near") for n in range(2)]
    + [use(2, 256, 8, row="str.near")],
    "no access moves as far": [use(n, 16 * n, 4000) for n in range(3)],
    "two vectors in each iteration": [use(0, 0, 32), use(1, 16, 32)],
}


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("name", CASES)
def test_accesses_find_their_addresses(name, spread):
    uses = CASES[name]
    assert reached(planned(uses, For("x", ITERATIONS, Seq(())), spread), uses) == wanted(uses)


@pytest.mark.parametrize("seed", range(20))
def test_accesses_of_random_places_find_their_addresses(seed):
    draw = random.Random(seed)
    stride = draw.choice((0, 0, 16, 48, 4000))
    around = [part for part in (0, 2) for _ in range(draw.randrange(3)) if not stride]
    parts = sorted([*around, *[1] * draw.randrange(1, 6)])
    uses = [use(n, 4 * draw.randrange(800), stride, iterations=part == 1) for n, part in enumerate(parts)]
    for spread in SPREADS:
        assert reached(planned(uses, For("x", ITERATIONS, Seq(())), spread), uses) == wanted(uses)


def test_one_pointer_reaches_both_ways():
    plan = planned([use(0, 0), use(1, 960)], For("x", ITERATIONS, Seq(())))
    assert [start.const for _, start in plan.starts.values()] == [508]


def gathers(*consts: int, stride: int = 4, row: str = "vldrw.i8.apart") -> list[PointerUse]:
    return [use(number, const, stride, row=row)._replace(lanes="apart") for number, const in enumerate(consts)]


def loop_of(extent: int) -> For:
    return For("x", extent, Seq(()), kind="hardware_loop")


FAR = (*range(0, 1280, 128), *range(768, 3072, 128))


@pytest.mark.parametrize(
    "consts, stride",
    [
        *((each, 4) for each in ((0, 512, 772), (0, 64, 128, 192), (508, 0), (0, 508), (16,), (0, 1016, 1516, 1024))),
        *(((0,), 512), ((0, 8), 2), (FAR, 4), (FAR, -2944)),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_a_vector_of_addresses_reaches_every_gather_of_each_iteration(consts, stride, way):
    uses = gathers(*consts, stride=stride)
    plan = planned(uses, loop_of(ITERATIONS), way=way)
    ((name, (_, start)),) = plan.starts.items()
    assert plan.lanes == {name: "apart"}
    assert plan.numbers == []
    assert {each.behind for each in plan.addresses.values() if each.behind} == {*plan.distances.values()}
    at = start.const
    for iteration in range(ITERATIONS):
        for each, const in zip(uses, consts, strict=True):
            address = plan.addresses[each.key]
            found = re.fullmatch(r"\[\{p0\}, #(-?\d+)\](!?)", address.text)
            assert found is not None
            assert address.of_lanes
            assert abs(int(found[1])) <= 508
            assert at + int(found[1]) == const + stride * iteration
            at += int(found[1]) if found[2] else address.behind


def test_additions_move_a_vector_of_addresses_where_no_gather_does():
    moved, added = (planned(gathers(*FAR), loop_of(ITERATIONS), way=way) for way in WAYS)
    assert [each.moves for each in moved.addresses.values()].count(True) == 6
    assert moved.distances == {"back_2304": -2304}
    assert not any(each.moves for each in added.addresses.values())
    assert [each.behind for each in added.addresses.values() if each.behind] == [1024, -256, 1024, 1024, -2812]


@pytest.mark.parametrize("consts, stride", [((0, 1028), 4), ((0, 6), 4), ((0, 4), 0)])
def test_where_a_vector_of_addresses_does_not_reach_gathers_have_pointers(consts, stride):
    plan = planned(gathers(*consts, stride=stride), loop_of(ITERATIONS))
    assert plan.lanes == {}
    assert not any(address.of_lanes for address in plan.addresses.values())


def test_gathers_whose_lanes_lie_differently_have_pointers():
    one, other = gathers(0, 64)
    assert planned([one, other._replace(lanes="else")], loop_of(ITERATIONS)).lanes == {}


def test_pointers_advance_in_16_bits_where_several_move_little_and_low_registers_are_left():
    plan = Pointers(advances={"p0": 1, "p1": -255, "p2": 256})
    assert [i.mnemonic for i in plan.advanced(lambda names: names != ["p0", "p1"])] == ["adds.n", "subs.n", "addw"]
    assert [i.mnemonic for i in plan.advanced(lambda names: True)] == ["addw", "subw", "addw"]
    alone = Pointers(advances={"p0": 1, "p2": 4096})
    assert [(i.mnemonic, i.operands) for i in alone.advanced(lambda names: False)] == [
        ("addw", "{p0}, {p0}, #1"), ("addw", "{p2}, {p2}, #4095"), ("addw", "{p2}, {p2}, #1")
    ]  # fmt: skip
