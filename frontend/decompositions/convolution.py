"""Convolutions of one and three axes as those of images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.frontend.decompositions.registry import decomposes

aten = torch.ops.aten


@decomposes(aten.conv_transpose1d.default)
def _conv_transpose1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sequence[int] = (1,), padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,), groups: int = 1, dilation: Sequence[int] = (1,),
) -> Tensor:  # fmt: skip
    row = F.conv_transpose2d(
        x.unsqueeze(-2), weight.unsqueeze(2), bias, (1, *stride), (0, *padding), (0, *output_padding), groups,
        (1, *dilation),
    )  # fmt: skip
    return row.squeeze(-2)
