"""Instructions moved to where nothing issues."""

from functools import partial

import pytest

from tosaic.backends.cores.cortex_m55 import PIPELINE
from tosaic.backends.cortex_m.program.block import BlockInstruction, InstructionBlock
from tosaic.backends.cortex_m.program.dependences import Dependences
from tosaic.backends.cortex_m.program.idle_slots import IdleSlots
from tosaic.backends.cortex_m.program.list_scheduler import allocated, loop_cycles
from tosaic.backends.simulators.beats import beats_cycles
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


def _graph(vectors=("q0", "q1")) -> Dependences:
    return Dependences(InstructionBlock(BODY, REGISTERS, vectors), decoder(PIPELINE), 0)


def _filled(graph: Dependences, iterations: int) -> tuple[tuple[int, ...], int, int]:
    given = tuple(range(len(graph.nodes)))
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


def test_the_scoreboard_tells_when_instructions_issue():
    lines = [line for node in _graph().nodes for line in node.decoded]
    issues: list[int] = []
    assert beats_cycles(lines, PIPELINE, issues) == beats_cycles(lines, PIPELINE)
    assert issues == [0, 1, 3, 4, 5, 7, 8]


def test_values_of_the_next_iteration_are_those_of_this_one():
    graph = Dependences(InstructionBlock(BODY, REGISTERS, ("q0", "q1")), decoder(PIPELINE), 1)
    ahead = graph.nodes[-1].decoded[-1]
    assert ahead.writes == ("0",)
    assert "0" in graph.nodes[0].decoded[-1].reads
