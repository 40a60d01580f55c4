"""Buffers of which is told where they lie in working memory, and inputs and outputs that are told to share memory."""

from __future__ import annotations

import numpy as np
import pytest

from tosaic.backends.cortex_m.kernel import Overlap
from tosaic.backends.cortex_m.program.check import check
from tosaic.backends.cortex_m.program.interpret import interpreted
from tosaic.backends.cortex_m.program.kernel import scheduled
from tosaic.backends.cortex_m.program.memory import scratch_bytes, scratch_offsets
from tosaic.backends.cortex_m.program.overlap import overlaps
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.schedule import parse_steps
from tosaic.backends.cortex_m.program.sketches.copies import copied_elements
from tosaic.backends.cortex_m.program.text import listing, parse_program
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.target_files.ready import find_target

M55, M4 = (find_target(name).core for name in ("cortex-m55", "cortex-m4"))


def moved_down(by: int, size: int = 192) -> Program:
    """Bytes are copied into working memory, move down there, and are put out."""
    return parse_program(
        f"x: i8[{size + by}] in in\ny: i8[{size}] in out\n"
        f"rows: i8[{size + by}] in scratch at 32\nfor a < {size + by}:\n  rows[a] = x[a]\n"
        f"kept: i8[{size}] in scratch at 32\nfor c < {size}:\n  kept[c] = rows[c + {by}]\n"
        f"for o < {size}:\n  y[o] = kept[o]"
    )


def test_what_lies_over_each_other_is_one_memory():
    program = moved_down(16)
    assert parse_program(listing(program)) == program
    assert scratch_offsets(program) == {"rows": 32, "kept": 32} and scratch_bytes(program) == 32 + 208
    x = np.arange(208).astype(np.int8)
    check(program, M55)
    np.testing.assert_array_equal(interpreted(program, {"x": x})["y"], x[16:])


def test_working_memory_stays_from_program_to_program():
    first = parse_program("x: i8[4] in in\nrows: i8[4] in scratch at 0\nfor a < 4:\n  rows[a] = x[a]")
    second = parse_program("y: i8[3] in out\nrows: i8[3] in scratch at 1\nfor a < 3:\n  y[a] = rows[a]")
    working = list[int | None]()
    interpreted(first, {"x": np.array([5, 6, 7, 8])}, working=working)
    np.testing.assert_array_equal(interpreted(second, {}, working=working)["y"], [6, 7, 8])
    with pytest.raises(ValueError, match="nobody wrote"):
        interpreted(second, {})


@pytest.mark.parametrize("by", [16, 32, 48, 64, 192])
def test_bytes_move_down_by_vectors_where_an_iteration_reads_what_none_wrote(by):
    steps = parse_steps("\n".join(copied_elements("rows", "c", 192, 1, M55, by)))
    assert "vldr" in scheduled(moved_down(by), steps, M55).text.lower()
    words = scheduled(moved_down(by), parse_steps("words(c)"), M4).text
    assert "memcpy(words, &rows" in words


def test_vectors_that_read_what_they_wrote_are_refused():
    steps = parse_steps("\n".join(copied_elements("rows", "c", 192, 1, M55)))
    with pytest.raises(RefusedError, match="reads of rows what it writes to kept"):
        scheduled(moved_down(16), steps, M55)


def test_only_bytes_of_working_memory_have_a_place():
    for text in ("y: i8[4] in out at 16", "y: i8[4] in out\nrows: i16[4] in scratch at 0"):
        with pytest.raises(RefusedError, match="no bytes of working memory"):
            check(parse_program(text), M55)


def test_what_is_told_to_share_memory_is_not_told_apart():
    program = parse_program("x: i8[80] in in\ny: i8[64] in out\nfor c < 64:\n  y[c] = x[c + 16]")
    told = Program(program.arguments, program.body, over=(Overlap(0, 0),))
    assert overlaps(told) == (Overlap(0, 0),)
    steps = parse_steps("\n".join(copied_elements("x", "c", 64, 1, M55)))
    scheduled(program, steps, M55)
    with pytest.raises(RefusedError, match="reads of x what it writes to y"):
        scheduled(told, steps, M55)
    assert "restrict y" not in scheduled(told, (), M55).text


def test_what_one_condition_leaves_bounds_what_stands_behind_it():
    text = (
        "x: i8[8] in in\ny: i8[8] in out\nfor n < 8:\n  if n + -4 >= 0:\n    y[n] = x[n]\n  else:\n    y[n] = x[n + {}]"
    )
    check(parse_program(text.format(4)), M55)
    with pytest.raises(RefusedError, match="outside of x"):
        check(parse_program(text.format(5)), M55)
