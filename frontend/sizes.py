"""Tensors that no microcontroller holds are refused before anything computes them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tosaic.frontend.origin import origin
from tosaic.support.errors import ModelError
from tosaic.support.functions import body_of
from tosaic.support.locations import describe
from tosaic.support.mlir import ir, walk

MOST_ELEMENTS = 1 << 26
"""Of a tensor; as many bytes as the largest memory beside a Cortex-M has, even as int8."""


def refuse_large_tensors(program: ExportedProgram) -> None:
    """Refuse a program with a tensor that no microcontroller holds.

    Raises:
        ModelError: it has one; the message names the op and its line.
    """
    for node in program.graph.nodes:
        made = pytree.tree_leaves(node.meta.get("val"))
        for tensor in made:
            if isinstance(tensor, torch.Tensor):
                _check([int(extent) for extent in tensor.shape], str(node.target), str(origin(node)))


def refuse_large_results(main: ir.Operation) -> None:
    """Refuse a function of TOSA with a tensor that no microcontroller holds.

    Raises:
        ModelError: it has one; the message names the op and its line.
    """
    made = [(value, op.name, describe(op.location)) for op in walk(main) for value in op.results]
    given = [(argument, f"input {number}", "") for number, argument in enumerate(body_of(main).arguments)]
    for value, what, where in (*given, *made):
        if isinstance(value.type, ir.RankedTensorType) and value.type.has_static_shape:
            _check(value.type.shape, what, where)


def _check(shape: Sequence[int], op: str, where: str) -> None:
    extents = list(shape)
    if math.prod(extents) > MOST_ELEMENTS:
        raise ModelError(
            f"`{op}` is a tensor of {math.prod(extents):,} elements",
            where=where,
            why=f"its shape is {extents}, and no more than {MOST_ELEMENTS:,} elements are taken",
        )
