"""Every operation is in C what the interpreter computes, on random numbers and the ends of their ranges."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from board import M3, M55, Case, run_cases

from tosaic.backends.cortex_m.program.interpret import interpreted
from tosaic.backends.cortex_m.program.kernel import Built
from tosaic.backends.cortex_m.program.ops import OPS
from tosaic.backends.cortex_m.program.print_c import Printer
from tosaic.backends.cortex_m.program.text import parse_program

ANY = (-(1 << 31), (1 << 31) - 1)
SHIFT = (0, 31)
RANGES = {
    "add": ((-(1 << 30), (1 << 30) - 1),) * 2,
    "sub": ((-(1 << 30), (1 << 30) - 1),) * 2,
    "mul": ((-(1 << 15), 1 << 15),) * 2,
    "select": ((0, 1), ANY, ANY),
    "abs": (ANY,),
    "bit_not": (ANY,),
    "clz": (ANY,),
    "quotient": (ANY, (1, (1 << 31) - 1)),
    "rest": (ANY, (1, (1 << 31) - 1)),
    "narrowed": (ANY,),
    "low": (ANY,),
    "low_half": (ANY,),
    "round_high_add": (ANY, ANY, (-(1 << 15), 1 << 15)),
    "sat8": (ANY,),
    "sat16": (ANY,),
    "asr": (ANY, SHIFT),
    "round_asr": (ANY, (1, 31)),
    "shift": (ANY, (-40, 40)),
    "round_shift": (ANY, (-40, 40)),
    "logical_shift": (ANY, (-40, 40)),
    "sat_shl": (ANY, (0, 30)),
    "clamp": (ANY, (-(1 << 31), 0), (0, (1 << 31) - 1)),
    "doubled_high": (ANY, (1 - (1 << 31), (1 << 31) - 1)),
    "round_doubled_high": (ANY, (1 - (1 << 31), (1 << 31) - 1)),
    "scale48": ((-(1 << 30), 1 << 30), ANY, (0, (1 << 15) - 1), (23, 62)),
    "scale32": (ANY, (0, (1 << 31) - 1), (31, 62)),
    "scale64": ((-(1 << 46), 1 << 46), (0, (1 << 15) - 1), (2, 47)),
}
"""Of the arguments, both ends included; of others two numbers of 32 bits."""
LONG = ("scale64",)
"""Those that take numbers of 64 bits."""
RANDOM = 64
FLOATS = {
    "at_least": ("f32", 2, "f32"),
    "at_most": ("f32", 2, "f32"),
    "max_nan": ("f32", 2, "f32"),
    "min_nan": ("f32", 2, "f32"),
    "max_number": ("f32", 2, "f32"),
    "min_number": ("f32", 2, "f32"),
    "neg": ("f32", 1, "f32"),
    "magnitude": ("f32", 1, "f32"),
    "floor": ("f32", 1, "f32"),
    "ceil": ("f32", 1, "f32"),
    "nearest": ("f32", 1, "i32"),
    "float": ("i32", 1, "f32"),
}
"""Operations on floats: what they take, how many of these, and what they give."""


def arguments_of(name: str, rng: np.random.Generator) -> np.ndarray:
    """Arguments in rows: all combinations of ends and their neighbors, then random ones."""
    ranges = RANGES.get(name, (ANY, ANY))
    ends = [sorted({low, min(low + 1, high), min(max(0, low), high), max(high - 1, low), high}) for low, high in ranges]
    random = np.stack([rng.integers(low, high + 1, RANDOM) for low, high in ranges], axis=1)
    found = np.concatenate([list(itertools.product(*ends)), random])
    return found.astype(np.int64 if name in LONG else np.int32)


@pytest.mark.parametrize(("names", "bench"), [(OPS.keys() - FLOATS, M3), (FLOATS, M55)], ids=["integers", "floats"])
def test_every_operation_is_what_the_interpreter_computes(names, bench, tmp_path):
    rng, cases = np.random.default_rng(0), list[Case]()
    for name in sorted(names):
        taken, arity, given = FLOATS.get(
            name, ("i64" if name in LONG else "i32", len(RANGES.get(name, (ANY, ANY))), "i32")
        )
        arguments = arguments_of(name, rng)[:, :arity]
        if taken == "f32":
            arguments = (arguments * np.array(2.0 ** rng.integers(-33, 1, arguments.shape))).astype(np.float32)
        count = len(arguments)
        call = f"{name}({', '.join(f'a[x, {number}]' for number in range(arity))})"
        tensors = f"a: {taken}[{count}, {arity}] in in\nout: {given}[{count}] in out\n"
        program = parse_program(f"{tensors}for x < {count}:\n  out[x] = {call}\n")
        source = Built(program, (), Printer(program).text, 0, 0, 0).source(name, {})
        cases.append(Case(source, [arguments], [interpreted(program, {"a": arguments})["out"]], name))
    assert [str(outcome) for outcome in run_cases(cases, tmp_path, bench=bench) if not outcome.exact] == []
