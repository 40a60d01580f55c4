"""Instruction sets: the rows that a core has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from functools import lru_cache
from typing import ClassVar

from tosaic.backends.cortex_m.program.row import Formal, Row
from tosaic.backends.target import Core
from tosaic.support.registry import Registry


class Isa(ABC):
    """A set of instructions: a class in a file of `isa/`, in `ISAS`.

    A row's meaning is a line of the tree's language, its text is assembly; what no row does, C does.

    Args:
        rows: its instructions; of several that do the same, the first is taken.
        base: the name of the set that it extends; empty for none.
    """

    name: ClassVar[str]
    base: ClassVar[str] = ""
    rows: ClassVar[tuple[Row, ...]]

    @abstractmethod
    def on(self, core: Core) -> bool:
        """Whether a core has these instructions."""


ISAS: Registry[Isa] = Registry("instruction set", "tosaic.backends.cortex_m.isa", "tosaic.instruction_sets")
"""Every set: those in `isa/`, and those that packages name in the group `tosaic.instruction_sets`."""


def rows_of(name: str) -> tuple[Row, ...]:
    """The rows of a set and of those that it extends.

    Raises:
        Error: there is no such set.
    """
    isa = ISAS.find(name)
    return (*isa.rows, *(rows_of(isa.base) if isa.base else ()))


def extends(name: str, other: str) -> bool:
    """Whether a set is another one, or extends it.

    Raises:
        Error: there is no such set.
    """
    return name == other or (ISAS.find(name).base != "" and extends(ISAS.find(name).base, other))


def sets_of(core: Core) -> list[str]:
    """The sets that a core has, the one that extends most first."""
    return sorted((n for n, isa in ISAS.known().items() if isa().on(core)), key=lambda n: -len(rows_of(n)))


def integer_sets_of(core: Core) -> list[str]:
    """Those whose instructions are not of floats alone."""
    return [n for n in sets_of(core) if any(f.dtype != "f32" for row in rows_of(n) for f in row.formals)]


def rows_on(core: Core) -> Collection[Row]:
    """The rows that a core has."""
    return _together(tuple(ISAS.find(name) for name in sets_of(core)))[0]


def registers_of(core: Core) -> Collection[str]:
    """The classes of registers that a core's instructions have, sorted."""
    return _together(tuple(ISAS.find(name) for name in sets_of(core)))[1]


@lru_cache(maxsize=64)
def _together(sets: tuple[type[Isa], ...]) -> tuple[Collection[Row], Collection[str]]:
    """The rows of some sets, and the classes of registers that they have."""
    rows = frozenset(row for isa in sets for row in rows_of(isa.name))
    return rows, tuple(sorted({formal.memory for row in rows for formal in row.formals} - {"m"}))


def formals(**operands: str) -> tuple[Formal, ...]:
    """Operands as `d="i32 r"`: an element type, and `m` for memory or a class of registers."""
    return tuple(Formal(name, *what.split()) for name, what in operands.items())
