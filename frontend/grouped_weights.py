"""Weights of four bits in groups: int8 that are -8 to 7 times a factor of their group.

So everywhere they are int8 weights with a scale for each output channel. They take half a byte where a kernel reads
them so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fx import Node
from torchao.quantization.pt2e.observer import PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantizer import QuantizationSpec

from tosaic.frontend.canonical import arguments, complete_arguments
from tosaic.frontend.exclusion import is_named
from tosaic.frontend.lowerings.op_quantization import Weighted
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.support.errors import ModelError
from tosaic.support.quantization import LEAST_SCALE

GROUP_SIZES = (32, 64, 128)
LIMITS = -8, 7
"""The least and the greatest weight."""
_FACTORS = 15
"""That a group may have: a weight times its factor is an int8."""
_NEAR = (-2, -1, 0, 1)
"""From the least factor that cuts nothing off to those that are tried. All 15 leave 0.1 % less error, or nothing."""
_ROWS = 256
"""Of a matrix that are rounded at a time, so that they stay in a processor's caches."""
_LEVELS = (*range(84, 121, 3), 112)
"""Steps of an output up to its greatest weight that are tried: multiples of 7, of 7.5 and of 8, and some between."""
LAYERS = "tosaic.four_bits"
"""Where a quantized graph's metadata say how many layers have such weights."""
TIED = "tosaic.tied"
"""Marks a matrix, in its node's metadata, whose integers stand in a table, too: with the inputs that have a factor, 0
where there are none."""
_KEPT = "tosaic.group"  # in a node's meta under `custom`, where torch.export keeps it
_NO_TABLE = f"a table of embeddings needs rows of {min(GROUP_SIZES)} numbers at least, and a target without NPU"
_GROUPS = 6  # where the arguments of a convolution have them


class GroupObserver(PerChannelMinMaxObserver):
    """Ranges of the outputs of a matrix [outputs, inputs, 1 ...], and the steps of each group of inputs.

    Args:
        group: inputs that have a factor.
    """

    def __init__(self, group: int, **given) -> None:
        super().__init__(**given)
        self.group = group
        self.levels: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Note the ranges of `x`, the same weights in every call; returns `x`."""
        super().forward(x)
        if self.levels is None:
            errors = torch.stack([_rounded(x, self._largest / levels, self.group).error for levels in _LEVELS])
            self.levels = torch.tensor(_LEVELS)[errors.argmin(0)]
        return x

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The scale of each output, and zero points of 0."""
        assert self.levels is not None
        scale = (self._largest / self.levels).clamp(min=LEAST_SCALE)
        return scale, torch.zeros_like(scale, dtype=torch.int32)

    def steps(self, weight: Tensor) -> Tensor:
        """float32 of the shape of `weight`: of what each is a multiple. The factor of a group is the one with which
        rounding changes it least."""
        return _rounded(weight, self.calculate_qparams()[0], self.group).steps

    def nearest(self, weight: Tensor) -> Tensor:
        """The weights, each rounded to the nearest."""
        return _rounded(weight, self.calculate_qparams()[0], self.group).weight

    @property
    def _largest(self) -> Tensor:
        """The magnitude of the greatest weight of each output."""
        return torch.maximum(-self.min_val, self.max_val)


class _RoundedGroups(NamedTuple):
    """Weights rounded to the nearest, their steps, and the squared error of each output."""

    weight: Tensor
    steps: Tensor
    error: Tensor


def _rounded(weight: Tensor, scale: Tensor, group: int) -> _RoundedGroups:
    """The weights, given the scale of each output, and the inputs that have a factor."""
    rows, unit = weight.reshape(len(weight), -1), scale.clamp(min=LEAST_SCALE)[:, None]
    parts = zip(rows.split(_ROWS), unit.split(_ROWS), strict=True)
    best, steps, error = map(torch.cat, zip(*(_rounded_rows(*part, group) for part in parts), strict=True))
    return _RoundedGroups(best.reshape(weight.shape), steps.reshape(weight.shape), error)


