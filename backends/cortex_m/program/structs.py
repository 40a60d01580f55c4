"""What functions of a library take beside pointers: structs of C, by their types and fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Element(NamedTuple):
    """A number that a window holds, times a factor."""

    window: str
    number: int
    factor: int = 1


@dataclass(frozen=True)
class Struct:
    """A struct, whose fields are numbers, pointers to windows by their names, elements of these, and structs."""

    type: str
    fields: tuple[tuple[str, Field], ...]


Field: TypeAlias = "int | str | Element | Struct"


def struct(kind: str, **fields: Field) -> Struct:
    return Struct(kind, tuple(fields.items()))


def read_of(field: Field) -> Iterator[tuple[str, int]]:
    """The windows that a field points to, or takes elements of, each with the number of one that it has."""
    match field:
        case str():
            yield field, 0
        case Element():
            yield field.window, field.number
        case Struct():
            for _, value in field.fields:
                yield from read_of(value)
