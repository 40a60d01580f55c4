"""The cores that code is built for, a file each: a module of this package, or an entry point, that defines `CORE`."""

from __future__ import annotations

from tosaic.backends.target import Core
from tosaic.support.discovery import found
from tosaic.support.errors import unknown_name

ENTRY_POINTS = "tosaic.cores"


def cores() -> dict[str, Core]:
    """Every known core by name: those in files below this package, and those of installed packages."""
    return {module.CORE.name: module.CORE for module in found(__name__, ENTRY_POINTS)}


def find_core(name: str) -> Core:
    """The core called `name`.

    Raises:
        Error: there is none; the message names the nearest.
    """
    known = cores()
    if name not in known:
        raise unknown_name("core", name, known)
    return known[name]
