"""Each MATMUL in the form that is cheapest on the NPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import Form, copied, or_least, to_cheapest
from tosaic.passes.npu.cheapest_transposes import merged, transposed
from tosaic.passes.transposed_rows import transposed_rows
from tosaic.support.attributes import bool_of
from tosaic.support.functions import inputs_of
from tosaic.support.mlir import constant, element_type, ir, shape_of
from tosaic.support.tosa_builder import element, emit, rebuild, reshape, sliced, tensor, transpose
from tosaic.support.values import multiplications, producer, users


@register
@dataclass(frozen=True)
class CheapestProducts(ModulePass):
    """Write each MATMUL, with its RESCALE, in the form that costs the NPU of `target` the fewest cycles, where it takes
    less than half of one for a multiplication, as a core does; without one, leave them.

    An Ethos-U85 takes the second operand with its rows as channels, so Vela transposes it, and computes slowly what has
    few rows. The operands may change places: where the second is a TRANSPOSE, nothing is transposed but the small
    operand and the result. Or the columns of the second operand are the weights of a 1x1 CONV2D, of all matrices at
    once; what belongs together is taken out of its result.
    """

    name: ClassVar[str] = "cheapest-products"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, _masked_forms, "tosa.rescale", most=_most)
            to_cheapest(module, self.target, _forms, "tosa.rescale", most=_most)


@dataclass(frozen=True)
class _ScaledProduct:
    """A MATMUL of (matrices, rows, depth) and (matrices, depth, columns), and its RESCALE.

    Args:
        turned: the ops by which the second operand is a TRANSPOSE of its last two axes; none where it is not.
    """

    matmul: ir.Operation
    rescale: ir.Operation
    turned: tuple[ir.Operation, ...]

    @property
    def ops(self) -> list[ir.Operation]:
        return [*self.turned, self.matmul, self.rescale]

    def form(self, compute: Callable[[_ScaledProduct, ir.Value, ir.Value], ir.Value]) -> Form:
        """What computes the product from its first operand and the columns of its second."""
        return lambda *read: compute(self, *self.operands(read))

    def operands(self, read: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value]:
        known = dict(zip(inputs_of(self.ops), read, strict=True))
        a, b = list(self.matmul.operands)[:2]
        matrices, depth, columns = shape_of(b)
        rows = reshape(known[self.turned[0].operands[0]], (matrices, columns, depth)) if self.turned else None
        return known[a], _swapped(known[b]) if rows is None else rows

    def scaled(self, sums: ir.Value) -> ir.Value:
        """The RESCALE of other sums."""
        return _like(self.rescale, sums)


@dataclass(frozen=True)
class _MaskedProduct:
    """A product to whose rows of results one row is added, as a mask is.

    Args:
        wide, mask: the RESCALEs of both to int32.
        narrow: the RESCALE of their sum.
    """

    product: _ScaledProduct
    view: tuple[ir.Operation, ...]
    wide: ir.Operation
    mask: ir.Operation
    narrow: ir.Operation

    @property
    def ops(self) -> list[ir.Operation]:
        add = self.narrow.operands[0].owner.operation
        return [*self.product.ops, *self.view, self.wide, self.mask, add, self.narrow]

    def form(self, parts: int, *read: ir.Value) -> ir.Value:
        """The same with the operands exchanged, and the rows of the larger one in so many parts, each a matrix.

        Vela transposes the sum as it adds the mask, and does so fast where the product before it has other rows.
        """
        known = dict(zip(inputs_of(self.ops), read, strict=True))
        ops = self.product.ops
        a, columns = self.product.operands([known[value] for value in inputs_of(ops)])
        (matrices, rows, _), many = shape_of(a), shape_of(columns)[1]
        image, row = (1, matrices, many, rows), (1, 1, many, 1)
        found = reshape(_columns_by_rows(self.product, a, columns, parts), image)
        mask = _like(self.mask, reshape(known[self.mask.operands[0]], row))
        total = emit("add", [_like(self.wide, found), mask], image, "i32")
        return reshape(transpose(_like(self.narrow, total), (0, 1, 3, 2)), shape_of(self.narrow.results[0]))


def _masked_forms(rescale: ir.Operation) -> tuple[Sequence[ir.Operation], Sequence[Form]]:
    found = _masked_product(rescale)
    if found is None:
        return [rescale], []
    many = shape_of(found.product.rescale.results[0])[-1]
    return found.ops, [partial(found.form, parts) for parts in (1, 2) if many % parts == 0]


def _masked_product(narrow: ir.Operation) -> _MaskedProduct | None:
    add = producer(narrow.operands[0], "tosa.add")
    if add is None or len(users(add.results[0])) > 1:
        return None
    one, other = (producer(operand, "tosa.rescale") for operand in add.operands)
    if one is None or other is None or any(bool_of(each, "per_channel") for each in (narrow, one, other)):
        return None
    return _masked_by(narrow, one, other) or _masked_by(narrow, other, one)


def _masked_by(narrow: ir.Operation, wide: ir.Operation, mask: ir.Operation) -> _MaskedProduct | None:
    view = producer(wide.operands[0], "tosa.reshape")
    scores = view.operands[0] if view else wide.operands[0]
    rescale = producer(scores, "tosa.rescale")
    read_once = all(len(users(value)) == 1 for value in (scores, wide.operands[0], wide.results[0]))
    product = _scaled_product(rescale) if rescale and read_once else None
    many, row = shape_of(scores)[-1:], shape_of(mask.results[0])
    if product is None or row[-1:] != many or math.prod(row) != many[0] or shape_of(wide.results[0])[-1:] != many:
        return None
    return _MaskedProduct(product, (view,) if view else (), wide, mask, narrow)


def _forms(rescale: ir.Operation) -> tuple[Sequence[ir.Operation], Sequence[Form]]:
    product = _scaled_product(rescale)
    if product is None:
        return [rescale], []
    forms = [product.form(_exchanged)]
    if str(element_type(product.matmul.operands[0])) == "i8":
        forms += [product.form(partial(_convolved, exchanged)) for exchanged in (False, True)]
    return product.ops, forms


def _scaled_product(rescale: ir.Operation) -> _ScaledProduct | None:
    matmul = producer(rescale.operands[0], "tosa.matmul")
    if matmul is None or len(users(matmul.results[0])) > 1 or bool_of(rescale, "per_channel"):
        return None
    product = _ScaledProduct(matmul, rescale, transposed_rows(matmul.operands[1]))
    return product if len(inputs_of(product.ops)) == 2 else None


def _most(rescale: ir.Operation) -> float:
    """Half a cycle for each multiplication, which a core takes, and no more."""
    masked = _masked_product(rescale)
    product = masked.product if masked else _scaled_product(rescale)
    return multiplications(product.matmul) / 2 if product else 0


def _like(rescale: ir.Operation, x: ir.Value) -> ir.Value:
    """The same RESCALE of something else."""
    result = tensor(shape_of(x), element_type(rescale.results[0]))
    return rebuild(rescale, [x, *copied(list(rescale.operands)[1:])], result)


def _swapped(x: ir.Value) -> ir.Value:
    """`x` with its last two axes exchanged."""
    shape = shape_of(x)
    perm = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    return transposed(*merged(shape, perm), [shape[axis] for axis in perm], x)


def _exchanged(product: _ScaledProduct, a: ir.Value, columns: ir.Value) -> ir.Value:
    """`a @ columns.T` as `(columns @ a.T).T`."""
    return _swapped(_columns_by_rows(product, a, columns, 1))


def _columns_by_rows(product: _ScaledProduct, a: ir.Value, columns: ir.Value, parts: int) -> ir.Value:
    """`columns @ a.T` of columns in so many parts, each a matrix of its own."""
    matrices, rows, depth = shape_of(a)
    if parts > 1:
        repeated = or_least((1, 1, parts, 1), reshape(a, (1, matrices, 1, rows * depth)))
        a = reshape(repeated, (matrices * parts, rows, depth))
    compared = or_least((1, 1, 1, 1), reshape(a, (1, matrices * parts, rows, depth)))
    turned = reshape(transpose(compared, (0, 1, 3, 2)), (matrices * parts, depth, rows))
    *_, a_zero, b_zero = product.matmul.operands
    many = shape_of(columns)[1] // parts
    sums = emit(
        "matmul",
        [reshape(columns, (matrices * parts, many, depth)), turned, *copied([b_zero, a_zero])],
        (matrices * parts, many, rows),
        element_type(product.matmul.results[0]),
    )
    return product.scaled(sums)


def _convolved(exchanged: bool, product: _ScaledProduct, a: ir.Value, columns: ir.Value) -> ir.Value:
    """All rows by all columns, by a 1x1 convolution, and of these the products of the same matrix; `exchanged`, the
    rows are the weights."""
    (matrices, rows, depth), many = shape_of(a), shape_of(columns)[1]
    sides = [(a, matrices * rows), (columns, matrices * many)]
    zeros = copied(list(product.matmul.operands)[2:])
    (pixels, count), (weights, outputs) = reversed(sides) if exchanged else sides
    operands = [
        reshape(pixels, (1, 1, count, depth)),
        reshape(weights, (outputs, 1, 1, depth)),
        constant(np.zeros(outputs, np.int32)),
        *(reversed(zeros) if exchanged else zeros),
    ]
    window = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": element("i32")}
    scaled = product.scaled(emit("conv2d", operands, (1, 1, count, outputs), "i32", **window))
    found = reshape(_swapped(scaled) if exchanged else scaled, (matrices, rows, matrices, many))
    if matrices == 1:
        return reshape(found, (1, rows, many))
    own = [sliced(found, (n, 0, n, 0), (1, rows, 1, many)) for n in range(matrices)]
    return reshape(emit("concat", own, (matrices, rows, 1, many), element_type(found), axis=0), (matrices, rows, many))
