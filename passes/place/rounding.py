"""RESCALE that rounds twice, where it is left to the core, whose kernels round once."""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.passes.two_roundings import two_roundings
from tosaic.support.mlir import ir
from tosaic.support.tosa_ops import is_constant
from tosaic.support.values import producer


def round_twice_on_cpu(module: ir.Module) -> None:
    """Write what has no `tosaic.op` and rounds twice as ops of one rounding, which have its `tosaic.reason`."""
    rewrite(module, [_on_cpu])


@pattern("tosa.rescale")
def _on_cpu(op: ir.Operation) -> Replacement:
    result = None if "tosaic.op" in op.attributes else two_roundings(op)
    if isinstance(result, ir.Value) and "tosaic.reason" in op.attributes:
        for made in _makers(result, op.operands[0]):
            made.attributes["tosaic.reason"] = op.attributes["tosaic.reason"]
    return result


def _makers(result: ir.Value, source: ir.Value) -> Iterator[ir.Operation]:
    """The ops that make a result of a source, but constants."""
    maker = producer(result)
    if result != source and maker is not None and not is_constant(maker):
        yield maker
        for operand in maker.operands:
            yield from _makers(operand, source)
