"""What several kernels of the core, or regions of the NPU, read and make themselves: wider integers, and indices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tosaic.passes.integers import rescale_of
from tosaic.support.graph import Node, nodes_of
from tosaic.support.kernels import repeats_indices
from tosaic.support.mlir import ir
from tosaic.support.tosa_ops import MOVING, POINTWISE
from tosaic.support.values import bit_width

_WIDENS = POINTWISE - MOVING | {"tosa.reduce_sum"}
"""The ops whose kernels widen what they read."""
_FEW = 3
"""Kernels that do so in less time than one that does it for all."""


def widen_in_readers(kernels: Sequence[Sequence[Node]]) -> bool:
    """Give kernels a copy each of a RESCALE that they read, where they are few; whether there was one.

    The RESCALE is a kernel of its own, and does nothing but take its zero point away.
    """
    kernel_of = {node: kernel for kernel in kernels for node in kernel}
    found = [kernel[0] for kernel in kernels if len(kernel) == 1 and _only_widens(kernel[0])]
    widened = False
    for node in found:
        if not node.users or any(user not in kernel_of or user.op.name not in _WIDENS for user in node.users):
            continue
        readers = {id(kernel_of[user]): [one for one in node.users if one in kernel_of[user]] for user in node.users}
        for users in list(readers.values())[1:] if len(readers) <= _FEW else ():
            _copy_for(node, users)
            widened = True
    return widened


def repeat_in_readers(module: ir.Module) -> None:
    """Give each GATHER and SCATTER on the core its own copy of a TILE that repeats its indices."""
    for node in nodes_of(module):
        on_core = [user for user in node.users if "tosaic.op" not in user.op.attributes]
        readers = [user for user in on_core if repeats_indices(node.op, user.op)]
        alone = len(readers) == len(node.users) and not node.returned
        for user in readers[alone:] if "tosaic.op" not in node.op.attributes else ():
            _copy_for(node, [user])


def widen_in_regions(regions: Sequence[Sequence[Node]]) -> list[list[ir.Operation]]:
    """The ops of each region of the NPU, which has a copy of each RESCALE to more bits that it reads of another one: in
    one region the NPU does it while it reads, and fewer bytes are kept. Each reader has a copy of that of a constant,
    as Vela makes one op of what several read."""
    region_of = {node: index for index, region in enumerate(regions) for node in region}
    copies: list[list[ir.Operation]] = [[] for _ in regions]
    for node, own in region_of.items():
        if node.name != "rescale" or bit_width(node.op.results[0]) <= bit_width(node.op.operands[0]):
            continue
        if not node.inputs:
            for user in [user for user in node.users if user in region_of][1:]:
                copies[region_of[user]].append(_copy_for(node, [user]))
            continue
        for index in sorted({region_of.get(user, own) for user in node.users} - {own}):
            copies[index].append(_copy_for(node, [user for user in node.users if region_of.get(user) == index]))
    return [[*more, *(node.op for node in region)] for more, region in zip(copies, regions, strict=True)]


def _only_widens(node: Node) -> bool:
    """Whether a node is a RESCALE by one to int32, for kernels alone."""
    found = rescale_of(node.op) if node.name == "rescale" and not node.returned else None
    return found is not None and found.by_one and found.output_zp == 0 and found.target == "i32"


def _copy_for(node: Node, users: Iterable[Node]) -> ir.Operation:
    """Let users read a copy of a node's result; the copy."""
    (result,) = node.op.results
    copy = node.op.clone(ir.InsertionPoint(node.op)).operation
    for user in users:
        for number, operand in enumerate(user.op.operands):
            if operand == result:
                user.op.operands[number] = copy.results[0]
    return copy
