"""MATMUL of two int16 activations whose second operand lies by columns, by MVE's products that add up in 64 bits.

A scaled sum fits int32: where it does not, TOSA defines no result (apply_scale_16).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.matmul_i16 import MatmulI16
from tosaic.backends.cortex_m.kernels.mve import PRELUDE, declarations, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import number
from tosaic.backends.target import Core
from tosaic.support.mlir import ir
from tosaic.tuner.space import Schedule, Variant

_LANES = 8
"""Elements of a vector."""
_TOGETHER = (2, 3, 1)
"""Rows that are multiplied with a column together."""
_PRODUCT, _LOAD, _RESULT, _COLUMN = 2, 2, 11, 6
"""Cycles of a vector of products, of a load, of a result, and of a column."""
_INTRINSICS = declarations("""\
int16x8_t vldrhq_s16(const int16_t *)
int16x8_t vldrhq_z_s16(const int16_t *, mve_pred16_t)
int64_t vmlaldavaq_s16(int64_t, int16x8_t, int16x8_t)
mve_pred16_t vctp16q(uint32_t)""")


@FAMILIES.register
class LongProducts(KernelFamily):
    """MATMUL (batch, rows, depth) x (batch, depth, columns) of int16 as `matmul_i16` has it, the second one TRANSPOSEd,
    of any depth. Knob: `together`, rows that are multiplied with a column at a time.
    """

    name = "long_products"
    rank: ClassVar[int] = -1

    def match(self, function: ir.Operation) -> Workload | None:
        found = MatmulI16().match_products(function)
        return found if found is not None and "transposed" in found.attributes else None

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        rows = number(workload, "rows")
        return (Variant("columns", {"together": tuple(n for n in _TOGETHER if rows % n == 0)}),) if core.mve else ()

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        names = ("batch", "rows", "depth", "columns", "multiplier", "shift")
        batch, rows, depth, columns, multiplier, shift = (number(workload, name) for name in names)
        together, whole = int(schedule["together"]), depth // _LANES * _LANES
        sums = "".join(f"        int64_t sum{n} = 0;\n" for n in range(together))
        added = (
            _added(together, depth, "vldrhq_s16({})", f"for (int k = 0; k < {whole}; k += {_LANES})") if whole else ""
        )
        if whole < depth:
            added += _added(together, depth, f"vldrhq_z_s16({{}}, vctp16q({depth - whole}))", f"const int k = {whole};")
        results = "".join(
            f"        out[{n * columns} + n] = scaled(sum{n}, multiplier, shift);\n" for n in range(together)
        )
        text = f"""\
{PRELUDE}typedef VECTOR(8) int16_t int16x8_t;
{_INTRINSICS}INLINE int32_t scaled(int64_t sum, uint32_t multiplier, int32_t shift)
{{
  return __builtin_arm_ssat((int32_t)((sum * multiplier + (1ll << (shift - 1))) >> shift), 16);
}}
void @SYMBOL@(const int16_t *restrict columns, const int16_t *restrict rows, int16_t *restrict out,
              const int32_t *restrict params, void *scratch)
{{
  (void)scratch;
  const uint32_t multiplier = params[0], shift = params[1];
  for (int v = 0; v < {batch}; v++, columns += {columns * depth}) {{
    for (int x = 0; x < {rows // together}; x++, rows += {together * depth}, out += {together * columns}) {{
      const int16_t *column = columns;
      for (int n = 0; n < {columns}; n++, column += {depth}) {{
{sums}{added}{results}      }}
    }}
  }}
}}
"""
        symbol, text = with_symbol(self.name, text)
        return KernelSource(symbol, "c", text, np.array([multiplier, shift], "<i4").tobytes())

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        batch, rows, depth, columns = (number(workload, name) for name in ("batch", "rows", "depth", "columns"))
        together, vectors = int(schedule["together"]), -(-depth // _LANES)
        each = vectors * (together * _PRODUCT + (together + 1) * _LOAD) + together * _RESULT + _COLUMN
        return self.site.priced({"scratch": 0.0}, batch * rows / together * columns * each, [], core.pipeline)


def _added(together: int, depth: int, load: str, head: str) -> str:
    """C that adds products of a vector of a column with those of rows to their sums."""
    lines = [f"const int16x8_t taken = {load.format('column + k')};"]
    lines += [
        f"sum{n} = vmlaldavaq_s16(sum{n}, taken, {load.format(f'rows + {n * depth} + k')});" for n in range(together)
    ]
    body = "".join(f"          {line}\n" for line in lines)
    opened = f"        {head} {{\n" if head.endswith(")") else f"        {{\n          {head}\n"
    return f"{opened}{body}        }}\n"
