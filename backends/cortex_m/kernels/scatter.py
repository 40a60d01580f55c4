"""SCATTER of whole rows: where the result lies over what it changes, the rows are all that moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Overlap, Workload
from tosaic.backends.cortex_m.kernels.mve import with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import number, workload
from tosaic.backends.target import Core
from tosaic.support.functions import body_of, computing_ops, returned
from tosaic.support.mlir import element_type, ir, numpy_dtype, shape_of
from tosaic.tuner.space import Schedule, Variant


@FAMILIES.register
class Scatter(KernelFamily):
    """One SCATTER of arguments: values (n, k, c), indices (n, w), rows (n, w, c). A row for a place that is not there
    is not written."""

    name = "scatter"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if len(ops) != 1 or ops[0].name != "tosa.scatter" or returned(function) != list(ops[0].results):
            return None
        (op,) = ops
        if list(op.operands) != list(body_of(function).arguments):
            return None
        (n, k, c), (_, w) = shape_of(op.operands[0]), shape_of(op.operands[1])
        row = c * numpy_dtype(element_type(op.operands[0])).itemsize
        return workload(self.name, {"batch": n, "places": k, "count": w, "row": row}, {})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return (Variant("rows"),)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        n, k, w, row = (number(workload, name) for name in ("batch", "places", "count", "row"))
        text = f"""\
#include <stdint.h>
void @SYMBOL@(const int8_t *values, const int32_t *restrict indices, const int8_t *restrict rows, int8_t *out,
              const void *params, void *scratch)
{{
  (void)params;
  (void)scratch;
  if (out != values)
    __builtin_memcpy(out, values, {n * k * row});
  for (int n = 0; n < {n}; n++, out += {k * row})
    for (int w = 0; w < {w}; w++, rows += {row}) {{
      const uint32_t at = (uint32_t)*indices++;
      if (at < {k})
        __builtin_memcpy(out + at * {row}, rows, {row});
    }}
}}
"""
        symbol, text = with_symbol(self.name, text)
        return KernelSource(symbol, "c", text, in_place=(Overlap(0, 0),))

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        n, k, w, row = (number(workload, name) for name in ("batch", "places", "count", "row"))
        return {"copied": float(n * k * row), "written": float(n * w * row)}
