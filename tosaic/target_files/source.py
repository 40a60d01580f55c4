"""The text of a target file, of what it extends, and the line of each key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tosaic.support.errors import Error, unknown_name

READY = Path(__file__).parents[1] / "boards"
Key = tuple[str, ...]
_PART = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\s*({_DOTTED})\s*\]")
_ASSIGNMENT = re.compile(rf"\s*({_DOTTED})\s*=")
_JOINED = ("sources", "unchecked")
"""Lists of a file that go before those of the one that it extends."""


@dataclass(frozen=True)
class Source:
    """What a file says, with what it extends.

    Args:
        table: its content.
        places: where each key stands, as `FILE:LINE`.
    """

    path: Path
    table: dict[str, Any]
    places: Mapping[Key, str]

    def place(self, key: Key) -> str:
        """Where a key stands, or the table that would hold it."""
        while key and key not in self.places:
            key = key[:-1]
        return self.places.get(key, f"{self.path}:1")


def ready() -> dict[str, Path]:
    """The files that tosaic brings along, by the name of the target."""
    return {file.stem: file for file in sorted(READY.glob("*/*.toml"))}


def load(path: Path, inner: tuple[Path, ...] = ()) -> Source:
    """Read a file and what it extends.

    Args:
        inner: the files that extend this one.

    Raises:
        Error: it does not read, is no TOML, or extends what is not there or itself.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Error(f"cannot read the target `{path}`", why=error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise Error(f"`{path}` declares no target", why=str(error)) from None
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        line = found[1] if found else str(text.count("\n") + 1)
        raise Error(f"`{path}` declares no target", where=f"{path}:{line}", why=f"no TOML: {error}") from None
    places = {key: f"{path}:{line}" for key, line in _lines(text)}
    if isinstance(config := table.get("vela_config"), str):
        table["vela_config"] = str(path.parent / config)
    extended = table.pop("extends", None)
    if not isinstance(extended, str):
        return Source(path, table if extended is None else table | {"extends": extended}, places)
    base = _extended(extended, path, places[("extends",)])
    if base in (path, *inner):
        raise Error(f"`{path}` extends itself", where=places[("extends",)])
    below = load(base, (path, *inner))
    below.table.pop("name", None)
    return Source(path, _merged(below.table, table), {**below.places, **places})


def _extended(name: str, path: Path, place: str) -> Path:
    if name.endswith(".toml"):
        return path.parent / name
    if name not in ready():
        unknown = unknown_name("ready target", name, ready())
        raise Error(unknown.what, where=place, hint=unknown.hint)
    return ready()[name]


def _merged(below: Mapping[str, Any], above: Mapping[str, Any], outermost: bool = True) -> dict[str, Any]:
    """Tables key by key, what is above first."""
    merged = {**below, **above}
    for key in below.keys() & above.keys():
        one, other = below[key], above[key]
        if isinstance(one, dict) and isinstance(other, dict):
            merged[key] = _merged(one, other, False)
        elif outermost and key in _JOINED and isinstance(one, list) and isinstance(other, list):
            merged[key] = [*other, *one]
    return merged


def _lines(text: str) -> Iterator[tuple[Key, int]]:
    """The line of each table's head and of each key; keys of an inline table have none."""
    table: Key = ()
    for number, line in enumerate(text.splitlines(), 1):
        if found := _HEADER.match(line):
            table = _key(found[1])
            yield table, number
        elif found := _ASSIGNMENT.match(line):
            yield (*table, *_key(found[1])), number


def _key(dotted: str) -> Key:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))
