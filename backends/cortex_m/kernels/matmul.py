"""MATMUL of two int8 activations to int8 on MVE: the second is packed in scratch memory, then multiplied as a GEMM.

With zero points az and bz, the sum of (a - az)(b - bz) over k is the product of the raw bytes, less az times the
column's sum of b, less bz times the row's sum of a, plus depth * az * bz: a seed per column and a term per row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.emit import Params
from tosaic.backends.cortex_m.kernels.gemm import DenseRows, Gemm, Tile
from tosaic.backends.cortex_m.kernels.mve import PRELUDE, VECTOR, lookup_order, round_up, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import INT8, dtype_of, is_chain, match_epilogue, number, workload
from tosaic.backends.target import Core
from tosaic.support.functions import body_of, computing_ops
from tosaic.support.mlir import constant_value, ir, shape_of
from tosaic.support.values import is_argument
from tosaic.tuner.space import Choice, Schedule, Variant

# Byte offsets of a gather are 16 bits wide.
_WIDEST = (1 << 16) // 8


@FAMILIES.register
class Matmul(KernelFamily):
    """MATMUL (batch, rows, depth) x (batch, depth, columns) of two int8 arguments to int8, with CLAMP and TABLE."""

    name = "matmul"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or ops[0].name != "tosa.matmul" or not is_chain(ops, function):
            return None
        arguments = list(body_of(function).arguments)
        a, b, *zeros = ops[0].operands
        if [a, b] != arguments or not is_argument(b) or (dtype_of(a), dtype_of(b)) != (INT8, INT8):
            return None
        a_zero, b_zero = (constant_value(zero) for zero in zeros)
        (batch, rows, depth), columns = shape_of(a), shape_of(b)[2]
        epilogue = match_epilogue(ops[1:], columns)
        if a_zero is None or b_zero is None or epilogue is None or columns > _WIDEST:
            return None
        attributes = {"batch": batch, "rows": rows, "depth": depth, "columns": columns, **epilogue.attributes}
        constants = {
            "a_zero_point": a_zero,
            "b_zero_point": b_zero,
            **epilogue.constants,
        }
        return workload(self.name, attributes, constants)

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        if not core.mve:
            return ()
        gemm = _gemm(workload)

        def legal(knobs: Mapping[str, Choice]) -> bool:
            return gemm.legal({**knobs, "bias": "seed"})

        knobs = {name: choices for name, choices in gemm.knobs.items() if name != "bias"}
        return (Variant("packed", knobs, legal),)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        gemm, constants = _gemm(workload), workload.constants
        tile = Tile(gemm, _seeded(schedule), gemm.depth, row_terms=True)
        text, scratch = _kernel(number(workload, "batch"), tile)
        symbol, text = with_symbol("matmul", PRELUDE + tile.text + text)
        params = Params()
        header = np.concatenate([constants["range"], constants["a_zero_point"], constants["b_zero_point"], [0, 0, 0]])
        params.add(header.astype(np.int32))
        params.add(tile.order[: round_up(gemm.channels, tile.nr)].astype(np.int32))
        params.add(tile.pack_table(constants["multiplier"], constants["shift"], None))
        if gemm.table:
            params.add(lookup_order(constants["table"]))
        return KernelSource(symbol, "c", text, bytes(params), scratch)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        gemm, batch = _gemm(workload), number(workload, "batch")
        tile = Tile(gemm, _seeded(schedule), gemm.depth, row_terms=True)
        features = {name: batch * value for name, value in tile.counts.items()}
        return {**features, **tile.choices, "packed": float(batch * gemm.channels * gemm.depth)}


def _gemm(workload: Workload) -> Gemm:
    rows, depth, columns, table = (number(workload, name) for name in ("rows", "depth", "columns", "table"))
    return Gemm(rows, depth, columns, workload.attributes["form"] != "right", bool(table))


def _seeded(schedule: Schedule) -> Schedule:
    return Schedule.of(schedule.variant, **dict(schedule.knobs), bias="seed")


def _kernel(batch: int, tile: Tile) -> tuple[str, int]:
    """C of the kernel after the tile's, and its scratch bytes: accumulators, row terms, weights, seeds, copied rows."""
    gemm = tile.gemm
    terms = tile.accumulator_bytes
    weights = terms + round_up(4 * tile.mr, VECTOR)
    seeds = weights + tile.weight_bytes
    rows = DenseRows(tile, seeds + tile.seed_bytes)
    table = 32 + round_up(4 * round_up(gemm.channels, tile.nr), VECTOR)
    body = [
        f"int32_t *terms = (int32_t *)(scratch + {terms});",
        f"for (int r = 0; r < {tile.mr}; r++)",
        f"  terms[r] = -range[4] * row_sum(rows + r * {gemm.depth});",
        f"tile(rows, scratch + {weights}, (const int32_t *)(scratch + {seeds}), terms,",
        f"     (const int32_t *)(params + {table}), params + {table + tile.table_bytes}, range, (int32_t *)scratch,",
        f"     out + row * {gemm.channels});",
    ]
    lines = [
        *rows.functions,
        *_row_sum(gemm),
        *_pack(tile),
        "void @SYMBOL@(const int8_t *restrict a, const int8_t *restrict b, int8_t *restrict out,",
        "              const int8_t *restrict params, int8_t *restrict scratch)",
        "{",
        "  const int32_t *range = (const int32_t *)params;",
        f"  for (int n = 0; n < {batch}; n++) {{",
        f"    pack(scratch + {weights}, (int32_t *)(scratch + {seeds}), b, range);",
        *(f"    {line}" for line in rows.loop("a", body)),
        f"    a += {gemm.rows * gemm.depth}; b += {gemm.depth * gemm.channels}; out += {gemm.rows * gemm.channels};",
        "  }",
        "}",
        "",
    ]
    return "\n".join(lines), seeds + tile.seed_bytes + rows.scratch_bytes


