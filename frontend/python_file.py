"""Functions that a user names as `file.py:function`: the file is executed, as any Python that is imported."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any

from tosaic.support.errors import ModelError, reason

_written: dict[str, int] = {}
"""When the file of a module that is imported by its name was written last, as it was then."""


def is_function(text: str) -> bool:
    """Whether `text` has the form `file.py:function`."""
    return text.rpartition(":")[0].endswith(".py")


def load_function(text: str) -> Callable[..., Any]:
    """The function that `file.py:function` names.

    Raises:
        ModelError: the file is missing or does not import, or has no such function.
    """
    name, _, function = text.rpartition(":")
    path = Path(name)
    if not path.is_file():
        raise ModelError(f"there is no file {path}")
    try:
        source = _imported(path) if _is_importable(path) else _executed(path)
    except Exception as error:
        raise ModelError(f"{path} does not import", why=reason(error)) from error
    found = getattr(source, function, None)
    if not callable(found):
        functions = {name: value.__module__ for name, value in vars(source).items() if isfunction(value)}
        own = (name for name, module in functions.items() if module == source.__name__)
        known = sorted(name for name in own if not name.startswith("_"))
        raise ModelError(f"{path} has no function `{function}`", hint=f"it has {', '.join(known) or 'none'}")
    return found


def _is_importable(path: Path) -> bool:
    """Whether `import` finds this file by its name."""
    try:
        spec = importlib.util.find_spec(path.stem)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == path.resolve()


def _imported(path: Path) -> ModuleType:
    """The module that other code imports, too, anew where its file has changed.

    PyTorch's ops that a module defines twice are those of the second time alone; calls of the first ones crash.
    """
    written = path.stat().st_mtime_ns
    module = importlib.import_module(path.stem)
    if _written.setdefault(path.stem, written) != written:
        module = importlib.reload(module)
        _written[path.stem] = written
    return module


def _executed(path: Path) -> ModuleType:
    """A module of its own that no `import` finds."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    source = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, source)  # a dataclass looks up the module that it is in
    sys.path.insert(0, str(path.parent.absolute()))
    try:
        spec.loader.exec_module(source)
    finally:
        sys.path.remove(str(path.parent.absolute()))
        if sys.modules.get(path.stem) is source:
            del sys.modules[path.stem]
    return source


def call(text: str, *arguments: Any) -> Any:
    """What the function that `file.py:function` names returns.

    Raises:
        ModelError: as `load_function`, or it raised.
    """
    function = load_function(text)
    try:
        return function(*arguments)
    except Exception as error:
        raise ModelError(f"{text} raised", why=reason(error)) from error