def _rounded_rows(rows: Tensor, unit: Tensor, group: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same of a matrix."""
    grouped = torch.nn.functional.pad(rows, (0, -rows.shape[1] % group)).unflatten(1, (-1, group))
    low, high = grouped.aminmax(dim=-1)
    whole = (torch.maximum(low / LIMITS[0], high / LIMITS[1]) / unit).ceil()
    least, step = torch.full_like(whole, torch.inf), unit.expand_as(whole)
    for near in _NEAR:
        tried = (whole + near).clamp(1, _FACTORS) * unit
        error = (_multiples(grouped, tried) - grouped).square_().sum(-1)
        step, least = torch.where(error < least, tried, step), torch.minimum(error, least)
    steps = step[..., None].expand_as(grouped)
    best = _multiples(grouped, step).flatten(1)[:, : rows.shape[1]]
    return best, steps.flatten(1)[:, : rows.shape[1]], least.sum(1)


def _multiples(grouped: Tensor, step: Tensor) -> Tensor:
    """The weights as multiples of the step of their group."""
    return (grouped / step[..., None]).round_().clamp_(*LIMITS).mul_(step[..., None])


def group_format(group: int) -> QuantizationSpec:
    """Symmetric int8 with a scale for each output, -8 to 7 times a factor of each group of so many inputs."""
    observer = GroupObserver.with_args(group=group, eps=LEAST_SCALE)
    return QuantizationSpec(torch.int8, observer, -127, 127, torch.per_channel_symmetric, ch_axis=0)


def table_group(lookup: Node, named: Sequence[str], group: int) -> int:
    """The numbers in a group of the rows of a table of embeddings; 0 where these are int8."""
    width = arguments(lookup)[0].meta["val"].shape[1]
    return group * (width >= min(GROUP_SIZES) and is_named(lookup, named))


def mark_group(node: Node, group: int) -> None:
    """Say of a node that its weights came in groups of so many inputs."""
    node.meta["custom"] = {**(node.meta.get("custom") or {}), _KEPT: group}


def marked_group(node: Node) -> int:
    """What `mark_group` said of a node; 0 of others."""
    return (node.meta.get("custom") or {}).get(_KEPT, 0)


def group_of(node: Node, named: Sequence[str], group: int) -> int:
    """The inputs in a group of a node's weights; 0 where these are int8.

    Args:
        named: what has weights of four bits, in groups of `group`.

    Raises:
        ModelError: the weights came with four bits, and cannot have them.
    """
    marked, why = marked_group(node), _why_not(node)
    if tied := _tied_group(node):
        return tied
    if marked and why:
        raise ModelError(f"`{node.name}` cannot have weights of four bits", why=why, hint="quantize other layers so")
    return marked if marked else group * (not why and is_named(node, named))


def refuse_without_groups(nodes: Sequence[Node], named: Sequence[str], group: int) -> None:
    """Check that each name has weights of four bits.

    Raises:
        ModelError: one has none; the message says why.
    """
    for name in named:
        known = [node for node in nodes if is_named(node, [name])]
        found = [node for node in known if isinstance(op_quantization(node), Weighted)]
        tables = any(node.target is torch.ops.aten.embedding.default for node in known)
        if not any(map(marked_group, known)) and not any(group_of(node, [name], group) for node in found):
            why = _why_not(found[0]) if found else _NO_TABLE if tables else "it has no weights"
            raise ModelError(f"`{name}` cannot have weights of four bits", why=why)


def _tied_group(node: Node) -> int:
    """The inputs in a group of a layer's matrix that stands in a table of four bits, too; 0 of others."""
    weight = arguments(node)[1] if isinstance(op_quantization(node), Weighted) else None
    return weight.meta.get(TIED, 0) if isinstance(weight, Node) else 0


def _why_not(node: Node) -> str:
    """Why a node cannot have weights of four bits; empty where it can."""
    op = op_quantization(node)
    weight = arguments(node)[1] if isinstance(op, Weighted) else None
    if not isinstance(op, Weighted) or not isinstance(weight, Node) or weight.op != "get_attr" or op.weight_axis != 0:
        return "it is no linear layer, and no convolution, with weights of its own"
    if TIED in weight.meta or len(weight.users) > 1:
        return "its weights are a table of embeddings too, or another layer's"
    given, shape = complete_arguments(node), weight.meta["val"].shape
    if len(given) > _GROUPS and (given[_GROUPS] > 1 or any(n > 1 for n in shape[2:])):
        return "a convolution needs windows of one pixel, and no groups"
    if len(given) > _GROUPS and (set(given[3]) != {1} or set(given[4]) != {0}):
        return "a convolution needs a stride of 1, and no padding"
    if shape[1] < min(GROUP_SIZES):
        return f"it has {shape[1]} inputs, and a group has {min(GROUP_SIZES)} at least"
    return ""
