"""Random tensors to try things on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def random_array(rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Integers and booleans over their whole range, floats from a standard normal."""
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)
