"""Schedules: lists of steps that print, parse, and make one tree out of another."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

from tosaic.backends.cortex_m.program.names import is_free
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.support.registry import Registry

Argument = int | str


class Step(NamedTuple):
    """One application of a primitive, e.g. `split(x, xi, 4, early)`."""

    primitive: str
    arguments: tuple[Argument, ...]

    def __str__(self) -> str:
        return f"{self.primitive}({', '.join(map(str, self.arguments))})"


class Primitive(ABC):
    """A function from tree to tree: a class in `primitives/`, in `PRIMITIVES`.

    Args:
        takes: what the arguments are; the ones behind `optional` may be left out.
            A loop is any `loop`, or one that is `plain` (no step has marked it), a `sum` (it only adds up, one
            statement) or `sums` (several). Others are `assigning` (one statement), a `copy`, `copying` (it copies
            vectors), `several` (it holds several statements, or a condition), `conditional` (a condition is in it),
            `early` (its last iteration is), `single` (it has one), of `instructions`, `masked` (some of these), or
            `hardware`. An `alike_loop` has as many iterations; a buffer lives right in one `around`. A `variable` is
            that of any loop, or a `computed_number`. A buffer is any `buffer`, or one that is `inner` (no input or
            output), `computed` (in scratch memory or registers), or a `constant`. Others are one `alike`, its `own` (in
            scratch memory), `lone` (one number), `made` (it lives in a loop), or `staged` (in registers, too).
            What else there is: a `name` (a new one), a `number`, a `divisor` (of a dimension), an `extent` (greater
            than a loop's), `lanes` (of vectors), a `dim`, a `memory`, `vectors` (registers of some), an `order` (of
            dimensions: `d102`), a `dtype`, a `rule`, an `op`, an `isa`, a `word` (see `words`).
    """

    name: ClassVar[str]
    takes: ClassVar[tuple[str, ...]]
    optional: ClassVar[int] = 0
    words: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def apply(self, program: Program, *arguments: Argument) -> Program:
        """The tree after the step.

        Raises:
            RefusedError: the step is not legal on this tree.
        """

    def checked(self, arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
        """The arguments, each of the type that the primitive takes.

        Raises:
            RefusedError: they are too few, too many, or a number stands where none belongs.
        """
        least = len(self.takes) - self.optional
        if not least <= len(arguments) <= len(self.takes):
            counts = f"{least}" if not self.optional else f"{least} to {len(self.takes)}"
            raise RefusedError(f"`{self.name}` takes {counts} arguments: {', '.join(self.takes)}")
        for kind, argument in zip(self.takes, arguments, strict=False):
            if isinstance(argument, int) != (kind in ("number", "divisor", "extent", "lanes", "dim")):
                raise RefusedError(f"`{argument}` is no {kind}")
            if kind == "word" and argument not in self.words:
                raise RefusedError(f"`{argument}` is none of {', '.join(self.words)}")
        return arguments


PRIMITIVES: Registry[Primitive] = Registry(
    "schedule primitive", "tosaic.backends.cortex_m.program.primitives", "tosaic.program_primitives"
)
"""Every primitive: those in `primitives/`, and those that packages name in the group `tosaic.program_primitives`."""


def applied(program: Program, step: Step) -> Program:
    """The tree after one step.

    Raises:
        RefusedError: the step is not legal on it.
    """
    primitive = PRIMITIVES.find(step.primitive)()
    return primitive.apply(program, *primitive.checked(step.arguments))


def trees(program: Program, steps: Iterable[Step]) -> Iterator[Program]:
    """The tree before any step, and after each.

    Raises:
        RefusedError: one of them is not legal; the message names it.
    """
    every = tuple(steps)
    return (replayed(program, every[:count]) for count in range(len(every) + 1))


def replayed(program: Program, steps: tuple[Step, ...]) -> Program:
    """The tree after all steps; schedules that begin alike share the trees up to where they part.

    Raises:
        RefusedError: one of them is not legal; the message names it.
    """
    found = _begun(program)
    for number, step in enumerate(steps, 1):
        try:
            found = _after(found, step)
        except RefusedError as error:
            raise RefusedError(f"step {number}, `{step}`, is not legal", why=error.what) from error
    return found.program


@dataclass(frozen=True, eq=False)
class _Tree:
    """A tree that is told from others by being another object: trees that are equal take long to compare."""

    program: Program


@lru_cache(maxsize=64)
def _begun(program: Program) -> _Tree:
    return _Tree(program)


@lru_cache(maxsize=2048)
def _after(tree: _Tree, step: Step) -> _Tree:
    return _Tree(applied(tree.program, step))


def print_steps(steps: Iterable[Step]) -> str:
    """Steps as text, one a line."""
    return "".join(f"{step}\n" for step in steps)


def parse_steps(text: str) -> tuple[Step, ...]:
    """The steps behind `print_steps`; what follows a `#` is a comment.

    Raises:
        RefusedError: a line is no step; the message gives its number.
    """
    steps = []
    for number, line in enumerate(text.splitlines(), 1):
        if not (line := line.partition("#")[0].strip()):
            continue
        match = re.fullmatch(r"(\w+)\(([^()]*)\)", line)
        if match is None:
            raise RefusedError(f"line {number}, `{line}`, is no step", why="a step reads `primitive(argument, ...)`")
        arguments = [argument.strip() for argument in match[2].split(",")] if match[2].strip() else []
        steps.append(Step(match[1], tuple(int(a) if re.fullmatch(r"-?\d+", a) else a for a in arguments)))
    return tuple(steps)


def fresh(program: Program, *names: str) -> None:
    """Guard of names that a step gives.

    Raises:
        RefusedError: one is taken, or is no name.
    """
    for name in names:
        if name in program.names or not is_free(name):
            raise RefusedError(f"`{name}` is taken, or no name")
