"""Every operation is in C what the interpreter computes, on random numbers and the ends of their ranges."""

from __future__ import annotations

import itertools

import numpy as np
from board import M3, Case, run_cases

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
}
"""Of the arguments, both ends included; of others two numbers of 32 bits."""
RANDOM = 64
FLOATS = ("at_least", "at_most")
"""Operations on floats."""


def arguments_of(name: str, rng: np.random.Generator) -> np.ndarray:
    """Arguments in rows: all combinations of ends and their neighbors, then random ones."""
    ranges = RANGES.get(name, (ANY, ANY))
    ends = [sorted({low, min(low + 1, high), min(max(0, low), high), max(high - 1, low), high}) for low, high in ranges]
    random = np.stack([rng.integers(low, high + 1, RANDOM) for low, high in ranges], axis=1)
    return np.concatenate([list(itertools.product(*ends)), random]).astype(np.int32)


def test_every_operation_is_what_the_interpreter_computes(tmp_path):
    rng, cases = np.random.default_rng(0), list[Case]()
    for name in OPS:
        arguments, dtype = arguments_of(name, rng), "i32"
        if name in FLOATS:
            arguments, dtype = arguments.astype(np.float32), "f32"
        count, arity = arguments.shape
        call = f"{name}({', '.join(f'a[x, {number}]' for number in range(arity))})"
        tensors = f"a: {dtype}[{count}, {arity}] in in\nout: {dtype}[{count}] in out\n"
        program = parse_program(f"{tensors}for x < {count}:\n  out[x] = {call}\n")
        source = Built(program, (), Printer(program).text, 0, 0, 0).source(name, {})
        cases.append(Case(source, [arguments], [interpreted(program, {"a": arguments})["out"]], name))
    assert [str(outcome) for outcome in run_cases(cases, tmp_path, bench=M3) if not outcome.exact] == []
