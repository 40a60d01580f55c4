"""The integer formats of activations, weights and biases, as PT2E's quantization specs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torchao.quantization.pt2e.observer import MinMaxObserver, PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    FixedQParamsQuantizationSpec,
    QuantizationSpec,
)

from tosaic.frontend.canonical import arguments
from tosaic.frontend.lowerings.op_quantization import Weighted
from tosaic.frontend.observer import RangeObserver
from tosaic.support.quantization import LEAST_SCALE

ANNOTATION = "quantization_annotation"
"""Where PT2E looks for the formats of a node, in its metadata."""


@dataclass(frozen=True)
class Activations:
    """The integers that hold activations, and what follows from them."""

    dtype: torch.dtype
    low: int
    high: int
    symmetric: bool

    def calibrated(
        self, floor: float = -math.inf, ceiling: float = math.inf, *, depth: float = math.inf, axis: int = -1
    ) -> QuantizationSpec:
        """A calibrated format; what is beyond the limits, or `depth` below the greatest along `axis`, may be cut."""
        scheme = torch.per_tensor_symmetric if self.symmetric else torch.per_tensor_affine
        observer = RangeObserver.with_args(floor=floor, ceiling=ceiling, depth=depth, axis=axis)
        return QuantizationSpec(self.dtype, observer, self.low, self.high, scheme)


ACTIVATIONS = {
    "int8": Activations(torch.int8, -128, 127, symmetric=False),
    "int16": Activations(torch.int16, -32768, 32767, symmetric=True),
}


BYTES = FixedQParamsQuantizationSpec(torch.int8, 1.0, -128, -128, 127, torch.per_tensor_affine)
"""Of bytes, 0 to 255: stored less 128."""


def weight_format(node: Node, op: Weighted) -> QuantizationSpec:
    """Symmetric int8 in [-127, 127], a scale for each output channel.

    Where TOSA's weight layout splits the output channels over two axes there is one scale in all.
    """
    if _is_per_channel(node, op):
        return row_format(op.weight_axis)
    observer = MinMaxObserver.with_args(eps=LEAST_SCALE)
    return QuantizationSpec(torch.int8, observer, -127, 127, torch.per_tensor_symmetric)


def row_format(axis: int = 0) -> QuantizationSpec:
    """Symmetric int8 in [-127, 127], a scale for each index of `axis`."""
    observer = PerChannelMinMaxObserver.with_args(eps=LEAST_SCALE)
    return QuantizationSpec(torch.int8, observer, -127, 127, torch.per_channel_symmetric, ch_axis=axis)


def observed(spec: QuantizationSpec, weight: Tensor) -> Any:
    """The observer of a format of weights, which has seen a weight."""
    fields = ("dtype", "quant_min", "quant_max", "qscheme", "ch_axis")
    observer: Any = spec.observer_or_fake_quant_ctr(**{name: getattr(spec, name) for name in fields})
    observer(weight)
    return observer


def _is_per_channel(node: Node, op: Weighted) -> bool:
    groups = arguments(node)[6] if len(arguments(node)) > 6 else 1
    if groups == 1 or op.weight_axis == 1:
        return groups == 1
    out, inner = arguments(node)[1].meta["val"].shape[:2]
    return inner > 1 or out == groups


def bias_format(node: Node, op: Weighted) -> DerivedQuantizationSpec:
    """int32 with scale = input scale x weight scale, zero point 0."""
    image, weight = arguments(node)[:2]

    def derive(observers: list) -> tuple[Tensor, Tensor]:
        (input_scale, _), (weight_scale, _) = (observer.calculate_qparams() for observer in observers)
        scale = (input_scale.double() * weight_scale.double()).clamp(min=LEAST_SCALE)
        return scale.float(), torch.zeros_like(scale, dtype=torch.int32)

    per_channel = _is_per_channel(node, op)
    return DerivedQuantizationSpec(
        derived_from=[(image, node), (weight, node)],
        derive_qparams_fn=derive,
        dtype=torch.int32,
        quant_min=-(2**31) + 1,
        quant_max=2**31 - 1,
        qscheme=torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric,
        ch_axis=0 if per_channel else None,
    )
