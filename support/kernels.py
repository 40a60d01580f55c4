"""Which CPU ops share a kernel."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from tosaic.support.attributes import int_of, ints_of
from tosaic.support.graph import Node, is_convex
from tosaic.support.mlir import constant_value, element_type, ir, shape_of
from tosaic.support.tosa_ops import CONVERTING, MOVING, POINTWISE
from tosaic.support.values import bit_width

FEWEST_IN_A_PIECE = 16
"""Elements of what moves within a tensor piece by piece, so that vectors may hold them."""
_CONVERTERS = CONVERTING | {"tosa.clamp"}


def cpu_kernels(nodes: list[Node]) -> list[list[Node]]:
    """Group `nodes` (program order, all of the CPU) into kernels.

    A kernel is one of these:

    - one op that moves data, a CONCAT with what it alone reads of SLICEs on the CPU;
    - a sum, with the rescale that widens what it reads;
    - a GATHER or SCATTER, with the TILE on the CPU of its indices, of which it alone reads the result;
    - a product of integers, with the transpose on the CPU of its second operand's matrices, of which it alone reads the
      result;
    - another op that is not pointwise, followed by the converters (rescale, clamp, cast) that alone use what stands
      before them. These end at a result that the next one would widen or, rescaled once to 16 bits or fewer, rescale
      again. A TABLE may follow an int8 convolution, and a SELECT that masks columns a product;
    - a tree of pointwise ops alone, whose vector code needs no knowledge of what made its inputs.

    A reshape belongs to none: in `main` it is an alias.
    """
    group_of: dict[Node, list[Node]] = {}
    for node in nodes:
        if node.name == "reshape":
            continue
        group = [node]
        if node.name == "reduce_sum":
            group = [*(widening for widening in node.inputs if _only_widens(widening, group_of)), node]
        if not _is_pointwise(node):
            group = [*(one for one in node.inputs if one in group_of and _is_part_of(node, one)), *group]
        if _is_pointwise(node):
            for producer in sorted(node.inputs, key=lambda each: not _is_masked_by(each, node)):
                joined = group_of.get(producer)
                if joined is not None and joined is not group and _may_join(joined, group, producer, node):
                    group = sorted([*joined, *group], key=lambda member: member.number)
            group = _with_what_it_alone_reads(group, group_of)
        for member in group:
            group_of[member] = group
    return sorted({id(group): group for group in group_of.values()}.values(), key=lambda group: group[-1].number)


def _with_what_it_alone_reads(group: list[Node], group_of: Mapping[Node, list[Node]]) -> list[Node]:
    """A kernel of pointwise ops with those kernels of such that several of its members read, and nothing else."""
    if not all(map(_is_pointwise, group)):
        return group
    for reader in group:
        for producer in reader.inputs:
            joined = group_of.get(producer, [])
            if producer in group or not joined or not all(map(_is_pointwise, joined)):
                continue
            if _may_join(joined, group, producer, reader):
                larger = sorted([*joined, *group], key=lambda member: member.number)
                return _with_what_it_alone_reads(larger, group_of)
    return group


def anchor(group: Collection[Node]) -> Node:
    """The op that names a kernel: the one that is not pointwise, else the last but converters."""
    for node in group:
        if _anchors(node, group):
            return node
    plain = [node for node in group if node.op.name not in _CONVERTERS]
    return (plain or list(group))[-1]


def _may_join(joined: list[Node], group: list[Node], producer: Node, reader: Node) -> bool:
    """Whether the pointwise `group` with `reader` in it may follow `joined`, whose member `producer` it reads."""
    members = {*joined, *group}
    if producer.returned or any(user not in members for user in producer.users):
        return False
    if any(node.op.name in MOVING | {"tosa.reduce_sum"} and _anchors(node, joined) for node in joined):
        return False
    anchors = sum(_anchors(node, members) for node in members)
    if anchors > 1 or (anchors == 1 and not _is_epilogue(joined, group, producer, reader)):
        return False
    return is_convex(members)


def _is_epilogue(joined: list[Node], group: list[Node], producer: Node, reader: Node) -> bool:
    """Whether a kernel that is not pointwise writes its results through `group`, too.

    Behind int8 of a convolution that may be one TABLE, the last of all: its gather hides behind what rescales. What
    becomes a float there belongs to the floats behind it.
    """
    if any(node.op.name == "tosa.table" for node in joined) or (
        _bits(producer) <= 16 and _each_rescales(joined, group)
    ):
        return False
    if _is_float(reader) and not _is_float(producer):
        return False
    if group == [reader] and _is_masked_by(producer, reader):
        return any(node.name == "transpose" for node in joined)
    if all(node.op.name in _CONVERTERS for node in group):
        return _bits(reader) <= _bits(producer)
    convolves = any(node.op.name == "tosa.conv2d" for node in joined)
    return convolves and [node.name for node in group] == ["table"] and _bits(reader) == _bits(producer) == 8


def _is_masked_by(product: Node, select: Node) -> bool:
    """Whether a SELECT takes columns of int8 products as they are, or one number in place of them.

    The number stands in place of the columns of all rows, or of the same places of all matrices.
    """
    if select.name != "select" or product.name != "rescale" or _bits(product) != 8:
        return False
    condition, x, other = select.op.operands
    sizes, ones = shape_of(x), (1,) * len(shape_of(x))
    conditions = (*ones[1:], *sizes[-1:]), (*ones[:1], *sizes[1:])
    return x == product.op.results[0] and shape_of(condition) in conditions and shape_of(other) == ones


def _anchors(node: Node, group: Collection[Node]) -> bool:
    """Whether a node is the one of its group that is not pointwise: no operand that this one makes itself."""
    return not _is_pointwise(node) and not any(_is_part_of(user, node) for user in node.users if user in group)


def repeats_indices(tile: ir.Operation, op: ir.Operation) -> bool:
    """Whether a TILE gives all batches of a GATHER or SCATTER the same indices."""
    if op.name not in ("tosa.gather", "tosa.scatter") or tile.name != "tosa.tile":
        return False
    before, after = shape_of(tile.operands[0]), shape_of(tile.results[0])
    return op.operands[1] == tile.results[0] and before == (1, after[1])


def _is_part_of(node: Node, operand: Node) -> bool:
    """Whether the kernel of an op makes one of its operands itself, which nothing else reads."""
    if len(operand.users) != 1 or operand.returned:
        return False
    return _is_cut_for(node, operand) or repeats_indices(operand.op, node.op) or _is_turned_for(node, operand)


def _is_cut_for(joined: Node, part: Node) -> bool:
    """Whether a node cuts out a part of a CONCAT, which is moved as one piece, and towards the beginning, where the
    result is as large as what it is cut out of: so it may lie there. Else the cut leaves room for the result."""
    if joined.name != "concat" or part.name != "slice":
        return False
    shape, axis, begin = shape_of(part.op.operands[0]), int_of(joined.op, "axis"), constant_value(part.op.operands[1])
    if shape != shape_of(joined.op.results[0]):
        return True
    is_first = joined.op.operands[0] == part.op.results[0]
    pieces, width = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    return is_first and begin is not None and begin[axis] > 0 and pieces == 1 and width >= FEWEST_IN_A_PIECE


def _is_turned_for(product: Node, operand: Node) -> bool:
    """Whether a node turns the matrices of the second operand of a product of integers."""
    if product.name != "matmul" or operand.name != "transpose":
        return False
    second = product.op.operands[1] == operand.op.results[0] != product.op.operands[0]
    return second and _bits(operand) in (8, 16) and ints_of(operand.op, "perms") == (0, 2, 1)


def _each_rescales(*groups: list[Node]) -> bool:
    """Whether each of the groups has a rescale."""
    return all(any(node.name == "rescale" for node in group) for group in groups)


def _only_widens(node: Node, group_of: Mapping[Node, list[Node]]) -> bool:
    """Whether the node is a rescale to more bits, alone in its kernel and for one reader."""
    if node.name != "rescale" or group_of.get(node) != [node] or len(node.users) != 1 or node.returned:
        return False
    return _bits(node) > bit_width(node.op.operands[0])


def _is_pointwise(node: Node) -> bool:
    return node.op.name in POINTWISE - MOVING


def _is_float(node: Node) -> bool:
    return isinstance(element_type(node.op.results[0]), ir.FloatType)


def _bits(node: Node) -> int:
    return bit_width(node.op.results[0])
