"""MATMUL whose columns are masked, as those of the places that attention does not see: blocks of columns that the mask
covers in all rows are not computed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.matmul import Matmul, product_workload
from tosaic.backends.cortex_m.kernels.mve import INLINE, PRELUDE, VECTOR, declarations, round_up, with_symbol
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
_WITH_VECTORS = (
    PRELUDE
    + declarations("""\
mve_pred16_t vcmpneq_n_s8(int8x16_t, int8_t)
int8x16_t vorrq_s8(int8x16_t, int8x16_t)
int8x16_t vpselq_s8(int8x16_t, int8x16_t, mve_pred16_t)""")
    + """\
INLINE int any(const int8_t *mask, int bytes)
{
  int8x16_t found = vdupq_n_s8(0);
  for (; bytes >= 16; bytes -= 16, mask += 16)
    found = vorrq_s8(found, vldrbq_s8(mask));
  if (bytes > 0)
    found = vorrq_s8(found, vldrbq_z_s8(mask, vctp8q(bytes)));
  return vcmpneq_n_s8(found, 0);
}
INLINE void fill(int8_t *to, int pitch, int rows, int8_t other, int bytes)
{
  const int8x16_t others = vdupq_n_s8(other);
  for (; bytes >= 16; bytes -= 16, to += 16)
    for (int row = 0; row < rows; row++)
      vstrbq_s8(to + row * pitch, others);
  for (int row = 0; row < rows && bytes > 0; row++)
    vstrbq_p_s8(to + row * pitch, others, vctp8q(bytes));
}
INLINE void choose(int8_t *restrict to, int pitch, const int8_t *from, int apart, int rows, const int8_t *mask,
                   int8_t other, int bytes)
{
  const int8x16_t others = vdupq_n_s8(other);
  for (; bytes >= 16; bytes -= 16, to += 16, from += 16, mask += 16) {
    const mve_pred16_t kept = vcmpneq_n_s8(vldrbq_s8(mask), 0);
    for (int row = 0; row < rows; row++)
      vstrbq_s8(to + row * pitch, vpselq_s8(vldrbq_s8(from + row * apart), others, kept));
  }
  if (bytes > 0) {
    const mve_pred16_t inside = vctp8q(bytes), kept = vcmpneq_n_s8(vldrbq_z_s8(mask, inside), 0);
    for (int row = 0; row < rows; row++)
      vstrbq_p_s8(to + row * pitch, vpselq_s8(vldrbq_z_s8(from + row * apart, inside), others, kept), inside);
  }
}
"""
)
_PORTABLE = (
    "#include <stdint.h>\n"
    + INLINE
    + """\
INLINE int any(const int8_t *mask, int bytes)
{
  int found = 0;
  for (int i = 0; i < bytes && !found; i++)
    found = mask[i];
  return found;
}
INLINE void fill(int8_t *to, int pitch, int rows, int8_t other, int bytes)
{
  for (int row = 0; row < rows; row++)
    for (int i = 0; i < bytes; i++)
      to[row * pitch + i] = other;
}
INLINE void choose(int8_t *restrict to, int pitch, const int8_t *from, int apart, int rows, const int8_t *mask,
                   int8_t other, int bytes)
{
  for (int row = 0; row < rows; row++)
    for (int i = 0; i < bytes; i++)
      to[row * pitch + i] = mask[i] ? from[row * apart + i] : other;
}
"""
)


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
        return self._product(workload).variants(_inner(workload), core)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        part = self._product(workload).generate(_inner(workload), schedule, core)
        sizes = ("matrices", "blocks", "rows", "depth", "columns", "masked", "masks")
        matrices, blocks, rows, depth, block, masked, masks = (number(workload, name) for name in sizes)
        rows, pitch = rows * number(workload, "batch"), blocks * block
        results = round_up(part.scratch_bytes, VECTOR)
        text = f"""\
void {part.symbol}(const int8_t *columns, const int8_t *rows, int8_t *out, const int8_t *params, int8_t *scratch);
void @SYMBOL@(const int8_t *columns, const int8_t *rows, const int8_t *mask, int8_t *out, const int8_t *params,
              int8_t *scratch)
{{
  int8_t *const made = scratch + {results};
  for (int b = 0; b < {blocks}; b++, mask += {block}, out += {block}, columns += {block * depth}) {{
    int kept = 0;
    for (int row = 0; row < {masks} && !kept; row++)
      kept = any(mask + row * {pitch}, {block});
    if (!kept)
      fill(out, {pitch}, {matrices * rows}, {masked}, {block});
    for (int n = 0; n < {matrices} && kept; n++) {{
      {part.symbol}(columns + n * {pitch * depth}, rows + n * {rows * depth}, made, params, scratch);
      for (int row = 0; row < {masks}; row++)
        choose(out + (n * {rows} + row) * {pitch}, {masks * pitch}, made + row * {block}, {masks * block},
               {rows // masks}, mask + row * {pitch}, {masked}, {block});
    }}
  }}
}}
"""
        symbol, text = with_symbol(self.name, (_WITH_VECTORS if core.mve else _PORTABLE) + text)
        return KernelSource(symbol, "c", text, part.params, results + _results(workload), parts=(part,))

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        found = self._product(workload).features(_inner(workload), schedule, core)
        return {**found, "scratch": found.get("scratch", 0) + _results(workload)}

    def _product(self, workload: Workload) -> Matmul:
        """The family of the kernels of a block, with the working memory that its results leave."""
        most = self.site.most_scratch
        left = None if most is None else max(0, most - _results(workload))
        return Matmul(self.libraries, replace(self.site, most_scratch=left))


def _inner(workload: Workload) -> Workload:
    """What is computed for a block."""
    outer = ("matrices", "blocks", "masked", "masks")
    attributes = {name: value for name, value in workload.attributes.items() if name not in outer}
    return replace(workload, kind="matmul", attributes=attributes)


def _results(workload: Workload) -> int:
    """Bytes of the results of a block."""
    return round_up(math.prod(number(workload, name) for name in ("batch", "rows", "columns")), VECTOR)
