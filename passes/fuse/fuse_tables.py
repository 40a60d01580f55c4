"""Functions of one int8 value in a row become one TABLE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tosaic.passes.integers import Rescale, domain, rescale_of, unary_function
from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.mlir import constant, ir, shape_of
from tosaic.support.tosa_builder import emit, rescale
from tosaic.support.values import producer, users

_FUNCTIONS = ("tosa.table", "tosa.rescale", "tosa.clamp")


@register
@dataclass(frozen=True)
class FuseTables(ModulePass):
    """Compose consecutive int8 tables, rescales and clamps into one table, and int8 rescales into one rescale.

    A rescale to i32 by a power of two stays unless `powers_of_two` is set: Ethos-U does it within the product or sum
    behind it, and no other.
    """

    name: ClassVar[str] = "fuse-tables"
    powers_of_two: bool = False

    def run(self, module: ir.Module) -> None:
        rewrite(module, [compose_tables, fuse_rescales if self.powers_of_two else fuse_other_rescales])


@pattern(*_FUNCTIONS)
def compose_tables(op: ir.Operation) -> Replacement:
    """`f(g(x))` -> `table(x)` where f or g is a TABLE and g(x) has no other reader."""
    first = producer(op.operands[0], *_FUNCTIONS)
    if first is None or "tosa.table" not in (op.name, first.name) or len(users(op.operands[0])) > 1:
        return None
    outer, inner = unary_function(op), unary_function(first)
    if outer is None or inner is None:
        return None
    entries = outer[inner.astype(np.int64) + 128]
    return emit("table", [first.operands[0], constant(entries)], shape_of(op.results[0]), "i8")


@pattern("tosa.rescale")
def fuse_rescales(op: ir.Operation) -> Replacement:
    """Two RESCALEs of an i8 or i16 value -> one, where it gives the same for every value of that type."""
    first = producer(op.operands[0], "tosa.rescale")
    second = rescale_of(op)
    inner = rescale_of(first) if first is not None else None
    if first is None or second is None or inner is None or inner.source == "i32":
        return None
    values = domain(inner.source)
    wanted = second(inner(values))
    for candidate in _products(inner, second):
        if (candidate(values) == wanted).all():
            return rescale(first.operands[0], candidate.target, [candidate.multiplier], [candidate.shift],
                           candidate.input_zp, candidate.output_zp)  # fmt: skip
    return None


@pattern("tosa.rescale")
def fuse_other_rescales(op: ir.Operation) -> Replacement:
    """The same, but for a RESCALE to i32 by a power of two behind one that is not by 1."""
    first = producer(op.operands[0], "tosa.rescale")
    second, inner = rescale_of(op), rescale_of(first) if first is not None else None
    if second is None or inner is None or (second.target == "i32" and second.by_power_of_two and not inner.by_one):
        return None
    return fuse_rescales(op)


def _products(first: Rescale, second: Rescale) -> list[Rescale]:
    """RESCALEs by the product of two factors, its multiplier rounded either way."""
    product, shift = first.multiplier * second.multiplier, first.shift + second.shift
    excess = max(0, product.bit_length() - 31)
    shift -= excess
    if not 2 <= shift <= 62:
        return []
    return [
        Rescale(multiplier, shift, first.input_zp, second.output_zp, first.source, second.target)
        for multiplier in (product >> excess, (product >> excess) + 1)
        if multiplier < 2**31
    ]
