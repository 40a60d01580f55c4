"""Tables of classes that other files and other packages add to."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from tosaic.support.discovery import found
from tosaic.support.errors import Error, unknown_name

_Entry = TypeVar("_Entry")
_Class = TypeVar("_Class", bound=type[Any])


class Registry(Generic[_Entry]):
    """Classes by their attribute `name`, each registered where it is defined.

    Args:
        noun: what one of them is, for messages.
        package: the package whose files define them.
        group: the group of entry points in which installed packages name files or classes of theirs.
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
        return dict(sorted(self._all().items()))

    def find(self, name: str) -> type[_Entry]:
        """The class called `name`.

        Raises:
            Error: there is none; the message names the nearest, or all.
        """
        known = self._all()
        if name not in known:
            raise unknown_name(self.noun, name, sorted(known))
        return known[name]

    def _all(self) -> dict[str, type[_Entry]]:
        if not self._complete:
            found(self.package, self.group)
            self._complete = True
        return self._known
