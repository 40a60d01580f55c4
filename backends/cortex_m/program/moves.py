"""Every step that one could think of on a tree: what a scan tries, and a search mutates."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, Step
from tosaic.backends.cortex_m.program.step_arguments import Begun, choices
from tosaic.backends.target import Core


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
        found = list(choices(Begun(program, primitive, core, arguments), kind))
        if not found:
            return None
        arguments = (*arguments, rng.choice(found))
    return Step(primitive.name, arguments)


def changed(program: Program, step: Step, core: Core, rng: random.Random) -> Step | None:
    """A step with one argument, which is no new name, exchanged by chance; None where there is no other."""
    primitive, arguments = PRIMITIVES.find(step.primitive), step.arguments
    place = rng.randrange(len(arguments))
    kind, old = primitive.takes[place], arguments[place]
    if kind == "name":
        return None
    found = [*choices(Begun(program, primitive, core, arguments[:place]), kind)]
    if kind in ("number", "extent"):
        found += [int(old) - 1, int(old) + 1, int(old) * 2, int(old) // 2]
    found = [choice for choice in dict.fromkeys(found) if choice != old]
    if not found:
        return None
    return Step(step.primitive, (*arguments[:place], rng.choice(found), *arguments[place + 1 :]))


def _arguments(
    program: Program, primitive: type[Primitive], core: Core, kinds: tuple[str, ...], before: tuple[Argument, ...]
) -> Iterator[tuple[Argument, ...]]:
    if len(before) == len(kinds):
        yield before
        return
    for argument in choices(Begun(program, primitive, core, before), kinds[len(before)]):
        yield from _arguments(program, primitive, core, kinds, (*before, argument))
