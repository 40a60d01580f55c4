"""Where a lowering says which ATen ops it takes, and how they are quantized."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch._ops import OpOverload
from torch.fx import Node

from tosaic.frontend import lowerings
from tosaic.frontend.lowerings.op_quantization import OpQuantization
from tosaic.support.discovery import found
from tosaic.support.errors import ModelError

ENTRY_POINTS = "tosaic.lowerings"


@dataclass(frozen=True)
class Lowering:
    """How an op becomes TOSA, and how it is quantized.

    Args:
        emit: the function that `lowers` decorates.
        raw: the positions of arguments taken as constants where known.
        quantized: the formats of the op by itself; None leaves it in float.
        pointwise: each element of the result is a function of that element of the operands: a region of such ops is
            quantized as one.
        steps: the function has steps, which a table with lines between its entries does not hold.
    """

    emit: Callable[..., Any]
    raw: frozenset[int]
    quantized: OpQuantization | None
    pointwise: bool
    steps: bool


_LOWERINGS: dict[Any, Lowering] = {}


def lowers(
    *targets: OpOverload | Callable,
    raw: tuple[str, ...] = (),
    quantized: OpQuantization | None = None,
    pointwise: bool = False,
    steps: bool = False,
) -> Callable[[Callable], Callable]:
    """Register a lowering for ATen ops; the arguments are those of `Lowering`, `raw` by the parameters' names.

    The function is called with the Builder, the fx node, and the op's arguments in the order of its ATen schema:
    tensors as `ir.Value` (those whose parameter is in `raw` as `Constant` where they are known), everything else as
    Python values, defaults filled in. It returns one value, or a tuple for an op with several results.

    Raises:
        ModelError: another file has a lowering for an op.
    """

    def register(emit: Callable) -> Callable:
        parameters = list(inspect.signature(emit).parameters)[2:]
        positions = frozenset(parameters.index(name) for name in raw)
        for target in targets:
            other = _LOWERINGS.get(target)
            if other and other.emit.__module__ != emit.__module__:
                raise ModelError(f"`{target}` has two lowerings", why=f"{other.emit.__module__}, {emit.__module__}")
            _LOWERINGS[target] = Lowering(emit, positions, quantized, pointwise, steps)
        return emit

    return register


@cache
def registered() -> dict[Any, Lowering]:
    """Every lowering by its ATen op: those in files of `tosaic.frontend.lowerings`, and those of installed packages.

    A package names its modules as entry points in the group `tosaic.lowerings`.

    Raises:
        Error: a file does not import; the message names it.
    """
    found(lowerings.__name__, ENTRY_POINTS)
    return _LOWERINGS


def op_quantization(node: Node) -> OpQuantization | None:
    """How a node is quantized by itself; None where it has no lowering, or stays in float."""
    lowering = registered().get(node.target)
    return lowering.quantized if lowering else None
