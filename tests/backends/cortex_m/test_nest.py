"""Nests, their primitives, traces and verifier, and the order that blocks of instructions get."""

from __future__ import annotations

import mve_layers
import numpy as np
import pytest
from board import run_cases
from golden_files import assert_golden

from tosaic.backends.cores.cortex_m55 import PIPELINE
from tosaic.backends.cortex_m.kernels import depthwise
from tosaic.backends.cortex_m.nest.nest import PRIMITIVES, Nest, NestPrimitive, parse_trace, print_trace
from tosaic.backends.cortex_m.nest.spaces import ISSUES
from tosaic.backends.cortex_m.program.block import BlockInstruction, InstructionBlock, with_late_loads
from tosaic.backends.cortex_m.program.list_scheduler import PRIORITIES, Issue, ordered
from tosaic.backends.simulators.cycle_model import decoder, issue_cycles
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Schedule

VECTORS = tuple(f"q{i}" for i in range(8))


def _depthwise() -> mve_layers.Layer:
    options = {"shifts": (31, 31), "pad": (1, 1, 1, 1)}
    return mve_layers.depthwise(np.random.default_rng(0), (1, 9, 5, 16), (3, 3), **options)


def test_a_line_that_is_no_step_is_refused():
    with pytest.raises(BackendError, match="`split sums` is not a step of a trace"):
        parse_trace("split sums")


NEST = Nest.of(sums={"x": 12, "n": 8, "k": 32}, out={"x": 12, "n": 8})


