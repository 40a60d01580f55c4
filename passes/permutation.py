"""Permutations of dimensions, as TRANSPOSE has them: result dimension i is operand dimension perm[i]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tosaic.support.attributes import bool_of, ints_of
from tosaic.support.mlir import ir
from tosaic.support.values import producer

Permutation: TypeAlias = tuple[int, ...]


def permutation_of(op: ir.Operation) -> Permutation:
    """The permutation of a `tosa.transpose`."""
    return ints_of(op, "perms")


def transpose_behind(value: ir.Value) -> tuple[ir.Value, Permutation] | None:
    """(x, perm) where `value` is `transpose(x, perm)`, else None."""
    op = producer(value, "tosa.transpose")
    return None if op is None else (op.operands[0], permutation_of(op))


def inverse(perm: Permutation) -> Permutation:
    """The permutation that undoes `perm`."""
    return tuple(perm.index(i) for i in range(len(perm)))


def compose(first: Permutation, second: Permutation) -> Permutation:
    """The one permutation that equals `first`, then `second`."""
    return tuple(first[i] for i in second)


def permuted(values: Sequence[int], perm: Permutation) -> list[int]:
    """`values`, one per dimension, in the order after `perm`."""
    return [values[i] for i in perm]


def moves_only_units(shape: Sequence[int], perm: Permutation) -> bool:
    """Whether a transpose of `shape` keeps the order of all dimensions larger than 1, as a reshape does."""
    moved = [i for i in perm if shape[i] != 1]
    return moved == sorted(moved)


def commutes(op: ir.Operation, perm: Permutation) -> bool:
    """Whether a pointwise op gives the same before and after `perm`: a RESCALE per channel needs the last dimension."""
    return not (op.name == "tosa.rescale" and bool_of(op, "per_channel")) or perm[-1] == len(perm) - 1
