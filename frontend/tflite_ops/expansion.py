"""The ops that a converted file holds in place of those that we have rules for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tosaic.frontend.tflite_grafts import OWN
from tosaic.frontend.tflite_ops.registry import Call, rule_of
from tosaic.support.attributes import text_of
from tosaic.support.mlir import ir, walk


def expand_calls(module: ir.Module, calls: Mapping[int, Call], infer: Callable[[], None]) -> None:
    """Write what each call of an op of ours computes in its place.

    Args:
        calls: by the number that the op carries.
        infer: gives what depends on results their shapes, before each.
    """
    for op in walk(module):
        if op.name == "tosa.custom" and text_of(op, "operator_name") == OWN:
            infer()
            call = calls[int(text_of(op, "implementation_attrs"))]
            rule = rule_of(call)
            assert rule is not None
            with module.context, ir.InsertionPoint(op), op.location:
                for old, new in zip(op.results, rule(call, list(op.operands)), strict=True):
                    old.replace_all_uses_with(new)
            op.erase()
