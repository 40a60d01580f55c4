"""Where a lowering says which ATen ops it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch._ops import OpOverload

LOWERINGS: dict[Any, Lowering] = {}


@dataclass(frozen=True)
class Lowering:
    """A function that emits TOSA for an op; `raw` holds the positions of arguments taken as constants where known."""

    emit: Callable[..., Any]
    raw: frozenset[int]


def lowers(*targets: OpOverload | Callable, raw: tuple[str, ...] = ()) -> Callable[[Callable], Callable]:
    """Register a lowering for ATen ops.

    The function is called with the Builder, the fx node, and the op's arguments in the order of its ATen schema:
    tensors as `ir.Value` (those whose parameter is in `raw` as `Constant` where they are known), everything else as
    Python values, defaults filled in. It returns one value, or a tuple for an op with several results.
    """

    def register(emit: Callable) -> Callable:
        parameters = list(inspect.signature(emit).parameters)[2:]
        for target in targets:
            LOWERINGS[target] = Lowering(emit, frozenset(parameters.index(name) for name in raw))
        return emit

    return register