def test_a_trace_prints_parses_and_replays_to_the_same_nest():
    nest = NEST.apply("split", "out", "x", "xi", 4).apply("order", "out", "x", "n", "xi")
    nest = nest.apply("compute_at", "sums", "out", "x")
    text = print_trace(nest.trace)
    assert text.splitlines() == ["split(out, x, xi, 4)", "order(out, x, n, xi)", "compute_at(sums, out, x)"]
    assert NEST.replay(parse_trace(text)) == nest


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (("split", "sums", "x", "xi", 13), "`x` of 12 cannot be split by 13"),
        (("split", "sums", "z", "zi", 2), "stage `sums` has no loop `z`"),
        (("order", "sums", "x", "n"), "`order` names x, n of `sums`"),
        (("unroll", "sums", "x"), "`unroll` leaves a plain loop inside of a block"),
        (("fuse", "sums", "x", "k"), "`x` and `k` of `sums` cannot be fused"),
        (("hoist", "sums", 2), "`sums` has no hardware loop to hoist loads in"),
        (("issue", "sums", "longest", 8), "`sums` has no hardware loop, whose block is ordered"),
        (("tile", "sums", "x"), "schedule primitive `tile`"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_an_illegal_step_is_refused(step, message):
    with pytest.raises(Exception, match="^.*" + message.replace("(", r"\(")):
        NEST.apply(*step)


def test_split_and_order_keep_the_parts_of_an_axis_in_order():
    split = NEST.apply("split", "sums", "x", "xi", 3)
    assert [(loop.name, loop.turns) for loop in split.stages["sums"]] == [("x", 4), ("xi", 3), ("n", 8), ("k", 32)]
    with pytest.raises(BackendError, match="an inner loop over `x` of `sums` would stand outside of an outer one"):
        split.apply("order", "sums", "xi", "x", "n", "k")


def test_compute_at_shrinks_a_stage_to_what_its_consumer_reads():
    nest = (
        NEST.apply("split", "out", "x", "xi", 4)
        .apply("order", "out", "x", "n", "xi")
        .apply("compute_at", "sums", "out", "x")
    )
    assert {loop.axis: loop.extent for loop in nest.stages["sums"]} == {"x": 4, "n": 8, "k": 32}


def test_a_new_primitive_is_one_class():
    class Reverse(NestPrimitive):
        name = "reverse"

        def apply(self, nest, *arguments):
            return nest.with_loops(str(arguments[0]), reversed(nest.stages[str(arguments[0])]))

    PRIMITIVES.register(Reverse)
    try:
        nest = NEST.apply("reverse", "out")
    finally:
        del PRIMITIVES._known["reverse"]
    assert [loop.name for loop in nest.stages["out"]] == ["n", "x"]
    assert str(nest.trace[0]) == "reverse(out)"


def test_an_opening_is_executed_a_turn_ahead_and_the_last_turn_begins_no_other():
    opening = (BlockInstruction("vldrw.u32", "{v}, [{p}], #16", ("v", "p"), ("p",)),)
    body = (
        BlockInstruction("vadd.i32", "{v}, {v}, {v}", ("v",), ("v",)),
        BlockInstruction("vstrw.32", "{v}, [{o}], #16", ("o",), ("o",)),
    )
    found = ordered(InstructionBlock(body, {"p": "r0", "o": "r1"}, VECTORS, opening), PIPELINE)
    assert found.entry == ("vldrw.u32 q0, [r0], #16",)
    assert set(found.last) == {"vadd.i32 q0, q0, q0", "vstrw.32 q0, [r1], #16"}
    assert found.turn == (*found.last, *found.entry)


def _register_block(vectors: int) -> InstructionBlock:
    """Three pixels times two channels over all of a depth of `vectors`."""
    sums = {f"s{r}{c}": f"r{2 * (2 * r + c)}" for r in range(3) for c in range(2)}
    code = []
    for k in range(vectors):
        for c in range(2):
            if c == 0:
                code += [
                    BlockInstruction("vldrw.u32", f"{{x{r}}}, [{{p}}, #{64 * r + 16 * k}]", (f"x{r}",))
                    for r in range(3)
                ]
            code.append(BlockInstruction("vldrb.u8", f"{{w{c}}}, [{{w}}], #16", (f"w{c}", "w"), ("w",)))
            for r in range(3):
                cell = f"s{r}{c}"
                mnemonic = "vmladava.s8" if k else "vmladav.s8"
                keeps = (cell,) if k else ()
                code.append(BlockInstruction(mnemonic, f"{{{cell}}}, {{x{r}}}, {{w{c}}}", (cell,), keeps))
    code += [BlockInstruction("strd", f"{{s{r}0}}, {{s{r}1}}, [{{a}}, #{256 * r}]") for r in range(3)]
    return InstructionBlock(tuple(code), {**sums, "p": "r1", "w": "r3", "a": "r5"}, VECTORS)


@pytest.mark.parametrize("vectors", [1, 4, 9])
def test_the_order_of_a_register_block_keeps_the_multiplier_busy(vectors):
    """Six products a vector hold the multiplier for two cycles each; at most six cycles of a turn are lost."""
    decode = decoder(PIPELINE)

    def steady(hoisted, pipeline):
        found = ordered(_register_block(vectors), pipeline, hoisted)
        turn = [decode(line.split(" ", 1)[0], line.split(" ", 1)[1], 4) for line in found.turn]
        return (issue_cycles(turn * 4, PIPELINE) - issue_cycles(turn * 2, PIPELINE)) / 2

    assert steady(2, PIPELINE) <= 12 * vectors + 6
    assert steady(0, None) > 14 * vectors


@pytest.mark.parametrize(("priority", "first"), [("first", "vstrw.32 q0, [r0]"), ("longest", "vmul.i32 q1, q1, q1")])
def test_what_is_issued_first_is_a_choice(priority, first):
    """A store could start at once, and so could a product that two more wait for."""
    code = (
        BlockInstruction("vstrw.32", "{x}, [{o}]"),
        BlockInstruction("vmul.i32", "{y}, {y}, {y}", ("y",), ("y",)),
        BlockInstruction("vmul.i32", "{y}, {y}, {y}", ("y",), ("y",)),
        BlockInstruction("vstrw.32", "{y}, [{o}, #16]"),
    )
    registers = {"x": "q0", "y": "q1", "o": "r0"}
    found = ordered(InstructionBlock(code, registers, VECTORS[2:]), PIPELINE, issue=Issue(priority))
    assert found.turn[0] == first
    assert sorted(found.turn) == sorted(ordered(InstructionBlock(code, registers, VECTORS[2:]), None).turn)


def test_a_small_window_keeps_the_order_that_is_given():
    block = _register_block(4)
    given = ordered(block, None).turn
    assert ordered(block, PIPELINE, issue=Issue("longest", 1)).turn == given
    assert ordered(block, PIPELINE, issue=Issue("longest", 8)).turn != given


def test_an_unknown_priority_is_refused():
    nest = NEST.apply("turn", "sums", "k")
    with pytest.raises(BackendError, match="no order is by `luck` of 8"):
        nest.apply("issue", "sums", "luck", 8)
    assert all(nest.apply("issue", "sums", priority, 8) for priority in PRIORITIES)


def test_every_order_of_a_turn_computes_the_same(tmp_path):
    layer, family = _depthwise(), depthwise.Depthwise()
    default = layer.space(family).default()
    cases = [layer.case(family, Schedule.of(default.variant, **dict(default.knobs) | {"issue": o})) for o in ISSUES]
    assert all(outcome.exact for outcome in run_cases(cases, tmp_path))
    assert len({case.source.text for case in cases}) > len(ISSUES) / 2


def test_vectors_that_do_not_fit_are_refused():
    loads = [BlockInstruction("vldrw.u32", f"{{x{i}}}, [{{p}}, #{16 * i}]", (f"x{i}",)) for i in range(9)]
    sums = [BlockInstruction("vadd.i32", f"{{x0}}, {{x0}}, {{x{i}}}", ("x0",), ("x0",)) for i in range(8, 0, -1)]
    with pytest.raises(BackendError, match="the vectors of a turn do not fit the registers"):
        ordered(InstructionBlock((*loads, *sums), {"p": "r0"}, VECTORS), None)


def test_a_gather_gets_a_register_apart_from_its_offsets():
    code = (
        BlockInstruction("vldrb.u8", "{x}, [{p}]", ("x",)),
        BlockInstruction("vldrb.u8", "{y}, [{t}, {x}]", ("y",), apart=True),
        BlockInstruction("vstrb.8", "{y}, [{o}]"),
    )
    found = ordered(InstructionBlock(code, {"p": "r0", "t": "r1", "o": "r2"}, VECTORS), PIPELINE)
    target, offsets = found.turn[1].removeprefix("vldrb.u8 ").rstrip("]").split(", [r1, ")
    assert target != offsets


def test_hoisted_loads_are_those_of_the_next_turn():
    code = (
        BlockInstruction("vldrw.u32", "{x}, [{p}], #16", ("x", "p"), ("p",)),
        BlockInstruction("vadd.i32", "{x}, {x}, {x}", ("x",), ("x",)),
        BlockInstruction("vstrw.32", "{x}, [{o}], #16", ("o",), ("o",)),
    )
    found = ordered(InstructionBlock(code, {"p": "r0", "o": "r1"}, VECTORS), PIPELINE, 1)
    assert len(found.entry) == 1
    assert found.turn[-1] == found.entry[0] == "vldrw.u32 q0, [r0], #16"


def test_the_c_of_one_schedule_stays_what_it_is(tmp_path):
    """Golden C of the default schedule."""
    case = _depthwise().case(depthwise.Depthwise())
    assert run_cases([case], tmp_path)[0].exact
    assert_golden("depthwise_conv2d.c", case.source, "INLINE void")


def test_late_loads_stand_where_they_are_read_and_keep_the_order_of_a_pointer():
    def load(to: str, pointer: str) -> BlockInstruction:
        return BlockInstruction("vldrw.u32", f"{{{to}}}, [{{{pointer}}}], #16", (to, pointer), (pointer,))

    def add(to: str, *operands: str) -> BlockInstruction:
        return BlockInstruction("vadd.i32", f"{{{to}}}, " + ", ".join(f"{{{name}}}" for name in operands), (to,))

    code = [load("a", "p"), load("b", "p"), load("c", "r"), add("d", "c", "c"), add("e", "d", "b"), add("f", "e", "a")]
    late = with_late_loads(code, {"p", "r"})
    assert [instruction.writes[0] for instruction in late] == ["c", "d", "a", "b", "e", "f"]
