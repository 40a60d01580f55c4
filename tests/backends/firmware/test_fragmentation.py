"""Calls that fit one by one and not together are found, and how much of each is to blame."""

from __future__ import annotations

import pytest
from test_memory_plan import board, kernel, program

from tosaic.backends.cortex_m.kernel import Overlap
from tosaic.backends.firmware.fragmentation import fragmented
from tosaic.backends.firmware.memory_plan import plan_memory
from tosaic.support.errors import OutOfMemoryError

SIZE = 13_250
SIZES = {"w": 160, "x": 9408, "a": 4704, "b": 4704, "c": 7056, "d": 160}


def chain(scratch: tuple[int, ...]):
    """Three calls whose outputs begin before their inputs, between two that need little.

    `a` may lie over `x` if it begins before it, so low that the next call's working memory has to lie above them; `b`
    must then begin before `a`, and `c` 2016 bytes before `b`.
    """
    leads = (16, 336, 2016)
    calls = [kernel(["w"], ["x"])]
    names = zip("xab", "abc", scratch, leads, strict=True)
    calls += [kernel([read], [made], bytes_, [Overlap(0, 0, lead)]) for read, made, bytes_, lead in names]
    calls.append(kernel(["c"], ["d"]))
    return program(SIZES, calls, inputs=("w",), outputs=("d",))


def test_what_has_a_plan_has_no_gaps():
    few = chain((3296, 1024, 5424))
    assert plan_memory(few, board(SIZE)).arena_bytes <= SIZE
    assert fragmented(few, SIZE) is None


def test_the_fewest_calls_that_have_no_plan_together():
    many = chain((3296, 6512, 5424))
    with pytest.raises(OutOfMemoryError):
        plan_memory(many, board(SIZE))
    found = fragmented(many, SIZE)
    assert found is not None
    assert (found.first, len(found.surplus)) == (1, 3)


def test_what_is_no_surplus_is_to_blame():
    scratch = (3296, 6512, 5424)
    found = fragmented(chain(scratch), SIZE)
    assert found is not None
    before, worst, behind = found.surplus
    assert min(before, behind) > 0 == worst
    assert fragmented(chain((3296 - before, 6512, 5424 - behind)), SIZE) is not None
    assert fragmented(chain((3296, 1024, 5424)), SIZE) is None


def test_a_call_that_does_not_fit_by_itself_is_fragmented():
    found = fragmented(chain((3296, 6512, 5424)), 12_000)
    assert found is not None and len(found.surplus) == 1
