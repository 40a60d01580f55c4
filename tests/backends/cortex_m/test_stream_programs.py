"""Streams as programs: what they mean, where they copy, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from stream_meanings import kernels_of, meanings_of, results_of
from stream_plans import plans, sliding_plans

from tosaic.backends.cortex_m.program.check import check
from tosaic.backends.cortex_m.program.interpret import interpreted
from tosaic.backends.cortex_m.program.rewriting import with_accesses
from tosaic.backends.cortex_m.program.text import listing
from tosaic.backends.cortex_m.program.tree import Access, RefusedError
from tosaic.backends.cortex_m.streams.calls import StreamCalls
from tosaic.backends.cortex_m.streams.feeding import FedStream
from tosaic.backends.cortex_m.streams.memory import StreamMemory
from tosaic.backends.cortex_m.streams.pieces import Piece, Turns, pieces
from tosaic.backends.cortex_m.streams.plan import Plan
from tosaic.backends.cortex_m.streams.row_map import RowMap
from tosaic.backends.cortex_m.streams.stage import Argument, Stage
from tosaic.backends.cortex_m.streams.stream import Stream
from tosaic.target_files.ready import find_target

M55, M4 = (find_target(name).core for name in ("cortex-m55", "cortex-m4"))
RNG = np.random.default_rng(11)


def calls_of(plan: Plan, core=M55) -> StreamCalls:
    return StreamCalls(plan, StreamMemory(plan, kernels_of(plan), ()), core)


def image_of(stream: Stream) -> np.ndarray:
    (_, argument), *_ = stream.readers("x")
    return RNG.integers(-128, 128, (argument.height, argument.step)).astype(np.int8)


@settings(max_examples=60, deadline=None)
@given(plans())
def test_a_program_makes_the_rows_of_the_whole(plan):
    assume(plan.stream.parts == 1 or plan.rows == 1)
    image = image_of(plan.stream)
    program = calls_of(plan).whole.unscheduled
    check(program, M55)
    made = interpreted(program, {"in0": image.ravel()}, meanings_of(plan))["out0"]
    np.testing.assert_array_equal(made, results_of(plan.stream, {"x": image})[plan.stream.writes[-1]].ravel())


@settings(max_examples=25, deadline=None)
@given(plans())
def test_vectors_and_words_copy_what_loops_do(plan):
    """What lies over each other is told apart where much is moved at once."""
    for core in (M55, M4):
        calls = calls_of(plan, core)
        assert calls.source("stream", calls.whole).text


class Feeding:
    """Executes the programs of a stream that is fed, as what calls them does."""

    def __init__(self, plan: Plan) -> None:
        self._stream, self._meanings = FedStream(calls_of(plan)), meanings_of(plan)
        self._working, self._state = list[int | None](), [self._stream.steps.start, 0]
        self._run("begin")
        size = next(b.size for b in self._stream.step.unscheduled.arguments if b.memory == "out")
        self.result = np.zeros(size, np.int8)
        self._go_on()

    def take(self, row: np.ndarray) -> None:
        self._run("take", row=row)
        self._state[1] += 1
        self._go_on()

    def _go_on(self) -> None:
        stream = self._stream
        while self._state[0] < stream.turns.steps and self._state[1] == stream.needed[self._state[0]]:
            self.result = self._run("step", was_out0=self.result, out0=self.result)["out0"]
            last = self._state[0] >= stream.steps.stop - 1
            self._state = [self._state[0] + 1, 0]
            if self._state[0] == stream.turns.steps and stream.steps.stop < stream.turns.steps:
                self._state[0] -= stream.turns.phases
            if last:
                return

    def _run(self, name: str, **arrays: np.ndarray) -> dict[str, np.ndarray]:
        program = getattr(self._stream, name).unscheduled
        check(program, M55)
        turn, phase = divmod(self._state[0], self._stream.turns.phases)
        arrays["number"] = np.array([turn, phase, self._state[1]])
        known = {b.name: arrays[b.name] for b in program.arguments if b.name in arrays}
        return interpreted(program, known, self._meanings, self._working)


@settings(max_examples=40, deadline=None)
@given(plans("x"))
def test_rows_may_come_one_by_one(plan):
    image, run = image_of(plan.stream), Feeding(plan)
    for row in image:
        run.take(row)
    np.testing.assert_array_equal(run.result, results_of(plan.stream, {"x": image})[plan.stream.writes[-1]].ravel())


@settings(max_examples=40, deadline=None)
@given(sliding_plans())
def test_windows_move_on(plan):
    hop, windows = plan.units[0], 2 * (plan.slack + 2)
    image, run = image_of(plan.stream), Feeding(plan)
    frames = RNG.integers(-128, 128, (len(image) + hop * windows, image.shape[1])).astype(np.int8)
    for row in frames[: len(image)]:
        run.take(row)
    kept = -plan.stream.kept if plan.stream.kept else 0
    for window in range(windows + 1):
        seen = frames[hop * window :][: len(image)]
        np.testing.assert_array_equal(
            run.result.reshape(-1, 16), results_of(plan.stream, {"x": seen})[plan.stream.writes[-1]][kept:]
        )
        if window < windows:
            for row in frames[len(image) + hop * window :][:hop]:
                run.take(row)


def chain() -> Plan:
    """Two windows of three rows, with a row of padding around the image between them."""
    stages = (
        Stage(b"function", (Argument(RowMap(reach=3), 12, 16),), 10, 16),
        Stage(b"function", (Argument(RowMap(before=1, reach=3), 10, 16, padding=9),), 10, 16),
    )
    return Plan(Stream(stages, (("x",), ("a",)), ("a", "y"), ("x",), ("y",)), 2)


@pytest.mark.parametrize("by", [-16, 16, 1])
def test_a_wrong_row_of_a_window_is_refused(by):
    program = calls_of(chain()).whole.unscheduled
    check(program, M55)

    def moved(access: Access) -> Access:
        return Access(access.buffer, (access.index[0] + by,)) if access.buffer == "rows0" else access

    with pytest.raises(RefusedError, match="outside of rows0"):
        check(replace(program, body=with_accesses(program.body, moved)), M55)


def test_a_row_that_was_not_kept_is_missed():
    plan, image = chain(), RNG.integers(-128, 128, (12, 16)).astype(np.int8)
    program, meanings = calls_of(plan).whole.unscheduled, meanings_of(plan)
    right = interpreted(program, {"in0": image.ravel()}, meanings)["out0"]
    np.testing.assert_array_equal(right, results_of(plan.stream, {"x": image})["y"].ravel())

    def shifted(access: Access) -> Access:
        moved = access.buffer == "kept0" and access.index[0].terms
        return Access(access.buffer, (access.index[0] + 1,)) if moved else access

    wrong = replace(program, body=with_accesses(program.body, shifted))
    assert not np.array_equal(interpreted(wrong, {"in0": image.ravel()}, meanings)["out0"], right)


def test_steps_that_do_the_same_are_one_loop():
    """Of two rows each; the first stage is one step ahead."""
    text = listing(calls_of(chain()).whole.unscheduled)
    assert text.count("stage0_2(") == text.count("stage1_2(") == 1
    assert "for turn < 6:" in text


def test_numbers_that_go_along_are_one_piece():
    found = {0: [(0, 5)], 1: [(4, 5)], 2: [(8, 5)], 3: [(8, 6), (9, 7)], 5: [(0, 0)]}
    assert pieces(found) == [
        Piece(0, 2, 1, (0, 5), (4, 0), (0, 0)),
        Piece(3, 3, 2, (8, 6), (0, 0), (1, 1)),
        Piece(5, 5, 1, (0, 0), (0, 0), (0, 0)),
    ]


def test_every_other_step_is_a_phase_of_its_own():
    found = {step: [(16 * (step // 2) if step % 2 else 7,)] for step in range(10)}
    assert Turns.of(10, [found]) == Turns(10, 2)
    assert Turns.of(10, [{step: [(step,)] for step in range(10)}]) == Turns(10, 1)
