"""Weights that make up for each other's roundings, and biases that take out the mean error that is left."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree
from torchao.quantization.pt2e.observer import ObserverBase

from tosaic.frontend.calls import Picked, columns_of
from tosaic.frontend.error_feedback import enough_images, round_weights
from tosaic.frontend.grouped_weights import LIMITS, TIED, GroupObserver
from tosaic.frontend.lowerings.op_quantization import Weighted
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.frontend.observer import RangeObserver
from tosaic.frontend.origin import Origin, origin
from tosaic.frontend.parameters import parameter

Batch: TypeAlias = tuple[Tensor, ...]
T = TypeVar("T")
_SAMPLES, _MOST, _FEWEST, _HELD_BYTES = 64, 512, 8, 2**30
_BIAS_LIMIT = 2.0**29  # half of what an accumulator may hold, for what correction adds


def correct_parameters(prepared: GraphModule, batches: Sequence[Batch]) -> dict[str, tuple[Origin, float]]:
    """Layer after layer, in one run: weights rounded by `round_weights`, then empirical bias correction (Nagel et al.
    2019, section 4.2).

    Args:
        prepared: a calibrated graph, its observers in place; its weights and biases are replaced.
        batches: of which the error is measured on up to 64, or 512 where weights have four bits or every layer sees
            little in a sample, evenly spread: on fewer where the model's tensors are so large that memory would hold
            more than a GiB of them at once.

    Returns:
        For each node whose result is quantized its origin and its ratio of signal to quantization noise in dB. All that
        comes before the node is quantized too.
    """
    _observe_late(prepared.graph)
    most = held_at_once(prepared, _most_samples(prepared))
    run = _Corrector(prepared, min(most, len(batches)))
    run.run(*(spread(column, most) for column in columns_of(batches)), enable_io_processing=False)
    return run.sqnr


def _observe_late(graph: Graph) -> None:
    """Let an input be rounded right before its first reader: the states of all layers take more memory than one's."""
    places = {node: place for place, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.op == "call_module" and node.users and node.all_input_nodes[0].op == "placeholder":
            min(node.users, key=lambda user: places[user]).prepend(node)


def _most_samples(prepared: GraphModule) -> int:
    """How many samples weights are rounded on at most."""
    # What weights of four bits make up for each other is large: of few samples it is their noise.
    if any(isinstance(each, GroupObserver) for each in prepared.modules()):
        return _MOST
    wanted = list[int]()
    for node in prepared.graph.nodes:
        op = op_quantization(node)
        stored = own_weight(prepared, node.all_input_nodes[1]) if isinstance(op, Weighted) else None
        if isinstance(op, Weighted) and stored is not None:
            wanted.append(enough_images(node, op, parameter(prepared, stored)))
    return min(_MOST, max(_SAMPLES, min(wanted, default=0)))


def spread(batches: Sequence[T], most: int) -> Sequence[T]:
    """At most so many of the batches, evenly spread over all."""
    if len(batches) <= most:
        return batches
    return Picked(batches, [number * len(batches) // most for number in range(most)])


def held_at_once(graph: GraphModule, most: int = _SAMPLES) -> int:
    """How many samples run through a graph side by side, in float and rounded: see `correct_parameters`."""
    values = (node.meta.get("val") for node in graph.graph.nodes)
    largest = max((value.nbytes for value in values if isinstance(value, Tensor)), default=1)
    return max(_FEWEST, min(most, _HELD_BYTES // (4 * max(1, largest))))  # what an op reads and gives, in both


def make_room_for_biases(prepared: GraphModule) -> None:
    """Raise the weights' scales of channels so small that their bias, in units of input x weight, would not fit int32.

    Such weights are below 2^-29 of the bias, and what the coarser scale rounds off is far below a step of the result.
    """
    for node in prepared.graph.nodes:
        bias = _bias(node) if isinstance(op_quantization(node), Weighted) else None
        observers = [observer_of(prepared, source) for source in node.all_input_nodes[:2]]
        if bias is None or None in observers:
            continue
        image, weight = observers
        if not hasattr(weight, "max_val"):  # weights that are computed have the format of an activation
            continue
        values = parameter(prepared, bias).abs()
        room = 127 * values / (_BIAS_LIMIT * image.calculate_qparams()[0])
        weight.max_val = torch.maximum(weight.max_val, room if weight.max_val.ndim else room.max())


@dataclass(frozen=True)
class _Twin:
    """A value with and without quantization, one of each for every batch."""

    exact: Sequence[Any]
    rounded: Sequence[Any]


class _Corrector(Interpreter):
    def __init__(self, prepared: GraphModule, count: int) -> None:
        super().__init__(prepared)
        self.count = count
        self.sqnr: dict[str, tuple[Origin, float]] = {}
        self._rounded: dict[tuple[tuple[int, ...], bytes], Tensor] = {}
        self.user_to_last_uses = _last_uses(prepared.graph)

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> _Twin:
        values = super().placeholder(target, args, kwargs)
        return _Twin(values, values)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        observer, value = self.fetch_attr(target), args[0]
        if not isinstance(observer, ObserverBase):
            return value
        if isinstance(value, _Twin):
            return _Twin(value.exact, [fake_quantize(observer, tensor) for tensor in value.rounded])
        return _Twin([value] * self.count, [fake_quantize(observer, value)] * self.count)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if not any(isinstance(leaf, _Twin) for leaf in pytree.tree_leaves((args, kwargs))):
            return super().call_function(target, args, kwargs)

        def side(pick: Callable[[_Twin], Sequence], index: int) -> Any:
            own_args, own_kwargs = pytree.tree_map_only(_Twin, lambda twin: pick(twin)[index], (args, kwargs))
            return target(*own_args, **own_kwargs)

        return _Twin(
            [side(lambda twin: twin.exact, index) for index in range(self.count)],
            [side(lambda twin: twin.rounded, index) for index in range(self.count)],
        )

    def run_node(self, n: Node) -> Any:
        if n.op == "output":
            return None
        op, bias = op_quantization(n), own_bias(n)
        if isinstance(op, Weighted):
            self._round_weights(n, op)
        result = super().run_node(n)
        if n.op == "call_module" and isinstance(result, _Twin) and n.all_input_nodes[0].op != "get_attr":
            self._measure(n.all_input_nodes[0], result, self.fetch_attr(str(n.target)))
        if not isinstance(op, Weighted) or bias is None or not isinstance(result, _Twin):
            return result
        error = mean_error(result.exact, result.rounded, op.result_axis)
        self._replace(bias, self.fetch_attr(str(bias.target)) + error)
        return _Twin(result.exact, corrected(result.rounded, error, op.result_axis))

    def _round_weights(self, node: Node, op: Weighted) -> None:
        """Replace the weights of a layer, where no other reads them. Equal ones, which another method of the model has,
        are rounded alike."""
        assert isinstance(self.module, GraphModule)
        image, observed = node.all_input_nodes[:2]
        observer, stored = observer_of(self.module, observed), own_weight(self.module, observed)
        groups, centered = isinstance(observer, GroupObserver), own_bias(node) is not None
        if groups and stored is None:  # a table is rounded so, too
            table = observed.all_input_nodes[0]
            self._replace(table, observer.nearest(self.fetch_attr(str(table.target))))
        if stored is None or not isinstance(self.env.get(image), _Twin):
            return
        exact = self.fetch_attr(str(stored.target))
        scale = observer.steps(exact) if groups else observer.calculate_qparams()[0]
        bits = exact.detach().numpy().tobytes() + scale.detach().numpy().tobytes()
        key = tuple(exact.shape), hashlib.sha256(bits).digest()
        rounded = self._rounded.get(key)
        if rounded is None:
            images: Sequence[Tensor] = spread(self.env[image].rounded, enough_images(node, op, exact))
            limits = LIMITS if groups else (-observer.quant_max, observer.quant_max)
            rounded = round_weights(node, op, exact, scale, limits, images, centered)
            if rounded is None and groups:
                rounded = observer.nearest(exact)
        if rounded is not None:
            self._rounded[key] = rounded
            self._replace(stored, rounded)
            self.env[observed] = _Twin([exact] * self.count, [rounded] * self.count)

    def _replace(self, stored: Node, values: Tensor) -> None:
        owner, _, name = str(stored.target).rpartition(".")
        assert isinstance(self.module, GraphModule)
        setattr(self.module.get_submodule(owner), name, nn.Parameter(values, requires_grad=False))

    def _measure(self, node: Node, result: _Twin, observer: Any) -> None:
        pairs: Iterable[tuple[Tensor, Tensor]] = zip(result.exact, result.rounded, strict=True)
        if isinstance(observer, RangeObserver):
            pairs = ((observer.seen(exact), observer.seen(rounded)) for exact, rounded in pairs)
        ratio = ratio_db(pairs)
        if ratio < math.inf:
            self.sqnr.setdefault(node.name, (origin(node), ratio))


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """For each node the values that nobody reads behind it. What a graph gives is nobody's: new states of a decoder
    would take more memory than its weights."""
    last = {one: node for node in graph.nodes if node.op != "output" for one in (node, *node.all_input_nodes)}
    uses = dict[Node, list[Node]]()
    for one, node in last.items():
        uses.setdefault(node, []).append(one)
    return uses


def ratio_db(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Signal to noise of tensors that quantization has changed, over all pairs of exact and rounded ones.

    Noise against the variance. Infinite without signal or noise, minus infinite where noise is not finite.
    """
    count, total, power, noise = 0, 0.0, 0.0, 0.0
    for exact, rounded in pairs:
        count, total = count + exact.numel(), total + exact.sum(dtype=torch.float64).item()
        power, noise = power + energy(exact), noise + energy(exact - rounded)
    signal = max(0.0, power - total**2 / max(1, count))
    if not math.isfinite(noise):
        return -math.inf
    return 10 * math.log10(signal / noise) if signal and noise else math.inf


def mean_error(exact: Sequence[Tensor], rounded: Sequence[Tensor], axis: int) -> Tensor:
    """What each channel lacks on average over samples."""
    missing = [(one - other).movedim(axis, 0) for one, other in zip(exact, rounded, strict=True)]
    return torch.stack([each.reshape(len(each), -1).mean(1) for each in missing]).mean(0)


def corrected(values: Sequence[Tensor], error: Tensor, axis: int) -> list[Tensor]:
    """Values with an offset for each channel."""
    shape = [1] * values[0].ndim
    shape[axis] = -1
    return [value + error.reshape(shape) for value in values]


def energy(x: Tensor) -> float:
    return torch.linalg.vector_norm(x if x.is_floating_point() else x.double(), dtype=torch.float64).item() ** 2


def _bias(node: Node) -> Node | None:
    """The parameter behind a node's bias."""
    bias: Any = node.args[2] if len(node.args) > 2 else None
    while isinstance(bias, Node) and bias.op == "call_module":
        bias = bias.args[0]
    return bias if isinstance(bias, Node) and bias.op == "get_attr" else None


def own_bias(node: Node) -> Node | None:
    """The parameter behind a node's bias, where no other node has it."""
    bias = _bias(node)
    given = node.args[2] if bias else None
    alone = all(isinstance(one, Node) and len(one.users) == 1 for one in (bias, given))
    return bias if alone else None


def own_weight(module: GraphModule, node: Node) -> Node | None:
    """The parameter behind the observer that `node` is, of int8 weights that one layer alone has."""
    observer = observer_of(module, node)
    stored = node.all_input_nodes[0] if hasattr(observer, "max_val") else None
    if stored is None or stored.op != "get_attr" or TIED in stored.meta:
        return None
    return stored if len(stored.users) == len(node.users) == 1 else None


def observer_of(module: GraphModule, node: Node) -> Any:
    """The observer that a node is; None where it is none."""
    found = module.get_submodule(str(node.target)) if node.op == "call_module" else None
    return found if isinstance(found, ObserverBase) else None


def fake_quantize(observer: Any, x: Tensor) -> Tensor:
    """What quantization and dequantization make of `x`; a bias, whose int32 is fine enough, stays as it is."""
    if hasattr(observer, "derive_qparams_fn") or x.dtype != torch.float32:
        return x
    if isinstance(observer, GroupObserver):
        return observer.nearest(x)
    scale, zero_point = observer.calculate_qparams()
    limits = (observer.quant_min, observer.quant_max)
    if observer.qscheme is torch.per_channel_symmetric:
        return torch.fake_quantize_per_channel_affine(x, scale, zero_point.int(), observer.ch_axis, *limits)
    return torch.fake_quantize_per_tensor_affine(x, scale.float().reshape(()), zero_point.int().reshape(()), *limits)
