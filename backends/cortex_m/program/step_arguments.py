"""What may stand for each argument of a step on a tree, given those before it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tosaic.backends.cortex_m.isa.isa import registers_of, sets_of
from tosaic.backends.cortex_m.program.holding import holds, in_class
from tosaic.backends.cortex_m.program.primitives.iterations import holds_instructions_alone
from tosaic.backends.cortex_m.program.primitives.merge import iterate_alike
from tosaic.backends.cortex_m.program.primitives.sums import held
from tosaic.backends.cortex_m.program.program import Program, allocated, walk
from tosaic.backends.cortex_m.program.rewriting import nest_of, parts_of
from tosaic.backends.cortex_m.program.rules import RULES
from tosaic.backends.cortex_m.program.schedule import Argument, Primitive
from tosaic.backends.cortex_m.program.touches import held_by, touches
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    REGISTERS,
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    If,
    Instr,
    Let,
    Op,
    Reduce,
    Seq,
    Statement,
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
    "instructions": lambda loop: loop.kind == "each" and holds_instructions_alone(loop),
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
    "numbers": lambda b: not b.shape or b.memory in ("const", "r"),
}
"""What a buffer must be to stand for an argument of each kind."""


class Begun(NamedTuple):
    """A step of which some arguments are known."""

    program: Program
    primitive: type[Primitive]
    core: Core
    arguments: tuple[Argument, ...]

    @property
    def buffer(self) -> Buffer | None:
        """The last one that is named."""
        names = (str(argument) for argument in self.arguments[::-1])
        return next((self.program.buffers[name] for name in names if name in self.program.buffers), None)

    @property
    def loops(self) -> list[For]:
        """Those that are named."""
        return [self.program.loops[name][0] for name in map(str, self.arguments) if name in self.program.loops]

    def of(self, kind: str) -> list[str]:
        """The arguments of a kind."""
        return [str(a) for its, a in zip(self.primitive.takes, self.arguments, strict=False) if its == kind]


def choices(begun: Begun, kind: str) -> Iterator[Argument]:
    """What may be the next argument, which is of a kind."""
    yield from _loops(begun, kind)
    yield from _buffers(begun, kind)
    yield from _numbers(begun, kind)
    yield from _words(begun, kind)


def _loops(begun: Begun, kind: str) -> Iterator[str]:
    program, before = begun.program, begun.arguments
    match kind:
        case str() if kind in LOOPS and before and begun.primitive.takes[len(before) - 1] == "dtype":
            iteration, name = begun.loops[0].body, str(before[0])
            every = sum(access.buffer == name for _, access in touches(iteration))
            for s in walk(iteration):
                if isinstance(s, For) and LOOPS[kind](s) and 0 < sum(a.buffer == name for _, a in touches(s)) < every:
                    yield s.var
        case str() if kind in LOOPS:
            inside = nest_of(begun.loops[-1].body)[0] if begun.loops else program.statements
            names, ops = {name for name in map(str, before) if name in program.buffers}, {*begun.of("op")}
            found = (s for s in inside if isinstance(s, For) and LOOPS[kind](s) and (not ops or ops <= _computed(s)))
            yield from dict.fromkeys(s.var for s in found if names <= {a.buffer for _, a in touches(s)})
        case "alike_loop":
            first = begun.loops[-1]
            behind = (loop for part in _behind(program, first) for loop in nest_of(part)[0][:1])
            yield from dict.fromkeys(loop.var for loop in behind if LOOPS["plain"](loop) and iterate_alike(loop, first))
        case "around":
            every_loop = (s for s in program.statements if isinstance(s, For) and LOOPS["plain"](s))
            yield from (s.var for s in every_loop if isinstance(s.body, Alloc) and s.body.buffer.name == before[-1])
        case "computed_number":
            yield from dict.fromkeys(s.var for s in program.statements if isinstance(s, Let))
        case "variable":
            yield from dict.fromkeys(s.var for s in program.statements if isinstance(s, For | Let))


def _buffers(begun: Begun, kind: str) -> Iterator[str]:
    program, buffer = begun.program, begun.buffer
    match kind:
        case str() if kind in BUFFERS:
            fixed = held_by(program.body)
            yield from (name for name, b in program.buffers.items() if name not in fixed and BUFFERS[kind](b))
        case "alike" if buffer is not None:
            others = (b for name, b in program.buffers.items() if name not in begun.arguments)
            yield from (b.name for b in others if b == replace(buffer, name=b.name))
        case "made":
            yield from (b.name for b in allocated(begun.loops[-1].body))
        case "staged":
            inside = (b for b in allocated(begun.loops[-1].body) if b.in_registers)
            yield from (b.name for b in inside if b.name not in begun.arguments)


def _numbers(begun: Begun, kind: str) -> Iterator[int]:
    buffer, loops = begun.buffer, begun.loops
    match kind:
        case "number":
            first = begun.program.loops.get(str(begun.arguments[0]), ()) if begun.arguments else ()
            yield from (number for number in NUMBERS if not first or number < 2 * first[0].extent)
        case "extent":
            least = loops[-1].extent + 1
            yield from dict.fromkeys(-(-least // number) * number for number in NUMBERS)
        case "divisor" if buffer is not None:
            extent = buffer.shape[int(begun.arguments[-1])]
            yield from (number for number in NUMBERS if number < extent and not extent % number)
        case "lanes":
            if all(isinstance(s, Alloc | Seq | Assign) for s in walk(loops[-1].body)):
                yield from (n for n in LANES if loops[-1].extent <= n or not loops[-1].extent % n)
        case "dim" if buffer is not None:
            yield from range(len(buffer.shape))


def _words(begun: Begun, kind: str) -> Iterator[str]:
    program, buffer = begun.program, begun.buffer
    match kind:
        case "name":
            taken = {*program.names, *begun.arguments}
            yield next(name for i in itertools.count() if (name := f"z{chr(ord('a') + i)}") not in taken)
        case "order" if buffer is not None:
            yield from _orders(len(buffer.shape))
        case "memory":
            yield from ("scratch", *registers_of(begun.core))
        case "vectors":
            yield from (memory for memory in registers_of(begun.core) if REGISTERS[memory] > BYTES["i32"])
        case "dtype":
            yield from _dtypes(begun)
        case "rule" if buffer is not None:
            parts = list(_operations(program, buffer.name))
            yield from (name for name, rule in RULES.items() if any(rule.change(part) is not None for part in parts))
        case "op" if buffer is not None:
            yield from dict.fromkeys(part.name for part in _operations(program, buffer.name))
        case "op":
            parts = [part for s in program.statements for part in _values(s)]
            yield from dict.fromkeys(part.name for part in parts if [type(arg) for arg in part.args] == [Access])
        case "isa":
            yield from sets_of(begun.core)
        case "word":
            yield from begun.primitive.words


def _dtypes(begun: Begun) -> Iterator[str]:
    """The types that hold what a buffer does, or an operation, in the registers that are named."""
    ops, memories = begun.of("op"), [memory for memory in begun.of("memory") if memory in REGISTERS]
    parts = [part for s in begun.program.statements for part in _values(s) if part.name in ops]
    given = [held(part, begun.program) for part in parts]
    if not ops and begun.buffer is not None:
        given = [begun.buffer.dtype]
    for dtype in BYTES:
        fits = all(in_class(dtype, memory) for memory in memories)
        if fits and (not given or any(holds(dtype, each) for each in given)):
            yield dtype


def _behind(program: Program, loop: For) -> Sequence[Statement]:
    """The statements behind a loop in the row of statements that it is one of."""
    for s in program.statements:
        if isinstance(s, Seq):
            for number, part in enumerate(s.body):
                if part is loop:
                    return s.body[number + 1 :]
    return ()


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
