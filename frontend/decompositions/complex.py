"""What makes complex numbers of real ones."""

from __future__ import annotations

import torch
from torch import Tensor

from tosaic.frontend.decompositions.registry import decomposes

aten = torch.ops.aten


@decomposes(aten.view_as_complex.default)
def _view_as_complex(x: Tensor) -> Tensor:
    return torch.complex(x.select(-1, 0), x.select(-1, 1))


@decomposes(aten.polar.default)
def _polar(size: Tensor, angle: Tensor) -> Tensor:
    return torch.complex(size * torch.cos(angle), size * torch.sin(angle))
