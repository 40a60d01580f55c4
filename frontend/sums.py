"""Scales that make a sum cheap: its operands are few whole numbers of one unit, decided after calibration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch.fx import GraphModule, Node

from tosaic.frontend.calibrated import Calibrated
from tosaic.frontend.lowerings.op_quantization import Clamp
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.frontend.observer import RangeObserver

_SUMS = (torch.ops.aten.add.Tensor, torch.ops.aten.sub.Tensor)
# A sum's operands are whole numbers of units of its result's scale / 2 ** bits, and the sum of units fits int16: one
# shift rounds it. Else, and on an NPU, the larger of their scales is a power of two times the sum's unit, and the other
# a whole number times a smaller power: where both powers are this far apart, both factors are weights of int8. No range
# may move by more than its candidates lie apart.
_UNIT_BITS, _MOST_UNITS = (7, 6, 5), 127
_FACTORS, _MOST_STRETCH = 64, 1 / 60


def align_sums(prepared: GraphModule, npu: bool = False) -> None:
    """Stretch the ranges of sums of two int8 tensors by little, so that they are computed with few bits.

    Args:
        prepared: a calibrated graph, its formats shared.
        npu: whether they are for an Ethos-U, which shifts an operand and scales the other.
    """
    sums = _Sums(prepared, npu)
    for node in prepared.graph.nodes:
        if node.target in _SUMS:
            sums.align(node)


@dataclass
class _Sums(Calibrated):
    """Sums and the observers of what they read and give.

    Args:
        npu: whether they are for an NPU.
        aligned: observers that keep their scale from now on.
    """

    npu: bool
    aligned: set[RangeObserver] = field(default_factory=set)

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
            unit = self.scale(other) / units[other]
            yield {one: unit * units[one] / self.scale(one) for one in units if one is not other}
        ratio = self.scale(own) / self.scale(other)
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
            units = {one: round(self.scale(one) / self.scale(total) * (1 << bits)) for one in operands}
            terms = [(sign * units[one], zeros[one]) for one, sign in zip(operands, signs, strict=True)]
            constant = (zeros[total] << bits) - sum(factor * zero for factor, zero in terms)
            reach = sum(128 * abs(factor) for factor, _ in terms) + abs(constant)
            if all(0 < each <= _MOST_UNITS for each in units.values()) and reach < 1 << 15:
                return {**units, total: 1 << bits}
        return None

    def _is_read_by_one(self, observer: RangeObserver) -> bool:
        calls = self.calls(observer)
        return len(calls) == 1 and len(calls[0].users) == 1 and len(calls[0].all_input_nodes[0].users) == 1
