"""How an op is quantized: which of its tensors have a format, and which share one. A lowering declares it.

The names are those of torchao's and ExecuTorch's quantizers; a format is what PT2E calls a quantization spec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor
from torch.fx import Node


@dataclass(frozen=True)
class Weighted:
    """(x, weight, bias, ...): formats for x and the result, a scale of the weight for each output channel.

    The bias is int32, its scale that of x times the weight's. A weight that is no parameter makes the op `Arithmetic`.

    Args:
        result_axis: the output channels' axis of the result.
        weight_axis: that of the weight.
    """

    result_axis: int
    weight_axis: int = 0


@dataclass(frozen=True)
class Recurrent:
    """(x, state, cell, weight, weight, ...): formats for x, the states and the result, scales for each row of the
    weights; what remembers, a cell, has int16.

    Args:
        inside: as `OneToOne` has it.
    """

    inside: Callable[..., Tensor] | None = None


@dataclass(frozen=True)
class Arithmetic:
    """Formats for every float operand and the result."""


@dataclass(frozen=True)
class OneToOne:
    """Formats for the first operand and the result.

    Args:
        result: least and greatest real value of the result, where they are known: its range never goes beyond them.
        saturation: limits of the operand beyond which the result is constant, or in gelu's case within 2e-4 of it:
            what this op alone reads needs no range beyond them.
        depth: how far below the greatest along its second argument, an axis, the operand tells anything: what lies
            farther below, as what is masked does, needs no range of its own.
        inside: of the op's arguments, what it computes on its way to the result. Where that is not finite, PyTorch's
            result is not the op's.
    """

    result: tuple[float, float] | None = None
    saturation: tuple[float, float] | None = None
    depth: float | None = None
    inside: Callable[..., Tensor] | None = None


@dataclass(frozen=True)
class Clamp(OneToOne):
    """One to one; alone behind an arithmetic or weighted op, whose result has no format then: one rounding for both."""


@dataclass(frozen=True)
class Shared:
    """One format for all operands and results.

    Args:
        moves: the results hold values of the operand and no others; those of a constant are known at compile time.
    """

    moves: bool = False


@dataclass(frozen=True)
class Averaged:
    """Shared; where calibration shows a result so small that its operand's steps are too coarse, a format of its own.

    Args:
        apart: whether the result of a node can be rounded once to a format of its own.
    """

    apart: Callable[[Node], bool] = lambda node: True


@dataclass(frozen=True)
class Joined:
    """One format for the result, and for all operands but those whose steps would become too coarse for others.

    Args:
        constants: whether an operand may be a constant, whose values have a part in the format.
    """

    constants: bool = True


OpQuantization: TypeAlias = Weighted | Recurrent | Arithmetic | OneToOne | Shared | Averaged | Joined
