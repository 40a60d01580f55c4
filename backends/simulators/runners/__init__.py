"""The runners, a file each: a module of this package, or an entry point, that defines `RUNNER`."""

from __future__ import annotations

from tosaic.backends.simulators.execution import Runner
from tosaic.backends.target import Target
from tosaic.support.discovery import found
from tosaic.support.errors import unknown_name

ENTRY_POINTS = "tosaic.runners"


def runners() -> dict[str, type[Runner]]:
    """Every runner by name: those in files below this package, and those of installed packages."""
    return {module.RUNNER.name: module.RUNNER for module in found(__name__, ENTRY_POINTS)}


def find_runner(name: str, target: Target) -> Runner:
    """The runner called `name`, for a target.

    Raises:
        Error: there is none of that name; the message names the nearest.
        SimulatorError: it cannot run that target.
    """
    known = runners()
    if name not in known:
        raise unknown_name("runner", name, known)
    return known[name].of(target)
