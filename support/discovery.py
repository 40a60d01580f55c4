"""What a room is extended with: modules of one of its packages, and entry points of installed packages."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

from tosaic.support.errors import Error


def found(package: str, group: str) -> list[Any]:
    """Every module below `package`, imported, in the order of names; then what the entry points of `group` name.

    Raises:
        Error: one does not import; the message names it.
    """
    path = importlib.import_module(package).__path__
    names = [module.name for module in pkgutil.walk_packages(path, f"{package}.")]
    modules = [_load(name, partial(importlib.import_module, name)) for name in names]
    installed = sorted(importlib.metadata.entry_points(group=group), key=lambda entry: entry.value)
    return [*modules, *(_load(entry.value, entry.load) for entry in installed)]


def _load(name: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except (ImportError, AttributeError, SyntaxError, NameError, TypeError) as error:
        raise Error(f"the extension `{name}` does not import", why=f"{type(error).__name__}: {error}") from error
