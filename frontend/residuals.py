"""Sums of a residual stream have 16 bits: each is rounded on top of the one before (Bondarenko et al. 2021).

A few channels of such a stream are far greater than the others, and a step of 8 bits is as coarse for all. What is
added keeps its 8 bits, and so does what a norm makes of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import GraphModule, Node

from tosaic.frontend.canonical import is_float
from tosaic.frontend.exclusion import widen
from tosaic.frontend.lowerings.op_quantization import Shared
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.frontend.rms_norm import RMS_NORM

aten = torch.ops.aten


def widen_residuals(module: GraphModule) -> None:
    """Mark the sums of residual streams to be int16: those that both an RMSNorm and a further sum read, and the last
    one, which an RMSNorm reads. A layer norm of int16 takes a Cortex-M much longer than one of int8."""
    stream = set[Node]()
    for node in module.graph.nodes:
        if node.target is not aten.add.Tensor or not is_float(node):
            continue
        readers = list(_readers(node))
        goes_on = any(one.target is aten.add.Tensor for one in readers) or not stream.isdisjoint(node.all_input_nodes)
        if goes_on and any(one.target is RMS_NORM for one in readers):
            stream.add(node)
            widen(node)


def _readers(node: Node) -> Iterator[Node]:
    """What computes with a node's result, which may have been moved before."""
    for user in node.users:
        if isinstance(op_quantization(user), Shared):
            yield from _readers(user)
        else:
            yield user
