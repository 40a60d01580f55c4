"""Which tensors share one format: decided after calibration, by what a format of its own gains."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

import torch
from torch.fx import GraphModule, Node

from tosaic.frontend.calibrated import Calibrated
from tosaic.frontend.canonical import arguments
from tosaic.frontend.lowerings.op_quantization import Arithmetic, Averaged, Joined, Recurrent
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.frontend.methods import ENTER
from tosaic.frontend.observer import RangeObserver
from tosaic.frontend.recurrent import states_of

# What a scale of its own must gain. An operand of a concatenation pays one RESCALE for it, and the average of a tensor
# that nothing else reads next to nothing: the last one of MobileNetV3-small gives it 2.1 dB for 0.02 % of Ethos-U55's
# cycles. Where something else reads the tensor, as the gate of a squeeze does, an NPU lays it out anew: the other nine
# would give 0.7 dB together for 7 %.
_GAIN_DB = 3.0
_GAIN_BESIDE_DB = 20.0
# What methods of one module see is alike: where a format of its own gains less, calibration saw too little of one.
_GAIN_IN_METHODS_DB = 4.0
_SCALINGS = (torch.ops.aten.mul.Tensor, torch.ops.aten.div.Tensor)


def share_formats(prepared: GraphModule, states: int = 0) -> None:
    """Give averages their operand's format, and operands that of what they are joined to, where their own gains little;
    the state before the first step of a recurrent layer that of the states after each; what is kept between calls that
    of what takes its place; what was always zero that of what it is combined with, which it shall not drown; and what
    an op of a module gives in one method that of what it gives in another, where both lose little.

    An operand that nothing but the concatenation reads has its format in any case: it is rounded once.

    Args:
        prepared: a calibrated graph in which each of these tensors has an observer of its own; some are replaced.
        states: the last arguments, and the last results that take their places.
    """
    sharing = _Sharing(prepared)
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
    sharing.share_methods()
    for node in prepared.graph.nodes:
        sharing.share_masked(node)


def factor_of(node: Node) -> float | None:
    """The positive number by which a node scales its operand and does nothing else; None of others."""
    if node.target not in _SCALINGS:
        return None
    number = arguments(node)[1]
    if isinstance(number, Node) or number <= 0:
        return None
    return 1 / number if node.target is torch.ops.aten.div.Tensor else number


@dataclass
class _Sharing(Calibrated):
    """Which observers take the place of others.

    Args:
        finest: the smallest scale that one was to have before it was shared.
    """

    finest: dict[RangeObserver, float] = field(default_factory=dict)

    def loss(self, one: RangeObserver, other: RangeObserver) -> float:
        """What the tensors of `one` lose by the scale of `other`, in dB."""
        return 20 * math.log10(self.scale(other) / self.finest.get(one, self.scale(one)))

    def replace(self, one: RangeObserver, other: RangeObserver) -> None:
        """Let the tensors of `one` have the format of `other`."""
        scales = [self.finest.get(each, self.scale(each)) for each in (one, other)]
        self.finest[other] = min(scales)
        if one is not other:
            other.include(one)
        self.give(one, other)

    def share_zeros(self, node: Node) -> None:
        """Let operands of which nothing is known have the finest format of the others."""
        operands = [found for one in node.all_input_nodes if (found := self.observer(one))]
        known = [one for one in operands if one.low < one.high]
        for zeros in (one for one in operands if one.low == one.high):
            if known:
                self.give(zeros, min(known, key=self.scale))

    def share_masked(self, total: Node) -> None:
        """Let scores to which a mask alone is added have the format of their sum, which a softmax reads.

        It comes last: what an observer includes later may give it another range, and the scores would lose theirs.
        """
        result = self.result(total)
        if total.target is not torch.ops.aten.add.Tensor or total.kwargs or result is None or result.depth == math.inf:
            return
        operands = [found for one in total.all_input_nodes if (found := self.observer(one))]
        for scores, mask in itertools.permutations(operands, 2):
            alike = (scores.dtype, scores.qscheme) == (result.dtype, result.qscheme)
            if alike and mask.is_zero_or_below(-result.depth) and self.gives_only(scores, result):
                for call in self.calls(scores):
                    self._scale_as(arguments(call)[0], scores, result)
                self.give(scores, result)
                return

    def _scale_as(self, node: Node, scores: RangeObserver, result: RangeObserver) -> None:
        """Let what a node only scales by a positive number have the same integers as its result, of a new format."""
        factor = factor_of(node)
        before = self.observer(arguments(node)[0]) if factor is not None else None
        if factor is None or before is None or not self.gives_only(before, scores):
            return
        if (before.dtype, before.qscheme) == (result.dtype, result.qscheme):
            before.range = (result.range[0] / factor, result.range[1] / factor)

    def share_kept(self, states: int) -> None:
        """Let the last arguments have the formats of the last results, and what methods read of them."""
        given = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        results = list(arguments(self.module.graph.output_node())[0])
        for before, after in zip(given[len(given) - states :], results[len(results) - states :], strict=True):
            old, new = self.result(before), self.observer(after)
            if old is not None and new is not None:
                self.replace(old, new)
        for node in [node for node in self.module.graph.nodes if node.target is ENTER]:
            source, _, state = arguments(node)
            entered, new = self.observer(source), self.observer(results[len(results) - states + state])
            if entered is not None and new is not None:
                self.replace(entered, new)

    def share_methods(self) -> None:
        """Let what an op of a module gives have one format in all methods, so that these have the same constants."""
        nodes, counts = list(self.module.graph.nodes), Counter[tuple[str, Hashable]]()
        known = dict[tuple[Hashable, int], RangeObserver]()
        for node in nodes if any(node.target is ENTER for node in nodes) else ():
            method, op = _in_method(node)
            counts[method, op] += 1
            if method and (result := self.result(node)) is not None:
                first = known.setdefault((op, counts[method, op]), result)
                if self.are_near(first, result):
                    self.replace(result, first)

    def are_near(self, one: RangeObserver, other: RangeObserver) -> bool:
        """Whether two differ, and the tensors of both lose little by the format of the other."""
        alike = one is not other and (one.dtype, one.qscheme, one.depth) == (other.dtype, other.qscheme, other.depth)
        return alike and max(self.loss(one, other), self.loss(other, one)) < _GAIN_IN_METHODS_DB

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
        readers = {user for call in self.calls(observer) for user in call.users}
        return all(user is join or self.result(user) is observer for user in readers)

    def gives_only(self, observer: RangeObserver, result: RangeObserver) -> bool:
        """Whether all that reads what `observer` sees gives what `result` sees, or has that format too."""
        readers = {user for call in self.calls(observer) for user in call.users}
        return all(self.result(user) in (observer, result) for user in readers)


def _in_method(node: Node) -> tuple[str, Hashable]:
    """The method that a node is in, and what it is there: its op, and paths and classes of the modules around."""
    modules = [(path, kind) for path, kind in (node.meta.get("nn_module_stack") or {}).values() if path]
    method = modules[0][0] if modules else ""
    return method, (str(node.target), *((path.removeprefix(method), kind) for path, kind in modules))
