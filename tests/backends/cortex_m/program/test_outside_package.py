"""A primitive and an instruction set from an installed package change the code of a kernel, which stays exact."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trees
from board import M4, Case, run_cases
from drop_in import install
from trees import arrays_of, outputs

from tosaic.backends.cores.cortex_m4 import CORE
from tosaic.backends.cortex_m.isa.isa import ISAS
from tosaic.backends.cortex_m.program.kernel import Built, scheduled
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, parse_steps
from tosaic.backends.cortex_m.program.text import parse_program
from tosaic.support.errors import Error

EXCHANGED = '''
"""Factors in another order."""

from dataclasses import replace

from tosaic.backends.cortex_m.program.rewriting import mapped
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Primitive
from tosaic.backends.cortex_m.program.tree import Op, Reduce, RefusedError


@PRIMITIVES.register
class Added(Primitive):
    """`exchange(S)`: the factors of what is added to a buffer change places."""

    name = "exchange"
    takes = ("buffer",)

    def apply(self, program, *arguments):
        name = program.buffer(str(arguments[0])).name

        def one(s):
            if isinstance(s, Reduce) and s.target.buffer == name and isinstance(s.value, Op) and s.value.name == "mul":
                return Reduce(s.target, Op("mul", s.value.args[::-1]))
            return s

        body = mapped(program.body, one)
        if body == program.body:
            raise RefusedError(f"nothing multiplied is added to {name}")
        return replace(program, body=body)
'''
HALVES = '''
"""Products of halves one by one."""

from tosaic.backends.cortex_m.isa.isa import ISAS, Isa, formals
from tosaic.backends.cortex_m.program.row import Row


@ISAS.register
class Added(Isa):
    """A product of two halves in two instructions, which are one row."""

    name, base = "twice", "dsp"
    rows = (
        Row("two.smlad", 2, "d += a[l] * b[l]", formals(d="i32 r", a="i16 r", b="i16 r"),
            "smlabb {d}, {a}, {b}, {d}; smlatt {d}, {a}, {b}, {d}"),
    )

    def on(self, core):
        return "dsp" in core.isa
'''


def built(steps: str) -> Built:
    return scheduled(parse_program(trees.DOT), parse_steps(steps.replace("; ", "\n")), CORE)


def case_of(kernel: Built, name: str) -> Case:
    program = parse_program(trees.DOT)
    arrays = {name: array.astype("int16") for name, array in arrays_of(program).items()}
    expected = outputs(program, arrays).astype("int32")
    return Case(kernel.source(name, arrays), [arrays["a"]], [expected], name)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    for registry, name, source in ((PRIMITIVES, "exchanged", EXCHANGED), (ISAS, "halves", HALVES)):
        folder = Path(tmp_path / name)
        folder.mkdir()
        install(registry, name, source, folder, monkeypatch)


def test_a_primitive_and_rows_of_a_package_change_a_kernel(packages, tmp_path):
    plain = built("select(k, dsp); block(k)")
    exchanged = built("exchange(S); select(k, dsp); block(k)")
    twice = built("select(k, twice); block(k)")
    factors = [re.findall(r"smlad \S+ (\S+), (\S+), ", kernel.text) for kernel in (plain, exchanged)]
    assert [tuple(reversed(pair)) for pair in factors[0]] == factors[1] != []
    assert "smlatt" in twice.text and "smlad" not in twice.text
    kernels = {"plain": plain, "exchanged": exchanged, "twice": twice}
    outcomes = run_cases([case_of(kernel, name) for name, kernel in kernels.items()], tmp_path, bench=M4)
    assert all(outcome.exact for outcome in outcomes)
    assert outcomes[2].instructions > outcomes[0].instructions


def test_without_the_packages_both_are_unknown():
    # Not what the test before has applied: trees behind that are known.
    with pytest.raises(Error, match="exchange"):
        built("exchange(T)")
    with pytest.raises(Error, match="is not legal"):
        built("unroll(l); select(k, twice)")
