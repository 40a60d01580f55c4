"""Kernels written by hand, tried on the simulator: what is wrong is told, and what does not fit is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tosaic.backends.simulators.trial_examples import Example
from tosaic.kernels import Kernel, attempt, primitives
from tosaic.support.errors import Error

SCALED = """
out: i8[8] in out
factor: i8[] in const
a: i8[8] in in
for x < 8:
  out[x] = sat8(a[x] * factor)
"""
INPUT = np.arange(-4, 4) * 9


@pytest.fixture(scope="module")
def scaled() -> Kernel:
    return Kernel.written(SCALED, {"factor": np.array(4)}, {"a": INPUT})


def test_a_kernel_means_what_its_program_says_on_the_simulator_too(scaled):
    assert [b.name for b in scaled.program.arguments] == ["a", "out", "factor"]
    assert scaled.tried[0].outputs[0].tolist() == np.clip(4 * INPUT, -128, 127).tolist()
    plain, unrolled = (attempt(scaled, steps, "stm32f446") for steps in ("", "split(x, xi, 4)\nunroll(xi)"))
    assert plain.exact and unrolled.exact and 0 < unrolled.instructions < plain.instructions
    assert unrolled.listing.endswith("    out[4 * x + xi] = sat8(mul(a[4 * x + xi], factor))\n")
    assert unrolled.cycles is not None and unrolled.cycles > 0
    assert unrolled.features["estimate"] > 0 and "@SYMBOL@" in unrolled.text


def test_a_core_with_a_cycle_model_tells_cycles(scaled):
    tried = attempt(scaled, "", "cortex-m55")
    assert tried.exact and tried.cycles is not None and tried.cycles > 8


def test_what_does_not_come_out_right_is_not_exact(scaled):
    (right,) = scaled.tried
    wrong = replace(scaled, tried=[Example(right.inputs, (right.outputs[0] + np.int8(1),))])
    tried = attempt(wrong, "", "stm32f446")
    assert (tried.exact, tried.message, tried.instructions) == (False, "output 0 differs at byte 0", 0)


@pytest.mark.parametrize(
    "program, constants, inputs, message",
    [
        (SCALED, {}, {"a": INPUT}, "there is no array for `factor`"),
        (SCALED, {"factor": np.array(4), "f": INPUT}, {"a": INPUT}, "there is no buffer in `const` `f`"),
        (SCALED, {"factor": np.array(200)}, {"a": INPUT}, "`factor: i8[] in const` does not hold 200 to 200"),
        (SCALED, {"factor": np.array(4)}, {"a": INPUT[:4]}, "`a: i8[8] in in` takes no int64[4]"),
        (SCALED, {"factor": np.array(0.5)}, {"a": INPUT}, "`factor: i8[] in const` takes no float64[]"),
        (SCALED.replace("sat8", ""), {"factor": np.array(9)}, {"a": INPUT}, "-324 does not fit out"),
        (SCALED.replace("x < 8", "x < 4"), {"factor": np.array(4)}, {"a": INPUT}, "nobody wrote all of out"),
        (SCALED.replace("factor)", "b[x])"), {"factor": np.array(4)}, {"a": INPUT}, "there is no `b`"),
        (SCALED.replace("a[x] *", "a[y] *"), {"factor": np.array(4)}, {"a": INPUT}, "there is no `y`"),
        (SCALED.replace("sat8", "sat9"), {"factor": np.array(4)}, {"a": INPUT}, "there is no `sat9`"),
        (SCALED.replace("i8[] in", "i9[] in"), {"factor": np.array(4)}, {"a": INPUT}, "it holds i8, i16, i32, i64,"),
        (SCALED.replace("for x", "each x"), {"factor": np.array(4)}, {"a": INPUT}, "the text is no program"),
    ],
)  # fmt: skip
def test_programs_and_arrays_that_do_not_fit(program, constants, inputs, message):
    with pytest.raises(Error) as refused:
        Kernel.written(program, constants, inputs)
    assert message in str(refused.value)


def test_every_primitive_says_what_it_does_in_a_sentence_that_begins_with_an_example():
    for name, meaning in primitives().items():
        assert meaning.startswith(f"`{name}(") and "`: " in meaning and meaning.endswith((".", "..."))
