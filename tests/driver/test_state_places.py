"""Where states lie: a new value is written over the old one where nothing reads that any more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tosaic.backends.cortex_m.kernel import KernelSource, Overlap
from tosaic.backends.firmware.program import (
    CalledMethod,
    CallSequence,
    Copy,
    Interface,
    KernelCall,
    NpuCall,
    Port,
    TensorBuffer,
)
from tosaic.compiler.state_places import with_states

OVER = (Overlap(0, 0),)


def call(inputs: str, output: str, in_place: Sequence[Overlap] = ()) -> KernelCall:
    return KernelCall(KernelSource(output, "c", "", in_place=tuple(in_place)), tuple(inputs.split()), (output,))


def kept(*calls, new: str = "new", output: str = "y", aliases=None, sizes=None) -> CallSequence:
    """A program with the input `x` and the state `old`, which takes the value `new`."""
    names = {"x", "old", *(name for each in calls for name in (*each.reads, *each.writes)), *(aliases or {})}
    buffers = {name: TensorBuffer(((sizes or {}).get(name, 8),), np.dtype(np.int8)) for name in names}
    state = Interface("state", "old")
    program = CallSequence(
        (Interface("x", "x"),), (Interface("y", output),), buffers, calls, aliases or {}, states=(state,)
    )
    made = with_states(program, [[Interface("state", new)]])
    made.check()
    return made


def assert_in_place(program: CallSequence, *names: str) -> None:
    assert not program.copies
    assert {program.storage(name) for name in names} == {"old"}


def assert_copied(program: CallSequence) -> None:
    assert program.storage("new") == "new" and Copy("new", "old", len(program.calls)) in program.copies


def test_what_a_call_writes_over():
    assert_in_place(kept(call("old x", "new", OVER), call("new", "y")), "new")


def test_what_is_written_once_all_is_read():
    assert_in_place(kept(call("old x", "window"), call("window", "new"), call("window", "y")), "new")


def test_views_lie_there_too():
    program = kept(
        call("seen x", "made", OVER), call("new", "y"), aliases={"seen": "old", "shown": "made", "new": "shown"}
    )
    assert_in_place(program, "made", "shown", "new")


def test_a_chain_of_writes():
    program = kept(call("old x", "one", OVER), call("one x", "two", OVER), call("two x", "new", OVER), call("x", "y"))
    assert_in_place(program, "one", "two", "new")


def test_a_chain_that_begins_behind_another_read():
    program = kept(
        call("old x", "one", OVER), call("old", "two"), call("one two", "three"), call("three x", "new", OVER),
        call("x", "y"),
    )  # fmt: skip
    assert_in_place(program, "three", "new")
    assert program.storage("one") == "one"


def test_a_value_between_that_is_read_again():
    program = kept(call("old x", "one", OVER), call("one x", "new", OVER), call("one", "y"))
    assert_in_place(program, "new")
    assert program.storage("one") == "one"


@pytest.mark.parametrize("calls", [
    pytest.param((call("old x", "new"), call("new", "y")), id="a call that reads on"),
    pytest.param((call("old old", "new", OVER), call("new", "y")), id="read twice"),
    pytest.param((call("old x", "new", (Overlap(0, 0, 8),)), call("new", "y")), id="must begin before"),
    pytest.param((call("old x", "new", (Overlap(1, 0),)), call("new", "y")), id="over the other input"),
    pytest.param((call("old x", "new", OVER), call("old", "y")), id="read behind"),
])  # fmt: skip
def test_an_old_value_that_is_needed_stays(calls):
    assert_copied(kept(*calls))


def test_a_result_that_is_the_old_value():
    program = kept(call("old x", "new", OVER), output="old")
    assert_copied(program)
    assert Copy("old", "y_given", 1) in program.copies


def test_a_result_that_is_the_new_value_lies_apart():
    assert_copied(kept(call("old x", "new", OVER), output="new"))


def test_one_value_for_two_states_and_states_that_change_places():
    names = ("x", "a", "b", "made", "y")
    buffers = {name: TensorBuffer((8,), np.dtype(np.int8)) for name in names}
    states = tuple(Interface(name, name) for name in "ab")
    calls = (call("a x", "made", OVER), call("x", "y"))
    program = CallSequence((Interface("x", "x"),), (Interface("y", "y"),), buffers, calls, states=states)
    both = with_states(program, [[Interface("a", "made"), Interface("b", "made")]])
    assert both.storage("made") == "a" and both.copies == (Copy("made", "b", 2),)
    swapped = with_states(program, [[Interface("a", "b"), Interface("b", "made")]])
    assert swapped.storage("made") == "made" and set(swapped.copies) == {Copy("b", "a", 2), Copy("made", "b", 2)}


def npu(bound: bool) -> NpuCall:
    ports = Port("old", 1, 0), Port("new", 3 if bound else 1, 0 if bound else 64)
    return NpuCall("npu", b"", b"", 128, 0, ports[:1], ports[1:])


def test_results_of_an_npu_are_copied_into_their_place():
    assert_in_place(kept(npu(False), call("new", "y")), "new")
    assert_copied(kept(npu(True), call("new", "y")))


def test_methods_take_states_one_behind_the_other():
    names = ("x", "z", "old", "entered", "first", "second", "y")
    buffers = {name: TensorBuffer((8,), np.dtype(np.int8)) for name in names}
    calls = (call("old x", "first", OVER), call("entered z", "second"), call("second", "y"))
    inputs, outputs = (Interface("x", "x"), Interface("z", "z")), (Interface("y", "y"),)
    methods = (CalledMethod("one", 0, 1, inputs[:1], ()), CalledMethod("two", 1, 3, inputs[1:], outputs))
    program = CallSequence(
        inputs, outputs, buffers, calls, {"entered": "old"}, (Interface("state", "old"),), methods=methods
    )
    made = with_states(program, [[Interface("state", "first")], [Interface("state", "second")]])
    made.check()
    assert made.storage("first") == "old" and made.copies_before(1) == ()
    assert made.copies_before(3) == (Copy("second", "old", 3),)
    swapped = with_states(program, [[Interface("state", "old")], [Interface("state", "first")]])
    assert swapped.copies == (Copy("first", "old", 3),)
