"""The cores that code is built for, a file each: a module of this package, or an entry point, that defines `CORE`."""

from __future__ import annotations

from dataclasses import replace

from tosaic.backends.target import Core
from tosaic.support.discovery import found, modules_of
from tosaic.support.errors import unknown_name

ENTRY_POINTS = "tosaic.cores"
_LACKING = {
    "nodsp": ("dsp",),
    "nofp": ("fp", "fp.dp", "mve.fp"),
    "nofp.dp": ("fp.dp",),
    "nomve": ("mve", "mve.fp"),
    "nomve.fp": ("mve.fp",),
}
"""What may be left out of a core, as clang and gcc write it, and the extensions that go with it."""


def cores() -> dict[str, Core]:
    """Every known core by name: those in files below this package, and those of installed packages."""
    return {module.CORE.name: module.CORE for module in found(__name__, ENTRY_POINTS)}


def find_core(name: str) -> Core:
    """The core called `name`, without what the name leaves out: `cortex-m33+nofp+nodsp`.

    Raises:
        Error: there is none, or nothing of that name can be left out; the message names the nearest.
    """
    base, *lacking = name.split("+")
    own = {module.CORE.name: module.CORE for module in modules_of(__name__)}
    known = own if base in own else cores()
    if base not in known:
        raise unknown_name("core", base, known)
    core = known[base]
    for part in lacking:
        if part not in _LACKING:
            raise unknown_name("part of a core that may be left out", part, _LACKING)
        core = replace(core, isa=tuple(extension for extension in core.isa if extension not in _LACKING[part]))
    if "fp" in core.isa:
        return replace(core, name=name)
    return replace(core, name=name, triple=core.triple.replace("eabihf", "eabi"), float_abi="soft")
