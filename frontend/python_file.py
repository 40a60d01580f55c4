"""Functions that a user names as `file.py:function`: the file is executed, as any Python that is imported."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tosaic.support.errors import ModelError, reason


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
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    source = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, source)  # a dataclass looks up the module that it is in
    sys.path.insert(0, str(path.parent.absolute()))
    try:
        spec.loader.exec_module(source)
    except Exception as error:
        raise ModelError(f"{path} does not import", why=reason(error)) from error
    finally:
        sys.path.remove(str(path.parent.absolute()))
        if sys.modules.get(path.stem) is source:
            del sys.modules[path.stem]
    found = getattr(source, function, None)
    if not callable(found):
        known = [name for name, value in vars(source).items() if callable(value) and not name.startswith("_")]
        raise ModelError(f"{path} has no function `{function}`", hint=f"it has {', '.join(known) or 'none'}")
    return found


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
