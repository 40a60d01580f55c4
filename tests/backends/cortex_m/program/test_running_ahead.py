"""Iterations of which any part runs ahead compute what they compute in order."""

import random
import re

import pytest

from tosaic.backends.cores.cortex_m55 import PIPELINE
from tosaic.backends.cortex_m.program.block import BlockInstruction, InstructionBlock
from tosaic.backends.cortex_m.program.list_scheduler import ordered
from tosaic.support.errors import BackendError

VECTORS = tuple(f"q{i}" for i in range(8))
REGISTERS = {"p": "r1", "s": "r0", "t": "r2"}
ITERATIONS = 4


def _body(rng: random.Random) -> list[BlockInstruction]:
    """Loads, sums, sums of vectors, and stores, with few names that are written again and again."""
    names, written, body = ("a", "b", "c", "d"), list[str](), list[BlockInstruction]()
    for _ in range(rng.randint(6, 16)):
        kind = rng.choice(("load", "load", "product", "product", "add", "insert", "store"))
        name = rng.choice(names)
        if kind == "load" or not written:
            body.append(BlockInstruction("vldrw.u32", f"{{{name}}}, [{{p}}], #16", (name, "p"), ("p",)))
            written.append(name)
            continue
        one, other = rng.choice(written), rng.choice(written)
        if kind == "product":
            sums = rng.choice("st")
            body.append(BlockInstruction("vmlava.s8", f"{{{sums}}}, {{{one}}}, {{{other}}}", (sums,), (sums,)))
        elif kind == "add":
            keeps = (name,) if name in (one, other) else ()
            body.append(BlockInstruction("vadd.i32", f"{{{name}}}, {{{one}}}, {{{other}}}", (name,), keeps))
            written.append(name)
        elif kind == "insert":
            body.append(BlockInstruction("vmov.32", f"{{{one}}}[0], {{s}}", (one,), (one,)))
        else:
            body.append(BlockInstruction("vstrw.32", f"{{{one}}}, [{{p}}]"))
    return body


def _run(lines: list[str], state: dict[str, object], stored: list[object]) -> None:
    """Each instruction as a symbol of what it reads; `state` holds what is in registers."""
    for line in lines:
        names = re.findall(r"\b[qr]\d+\b", line)
        read = tuple(state.get(name) for name in names)
        if line.startswith("vstr"):
            stored.append(hash((read[0], read[1])))
        elif line.startswith("vldr"):
            state[names[0]], state[names[1]] = hash(("load", read[1])), hash(("next", read[1]))
        elif line.startswith("vmov"):
            state[names[0]] = hash(("insert", read))
        else:
            taken = read if line.startswith("vmlava") else read[1:]
            state[names[0]] = hash((line.split()[0], taken))


@pytest.mark.parametrize("seed", range(60))
def test_any_part_of_an_iteration_may_run_ahead(seed):
    rng = random.Random(seed)
    body = _body(rng)
    plain: tuple[dict[str, object], list[object]] = ({}, [])
    fixed = {**REGISTERS, **{name: f"q{i}" for i, name in enumerate("abcd")}}
    for _ in range(ITERATIONS):
        _run([instruction.text(fixed) for instruction in body], *plain)
    for cut in range(1, len(body)):
        try:
            found = ordered(InstructionBlock(tuple(body[cut:]), REGISTERS, VECTORS, tuple(body[:cut])), PIPELINE,
                            0, ITERATIONS)  # fmt: skip
        except BackendError:
            continue
        state, stored = dict[str, object](), list[object]()
        for part in (found.entry, *[found.iteration] * (ITERATIONS - 1), found.last):
            _run(list(part), state, stored)
        assert sorted(map(str, stored)) == sorted(map(str, plain[1]))
        assert {name: state.get(name) for name in REGISTERS.values()} == {
            name: plain[0].get(name) for name in REGISTERS.values()
        }


def test_what_runs_ahead_writes_nothing_that_this_iteration_still_reads():
    store, load = BlockInstruction("vstrw.32", "{a}, [{p}]"), BlockInstruction("vldrw.u32", "{b}, [{n}]", ("b",))
    begun = BlockInstruction("vmov.i32", "{a}, #0", ("a",))
    use = BlockInstruction("vmlava.s8", "{s}, {b}, {b}", ("s",), ("s",))
    block = InstructionBlock((load, use), {**REGISTERS, "n": "r3"}, VECTORS, (begun, store))
    lines = ordered(block, PIPELINE, 0, ITERATIONS).iteration
    places = {line.split()[0]: place for place, line in enumerate(lines)}
    assert places["vldrw.u32"] < places["vstrw.32"]


def test_stores_stay_in_their_order():
    first = BlockInstruction("vmov.i32", "{a}, #0", ("a",)), BlockInstruction("vqmovnb.s16", "{b}, {a}", ("b",))
    stores = BlockInstruction("vstrb.16", "{b}, [{p}]"), BlockInstruction("vpst\\nvstrwt.32", "{a}, [{p}]")
    for iterations in (1, ITERATIONS):
        lines = ordered(InstructionBlock((*first, *stores), REGISTERS, VECTORS), PIPELINE, 0, iterations).iteration
        assert [line.split()[0] for line in lines if "vst" in line] == ["vstrb.16", "vpst\\nvstrwt.32"]
