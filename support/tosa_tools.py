"""Programs of the package `tosa-tools`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import distribution
from pathlib import Path


@cache
def tosa_tool(name: str) -> Path:
    """The program itself: the script of that name starts a Python first, which takes ten times as long."""
    return Path(str(distribution("tosa-tools").locate_file(f"bin/{name}")))
