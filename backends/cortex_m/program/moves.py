"""Every step that one could think of on a tree: what a scan tries, and a search mutates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tosaic.backends.cortex_m.isa.isa import ISAS
from tosaic.backends.cortex_m.program.rewriting import nest_of, parts_of, touches
from tosaic.backends.cortex_m.program.rules import RULES
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, Step
from tosaic.backends.cortex_m.program.tree import BYTES, REGISTERS, Access, Assign, For, Instr, Op, Program, Reduce

NUMBERS = (2, 3, 4, 8)
"""What stands for a number."""


def moves(program: Program, primitive: type[Primitive]) -> Iterator[Step]:
    """The steps of a primitive on the loops and buffers of a tree, with small numbers; most are not legal.

    What comes later goes with what stands before: a loop is of the nest right inside of a loop, and touches a buffer; a
    number is less than twice a loop's turns; a dimension is one of a buffer, and a type no narrower than its own. New
    names are fresh. Buffers that instructions hold stay as they are, and operations are those of one element.
    """
    most = len(primitive.takes)
    for count in range(most - primitive.optional, most + 1):
        for arguments in _arguments(program, primitive, primitive.takes[:count], ()):
            yield Step(primitive.name, arguments)


def all_moves(program: Program) -> list[Step]:
    """The steps of all primitives, one primitive after the other."""
    return [step for primitive in PRIMITIVES.known().values() for step in moves(program, primitive)]


def _arguments(
    program: Program, primitive: type[Primitive], kinds: tuple[str, ...], before: tuple[Argument, ...]
) -> Iterator[tuple[Argument, ...]]:
    if len(before) == len(kinds):
        yield before
        return
    for argument in _choices(program, primitive, kinds[len(before)], before):
        yield from _arguments(program, primitive, kinds, (*before, argument))


def _choices(
    program: Program, primitive: type[Primitive], kind: str, before: tuple[Argument, ...]
) -> Iterator[Argument]:
    buffer = next((program.buffers[name] for name in map(str, before[::-1]) if name in program.buffers), None)
    match kind:
        case "loop":
            outer = [program.loops[name][0] for name in map(str, before) if name in program.loops]
            inside = nest_of(outer[-1].body)[0] if outer else program.statements
            names = {name for name in map(str, before) if name in program.buffers}
            found = (s for s in inside if isinstance(s, For))
            yield from dict.fromkeys(s.var for s in found if names <= {a.buffer for _, a in touches(s)})
        case "buffer":
            held = {o.buffer for s in program.statements if isinstance(s, Instr) for o in s.operands}
            yield from (name for name in program.buffers if name not in held)
        case "name":
            taken = {*program.loops, *program.buffers, *before}
            yield next(name for i in itertools.count() if (name := f"z{chr(ord('a') + i)}") not in taken)
        case "number":
            loop = program.loops.get(str(before[0]), ()) if before else ()
            yield from (number for number in NUMBERS if not loop or number < 2 * loop[0].extent)
        case "dim" | "order" if buffer is not None:
            dims = len(buffer.shape)
            yield from range(dims) if kind == "dim" else _orders(dims)
        case "memory":
            yield from ("scratch", *REGISTERS)
        case "dtype":
            least = BYTES[buffer.dtype] if buffer is not None else 1
            yield from (dtype for dtype, width in BYTES.items() if width >= least)
        case "rule":
            yield from RULES
        case "op":
            values = (s.value for s in program.statements if isinstance(s, Assign | Reduce))
            parts = (part for value in values for part in parts_of(value) if isinstance(part, Op))
            yield from dict.fromkeys(part.name for part in parts if [type(arg) for arg in part.args] == [Access])
        case "isa":
            yield from ISAS.known()
        case "word":
            yield from primitive.words


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
