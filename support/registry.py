"""Tables that other files and other packages add to: a class registers itself, and the table finds its file."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from tosaic.support.errors import Error

_Entry = TypeVar("_Entry")
_Class = TypeVar("_Class", bound=type[Any])


class Registry(Generic[_Entry]):
    """Classes by their attribute `name`: those in files below a package, and those of installed packages.

    Args:
        noun: what one of them is, for messages.
        package: the package whose files define them.
        group: the group of entry points in which an installed package names its own.
    """

    def __init__(self, noun: str, package: str, group: str) -> None:
        self.noun, self.package, self.group = noun, package, group
        self._known: dict[str, type[Any]] = {}
        self._complete = False

    def register(self, cls: _Class) -> _Class:
        """Class decorator: make the class known by its name.

        Raises:
            Error: another class has that name.
        """
        other = self._known.setdefault(cls.name, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise Error(f"there is another {self.noun} `{cls.name}`", why=f"{other.__module__} and {cls.__module__}")
        return cls

    def known(self) -> dict[str, type[_Entry]]:
        """Every class by name, in the order of the names.

        Raises:
            Error: a file does not import; the message names it.
        """
        if not self._complete:
            for file in pkgutil.walk_packages(importlib.import_module(self.package).__path__, f"{self.package}."):
                with self._importing(file.name):
                    importlib.import_module(file.name)
            for entry in entry_points(group=self.group):
                with self._importing(entry.value):
                    self.register(entry.load())
            self._complete = True
        return dict(sorted(self._known.items()))

    def find(self, name: str) -> type[_Entry]:
        """The class called `name`.

        Raises:
            Error: there is none; the message lists what there is.
        """
        known = self.known()
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{close[0]}`?" if close else ""
            raise Error(f"there is no {self.noun} `{name}`", why=f"there are {', '.join(known)}", hint=hint)
        return known[name]

    @contextmanager
    def _importing(self, name: str) -> Iterator[None]:
        try:
            yield
        except (ImportError, AttributeError, SyntaxError, NameError, TypeError) as error:
            why = f"{type(error).__name__}: {error}"
            raise Error(f"the {self.noun} `{name}` does not import", why=why) from error
