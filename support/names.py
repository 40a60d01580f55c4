"""Names that come from files: they reach command lines, linker scripts and paths, so they are words."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

Name = Annotated[str, msgspec.Meta(pattern=r"^\w[\w.+-]*\Z")]
"""A word; msgspec refuses another when it reads a file."""

Dtype = Annotated[str, msgspec.Meta(pattern=r"^(bool|u?int8|int(16|32|64)|float(16|32|64))\Z")]
"""numpy's name of a dtype that a tensor of a firmware has."""


def word(text: str) -> str:
    """A text of others as a word of letters, digits and underscores; empty where it has none."""
    return re.sub(r"\W+", "_", text).strip("_")
