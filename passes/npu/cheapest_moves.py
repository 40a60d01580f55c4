"""What is repeated or put together in the form that is cheapest on the NPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import COMPARED, Form, or_least, reading, to_cheapest
from tosaic.support.functions import inputs_of
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.support.tosa_builder import rebuild
from tosaic.support.values import producer, users


@register
@dataclass(frozen=True)
class CheapestMoves(ModulePass):
    """Write each TILE along axes of size 1, and each CONCAT of parts of tensors, in the form that costs the NPU of
    `target` the fewest cycles; without one, leave them.

    Vela copies each part by an op of its own, as it pools. An Ethos-U85 compares four elements at a time: the greater
    of a part and the least value of the type is the part, and broadcasts.
    """

    name: ClassVar[str] = "cheapest-moves"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, _of_tile, "tosa.tile")
            to_cheapest(module, self.target, _of_concat, "tosa.concat")


def _of_tile(op: ir.Operation) -> tuple[list[ir.Operation], list[Form]]:
    before, after = shape_of(op.operands[0]), shape_of(op.results[0])
    pairs = list(zip(before, after, strict=True))
    if str(element_type(op.results[0])) not in COMPARED or any(was not in (1, now) for was, now in pairs):
        return [op], []
    return [op], [partial(or_least, [1 if was == now else now for was, now in pairs])]


def _of_concat(op: ir.Operation) -> tuple[list[ir.Operation], list[Form]]:
    made = [producer(value, "tosa.slice") for value in op.operands if len(users(value)) == 1]
    parts = [part for part in made if part]
    if not parts or str(element_type(op.results[0])) not in COMPARED:
        return [op], []
    ops = list(dict.fromkeys([*parts, op]))
    return ops, [partial(_together, op, parts, inputs_of(ops))]


def _together(op: ir.Operation, parts: Sequence[ir.Operation], inputs: Sequence[ir.Value], *read: ir.Value) -> ir.Value:
    """The CONCAT of the greater of each part and the least value."""
    known = dict(zip(inputs, read, strict=True))
    for part in parts:
        own = rebuild(part, reading(part, known), part.results[0].type)
        known[part.results[0]] = or_least([1] * len(shape_of(own)), own)
    return rebuild(op, reading(op, known), op.results[0].type)
