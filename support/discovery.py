"""What a room is extended with: modules of one of its packages, and entry points of installed packages."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import Any

from tosaic.support.errors import Error


def found(package: str, group: str) -> list[Any]:
    """Every module below `package`, imported, in the order of names; then what the entry points of `group` name.

    Raises:
        Error: one does not import; the message names it.
    """
    installed = sorted(importlib.metadata.entry_points(group=group), key=lambda entry: entry.value)
    return [*modules_of(package), *(_load(entry.value, entry.load) for entry in installed)]


@cache
def modules_of(package: str) -> tuple[ModuleType, ...]:
    """Every module below `package`, imported, in the order of names."""
    path = importlib.import_module(package).__path__
    names = [module.name for module in pkgutil.walk_packages(path, f"{package}.")]
    return tuple(_load(name, partial(importlib.import_module, name)) for name in names)


def _load(name: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except (ImportError, AttributeError, SyntaxError, NameError, TypeError) as error:
        raise Error(f"the extension `{name}` does not import", why=f"{type(error).__name__}: {error}") from error
