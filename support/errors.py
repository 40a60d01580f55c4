"""The errors tosaic raises on purpose. Anything else that escapes is a bug."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


class Error(Exception):
    """A problem the user can act on.

    Args:
        what: what went wrong, one sentence.
        where: the user's source line and op, where known (`model.py:12 aten.foo`).
        why: the reason, where it is not plain from `what`.
        hint: what to do next.
    """

    def __init__(self, what: str, *, where: str = "", why: str = "", hint: str = "") -> None:
        self.what, self.where, self.why, self.hint = what, where, why, hint
        lines = [what]
        if where:
            lines.append(f"  at: {where}")
        if why:
            lines.append(f"  because: {why}")
        if hint:
            lines.append(f"  try: {hint}")
        super().__init__("\n".join(lines))


@dataclass(frozen=True)
class Advice:
    """A warning: what the user should know of a model that compiles all the same.

    Args:
        what: what is the case, one sentence.
        where: the user's line and op, or the input; empty where it is the model as a whole.
        hint: what to do about it.
    """

    what: str
    where: str
    hint: str

    def __str__(self) -> str:
        return str(Error(self.what, where=self.where, hint=self.hint))


class ModelError(Error):
    """The model, or its example or calibration inputs, cannot be compiled as given."""


class PassError(Error):
    """A pass, a pipeline text or a phase invariant failed."""


class BackendError(Error):
    """Code generation, placement or linking failed."""


class OutOfMemoryError(BackendError):
    """The memory plan does not fit the target; the message lists who uses the memory."""


class OutOfFlashError(OutOfMemoryError):
    """The firmware has more code, constants and data than it may; the message names who has most."""


class SimulatorError(Error):
    """A simulator did not start, did not end, or faulted."""


class DatabaseError(Error):
    """A tuning database cannot be read or written."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> Error:
    """The error that there is no `kind` called `name`, with the nearest of the known names, or all of them."""
    return Error(f"there is no {kind} `{name}`", hint=nearest(name, known))


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint that names the nearest of the known names, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean `{near[0]}`?" if near else f"one of {', '.join(names)}"


def reason(error: BaseException) -> str:
    """The exception's class, and the first line of its message."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
