"""Where a decomposition says which ATen ops it takes apart."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any

from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch.export import default_decompositions

from tosaic.frontend import decompositions
from tosaic.support.discovery import found

ENTRY_POINTS = "tosaic.decompositions"

_OWN: dict[Any, Callable] = {}


def decomposes(*targets: OpOverload | Callable) -> Callable[[Callable], Callable]:
    """Register a decomposition of ATen ops: a function of the op's arguments in PyTorch."""

    def register(function: Callable) -> Callable:
        _OWN.update(dict.fromkeys(targets, function))
        return function

    return register


def own_decompositions() -> Collection[Any]:
    """The ops that a file of this package, or of an installed one, takes apart."""
    _known()
    return _OWN


def decomposition_of(target: Any) -> Callable | None:
    """How an op is taken apart: by a file of this package, by torch, or by what a composite op is made of."""
    known = _known()
    if target not in known and isinstance(target, OpOverload) and target._can_decompose():
        return target.decompose
    return known.get(target)


@cache
def _known() -> dict[Any, Callable]:
    """Torch's way to Core ATen comes before its other decompositions."""
    found(decompositions.__name__, ENTRY_POINTS)
    return {**decomposition_table, **dict(default_decompositions().items()), **_OWN}
