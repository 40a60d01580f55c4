"""Which tensors share one format: decided after calibration, by what a format of its own gains."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.fx import GraphModule, Node

from tosaic.frontend.canonical import arguments
from tosaic.frontend.lowerings.op_quantization import Arithmetic, Averaged, Clamp, Joined, Recurrent
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.frontend.observer import RangeObserver
from tosaic.frontend.recurrent import states_of

# What a scale of its own must gain. An operand of a concatenation pays one RESCALE for it, and the average of a tensor
# that nothing else reads next to nothing: the last one of MobileNetV3-small gives it 2.1 dB for 0.02 % of Ethos-U55's
# cycles. Where something else reads the tensor, as the gate of a squeeze does, an NPU lays it out anew: the other nine
# would give 0.7 dB together for 7 %.
_GAIN_DB = 3.0
_GAIN_BESIDE_DB = 20.0
_SUMS = (torch.ops.aten.add.Tensor, torch.ops.aten.sub.Tensor)
# A sum's operands are whole numbers of units of its result's scale / 2 ** bits, and the sum of units fits int16: one
# shift rounds it. Else, and on an NPU, the larger of their scales is a power of two times the sum's unit, and the other
# a whole number times a smaller power: where both powers are this far apart, both factors are weights of int8. No range
# may move by more than its candidates lie apart.
_UNIT_BITS, _MOST_UNITS = (7, 6, 5), 127
_FACTORS, _MOST_STRETCH = 64, 1 / 60


def share_formats(prepared: GraphModule, states: int = 0, npu: bool = False) -> None:
    """Give averages their operand's format, and operands that of what they are joined to, where their own gains little;
    the state before the first step of a recurrent layer that of the states after each; what is kept between calls that
    of what takes its place; and what was always zero that of what it is combined with, which it shall not drown.

    An operand that nothing but the concatenation reads has its format in any case: it is rounded once.

    Args:
        prepared: a calibrated graph in which each of these tensors has an observer of its own; some are replaced.
        states: the last arguments, and the last results that take their places.
        npu: whether sums are for an Ethos-U, which shifts an operand and scales the other.
    """
    sharing = _Sharing(prepared, npu)
    for node in list(prepared.graph.nodes):
        op, result = op_quantization(node), sharing.result(node)
        if isinstance(op, Recurrent):
            sharing.share_state(node)
        elif isinstance(op, Arithmetic):
            sharing.share_zeros(node)
        if result is None:
            continue
        if isinstance(op, Averaged):
            source = sharing.observer(arguments(node)[0])
            apart = source and source.dtype == torch.int8 and op.apart(node)
            if source and not (apart and sharing.loss(result, source) >= sharing.least_gain(node, source)):
                sharing.replace(result, source)
        elif isinstance(op, Joined):
            for operand in dict.fromkeys(map(sharing.observer, node.all_input_nodes)):
                if operand and (sharing.reads_only(node, operand) or sharing.loss(operand, result) < _GAIN_DB):
                    sharing.replace(operand, result)
    sharing.share_kept(states)
    for node in prepared.graph.nodes:
        if node.target in _SUMS:
            sharing.align(node)


@dataclass
class _Sharing:
    """The observers of a graph, by the nodes that call them."""

    module: GraphModule
    npu: bool
    finest: dict[RangeObserver, float] = field(default_factory=dict)
    aligned: set[RangeObserver] = field(default_factory=set)

    def observer(self, node: object) -> RangeObserver | None:
        """The observer that `node` is a call of."""
        if not isinstance(node, Node) or node.op != "call_module":
            return None
        found: nn.Module = self.module.get_submodule(str(node.target))
        return found if isinstance(found, RangeObserver) else None

    def result(self, node: Node) -> RangeObserver | None:
        """The observer of a node's result."""
        return next((found for user in node.users if (found := self.observer(user))), None)

    def loss(self, one: RangeObserver, other: RangeObserver) -> float:
        """What the tensors of `one` lose by the scale of `other`, in dB."""
        return 20 * math.log10(self._scale(other) / self.finest.get(one, self._scale(one)))

    def replace(self, one: RangeObserver, other: RangeObserver) -> None:
        """Let the tensors of `one` have the format of `other`."""
        scales = [self.finest.get(each, self._scale(each)) for each in (one, other)]
        self.finest[other] = min(scales)
        if one is not other:
            other.include(one)
        self._give(one, other)

    def _give(self, one: RangeObserver, other: RangeObserver) -> None:
        for call in list(self._calls(one)):
            owner, _, name = str(call.target).rpartition(".")
            setattr(self.module.get_submodule(owner), name, other)

    def align(self, node: Node) -> None:
        """Let a sum be one of few whole numbers, where one of its operands is read by it alone: see `_UNIT_BITS`."""
        operands = [found for one in node.all_input_nodes if (found := self.observer(one))]
        if len(operands) != 2 or operands[0] is operands[1] or any(one.dtype != torch.int8 for one in operands):
            return
        own = next((one for one in operands if one not in self.aligned and self._is_read_by_one(one)), None)
        if own is None:
            return
        for stretches in self._alignments(node, operands, own):
            if all(abs(stretch - 1) <= _MOST_STRETCH for stretch in stretches.values()):
                for observer, stretch in stretches.items():
                    observer.stretch(stretch)
                self.aligned |= {*operands, *stretches}
                return

    def _alignments(
        self, node: Node, operands: Sequence[RangeObserver], own: RangeObserver
    ) -> Iterator[dict[RangeObserver, float]]:
        """What to stretch, and by what, so that a sum is one of few whole numbers; the best way first."""
        other, total = operands[operands.index(own) - 1], self._total(node)
        free = total is not None and total not in (*operands, *self.aligned) and not self.npu
        if total and free and (units := self._units(node, operands, total)):
            unit = self._scale(other) / units[other]
            yield {one: unit * units[one] / self._scale(one) for one in units if one is not other}
        ratio = self._scale(own) / self._scale(other)
        if factor := round(_FACTORS * min(ratio, 1 / ratio)) / _FACTORS:
            yield {own: (factor if ratio <= 1 else 1 / factor) / ratio}

    def _total(self, node: Node) -> RangeObserver | None:
        """The observer of a sum's result, or of what a clamp alone makes of it."""
        readers = list(node.users)
        clamped = len(readers) == 1 and isinstance(op_quantization(readers[0]), Clamp)
        return self.result(readers[0] if clamped else node)

    def _units(
        self, node: Node, operands: Sequence[RangeObserver], total: RangeObserver
    ) -> dict[RangeObserver, int] | None:
        """The units that a step of each operand and of the result is worth; None where they suit no int16."""
        zeros = {one: int(one.calculate_qparams()[1].item()) for one in (*operands, total)}
        signs = (1, -1 if node.target is torch.ops.aten.sub.Tensor else 1)
        for bits in _UNIT_BITS:
            units = {one: round(self._scale(one) / self._scale(total) * (1 << bits)) for one in operands}
            terms = [(sign * units[one], zeros[one]) for one, sign in zip(operands, signs, strict=True)]
            constant = (zeros[total] << bits) - sum(factor * zero for factor, zero in terms)
            reach = sum(128 * abs(factor) for factor, _ in terms) + abs(constant)
            if all(0 < each <= _MOST_UNITS for each in units.values()) and reach < 1 << 15:
                return {**units, total: 1 << bits}
        return None

    def _is_read_by_one(self, observer: RangeObserver) -> bool:
        calls = list(self._calls(observer))
        return len(calls) == 1 and len(calls[0].users) == 1 and len(calls[0].all_input_nodes[0].users) == 1

    def share_zeros(self, node: Node) -> None:
        """Let operands of which nothing is known have the finest format of the others."""
        operands = [found for one in node.all_input_nodes if (found := self.observer(one))]
        known = [one for one in operands if one.low < one.high]
        for zeros in (one for one in operands if one.low == one.high):
            if known:
                self._give(zeros, min(known, key=self._scale))

    def share_kept(self, states: int) -> None:
        """Let the last arguments have the formats of the last results."""
        given = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        results = list(arguments(self.module.graph.output_node())[0])
        for before, after in zip(given[len(given) - states :], results[len(results) - states :], strict=True):
            old, new = self.result(before), self.observer(after)
            if old is not None and new is not None:
                self.replace(old, new)

    def share_state(self, layer: Node) -> None:
        """Let a recurrent layer's first state have the format of its results, which are the states behind it."""
        state, results = self.observer(arguments(layer)[1]), states_of(layer)
        after = self.result(results) if results is not None else None
        if state is not None and after is not None:
            self.replace(state, after)

    def least_gain(self, average: Node, source: RangeObserver) -> float:
        """What a scale of its own must give an average of `source`, in dB."""
        return _GAIN_DB if self.reads_only(average, source) else _GAIN_BESIDE_DB

    def reads_only(self, join: Node, observer: RangeObserver) -> bool:
        """Whether `join` alone reads what `observer` sees, or what else does has that format too."""
        readers = {user for call in self._calls(observer) for user in call.users}
        return all(user is join or self.result(user) is observer for user in readers)

    def _calls(self, observer: RangeObserver) -> Iterator[Node]:
        return (node for node in self.module.graph.nodes if self.observer(node) is observer)

    @staticmethod
    def _scale(observer: RangeObserver) -> float:
        return observer.calculate_qparams()[0].item()
