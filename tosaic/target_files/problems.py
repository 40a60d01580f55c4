"""What is wrong with a target file, each in a line: where, what, and the nearest right thing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tosaic.support.errors import Error, nearest
from tosaic.target_files.schema import json_schema
from tosaic.target_files.source import Key, Source

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

_KINDS = {
    dict: "a table",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
}
_TYPES = {"object": "a table", "array": "a list", "string": "a text", "boolean": "true or false",
          "integer": "a whole number", "number": "a number"}  # fmt: skip
_BOUNDS = {"minimum": "less than", "exclusiveMinimum": "not more than", "exclusiveMaximum": "not less than"}


@dataclass(frozen=True)
class Problem:
    """Args:
    where: `FILE:LINE`.
    what: one sentence.
    hint: what may be meant, or what there is.
    """

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" + (f"; {self.hint}" if self.hint else "")
        return " ".join(text.split())  # what a file says may have several lines

    def error(self, others: int = 0) -> Error:
        """It as an error; `others` is how many there are beside it."""
        why = f"and {others} more: `tosaic targets check` lists them" if others else ""
        return Error(self.what, where=self.where, why=why, hint=self.hint)


def violations(source: Source) -> list[Problem]:
    """What of a file is not as the schema has it, in the order of lines."""
    from jsonschema import Draft202012Validator  # imported where a file is wrong alone

    validator = Draft202012Validator(json_schema())
    found = [problem for error in validator.iter_errors(source.table) for problem in _problems(error, source)]
    return sorted(found, key=lambda problem: _order(problem.where))


def _order(where: str) -> tuple[str, int]:
    file, _, line = where.rpartition(":")
    return file, int(line)


def _problems(error: ValidationError, source: Source) -> Iterator[Problem]:
    key: Key = tuple(map(str, error.absolute_path))
    called = f"`{'.'.join(key)}`" if key else "the file"
    rule: Any = error.validator_value
    schema: Any = error.schema
    found: Any = error.instance
    place = source.place(key)
    match error.validator:
        case "additionalProperties":
            known = list(schema["properties"])
            for unknown in (name for name in found if name not in known):
                within = f" in {called}" if key else ""
                yield Problem(
                    source.place((*key, unknown)), f"there is no key `{unknown}`{within}", nearest(unknown, known)
                )
        case "required":
            for missing in (name for name in rule if name not in found):
                yield Problem(place, f"{called} has no key `{missing}`", _meaning(schema, missing))
        case "type":
            yield Problem(place, f"{called} is {_KINDS.get(type(found), 'a date')}, not {_TYPES[rule]}")
        case "enum":
            yield Problem(place, f"{called} is `{found}`", nearest(str(found), list(map(str, rule))))
        case "pattern":
            yield Problem(place, f"`{found}` is no name", "letters, digits, `_`, `-`, `.` and `+`")
        case "minItems" | "minProperties":
            yield Problem(place, f"{called} is empty")
        case "anyOf":
            yield from _nearest_choice(error.context or (), source, called, found, place)
        case "minimum" | "exclusiveMinimum" | "exclusiveMaximum" as bound:
            yield Problem(place, f"{called} is {found}, {_BOUNDS[bound]} {rule}")
        case _:
            yield Problem(place, f"{called}: {error.message}")


def _nearest_choice(
    choices: Sequence[ValidationError], source: Source, called: str, found: Any, place: str
) -> Iterator[Problem]:
    """The problems of the choice of the same type."""
    inner = [choice for choice in choices if choice.validator != "type" or choice.relative_path]
    for choice in inner:
        yield from _problems(choice, source)
    if not inner:
        wanted = " or ".join(_TYPES[str(choice.validator_value)] for choice in choices)
        yield Problem(place, f"{called} is {_KINDS.get(type(found), 'a date')}, not {wanted}")


def _meaning(schema: dict[str, Any], key: str) -> str:
    return schema["properties"][key].get("description", "")
