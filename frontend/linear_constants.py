"""What linear layers store beside their weights, made small: biases that are 0, and multipliers that are bytes.

A layer without a bias has one for the zero point of what it reads, unless that is 0. Then the scales of its weights
become whole numbers of a unit, and the multipliers of its RESCALE bytes times a number: to multiply them takes a kernel
as long as to add a bias. A product of two activations has no bias that is known: where the first has a zero point, it
adds up each column of the second.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from tosaic.frontend.bias_correction import observer_of, own_weight
from tosaic.frontend.calibrated import Calibrated
from tosaic.frontend.canonical import arguments
from tosaic.frontend.constant_products import PRODUCTS
from tosaic.frontend.lowerings.op_quantization import Weighted
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.frontend.observer import RangeObserver
from tosaic.frontend.parameters import parameter
from tosaic.frontend.sharing import factor_of

_LARGER = 1.15
"""Times a step may be as large for a zero point of 0, which is little more than a decibel of noise."""
MOST_UNITS, _LEAST = 127, 16
"""Units of a scale. No scale moves by more than half of a unit."""
_SHIFT = 27
"""A multiplier is 16 times a number, with a shift of 31: then sums that are 16 times as large are scaled by it, too."""
_MULTIPLIERS = 2**15, 2**21
"""The least such number that keeps bits enough, and the greatest that scales of float32 tell from those beside it."""
ROW_SCALES = "tosaic.row_scales"
"""Where a matrix has its scales, f64, in its node's metadata, if they are known before calibration."""


def center_inputs(prepared: GraphModule) -> None:
    """Choose ranges about 0 for what linear layers without a bias, and products of activations, read as their first
    operand, and no other op reads.

    Args:
        prepared: a calibrated graph, its formats shared.
    """
    graph = Calibrated(prepared)
    readers = dict[RangeObserver, set[tuple[Node, Node]]]()
    for node in prepared.graph.nodes:
        if (observer := graph.observer(node)) is not None:
            readers.setdefault(observer, set()).update((user, node) for user in node.users)

    def gains(observer: RangeObserver | None, *before: RangeObserver) -> bool:
        """Whether all readers need less where the zero point is 0; `before` are tensors that it is scaled from."""
        if observer is None or observer in before:
            return False
        users = [each for each in readers[observer] if graph.result(each[0]) is not observer]
        return bool(users) and all(
            is_unbiased(user)
            or _multiplies(user, x)
            or (factor_of(user) is not None and gains(graph.result(user), observer, *before))
            for user, x in users
        )

    for observer in readers:
        # What a number scales stays the same integers.
        made = [node.all_input_nodes[0] for node in graph.calls(observer)]
        sources = [graph.observer(node.all_input_nodes[0]) for node in made if factor_of(node) is not None]
        if all(map(gains, (observer, *sources))):
            observer.center(_LARGER)


def share_units(prepared: GraphModule) -> None:
    """Move the scales of weights to whole numbers of units, where none moves far, of layers that need no bias.

    Args:
        prepared: a calibrated graph, whose formats stay from now on.
    """
    graph, known = Calibrated(prepared), dict[bytes, Tensor]()
    for layer in filter(is_unbiased, prepared.graph.nodes):
        observed = layer.all_input_nodes[1]
        given = next((node.meta[ROW_SCALES] for node in observed.all_input_nodes if ROW_SCALES in node.meta), None)
        stored = own_weight(prepared, observed) if given is None else observed.all_input_nodes[0]
        if stored is None:
            continue
        observer, bits = observer_of(prepared, observed), parameter(prepared, stored).numpy().tobytes()
        before = observer.calculate_qparams()[0].double()
        # Another method of the model has the same weights.
        after = known[bits] if bits in known else _in_units(graph, layer, before if given is None else given)
        after = given if after is None else after
        if after is not None:
            known[bits] = after
            ratio = (after / before).float()
            observer.min_val, observer.max_val = observer.min_val * ratio, observer.max_val * ratio


def _multiplies(node: Node, x: Node) -> bool:
    """Whether a node is the product of `x` and another tensor."""
    return node.target in PRODUCTS and [x is operand for operand in arguments(node)[:2]] == [True, False]


def is_unbiased(node: Node) -> bool:
    """Whether a node is a linear layer without a bias."""
    op = op_quantization(node)
    return isinstance(op, Weighted) and op.result_axis == -1 and arguments(node)[2:] in ((), (None,))


def _in_units(graph: Calibrated, layer: Node, scales: Tensor) -> Tensor | None:
    """The scales as whole numbers of one unit, f64; None where that moves one too far, or the layer reads or gives no
    int8, or reads what has a zero point."""
    image, result = graph.observer(layer.all_input_nodes[0]), graph.result(layer)
    if image is None or result is None or {image.dtype, result.dtype} != {torch.int8}:
        return None
    if image.calculate_qparams()[1].any():
        return None
    units = whole_units(scales)
    if units is None:
        return None
    step = graph.scale(result) / graph.scale(image) / 2**_SHIFT
    number = (scales.max() / MOST_UNITS / step).round()
    least, greatest = _MULTIPLIERS
    if number * units.min() < least or number * units.max() > greatest:
        return None
    return units * number * step


def whole_units(scales: Tensor) -> Tensor | None:
    """Scales in units, of which the greatest has `MOST_UNITS`; None where that moves one too far."""
    units = (scales / scales.max() * MOST_UNITS).round()
    return None if units.min() < _LEAST else units
