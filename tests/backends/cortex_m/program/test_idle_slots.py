"""Instructions moved to where nothing issues."""

from functools import partial
from random import Random

import pytest

from tosaic.backends.cores.cortex_m55 import PIPELINE
from tosaic.backends.cortex_m.program.block import BlockInstruction, InstructionBlock, advance
from tosaic.backends.cortex_m.program.block_cycles import loop_cycles
from tosaic.backends.cortex_m.program.dependences import Dependences
from tosaic.backends.cortex_m.program.idle_slots import IdleSlots
from tosaic.backends.cortex_m.program.list_scheduler import allocated
from tosaic.backends.cortex_m.program.order_timing import OrderTiming
from tosaic.backends.simulators.cycle_model import decoder
from tosaic.support.errors import BackendError

# Four products of a vector, of which two stand side by side, and two loads.
BODY = (
    BlockInstruction("vldrb.u8", "{x}, [{p}, #16]", ("x",)),
    BlockInstruction("vmlava.s8", "{s}, {x}, {x}", ("s",), ("s",)),
    BlockInstruction("vmlava.s8", "{t}, {x}, {x}", ("t",), ("t",)),
    BlockInstruction("vldrb.u8", "{y}, [{p}], #32", ("y", "p"), ("p",)),
    BlockInstruction("vmlava.s8", "{s}, {y}, {y}", ("s",), ("s",)),
    BlockInstruction("vmlava.s8", "{t}, {y}, {y}", ("t",), ("t",)),
    BlockInstruction("subw", "{n}, {n}, #1", ("n",), ("n",)),
)
REGISTERS = {"p": "r1", "s": "r0", "t": "r2", "n": "r3"}


def _graph(vectors=("q0", "q1"), body=BODY) -> Dependences:
    return Dependences(InstructionBlock(tuple(body), REGISTERS, vectors), decoder(PIPELINE), 0)


def _filled(graph: Dependences, iterations: int, given=None) -> tuple[tuple[int, ...], int, int]:
    given = tuple(range(len(graph.nodes))) if given is None else given
    allocate = partial(allocated, graph)
    order, registers = IdleSlots(graph, PIPELINE, iterations, allocate).filled(given, allocate(given))
    before, after = (
        loop_cycles(graph.iteration(each, named), PIPELINE, iterations)
        for each, named in ((given, allocate(given)), (order, registers))
    )
    return order, before, after


@pytest.mark.parametrize("iterations", [2, 16])
def test_products_take_turns_with_what_is_no_product_across_iterations(iterations):
    order, before, after = _filled(_graph(), iterations)
    assert before >= 9 * iterations
    assert after <= 8 * iterations + 2  # four products hold their pipe for two cycles each
    assert sorted(order) == list(range(len(BODY)))


def test_code_that_is_no_loop_is_filled_too():
    _, before, after = _filled(_graph(), 1)
    assert after < before


def test_an_order_stays_where_registers_do_not_hold_another_one():
    graph, given = _graph(), tuple(range(len(BODY)))

    def refuse(order):
        raise BackendError("none")

    assert IdleSlots(graph, PIPELINE, 16, refuse).filled(given, {0: "q0"}) == (given, {0: "q0"})


def test_no_instruction_passes_one_that_it_depends_on():
    graph = _graph()
    order, *_ = _filled(graph, 16)
    place = {number: at for at, number in enumerate(order)}
    assert all(place[needed] < place[number] for number, node in enumerate(graph.nodes) for needed in node.needs)


def test_values_of_the_next_iteration_are_those_of_this_one():
    graph = Dependences(InstructionBlock(BODY, REGISTERS, ("q0", "q1")), decoder(PIPELINE), 1)
    ahead = graph.nodes[-1].decoded[-1]
    assert ahead.writes == ("0",)
    assert "0" in graph.nodes[0].decoded[-1].reads


def test_additions_of_16_bits_come_beside_each_other_and_issue_together():
    body = (
        BlockInstruction("vldrb.u8", "{x}, [{p}]", ("x",)),
        *advance("p", 32, narrow=True),
        BlockInstruction("vmlava.s8", "{s}, {x}, {x}", ("s",), ("s",)),
        BlockInstruction("vldrb.u8", "{y}, [{n}]", ("y",)),
        BlockInstruction("vmlava.s8", "{s}, {y}, {y}", ("s",), ("s",)),
        *advance("n", -32, narrow=True),
    )
    assert [each.mnemonic for each in body if "v" not in each.mnemonic] == ["adds.n", "subs.n"]
    order, before, after = _filled(_graph(body=body), 16)
    assert abs(order.index(1) - order.index(5)) == 1
    assert (before, after) == (16 * 6, 16 * 5)


def test_a_pipe_that_the_end_of_an_iteration_holds_delays_the_next_one():
    graph = _graph(body=(*BODY[:3], BlockInstruction("vldrb.u8", "{y}, [{p}]", ("y",))))
    _, before, _ = _filled(graph, 10)
    assert before == 10 * 6 - 1  # the last load and the first one use one pipe
    timing = OrderTiming(graph.nodes, PIPELINE, 10, (0, 1, 2, 3))
    assert (timing.cycles, timing.late[0]) == (before, 0)


@pytest.mark.parametrize("iterations", [1, 2, 16])
def test_an_order_is_timed_from_where_it_differs_as_if_it_were_timed_whole(iterations):
    nodes, random, fewest = _graph(body=(*BODY[:6], *BODY)).nodes, Random(0), 0
    order = tuple(range(len(nodes)))
    timing = OrderTiming(nodes, PIPELINE, iterations, order)
    for _ in range(200):
        first, last = sorted(random.choices(order, k=2))
        other = (*order[:first], *random.sample(order[first : last + 1], last + 1 - first), *order[last + 1 :])
        cycles, timed = timing.of(other, first, last)
        assert cycles == OrderTiming(nodes, PIPELINE, iterations, other).cycles
        fewest += timed < (len(order) - first) + (min(iterations, 2) - 1) * len(order)
    assert fewest > 50
