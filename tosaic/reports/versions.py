"""Which version of what is at work."""

from __future__ import annotations

import importlib.metadata
import platform

import tosaic
from tosaic.support.processes import TOOLS, program, said_version

_PACKAGES = ("torch", "torchao", "torch-mlir", "tosa-tools", "ethos-u-vela", "xgboost-cpu", "bakenn")
MISSING = "not installed"


def versions() -> dict[str, str]:
    """The version of tosaic, Python, each package that results depend on, and each program, by name."""
    found = {"tosaic": tosaic.__version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = MISSING
    return found | {tool: _version(tool) for tool in TOOLS}


def _version(tool: str) -> str:
    path = program(tool)
    return f"{MISSING}: apt-get install {TOOLS[tool].packages}" if path is None else said_version(path)
