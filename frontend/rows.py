"""A write of rows into a tensor at places that only the run knows, as one op: `torch.ops.tosaic.write_rows`."""

from __future__ import annotations

import torch
from torch import Tensor

MOST_ROWS = 16
"""Rows of one op: each becomes a SCATTER."""


@torch.library.custom_op("tosaic::write_rows", mutates_args=())
def write_rows(x: Tensor, dim: int, index: Tensor, rows: Tensor) -> Tensor:
    """`x` with `rows` in the places `index` along `dim`; of several for one place, the last.

    Args:
        index: [N], none negative.
        rows: of x's shape, but N along `dim`.
    """
    written = x.clone()
    for number, place in enumerate(index.tolist()):
        written.select(dim, place).copy_(rows.select(dim, number))
    return written


@write_rows.register_fake
def _(x: Tensor, dim: int, index: Tensor, rows: Tensor) -> Tensor:
    return x.new_empty(x.shape)


WRITE_ROWS = torch.ops.tosaic.write_rows.default
