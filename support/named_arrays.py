"""Arrays of a file, in the order of a model's inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.support.errors import Error, unknown_name

_UNNAMED = re.compile(r"arr_\d+")
"""What numpy calls arrays that were saved without a name."""


def in_order(arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> list[np.ndarray]:
    """The arrays as `names` order them; as they come where they have no names, or where there is one for one input.

    Raises:
        Error: another number of arrays, or one that is called as no input; the message has the nearest name.
    """
    if len(arrays) != len(names):
        listed = ", ".join(names)
        raise Error(f"the model takes {len(names)} inputs, got {len(arrays)} arrays", hint=f"the inputs are {listed}")
    if len(names) == 1 or all(_UNNAMED.fullmatch(name) for name in arrays):
        return list(arrays.values())
    for name in arrays:
        if name not in names:
            raise unknown_name("input", name, names)
    return [arrays[name] for name in names]
