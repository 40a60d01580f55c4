"""How many threads compute an op of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor
from torch.fx import Graph

_SMALL = 2**18
"""Elements. Ops that make fewer take several threads about as long as one, and much longer on busy processors."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Many small steps take several threads longer than one, above all on busy processors."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def enough_threads(graph: Graph) -> AbstractContextManager[None]:
    """One thread where all that a graph computes is small, as of a model that takes a token; else as many as before."""
    values = (node.meta.get("val") for node in graph.nodes if node.op == "call_function")
    small = all(value.numel() < _SMALL for value in values if isinstance(value, Tensor))
    return one_thread() if small else nullcontext()
