"""Textual pipelines: `fuse-clamp{max-rank=4},mlir(canonicalize,cse),layout`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tosaic.passes.module_pass import ModulePass, UpstreamPass, create
from tosaic.support.errors import PassError

_CLOSING = {"{": "}", "(": ")"}


def parse_pipeline(text: str) -> list[ModulePass]:
    """The passes of a textual pipeline, in order; the inverse of `print_pipeline`.

    Options follow the name in braces, separated by spaces: `name{option=value other=value}`. A phase is written by its
    name and stands for its passes. `mlir(...)` holds a pipeline of MLIR's own passes on the module.

    Raises:
        PassError: unbalanced brackets, an unknown pass or option, or a bad option value.
    """
    return [made for item in _split(text) for made in _parse_item(item)]


def print_pipeline(passes: Sequence[ModulePass]) -> str:
    """The textual form of a pipeline."""
    return ",".join(str(one) for one in passes)


def _parse_item(item: str) -> list[ModulePass]:
    from tosaic.passes.phases import PHASES  # phases are written with this parser

    if item.startswith("mlir(") and item.endswith(")"):
        return [UpstreamPass(item[len("mlir(") : -1])]
    name, brace, rest = item.partition("{")
    if not brace and name in PHASES:
        return list(PHASES[name].passes)
    if brace and not rest.endswith("}"):
        raise PassError(f"cannot read `{item}` in the pipeline", why="text follows the closing brace")
    options: dict[str, str] = {}
    for word in rest[:-1].split():
        option, equals, value = word.partition("=")
        if not equals:
            raise PassError(f"cannot read `{word}` in `{item}`", hint="write options as `name{option=value}`")
        options[option] = value
    return [create(name, options)]


def _split(text: str) -> Iterator[str]:
    """The items between the commas outside brackets."""
    closers: list[str] = []
    start = 0
    for position, char in enumerate(text):
        if char in _CLOSING:
            closers.append(_CLOSING[char])
        elif char in _CLOSING.values() and (not closers or char != closers.pop()):
            raise PassError(f"unbalanced `{char}` in the pipeline `{text}`", where=f"character {position + 1}")
        elif char == "," and not closers:
            yield _item(text, text[start:position])
            start = position + 1
    if closers:
        raise PassError(f"the pipeline `{text}` ends before `{closers[-1]}`")
    if text.strip():
        yield _item(text, text[start:])


def _item(text: str, item: str) -> str:
    if not item.strip():
        raise PassError(f"an empty item in the pipeline `{text}`")
    return item.strip()
