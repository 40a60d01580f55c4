"""The families of NPUs, a file each: a module of this package, or an entry point, that defines `FAMILY`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from tosaic.backends.npu import USUAL, Accelerator, NpuFamily, NpuOptions, NpuRegion
from tosaic.support.discovery import found
from tosaic.support.errors import unknown_name

ENTRY_POINTS = "tosaic.npus"


@cache
def families() -> tuple[NpuFamily, ...]:
    """Every family: those in files below this package, and those of installed packages."""
    return tuple(module.FAMILY for module in found(__name__, ENTRY_POINTS))


def accelerators() -> dict[str, Accelerator]:
    """Every NPU configuration by name."""
    return {name: known for family in families() for name, known in family.accelerators.items()}


def family_of(accelerator: str) -> NpuFamily:
    """The family that has an accelerator.

    Raises:
        Error: there is no accelerator of that name; the message names the nearest.
    """
    for family in families():
        if accelerator in family.accelerators:
            return family
    raise unknown_name("accelerator", accelerator, accelerators())


def find_accelerator(name: str) -> Accelerator:
    """The accelerator of that name.

    Raises:
        Error: there is none; the message names the nearest.
    """
    return family_of(name).accelerators[name]


def compile_region(flatbuffer: bytes, accelerator: str, options: NpuOptions = USUAL) -> NpuRegion:
    """Compile `main` of a serialized TOSA module for an accelerator; see `NpuFamily.compile`."""
    return family_of(accelerator).compile(flatbuffer, accelerator, options)


def emulate(region: NpuRegion, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a region whose command stream runs on the host; see `NpuFamily.emulate`."""
    return family_of(region.accelerator).emulate(region, inputs)


def sections(config: str = "") -> dict[str, list[str]]:
    """The names of each `memory mode` and `system configuration` of any family; see `NpuFamily.sections`."""
    found: dict[str, list[str]] = {}
    for family in families():
        for kind, names in family.sections(config).items():
            found.setdefault(kind, []).extend(names)
    return found
