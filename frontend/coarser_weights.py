"""Coarser steps for the weights of layers where a byte saved costs least accuracy.

An NPU's compiler encodes weights: one of +-31 takes two bits less than one of +-127.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree
from torchao.quantization.pt2e.observer import ObserverBase

from tosaic.frontend.bias_correction import (
    Batch,
    correct_parameters,
    fake_quantize,
    held_at_once,
    observer_of,
    own_weight,
    ratio_db,
    spread,
)
from tosaic.frontend.canonical import arguments
from tosaic.frontend.grouped_weights import GroupObserver
from tosaic.frontend.lowerings.op_quantization import Weighted
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.frontend.parameters import parameter
from tosaic.frontend.quantizer import Prepared
from tosaic.frontend.rounded_runs import RoundedRuns, float_values
from tosaic.support.quantization import CoarserWeights

Encoded = Callable[[np.ndarray], int]
"""The bytes of int8 weights [outputs, ..., inputs] as an NPU reads them."""
_FACTORS = (1.0, 4 / 3, 2.0, 8 / 3, 4.0, 16 / 3, 8.0)
"""Of the steps: the weights are then within +-127, 95, 63, 47, 31, 23 or 15."""


@dataclass(frozen=True)
class WeightBudget:
    """Decibels that the worst output may lose, or the share of the encoded bytes that is saved."""

    value: float
    in_db: bool

    @staticmethod
    def parse(text: str) -> WeightBudget:
        """`1dB` or `20%`.

        Raises:
            ValueError: it is neither, or out of range.
        """
        for unit, part, most in (("dB", 1.0, math.inf), ("%", 0.01, 1.0)):
            if text.endswith(unit) and 0 <= (value := float(text.removesuffix(unit)) * part) < most:
                return WeightBudget(value, unit == "dB")
        raise ValueError(text)

    def __str__(self) -> str:
        return f"{self.value:g}dB" if self.in_db else f"{100 * self.value:g}%"


@dataclass(frozen=True)
class _Step:
    """A coarser form of one layer's weights, after those before it."""

    weights: Node
    factor: float
    saved: int


def coarsen(prepared: Prepared, batches: Sequence[Batch], budget: WeightBudget, encoded: Encoded) -> CoarserWeights:
    """Widen the ranges of weights' observers in place, as far as a budget allows.

    Each layer's weights are rounded alone, by each factor: what that adds to the noise of the worst output is its
    price. Steps are taken in the order of bytes saved for it. How many of them a loss allows is then sought with all
    rounded together and biases corrected, as the build has them: parameters are fitted to one half of the samples, and
    the loss is measured on the other.
    """
    layers = _layers(prepared.module)
    finest = sum(encoded(_integers(prepared.module, node)) for node in layers)
    steps = _in_order(prepared, batches, layers, encoded)
    measured = _Measured(prepared.module, batches, steps)
    taken = measured.most_within(budget.value) if budget.in_db else _fewest(steps, budget.value * finest)
    left = finest - sum(step.saved for step in steps[:taken])
    coarse = len({step.weights for step in steps[:taken]})
    ratios = _finite(measured.db(taken)), _finite(measured.db(0))
    _take(prepared.module, steps[:taken])
    return CoarserWeights(coarse, len(layers), left, finest, *ratios)


def _layers(module: GraphModule) -> list[Node]:
    """The observers of int8 weights."""
    found = [node.all_input_nodes[1] for node in module.graph.nodes if isinstance(op_quantization(node), Weighted)]
    own = [node for node in found if own_weight(module, node) is not None]
    return [node for node in own if not isinstance(observer_of(module, node), GroupObserver)]


def _integers(module: GraphModule, node: Node) -> np.ndarray:
    """Of a layer's weights, each rounded to the nearest: int8 [outputs, ..., inputs]."""
    stored = own_weight(module, node)
    assert stored is not None
    observer, (reader,) = observer_of(module, node), node.users
    op = op_quantization(reader)
    assert isinstance(op, Weighted)
    weights = parameter(module, stored).movedim(op.weight_axis, 0)
    scale = observer.calculate_qparams()[0].reshape(-1, *[1] * (weights.ndim - 1))
    return (weights / scale).round().to(torch.int8).movedim(1, -1).numpy()


