"""Modules that mypyc makes machine code of: what rewrites, orders and checks kernels, most of a compilation's time.

`python -m tosaic.support.build_native` compiles them into the user's cache, under a digest of all sources that they
import. After a change of one of these they run as Python again, until they are compiled anew. `TOSAIC_NATIVE=0` keeps
them Python: to step through them, or to see them in a profile.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import ModuleType

from tosaic.support.cache import place

_PROGRAM = """
    affine around block block_cycles check dependences general_registers holding idle_slots indexing issue_order
    lane_writer legal list_scheduler memory movement moves order_timing overlap places pointer_uses pointers print_c
    rewriting tally touches vector_loops vector_order vector_parts vector_plan vector_steps vectors walks windows
"""
MODULES = (
    *(f"tosaic.backends.cortex_m.program.{name}" for name in _PROGRAM.split()),
    "tosaic.backends.simulators.beats",
    "tosaic.backends.simulators.instruction",
)
BUILD = "python -m tosaic.support.build_native"
"""The command that compiles them."""
PACKAGE = Path(__file__).parents[1]
_IMPORTS = re.compile(r"^from (tosaic[\w.]*) import ([^(\n]+|\([^)]*\))", re.MULTILINE)
SUFFIX = EXTENSION_SUFFIXES[0]


class CompiledModules(MetaPathFinder):
    """Finds the modules in a folder, and the library that they share."""

    def __init__(self, folder: Path) -> None:
        self.files = {file.name.removesuffix(SUFFIX): file for file in folder.iterdir()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The compiled module of that name, if there is one."""
        file = self.files.get(fullname)
        return importlib.util.spec_from_file_location(fullname, file) if file else None


def use_compiled() -> None:
    """Let this process import the compiled modules, where they are of today's sources."""
    if os.environ.get("TOSAIC_NATIVE") == "0":
        return
    folder = place(*cache_key())
    if folder.exists():
        with suppress(OSError):  # of another user, or deleted since
            os.utime(folder)
        sys.meta_path.insert(0, CompiledModules(folder))


def is_compiled() -> bool:
    """Whether this process imports the compiled modules."""
    return any(isinstance(finder, CompiledModules) for finder in sys.meta_path)


def cache_key(package: Path = PACKAGE) -> tuple[str, list[bytes]]:
    """What the cache keeps them by: which they are, all sources that they import, and the Python that they are for."""
    sources = [source for _, source in sorted(_sources(package))]
    return "native", [sys.version.encode(), SUFFIX.encode(), " ".join(MODULES).encode(), *sources]


def _sources(package: Path) -> Iterator[tuple[str, bytes]]:
    """The modules, and all that they import of tosaic, with their text."""
    seen, waiting = set[str](MODULES), list(MODULES)
    while waiting:
        name = waiting.pop()
        file = file_of(name, package)
        if not file.exists():  # a package, or what a module defines
            continue
        source = file.read_bytes()
        yield name, source
        for module, names in _IMPORTS.findall(source.decode()):
            imported = {module, *(f"{module}.{each}" for each in re.findall(r"\w+", names))} - seen
            seen |= imported
            waiting += imported


def file_of(module: str, package: Path) -> Path:
    """The source of a module."""
    return package.joinpath(*module.split(".")[1:]).with_suffix(".py")
