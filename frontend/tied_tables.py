"""Tables of embeddings with a scale for each row: one that is the matrix of a linear layer, too, so that both have the
same integers, stored once, and one of four bits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import FixedQParamsQuantizationSpec

from tosaic.frontend.canonical import arguments, is_float
from tosaic.frontend.formats import observed, row_format
from tosaic.frontend.grouped_weights import TIED, GroupObserver, group_format, mark_group
from tosaic.frontend.linear_constants import MOST_UNITS, ROW_SCALES, is_unbiased, whole_units
from tosaic.frontend.lowerings.op_quantization import Weighted
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.frontend.parameters import add_buffer, parameter

FORMAT = "tosaic.format"
"""Where a node has the format of what it reads, in its metadata, if that is known before calibration."""

aten = torch.ops.aten
_MOST, _MOST_SCALE = 127, 2**15 - 1
_ROWS_AT_ONCE = 4096
_EXACT = 1e-3
"""Of a unit, which a whole number of them may seem to be beside one; the greatest scale is one."""
_ROWS = FixedQParamsQuantizationSpec(torch.int8, 1.0, 0, -_MOST, _MOST, torch.per_tensor_symmetric)


def split_tables(module: GraphModule, stays_float: Callable[[Node], bool], group_of: Callable[[Node], int]) -> None:
    """table[i] -> rows[i] * scales[i], in place, where a linear layer has the table for its matrix, or its rows have
    four bits.

    The rows are the integers that the matrix has, and each row's scale is that of the output channel. Where the layer
    has no bias, a scale is a byte times a number. Else it is int16, so that a product is less than a step of int16 away
    from the float row.

    Args:
        group_of: a lookup's numbers that share a factor, as of `grouped_weights`; 0 where rows are int8.
    """
    layers = [node for node in module.graph.nodes if _is_linear(node) and not stays_float(node)]
    matrices = [(node, parameter(module, arguments(node)[1])) for node in layers]
    for node in list(module.graph.nodes):
        table = arguments(node)[0] if node.target is aten.embedding.default else None
        if table is None or table.op != "get_attr" or stays_float(node):
            continue
        values, group = parameter(module, table), group_of(node)
        tied = [layer for layer, matrix in matrices if values.equal(matrix)]
        for layer in tied:
            arguments(layer)[1].meta[TIED] = group
        if tied or group:
            rows, scales = _quantized(values, group)
            units = None if group or not all(map(is_unbiased, tied)) else whole_units(scales)
            if units is None:
                _split(module, node, rows, scales, group, _MOST_SCALE)
                continue
            scales = better_units(values, scales, units) * scales.max() / MOST_UNITS
            rows = _nearest(values, scales)
            _split(module, node, rows, scales, group, MOST_UNITS)
            for layer in tied:
                _rounded(module, layer, rows, scales)
    module.recompile()


def better_units(table: Tensor, scales: Tensor, units: Tensor) -> Tensor:
    """Of the two whole numbers beside each scale the one whose integers miss less of its row: a smaller step clips what
    is greatest in it, a larger one rounds all more.

    Args:
        units: the nearer of the two.
    """
    unit = scales.max() / MOST_UNITS
    more = scales / unit - units
    other = units + more.sign() * (more.abs() > _EXACT)
    parts = zip(*(each.split(_ROWS_AT_ONCE) for each in (table, units, other)), strict=True)
    chosen = [torch.where(_missed(t, b * unit) < _missed(t, a * unit), b, a) for t, a, b in parts]
    return torch.cat(chosen)


def _missed(table: Tensor, scales: Tensor) -> Tensor:
    return (_nearest(table, scales) * scales - table).square().sum(1, keepdim=True)


def _nearest(table: Tensor, scales: Tensor) -> Tensor:
    return (table / scales).round().clamp(-_MOST, _MOST)


def _rounded(module: GraphModule, layer: Node, rows: Tensor, scales: Tensor) -> None:
    """A matrix that is `rows` * `scales`, in place, whose scales are known."""
    before = arguments(layer)[1]
    if ROW_SCALES not in before.meta:
        after = add_buffer(module, layer, rows * scales, "matrix")
        after.meta |= {TIED: 0, ROW_SCALES: scales.double().flatten()}
        layer.replace_input_with(before, after)


def _is_linear(node: Node) -> bool:
    op = op_quantization(node)
    if not isinstance(op, Weighted) or op.result_axis != -1:
        return False
    return is_float(arguments(node)[0]) and arguments(node)[1].op == "get_attr"


def _quantized(table: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Its integers, and the scale of each row, as of a linear layer's matrix."""
    observer = observed(group_format(group) if group else row_format(), table)
    table = observer.nearest(table) if isinstance(observer, GroupObserver) else table
    scales, zeros = observer.calculate_qparams()
    quantize = torch.ops.quantized_decomposed.quantize_per_channel.default
    return quantize(table, scales, zeros, 0, -_MOST, _MOST, torch.int8).float(), scales.float()[:, None]


def _split(module: GraphModule, lookup: Node, rows: Tensor, scales: Tensor, group: int, most: int) -> None:
    """
    Args:
        most: steps of the greatest scale.
    """
    kind, step = torch.int8 if most == MOST_UNITS else torch.int16, float(scales.max()) / most
    of_scales = FixedQParamsQuantizationSpec(kind, step, 0, -most - 1, most, torch.per_tensor_symmetric)
    indices, found = arguments(lookup)[1], []
    for values, known, role in ((rows, _ROWS, "rows"), (scales, of_scales, "scales")):
        table = add_buffer(module, lookup, values, role)
        with module.graph.inserting_before(lookup):
            taken = module.graph.call_function(aten.embedding.default, (table, indices))
        shape = (*lookup.meta["val"].shape[:-1], values.shape[1])
        taken.meta = {**lookup.meta, "val": lookup.meta["val"].new_empty(shape), FORMAT: known}
        if group:
            mark_group(taken, group)
        found.append(taken)
    with module.graph.inserting_before(lookup):
        product = module.graph.call_function(aten.mul.Tensor, tuple(found))
    product.meta = dict(lookup.meta)
    lookup.replace_all_uses_with(product)
    module.graph.erase_node(lookup)