def _row_sum(gemm: Gemm) -> list[str]:
    """C of `row_sum`: the sum of one row of `a`."""
    whole, rest = divmod(gemm.depth, VECTOR)
    lines = ["INLINE int32_t row_sum(const int8_t *row)", "{", "  int32_t sum = 0;"]
    if whole:
        lines.append(f"  for (int k = 0; k < {whole}; k++, row += 16) sum = vaddvaq_s8(sum, vldrbq_s8(row));")
    if rest:
        lines.append(f"  sum = vaddvaq_s8(sum, vldrbq_z_s8(row, vctp8q({rest})));")
    return [*lines, "  return sum;", "}"]


def _pack(tile: Tile) -> list[str]:
    """C of `pack`: columns of `b` to packed weights, in accumulator order, and the seed of each."""
    gemm, nr = tile.gemm, tile.nr
    return [
        "INLINE void pack(int8_t *w, int32_t *seed, const int8_t *b, const int32_t *range)",
        "{",
        f"  const uint16x8_t steps = vmulq_n_u16(vidupq_n_u16(0, 1), {gemm.channels});",
        "  const int32_t *order = range + 8;",
        f"  for (int j = 0; j < {round_up(gemm.channels, nr)}; j++) {{",
        f"    int8_t *to = w + j / {nr} * {gemm.vectors * nr * VECTOR} + j % {nr} * {VECTOR};",
        "    const int8_t *from = b + order[j];",
        f"    const int depth = order[j] < {gemm.channels} ? {gemm.depth} : 0;",
        "    int32_t sum = 0;",
        f"    for (int k = 0; k < {gemm.vectors * VECTOR}; k += {VECTOR}, to += {nr * VECTOR}) {{",
        "      const int left = depth > k ? depth - k : 0, more = left > 8 ? left - 8 : 0;",
        f"      vstrbq_s16(to, vldrbq_gather_offset_z_s16(from + k * {gemm.channels}, steps, vctp16q(left)));",
        f"      const int8_t *next = from + (k + 8) * {gemm.channels};",
        "      vstrbq_s16(to + 8, vldrbq_gather_offset_z_s16(next, steps, vctp16q(more)));",
        "      sum = vaddvaq_s8(sum, vldrbq_s8(to));",
        "    }",
        f"    seed[j] = range[3] * ({gemm.depth} * range[4] - sum);",
        "  }",
        "}",
    ]
