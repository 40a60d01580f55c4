"""Arrays of a file, by name and in the order of a model's inputs."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tosaic.support.errors import Error, reason, unknown_name

_MOST_BYTES = 4 << 30
"""Of all arrays of a file together: they are held in memory."""

_UNNAMED = re.compile(r"arr_\d+")
"""What numpy calls arrays that were saved without a name."""


def read_arrays(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    """The array of an `.npy`, or those of an `.npz` by their names.

    Raises:
        ValueError: it is missing or damaged, holds what is no array, or more than is read; why, in a line.
    """
    try:
        if not zipfile.is_zipfile(path):
            return np.load(path, allow_pickle=False)
        with zipfile.ZipFile(path) as archive:
            if sum(record.file_size for record in archive.infolist()) > _MOST_BYTES:
                raise ValueError(f"it holds more than {_MOST_BYTES >> 30} GiB; a folder of files may hold more")
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    except Exception as error:
        raise ValueError(reason(error)) from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"`{name}` is no array")
    return arrays


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
