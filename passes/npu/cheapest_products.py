"""Each MATMUL in the form that is cheapest on the NPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import Form, copied, to_cheapest
from tosaic.passes.npu.cheapest_transposes import merged, transposed
from tosaic.passes.transposed_rows import transposed_rows
from tosaic.support.attributes import bool_of
from tosaic.support.functions import inputs_of
from tosaic.support.mlir import constant, element_type, ir, shape_of
from tosaic.support.tosa_builder import element, emit, rebuild, reshape, sliced, tensor
from tosaic.support.values import multiplications, producer, users


@register
@dataclass(frozen=True)
class CheapestProducts(ModulePass):
    """Write each MATMUL, with its RESCALE, in the form that costs the NPU of `target` the fewest cycles, where it takes
    less than one for a multiplication, as a core does; without one, leave them.

    An Ethos-U85 takes the second operand with its rows as channels, so Vela transposes it, and computes slowly what has
    few rows. The operands may change places: where the second is a TRANSPOSE, nothing is transposed but the small
    operand and the result. Or the columns of the second operand are the weights of a 1x1 CONV2D, of all matrices at
    once; what belongs together is taken out of its result.
    """

    name: ClassVar[str] = "cheapest-products"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
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
        return lambda *read: compute(self, *self._operands(read))

    def _operands(self, read: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value]:
        known = dict(zip(inputs_of(self.ops), read, strict=True))
        a, b = list(self.matmul.operands)[:2]
        matrices, depth, columns = shape_of(b)
        rows = reshape(known[self.turned[0].operands[0]], (matrices, columns, depth)) if self.turned else None
        return known[a], _swapped(known[b]) if rows is None else rows

    def scaled(self, sums: ir.Value) -> ir.Value:
        """The RESCALE of other sums."""
        result = tensor(shape_of(sums), element_type(self.rescale.results[0]))
        return rebuild(self.rescale, [sums, *copied(list(self.rescale.operands)[1:])], result)


def _forms(rescale: ir.Operation) -> tuple[Sequence[ir.Operation], Sequence[Form]]:
    matmul = producer(rescale.operands[0], "tosa.matmul")
    if matmul is None or len(users(matmul.results[0])) > 1 or bool_of(rescale, "per_channel"):
        return [rescale], []
    product = _ScaledProduct(matmul, rescale, transposed_rows(matmul.operands[1]))
    if len(inputs_of(product.ops)) < 2:
        return [rescale], []
    forms = [product.form(_exchanged)]
    if str(element_type(matmul.operands[0])) == "i8":
        forms.append(product.form(_convolved))
    return product.ops, forms


def _most(rescale: ir.Operation) -> float:
    matmul = producer(rescale.operands[0], "tosa.matmul")
    return multiplications(matmul) if matmul else 0


def _swapped(x: ir.Value) -> ir.Value:
    """`x` with its last two axes exchanged."""
    shape = shape_of(x)
    perm = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    return transposed(*merged(shape, perm), [shape[axis] for axis in perm], x)


def _exchanged(product: _ScaledProduct, a: ir.Value, columns: ir.Value) -> ir.Value:
    """`a @ columns.T` as `(columns @ a.T).T`."""
    *_, a_zero, b_zero = product.matmul.operands
    matrices, rows, _ = shape_of(a)
    sums = emit(
        "matmul",
        [columns, _swapped(a), *copied([b_zero, a_zero])],
        (matrices, shape_of(columns)[1], rows),
        element_type(product.matmul.results[0]),
    )
    return _swapped(product.scaled(sums))


def _convolved(product: _ScaledProduct, a: ir.Value, columns: ir.Value) -> ir.Value:
    """All rows by all columns, by a 1x1 convolution, and of these the products of the same matrix."""
    (matrices, rows, depth), many = shape_of(a), shape_of(columns)[1]
    outputs = matrices * many
    operands = [
        reshape(a, (1, 1, matrices * rows, depth)),
        reshape(columns, (outputs, 1, 1, depth)),
        constant(np.zeros(outputs, np.int32)),
        *copied(list(product.matmul.operands)[2:]),
    ]
    window = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": element("i32")}
    sums = emit("conv2d", operands, (1, 1, matrices * rows, outputs), "i32", **window)
    found = reshape(product.scaled(sums), (matrices, rows, matrices, many))
    if matrices == 1:
        return reshape(found, (1, rows, many))
    own = [sliced(found, (n, 0, n, 0), (1, rows, 1, many)) for n in range(matrices)]
    return reshape(emit("concat", own, (matrices, rows, 1, many), element_type(found), axis=0), (matrices, rows, many))
