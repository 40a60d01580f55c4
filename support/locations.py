"""What an MLIR location says to the user: the line of the model and the ATen op behind it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tosaic.support.mlir import ir

UNKNOWN = "unknown"
"""The file of an op that no line of the user's made, in a model of torch's own modules for instance."""
_PLACE = re.compile(r'"([^"]+)":(\d+)(?::\d+)?')
_ATEN = re.compile(r'aten = "([^"]+)"')
_MODULE = re.compile(r'nn_module_stack = "([^"]*)"')


def describe(location: ir.Location) -> str:
    """`model.py:12 aten.conv2d.default`; the parts that the location does not know are left out.

    Locations of ops that a pass fused or inlined hold several places; the first is the op's own.
    """
    text = str(location)
    place, aten = _PLACE.search(text), _ATEN.search(text)
    parts = [f"{Path(place[1]).name}:{place[2]}"] if place and place[1] != UNKNOWN else []
    return " ".join([*parts, aten[1]] if aten else parts)


def module_of(location: ir.Location) -> str:
    """The path of the module that made an op, e.g. `features.3.conv`; empty where the location has none."""
    found = _MODULE.search(str(location))
    return found[1] if found else ""
