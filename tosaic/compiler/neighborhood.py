"""An op of the NPU cut out with what stands beside it."""

from __future__ import annotations

from collections.abc import Callable

from tosaic.backends.npus import family_of
from tosaic.support.functions import computing_ops, inputs_of, main_of
from tosaic.support.mlir import ir
from tosaic.support.tosa_ops import is_constant
from tosaic.support.values import bit_width, producer, tensor_operands, users

_REACH = 2


def neighborhood(op: ir.Operation, accelerator: str) -> ir.Module:
    """A module of `op`, what it reads and what reads it, and once more the same of those.

    Views and RESCALEs count as parts of what they stand beside. Values wider than 16 bits come with all that makes
    them: drawn at random, they would overflow.

    Args:
        accelerator: the NPU; what it does not take is no neighbor.
    """
    family, found = family_of(accelerator), {op}

    def taken(other: ir.Operation) -> bool:
        return family.refusal(other, accelerator) is None

    def passed(other: ir.Operation) -> bool:
        return family.is_view(other) or other.name == "tosa.rescale"

    for beside in (_makers, _readers):
        edge = [op]
        for _ in range(_REACH):
            edge = _step(edge, beside, taken, passed, found)
    pending = list(found)
    while pending:
        one = pending.pop()
        wide = [maker for maker in _makers(one, wider_than=16) if taken(maker)]
        wide += [reader for reader in _readers(one) if bit_width(one.results[0]) > 32 and taken(reader)]
        pending += [other for other in wide if other not in found]
        found.update(wide)
    ops = [one for one in computing_ops(op.parent) if one in found]
    leaving = [value for one in ops for value in one.results if not users(value) or not found.issuperset(users(value))]
    return main_of(ops, inputs_of(ops), leaving)


def _step(
    edge: list[ir.Operation],
    beside: Callable[[ir.Operation], list[ir.Operation]],
    taken: Callable[[ir.Operation], bool],
    passed: Callable[[ir.Operation], bool],
    found: set[ir.Operation],
) -> list[ir.Operation]:
    """Add to `found` what stands beside the ops of `edge`; the ops among it that are not `passed`."""
    further: list[ir.Operation] = []
    pending = list(edge)
    while pending:
        for other in beside(pending.pop()):
            if other not in found and taken(other):
                found.add(other)
                (pending if passed(other) else further).append(other)
    return further


def _makers(op: ir.Operation, wider_than: int = 0) -> list[ir.Operation]:
    made = [producer(value) for value in tensor_operands(op) if bit_width(value) > wider_than]
    return [maker for maker in made if maker is not None and not is_constant(maker)]


def _readers(op: ir.Operation) -> list[ir.Operation]:
    return [reader for reader in users(op.results[0]) if reader.name != "func.return"]
