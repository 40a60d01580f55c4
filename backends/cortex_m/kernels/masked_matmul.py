"""MATMUL whose columns are masked, as those of the places that attention does not see: blocks of columns that the mask
covers in all rows are not computed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.masked_sketch import MaskedProduct
from tosaic.backends.cortex_m.kernels.matmul import Matmul, product_workload
from tosaic.backends.cortex_m.kernels.mve import VECTOR, round_up
from tosaic.backends.cortex_m.kernels.mve_match import number, workload
from tosaic.backends.target import Core
from tosaic.support.attributes import bool_of, ints_of
from tosaic.support.functions import body_of, computing_ops, returned
from tosaic.support.mlir import constant_value, ir, shape_of
from tosaic.tuner.space import Schedule, Variant

_NAMES = [f"tosa.{name}" for name in ("transpose", "matmul", "rescale", "select")]
_BLOCKS = (128, 64, 32)
"""Columns of a block, if there are several blocks of so many."""
_ALIGNED = 8
"""Bytes that matrices begin at a multiple of, where a kernel takes one of them; others are multiplied together."""


@FAMILIES.register
class MaskedMatmul(KernelFamily):
    """MATMUL of int8 and a SELECT of a number in place of masked columns.

    The second operand lies by columns, as `matmul` has it. The mask, of all rows or of each row of a matrix, is an
    argument. The kernel calls one of `matmul` for each block of columns of a matrix.
    """

    name = "masked_matmul"

    def match(self, function: ir.Operation) -> Workload | None:
        ops, arguments = computing_ops(function), list(body_of(function).arguments)
        if len(ops) < 4 or returned(function) != list(ops[-1].results):
            return None
        turned, product, *others, select = ops
        if [op.name for op in (turned, product, others[0], select)] != _NAMES:
            return None
        made = [turned.operands[0], product.operands[0], select.operands[0]]
        linked = all(after.operands[0] == before.results[0] for before, after in itertools.pairwise((product, *others)))
        linked &= product.operands[1] == turned.results[0] and select.operands[1] == others[-1].results[0]
        least, (batch, rows, columns) = constant_value(select.operands[2]), shape_of(product.results[0])
        if made != arguments or not linked or least is None or least.size > 1 or bool_of(others[0], "per_channel"):
            return None
        masks = shape_of(arguments[2])
        if ints_of(turned, "perms") != (0, 2, 1) or masks not in ((1, 1, columns), (1, rows, columns)):
            return None
        depth, together = shape_of(arguments[0])[2], 1
        block = next((n for n in _BLOCKS if columns % n == 0 and n < columns), columns)
        if batch > 1 and ((rows * depth) % _ALIGNED or (columns * depth) % _ALIGNED):
            block, together = columns, batch
        inner = product_workload([product, *others], True, together, block)
        if inner is None:
            return None
        sizes = {"matrices": batch // together, "blocks": columns // block, "masked": int(least.item())}
        sizes["masks"] = masks[1]
        return workload(self.name, {**inner.attributes, **sizes}, inner.constants)

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return self._product(workload, core).variants(_inner(workload), core)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        part, calls = self._product(workload, core).generate(_inner(workload), schedule, core), _calls(workload)
        built = calls.built(part.symbol, len(part.params), part.scratch_bytes, core)
        known = {"known": np.frombuffer(part.params, np.int8)}
        return replace(built.source(self.name, known), parts=(part,))

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        found = self._product(workload, core).features(_inner(workload), schedule, core)
        return {**found, "scratch": round_up(int(found.get("scratch", 0)), VECTOR) + _results(_calls(workload), core)}

    def _product(self, workload: Workload, core: Core) -> Matmul:
        """The family of the kernels of a block, with the working memory that its results leave."""
        most = self.site.most_scratch
        left = None if most is None else max(0, most - _results(_calls(workload), core))
        return Matmul(self.libraries, replace(self.site, most_scratch=left))


def _inner(workload: Workload) -> Workload:
    """What is computed for a block."""
    outer = ("matrices", "blocks", "masked", "masks")
    attributes = {name: value for name, value in workload.attributes.items() if name not in outer}
    return replace(workload, kind="matmul", attributes=attributes)


def _calls(workload: Workload) -> MaskedProduct:
    names = ("matrices", "blocks", "batch", "rows", "depth", "masks", "masked")
    sizes = {name: number(workload, name) for name in names}
    return MaskedProduct(**sizes, block=number(workload, "columns"), align=_ALIGNED)


@lru_cache(maxsize=64)
def _results(calls: MaskedProduct, core: Core) -> int:
    """Bytes of working memory beside that of the product."""
    return calls.built("", 0, 0, core).scratch
