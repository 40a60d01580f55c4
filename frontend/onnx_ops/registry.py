"""Where a rule says which op of ONNX it computes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tosaic.frontend import onnx_ops
from tosaic.support.discovery import found

ENTRY_POINTS = "tosaic.onnx_ops"

CONTRIBUTED = "com.microsoft"
"""The domain of the ops that onnxruntime adds, which its quantizer writes."""

_RULES: dict[tuple[str, str], list[OnnxRule]] = {}


@dataclass(frozen=True)
class OnnxRule:
    """A function of an op's operands, whose keywords are its attributes.

    It gives a tensor, an array where the result depends on no input, or a tuple of these.

    Args:
        since: the first opset of ONNX that it holds for.
        with_numbers: an operand of one element that depends on no input is taken as a number.
        parameters: of the function.
        lists: those that must not depend on an input, taken as lists of numbers.
        numbers: the same, taken as numbers.
        arrays: the same, taken as arrays.
        constant: the same, taken as tensors.
    """

    function: Callable[..., Any]
    since: int
    with_numbers: bool
    parameters: Mapping[str, inspect.Parameter]
    lists: frozenset[str]
    numbers: frozenset[str]
    arrays: frozenset[str]
    constant: frozenset[str]

    def parameter(self, number: int) -> str:
        """The name of the operand of that number."""
        names = [name for name, one in self.parameters.items() if one.kind is not inspect.Parameter.KEYWORD_ONLY]
        return names[min(number, len(names) - 1)] if names else ""


def onnx_op(
    *names: str,
    domain: str = "",
    since: int = 1,
    lists: str = "",
    numbers: str = "",
    arrays: str = "",
    constant: str = "",
    with_numbers: bool = False,
) -> Callable[[Callable], Callable]:
    """Register what ops compute, ONNX's own where `domain` is empty.

    A rule with a later opset replaces the others from that opset on.
    """

    def register(function: Callable) -> Callable:
        kinds = {"lists": lists, "numbers": numbers, "arrays": arrays, "constant": constant}
        sets = {kind: frozenset(text.split()) for kind, text in kinds.items()}
        rule = OnnxRule(function, since, with_numbers, inspect.signature(function).parameters, **sets)
        for name in names:
            _RULES.setdefault((domain, name), []).append(rule)
        return function

    return register


def rule_of(op: str, opset: int, domain: str = "") -> OnnxRule | None:
    """What an op computes in an opset of its domain; None where no rule is registered."""
    _discover()
    known = [rule for rule in _RULES.get((domain, op), ()) if rule.since <= opset]
    return max(known, key=lambda rule: rule.since, default=None)


@cache
def _discover() -> None:
    found(onnx_ops.__name__, ENTRY_POINTS)
