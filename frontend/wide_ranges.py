"""What is read by a logarithm may span more than integers resolve: then it, and what makes it, stay float32.

An integer of equal steps knows small values badly, and a logarithm sees small values as well as large ones. So the
powers of a spectrum, say, which a mel filter bank sums, are lost in eight bits, and often in sixteen.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from tosaic.frontend.canonical import is_float
from tosaic.frontend.exclusion import keep_float, widen
from tosaic.frontend.formats import ACTIVATIONS
from tosaic.frontend.origin import origin
from tosaic.support.errors import Advice

_LEAST_DB = 20.0
_BATCHES = 16
_LEAST = 1e-30
_LOGARITHMS = {f"aten.{name}.default" for name in ("log", "log2", "log10")}
_MAKING = {"add", "sub", "mul", "square", "pow", "sum", "mean", "matmul", "mm", "bmm", "linear", "abs", "sqrt", "clamp",
           "clamp_min", "maximum", "view", "reshape", "permute", "transpose", "squeeze", "unsqueeze", "expand", "slice",
           "select", "cat", "div", "relu", "avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d"}  # fmt: skip
"""Ops of which powers are made: of values that are not negative."""


@dataclass
class _Seen:
    """What calibration shows of a tensor: its least and greatest value, and moments of what is not zero."""

    low: float = 0.0
    high: float = 0.0
    count: int = 0
    inverse_squares: float = 0.0
    logs: float = 0.0
    square_logs: float = 0.0

    def add(self, x: Tensor) -> None:
        low, high = (value.item() for value in torch.aminmax(x))
        self.low, self.high = min(self.low, low), max(self.high, high)
        values = x[x > _LEAST].double()
        if values.numel():
            logs = values.log()
            self.count += values.numel()
            self.inverse_squares += values.pow(-2).sum().item()
            self.logs += logs.sum().item()
            self.square_logs += logs.square().sum().item()

    def log_db(self, bits: int) -> float:
        """The SQNR that is left of its logarithm where so many bits share its range evenly."""
        if self.count < 2:
            return math.inf
        noise = (self.high / 2**bits) ** 2 / 12 * self.inverse_squares / self.count
        variance = self.square_logs / self.count - (self.logs / self.count) ** 2
        return 10 * math.log10(variance / noise) if noise > 0 and variance > 0 else math.inf


def keep_wide_ranges(module: GraphModule, batches: Sequence[tuple[Tensor, ...]], activations: str) -> list[Advice]:
    """Mark the logarithms of a canonical graph whose arguments integers cannot resolve; what a user should know of
    them.

    They and what makes their arguments stay float32, and what that is made of has int16.
    """
    logarithms = [node for node in module.graph.nodes if str(node.target) in _LOGARITHMS]
    if not logarithms:
        return []
    seen = _seen(module, batches[:_BATCHES])
    bits = 15 if ACTIVATIONS[activations].symmetric else 8
    advice = []
    for node in logarithms:
        (argument, *_) = node.all_input_nodes
        left = seen[argument].log_db(bits)
        if left >= _LEAST_DB:
            continue
        making = list(_making(argument, seen))
        keep_float([node, *making])
        for source in {source for each in making for source in each.all_input_nodes} - set(making):
            if is_float(source) and source.op == "call_function":
                for one in (source, *source.all_input_nodes):
                    widen(one)
        rest = f"{left:.0f} dB" if left > 0 else "nothing but noise"
        kept = f"`{node.target}` and the {len(making)} ops that make its argument stay float32"
        advice.append(
            Advice(
                f"{kept}: {bits} bits leave it {rest}",
                str(origin(node)),
                "scale or compress its argument, or compute it before the model",
            )
        )
    return advice


def _making(node: Node, seen: dict[Node, _Seen]) -> Iterator[Node]:
    """A node and what makes it, as far up as values are not negative."""
    pending, known = [node], set[Node]()
    while pending:
        each = pending.pop()
        name = str(each.target).removeprefix("aten.").partition(".")[0]
        if each in known or each.op != "call_function" or name not in _MAKING or seen[each].low < 0:
            continue
        known.add(each)
        yield each
        pending += [source for source in each.all_input_nodes if is_float(source)]


def _seen(module: GraphModule, batches: Sequence[tuple[Tensor, ...]]) -> dict[Node, _Seen]:
    run = _Watching(module)
    for batch in batches:
        run.run(*batch, enable_io_processing=False)
    return run.seen


class _Watching(Interpreter):
    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.seen: dict[Node, _Seen] = defaultdict(_Seen)

    def run_node(self, n: Node) -> Any:
        found = super().run_node(n)
        if n.op == "call_function" and isinstance(found, Tensor) and found.is_floating_point() and found.numel():
            self.seen[n].add(found)
        return found
