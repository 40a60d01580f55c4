"""Every step that one could think of on a tree: what a scan tries, and a search mutates."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tosaic.backends.cortex_m.isa.isa import registers_of, sets_of
from tosaic.backends.cortex_m.program.primitives.sums import held
from tosaic.backends.cortex_m.program.rewriting import nest_of, parts_of, touches
from tosaic.backends.cortex_m.program.rules import RULES
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, Step
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    REGISTERS,
    SCALAR,
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    If,
    Instr,
    Let,
    Op,
    Program,
    Reduce,
    Seq,
    Statement,
    holds,
    in_class,
    walk,
)
from tosaic.backends.target import Core

NUMBERS = (2, 3, 4, 8)
"""What stands for a number."""
LANES = (4, 8, 16)
"""What stands for the lanes of a vector."""

LOOPS: Mapping[str, Callable[[For], bool]] = {
    "loop": lambda loop: True,
    "plain": lambda loop: loop.kind == "each",
    "sum": lambda loop: loop.kind == "each" and isinstance(loop.body, Reduce),
    "sums": lambda loop: loop.kind == "each" and all(isinstance(s, For | Seq | Reduce) for s in walk(loop.body)),
    "several": lambda loop: loop.kind == "each" and isinstance(loop.body, Seq | If),
    "conditional": lambda loop: any(isinstance(s, If) for s in walk(loop.body)),
    "assigning": lambda loop: loop.kind == "each" and isinstance(loop.body, Assign),
    "copy": lambda loop: loop.kind == "each" and isinstance(loop.body, Assign) and isinstance(loop.body.value, Access),
    "copying": lambda loop: isinstance(loop.body, For) and isinstance(loop.body.body, Assign),
    "early": lambda loop: loop.kind == "each" and loop.early,
    "single": lambda loop: loop.kind == "each" and loop.iterations == 1,
    "instructions": lambda loop: loop.kind == "each" and _instructions_only(loop),
    "masked": lambda loop: any(isinstance(s, Instr) and s.limit for s in walk(loop.body)),
    "hardware": lambda loop: loop.kind == "hardware_loop",
}
"""What a loop must be to stand for an argument of each kind."""
BUFFERS: Mapping[str, Callable[[Buffer], bool]] = {
    "buffer": lambda b: True,
    "inner": lambda b: b.memory not in ("in", "out"),
    "computed": lambda b: b.memory == "scratch" or b.in_registers,
    "constant": lambda b: b.memory == "const" and bool(b.shape),
    "own": lambda b: b.memory == "scratch" and bool(b.shape),
    "lone": lambda b: not b.shape,
}
"""What a buffer must be to stand for an argument of each kind."""


def moves(program: Program, primitive: type[Primitive], core: Core) -> Iterator[Step]:
    """The steps of a primitive on the loops and buffers of a tree, with small numbers; most are not legal.

    What comes later goes with what stands before. A loop is of the nest right inside of a loop, touches a buffer, and
    computes an operation; one behind a type reads a part of what the loop before reads of a buffer. A number is less
    than twice a loop's iterations, an extent greater, and lanes go with a loop that assigns numbers. A dimension is one
    of a buffer. A type is no narrower than a buffer's, or than an operation's, and one that the registers hold. Rules
    and operations are those of what a buffer is assigned, or operations are of one element. Constants that go with one
    are of its shape and type. New names are fresh. Buffers that instructions hold stay as they are. Registers and
    instructions are those of the core.
    """
    most = len(primitive.takes)
    for count in range(most - primitive.optional, most + 1):
        for arguments in _arguments(program, primitive, core, primitive.takes[:count], ()):
            yield Step(primitive.name, arguments)


def all_moves(program: Program, core: Core) -> list[Step]:
    """The steps of all primitives, one primitive after the other."""
    return [step for primitive in PRIMITIVES.known().values() for step in moves(program, primitive, core)]


def drawn(program: Program, primitive: type[Primitive], core: Core, rng: random.Random) -> Step | None:
    """One of `moves`, argument by argument by chance; None where there is none for the first of them."""
    arguments: tuple[Argument, ...] = ()
    for kind in primitive.takes[: len(primitive.takes) - rng.randint(0, primitive.optional)]:
        choices = list(_choices(program, primitive, core, kind, arguments))
        if not choices:
            return None
        arguments = (*arguments, rng.choice(choices))
    return Step(primitive.name, arguments)


def changed(program: Program, step: Step, core: Core, rng: random.Random) -> Step | None:
    """A step with one argument, which is no new name, exchanged by chance; None where there is no other."""
    primitive, arguments = PRIMITIVES.find(step.primitive), step.arguments
    place = rng.randrange(len(arguments))
    kind, old = primitive.takes[place], arguments[place]
    if kind == "name":
        return None
    choices = [*_choices(program, primitive, core, kind, arguments[:place])]
    if kind in ("number", "extent"):
        choices += [int(old) - 1, int(old) + 1, int(old) * 2, int(old) // 2]
    choices = [choice for choice in dict.fromkeys(choices) if choice != old]
    if not choices:
        return None
    return Step(step.primitive, (*arguments[:place], rng.choice(choices), *arguments[place + 1 :]))


def _arguments(
    program: Program, primitive: type[Primitive], core: Core, kinds: tuple[str, ...], before: tuple[Argument, ...]
) -> Iterator[tuple[Argument, ...]]:
    if len(before) == len(kinds):
        yield before
        return
    for argument in _choices(program, primitive, core, kinds[len(before)], before):
        yield from _arguments(program, primitive, core, kinds, (*before, argument))


def _choices(
    program: Program, primitive: type[Primitive], core: Core, kind: str, before: tuple[Argument, ...]
) -> Iterator[Argument]:
    buffer = next((program.buffers[name] for name in map(str, before[::-1]) if name in program.buffers), None)
    match kind:
        case str() if kind in LOOPS and before and primitive.takes[len(before) - 1] == "dtype":
            iteration, name = program.loops[str(before[1])][0].body, str(before[0])
            every = sum(access.buffer == name for _, access in touches(iteration))
            for s in walk(iteration):
                if isinstance(s, For) and LOOPS[kind](s) and 0 < sum(a.buffer == name for _, a in touches(s)) < every:
                    yield s.var
        case "made":
            iteration = program.loops[next(name for name in map(str, before[::-1]) if name in program.loops)][0].body
            yield from (s.buffer.name for s in walk(iteration) if isinstance(s, Alloc))
        case "staged":
            iteration = program.loops[str(before[1])][0].body
            allocs = (s.buffer for s in walk(iteration) if isinstance(s, Alloc))
            yield from (b.name for b in allocs if b.in_registers and b.name not in before)
        case "alike_loop":
            first = program.loops[str(before[-1])][0]
            behind = (loop for part in _behind(program, first) for loop in nest_of(part)[0][:1])
            yield from dict.fromkeys(loop.var for loop in behind if LOOPS["plain"](loop) and _as_many(loop, first))
        case "around":
            every = (s for s in program.statements if isinstance(s, For) and LOOPS["plain"](s))
            yield from (s.var for s in every if isinstance(s.body, Alloc) and s.body.buffer.name == before[-1])
        case "computed_number":
            yield from dict.fromkeys(s.var for s in program.statements if isinstance(s, Let))
        case "variable":
            yield from dict.fromkeys(s.var for s in program.statements if isinstance(s, For | Let))
        case str() if kind in LOOPS:
            outer = [program.loops[name][0] for name in map(str, before) if name in program.loops]
            inside = nest_of(outer[-1].body)[0] if outer else program.statements
            names = {name for name in map(str, before) if name in program.buffers}
            ops = {argument for its, argument in zip(primitive.takes, before, strict=False) if its == "op"}
            found = (s for s in inside if isinstance(s, For) and LOOPS[kind](s) and (not ops or ops <= _computed(s)))
            yield from dict.fromkeys(s.var for s in found if names <= {a.buffer for _, a in touches(s)})
        case str() if kind in BUFFERS:
            fixed = {o.buffer for s in program.statements if isinstance(s, Instr) for o in s.operands}
            yield from (name for name, b in program.buffers.items() if name not in fixed and BUFFERS[kind](b))
        case "alike" if buffer is not None:
            yield from (name for name, b in program.buffers.items() if name not in before and _alike(b, buffer))
        case "name":
            taken = {*program.names, *before}
            yield next(name for i in itertools.count() if (name := f"z{chr(ord('a') + i)}") not in taken)
        case "number":
            loop = program.loops.get(str(before[0]), ()) if before else ()
            yield from (number for number in NUMBERS if not loop or number < 2 * loop[0].extent)
        case "extent":
            least = program.loops[str(before[-1])][0].extent + 1
            yield from dict.fromkeys(-(-least // number) * number for number in NUMBERS)
        case "divisor" if buffer is not None:
            extent = buffer.shape[int(before[-1])]
            yield from (number for number in NUMBERS if number < extent and not extent % number)
        case "lanes":
            inner = program.loops[str(before[-1])][0]
            if all(isinstance(s, Alloc | Seq | Assign) for s in walk(inner.body)):
                yield from (n for n in LANES if inner.extent <= n or not inner.extent % n)
        case "dim" | "order" if buffer is not None:
            dims = len(buffer.shape)
            yield from range(dims) if kind == "dim" else _orders(dims)
        case "memory":
            yield from ("scratch", *registers_of(core))
        case "vectors":
            yield from (memory for memory in registers_of(core) if REGISTERS[memory] > BYTES["i32"])
        case "dtype":
            given = [buffer.dtype] if buffer is not None else []
            if "op" in primitive.takes:
                op = str(before[primitive.takes.index("op")])
                given = [held(part, program) for s in program.statements for part in _values(s) if part.name == op]
            memories = [memory for its, memory in zip(primitive.takes, before, strict=False) if its == "memory"]
            for dtype in BYTES:
                fits = all(in_class(dtype, str(memory)) for memory in memories if memory in REGISTERS)
                if fits and (not given or any(holds(dtype, each) for each in given)):
                    yield dtype
        case "rule" if buffer is not None:
            parts = list(_operations(program, buffer.name))
            yield from (name for name, rule in RULES.items() if any(rule.change(part) is not None for part in parts))
        case "op" if buffer is not None:
            yield from dict.fromkeys(part.name for part in _operations(program, buffer.name))
        case "op":
            parts = [part for name in program.buffers for part in _operations(program, name)]
            yield from dict.fromkeys(part.name for part in parts if [type(arg) for arg in part.args] == [Access])
        case "isa":
            yield from sets_of(core)
        case "word":
            yield from primitive.words


def _alike(b: Buffer, other: Buffer) -> bool:
    """Whether buffers differ in their names alone."""
    return b == replace(other, name=b.name)


def _behind(program: Program, loop: For) -> Sequence[Statement]:
    """The statements behind a loop in the row of statements that it is one of."""
    for s in program.statements:
        if isinstance(s, Seq):
            for number, part in enumerate(s.body):
                if part is loop:
                    return s.body[number + 1 :]
    return ()


def _as_many(loop: For, other: For) -> bool:
    """Whether loops iterate over the same numbers."""
    return (loop.extent, loop.step, loop.early) == (other.extent, other.step, other.early)


def _instructions_only(loop: For) -> bool:
    """Whether a loop holds instructions, and no other statement that computes."""
    inside = list(walk(loop.body))
    return any(isinstance(s, Instr) for s in inside) and not any(isinstance(s, SCALAR) for s in inside)


def _values(s: Statement) -> Iterator[Op]:
    """The operations in what a statement assigns, or adds."""
    if isinstance(s, Assign | Reduce):
        yield from (part for part in parts_of(s.value) if isinstance(part, Op))


def _computed(loop: For) -> set[str]:
    """The operations in a loop."""
    return {part.name for s in walk(loop) for part in _values(s)}


def _operations(program: Program, target: str) -> Iterator[Op]:
    """The operations in what a buffer is assigned, or gets added."""
    for s in program.statements:
        if isinstance(s, Assign | Reduce) and s.target.buffer == target:
            yield from _values(s)


def _orders(dims: int) -> Iterator[str]:
    """Every order of few dimensions; of many, one dimension moved."""
    if dims <= 3:
        yield from ("d" + "".join(map(str, order)) for order in itertools.permutations(range(dims)))
        return
    found = dict[str, None]()
    for dim, place in itertools.product(range(dims), repeat=2):
        rest = [d for d in range(dims) if d != dim]
        found["d" + "".join(map(str, [*rest[:place], dim, *rest[place:]]))] = None
    yield from found
