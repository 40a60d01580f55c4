"""Samples of a model's inputs, and labels, from files or from a user's function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tosaic.frontend.python_file import call, is_function
from tosaic.support.errors import Error, ModelError
from tosaic.support.named_arrays import in_order, read_arrays

Batch = tuple[Tensor, ...]
_SUFFIXES = (".npz", ".npy")


def read_samples(
    source: str | Path | Tensor | np.ndarray | Iterable[Any], names: Sequence[str], examples: Batch, role: str = "data"
) -> list[Batch]:
    """Samples, each one tensor for each of a model's inputs.

    Args:
        source: an `.npz` of arrays named after the inputs, or in their order, whose leading axis counts samples; an
            `.npy` of a model with one input; a folder of such files, which are read in the order of their names; or
            `file.py:function`, which returns samples (each a tensor or array, or a tuple of them); or these samples.
        examples: a sample of the right shape.
        role: what messages call the file.

    Raises:
        ModelError: it cannot be read, holds no sample, or its arrays do not fit the inputs.
    """
    if not isinstance(source, str | Path):
        rows, source = _tuples(source), "calibration"
    elif is_function(str(source)):
        rows = _tuples(_sequence(str(source), call(str(source))))
    else:
        rows = [row for file in _files(Path(source), role) for row in _rows(file, names)]
    if not rows:
        raise ModelError(f"{source} holds no sample", hint="give at least one")
    if any(len(row) != len(examples) for row in rows):
        raise ModelError(f"a sample of {source} does not hold {len(examples)} arrays, one for each input")
    return [tuple(as_sample(array, example) for array, example in zip(row, examples, strict=True)) for row in rows]


def read_labels(source: str | Path, count: int) -> np.ndarray:
    """The right class of each sample, int64 [count].

    Args:
        source: an `.npy`, or `file.py:function` that returns integers.

    Raises:
        ModelError: it cannot be read, or does not hold `count` integers.
    """
    labels = np.asarray(call(str(source)) if is_function(str(source)) else _load(Path(source), "labels"))
    if labels.shape != (count,) or not np.issubdtype(labels.dtype, np.integer):
        raise ModelError(f"the labels in {source} are {labels.dtype} {list(labels.shape)}", why=f"{count} integers fit")
    return labels.astype(np.int64)


def _tuples(samples: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [tuple(sample) if isinstance(sample, tuple | list) else (sample,) for sample in samples]


def _sequence(source: str, made: Any) -> Sequence[Any]:
    if isinstance(made, list | tuple | Tensor | np.ndarray):
        return list(made)
    raise ModelError(f"{source} must return samples", why=f"it returned {type(made).__name__}", hint="return a list")


def _files(path: Path, role: str) -> list[Path]:
    if not path.exists():
        raise ModelError(f"there is no {role} file {path}")
    return sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES) if path.is_dir() else [path]


def _load(path: Path, role: str) -> Any:
    if not path.is_file():
        raise ModelError(f"there is no {role} file {path}")
    kind = path.suffix if path.suffix in _SUFFIXES else ".npz"
    try:
        return read_arrays(path)
    except ValueError as error:
        raise ModelError(f"{path} cannot be read as {kind}", why=str(error)) from None


def _rows(path: Path, names: Sequence[str]) -> list[tuple[np.ndarray, ...]]:
    loaded = _load(path, "data")
    try:
        ordered = in_order(loaded if isinstance(loaded, dict) else {names[0]: loaded}, names)
    except Error as error:
        raise ModelError(error.what, where=str(path), hint=error.hint) from None
    counts = {len(array) if array.ndim else 0 for array in ordered}
    if len(counts) != 1 or 0 in counts:
        raise ModelError(
            f"the arrays of {path} must hold equally many samples, at least one", why=f"they hold {counts}"
        )
    return list(zip(*ordered, strict=True))


def as_sample(array: Any, example: Tensor) -> Tensor:
    """One sample; a batch axis of size 1 may be left out."""
    tensor = torch.as_tensor(np.array(array)) if not isinstance(array, Tensor) else array
    return tensor[None] if example.shape[:1] == (1,) and tensor.shape == example.shape[1:] else tensor


def check_sample(sample: Batch, examples: Batch, names: Sequence[str], role: str) -> None:
    """Guard: a sample is one that a model takes.

    Args:
        examples: one that it takes.
        role: what messages call it.

    Raises:
        ModelError: a tensor is missing, has another shape or dtype, or holds no numbers.
    """
    if len(sample) != len(examples):
        raise ModelError(f"a sample of the {role} holds {len(sample)} tensors, the model takes {len(examples)} inputs")
    for name, tensor, example in zip(names, sample, examples, strict=True):
        if tensor.shape != example.shape or tensor.dtype != example.dtype:
            raise ModelError(
                f"{role} for the input `{name}` is {_describe(tensor)}",
                why=f"the model takes {_describe(example)}",
                hint="each sample must have the shape and dtype of the example input",
            )
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ModelError(f"{role} for the input `{name}` holds NaN or infinity")


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
