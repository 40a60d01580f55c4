"""Keeps torch's warnings from the user, and names the user's line in what it raises."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tosaic.frontend.origin import naming_ops


@contextmanager
def quietly() -> Iterator[None]:
    """Without gradients and torch's warnings; what it raises names the user's line."""
    with warnings.catch_warnings(), torch.no_grad(), naming_ops("quantization"):
        warnings.simplefilter("ignore")
        yield
