"""A pass: one file, one frozen dataclass, registered beside itself."""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from dataclasses import dataclass
from typing import Any, ClassVar

from tosaic.support.errors import PassError
from tosaic.support.mlir import ir, run_pipeline
from tosaic.support.registry import Registry


@dataclass(frozen=True)
class ModulePass:
    """Transforms a module in place. The dataclass fields are the options of the textual pipeline.

    An option `max_rank: int = 4` is written `my-pass{max-rank=4}`. Options are of type int, float, bool or str and
    have a default. A pass that names a `phase` runs at that phase's end; the others run where a phase or a pipeline
    lists them.
    """

    name: ClassVar[str]
    phase: ClassVar[str] = ""

    def run(self, module: ir.Module) -> None:
        """Transform `module` in place.

        Raises:
            PassError: the module cannot be transformed.
        """
        raise NotImplementedError

    def __str__(self) -> str:
        changed = [
            f"{field.name.replace('_', '-')}={_show(getattr(self, field.name))}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        return self.name + (f"{{{' '.join(changed)}}}" if changed else "")

    @property
    def slug(self) -> str:
        """The pass with its options, fit for a file's name: `mlir-cse`."""
        return re.sub(r"[^A-Za-z0-9]+", "-", str(self)).strip("-")[:80]

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return (cls.__doc__ or "").strip().splitlines()[0]


@dataclass(frozen=True)
class UpstreamPass(ModulePass):
    """A pass of MLIR itself, e.g. `mlir(tosa-infer-shapes)`."""

    name: ClassVar[str] = "mlir"
    pipeline: str = "canonicalize"

    def run(self, module: ir.Module) -> None:
        run_pipeline(module, f"builtin.module({self.pipeline})")

    def __str__(self) -> str:
        return f"mlir({self.pipeline})"


PASSES: Registry[ModulePass] = Registry("pass", "tosaic.passes", "tosaic.passes")
register = PASSES.register


def create(name: str, options: dict[str, str]) -> ModulePass:
    """The pass called `name` with `options` as they were written.

    Raises:
        PassError: unknown pass or option, or a value of the wrong type.
    """
    known = PASSES.known()
    if name not in known:
        raise PassError(f"there is no pass `{name}`", hint=_nearest(name, known))
    cls = known[name]
    types = typing.get_type_hints(cls)
    fields = {field.name.replace("_", "-"): field.name for field in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for option, text in options.items():
        if option not in fields:
            why = f"its options are {', '.join(fields)}" if fields else "it takes no options"
            raise PassError(f"pass `{name}` has no option `{option}`", why=why)
        values[fields[option]] = _read(name, option, text, types[fields[option]])
    return cls(**values)


def _read(name: str, option: str, text: str, kind: type) -> object:
    try:
        if kind is bool:
            return {"true": True, "false": False}[text]
        return kind(text)
    except (ValueError, KeyError):
        raise PassError(f"`{name}{{{option}={text}}}`: `{text}` is not of type {kind.__name__}") from None


def _show(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nearest(name: str, known: dict[str, type[ModulePass]]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    if close:
        return f"did you mean `{close[0]}`?"
    return "`tosaic opt --list-passes` lists them; a pass of MLIR itself is written `mlir(name)`"