def _in_order(prepared: Prepared, batches: Sequence[Batch], layers: Sequence[Node], encoded: Encoded) -> list[_Step]:
    """All steps that save something, the cheapest byte first; those of a layer in their order."""
    runs = RoundedRuns(prepared.module, batches)
    priced = [step for node in layers for step in _hull(runs, node, encoded)]
    return [step for _, step in sorted(priced, key=lambda one: one[0])]


def _hull(runs: RoundedRuns, node: Node, encoded: Encoded) -> Iterator[tuple[float, _Step]]:
    """A layer's steps with the noise that each adds for a byte: those on the lower convex hull of (bytes, noise)."""
    module, points = runs.module, []
    observer = observer_of(module, node)
    finest = observer.min_val, observer.max_val
    for factor in _FACTORS:
        _widen(module, node, factor)
        points.append((encoded(_integers(module, node)), 10 ** (-runs.db({node}) / 10), factor))
        observer.min_val, observer.max_val = finest
    at = points[0]
    while rest := [one for one in points if one[0] < at[0]]:
        bytes_now, noise, _ = at
        price, at = min(((one[1] - noise) / (bytes_now - one[0]), one) for one in rest)
        yield price, _Step(node, at[2], bytes_now - at[0])


def _widen(module: GraphModule, node: Node, factor: float) -> None:
    observer = observer_of(module, node)
    observer.min_val, observer.max_val = observer.min_val * factor, observer.max_val * factor


def _take(module: GraphModule, steps: Sequence[_Step]) -> None:
    for node, factor in {step.weights: step.factor for step in steps}.items():
        _widen(module, node, factor)


def _fewest(steps: Sequence[_Step], wanted: float) -> int:
    saved = 0
    for count, step in enumerate(steps):
        if saved >= wanted:
            return count
        saved += step.saved
    return len(steps)


class _Measured:
    """Signal to noise of the worst output with so many of the steps."""

    def __init__(self, module: GraphModule, batches: Sequence[Batch], steps: Sequence[_Step]) -> None:
        chosen = spread(batches, held_at_once(module))
        self.module, self.steps = module, steps
        self.fitted, self.fresh = (chosen[::2], chosen[1::2]) if len(chosen) > 1 else (chosen, chosen)
        results = pytree.tree_leaves(arguments(module.graph.output_node())[0])
        values = [float_values(module, batch) for batch in self.fresh]
        self.exact = [[run[result] for result in results if isinstance(result, Node)] for run in values]
        self.known: dict[int, float] = {}

    def most_within(self, loss: float) -> int:
        """The most steps that lose no more than `loss` dB, sought by halves."""
        least = self.db(0) - loss
        low, high = 0, len(self.steps)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.db(middle) >= least else (low, middle - 1)
        return low

    def db(self, count: int) -> float:
        if count not in self.known:
            module = copy.deepcopy(self.module)
            _take(module, self.steps[:count])
            correct_parameters(module, self.fitted)
            run = _Rounded(module)
            rounded = [pytree.tree_leaves(run.run(*batch, enable_io_processing=False)) for batch in self.fresh]
            pairs = zip(zip(*self.exact, strict=True), zip(*rounded, strict=True), strict=True)
            floats = [pair for pair in pairs if pair[0][0].is_floating_point()]
            self.known[count] = min((ratio_db(zip(*pair, strict=True)) for pair in floats), default=math.inf)
        return self.known[count]


class _Rounded(Interpreter):
    """Runs a calibrated graph as it will be quantized."""

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        observer = self.fetch_attr(str(target))
        if not isinstance(observer, ObserverBase):
            return super().call_module(target, args, kwargs)
        return fake_quantize(observer, args[0]) if isinstance(args[0], Tensor) else args[0]


def _finite(ratio: float) -> float | None:
    return ratio if math.isfinite(ratio) else None
