"""MATMUL of two int8 activations to int8 on MVE: the second is packed in scratch memory, then multiplied as a GEMM.

With zero points az and bz, the sum of (a - az)(b - bz) over k is the product of the raw bytes, less az times the
column's sum of b, less bz times the row's sum of a, plus depth * az * bz: a bias per column and a term per row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.matmul_keys import KEYS, keys_features, keys_kernel, keys_of, variants
from tosaic.backends.cortex_m.kernels.mve import COPY, PRELUDE, VECTOR, lookup_order, round_up, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import (
    INT8,
    Geometry,
    dtype_of,
    is_chain,
    match_epilogue,
    number,
    workload,
)
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.kernels.product_sketch import MatmulSketch
from tosaic.backends.cortex_m.kernels.sketch_constants import constants_of, epilogue_of
from tosaic.backends.cortex_m.nest.contraction import Contraction
from tosaic.backends.cortex_m.nest.finish import GROUP, Finish
from tosaic.backends.cortex_m.nest.rows import DOTS
from tosaic.backends.cortex_m.nest.sketches import estimate, scheduled, sketches
from tosaic.backends.cortex_m.nest.tiled import Tiled
from tosaic.backends.cortex_m.program.family import ProgramFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.target import Core
from tosaic.support.attributes import ints_of
from tosaic.support.functions import body_of, computing_ops
from tosaic.support.mlir import constant_value, ir, shape_of
from tosaic.support.values import is_argument
from tosaic.tuner.space import Schedule, Variant

# Byte offsets of a gather are 16 bits wide.
_WIDEST = (1 << 16) // 8


@FAMILIES.register
class Matmul(ProgramFamily):
    """MATMUL (batch, rows, depth) x (batch, depth, columns) of two int8 arguments to int8, with CLAMP and TABLE.

    The second may be TRANSPOSEd: then (batch, columns, depth) is the first argument. Few rows are multiplied with it
    where it lies, in the variant `keys`.
    """

    name = "matmul"

    def match(self, function: ir.Operation) -> Workload | None:
        found = match_product(function)
        if found is None:
            return None
        ops, transposed = found
        a, b, *zeros = ops[0].operands
        if (dtype_of(a), dtype_of(b)) != (INT8, INT8):
            return None
        a_zero, b_zero = (constant_value(zero) for zero in zeros)
        (batch, rows, depth), columns = shape_of(a), shape_of(b)[2]
        epilogue = match_epilogue(ops[1:], columns)
        if a_zero is None or b_zero is None or epilogue is None or columns > _WIDEST:
            return None
        attributes = {"batch": batch, "rows": rows, "depth": depth, "columns": columns, **epilogue.attributes}
        attributes |= {"transposed": True} if transposed else {}
        constants = {"a_zero_point": a_zero, "b_zero_point": b_zero, **epilogue.constants}
        return workload(self.name, attributes, constants)

    def sketch(self, workload: Workload) -> Sketched | None:
        batch, rows, depth, columns = (number(workload, name) for name in ("batch", "rows", "depth", "columns"))
        epilogue, constants = epilogue_of(workload), constants_of(workload)
        return MatmulSketch(batch, rows, depth, columns, epilogue, constants, _is_transposed(workload))

    def vector_variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        what = keys_of(workload)
        packed = sketches(_contraction(workload, core), self.site.inside)
        return [*(variants(what) if what is not None else ()), *packed]

    def vector_kernel(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        if schedule.variant == KEYS:
            return keys_kernel(workload, core)
        constants, params = workload.constants, Params()
        kernel = scheduled(_contraction(workload, core), schedule, core)
        header = np.concatenate([constants["range"], constants["a_zero_point"], constants["b_zero_point"], [0, 0, 0]])
        params.add(header.astype(np.int32))
        order = params.add(np.stack(_order(kernel), axis=1))
        no_bias = np.zeros(kernel.what.channels, np.int32)
        factors = params.add(kernel.pack_factors(no_bias, constants["multiplier"], constants["shift"]))
        lookup = f"params + {params.add(lookup_order(constants['table']))}" if "table" in constants else "0"
        transposed = _is_transposed(workload)
        text, scratch = _kernel(number(workload, "batch"), kernel, order, factors, lookup, transposed)
        symbol, text = with_symbol("matmul", PRELUDE + text)
        return KernelSource(symbol, "c", text, bytes(params), scratch)

    def vector_trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        if schedule.variant == KEYS:
            return ()
        return scheduled(_contraction(workload, core), schedule, core).nest.trace

    def vector_features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        if schedule.variant == KEYS:
            return keys_features(workload, core, self.site)
        kernel, batch = scheduled(_contraction(workload, core), schedule, core), number(workload, "batch")
        counts = {name: batch * value for name, value in kernel.counts().items()}
        packed = float(batch * kernel.what.channels * kernel.what.depth)
        priced = self.site.inside.priced(counts, estimate(counts), [*kernel.walks()] * batch, core.pipeline)
        return {**priced, "packed": packed}


def match_product(function: ir.Operation) -> tuple[list[ir.Operation], bool] | None:
    """A MATMUL of both arguments and what follows, and whether the second one, which is the first argument then, is
    TRANSPOSEd before; None of anything else."""
    ops, arguments = computing_ops(function), list(body_of(function).arguments)
    transposed = len(ops) > 1 and ops[0].name == "tosa.transpose" and ints_of(ops[0], "perms") == (0, 2, 1)
    columns_of, ops = (ops[0], ops[1:]) if transposed else (None, ops)
    if not ops or ops[0].name != "tosa.matmul" or not is_chain(ops, function):
        return None
    a, b = list(ops[0].operands)[:2]
    if columns_of is not None and (b != columns_of.results[0] or arguments != [columns_of.operands[0], a]):
        return None
    if columns_of is None and (arguments != [a, b] or not is_argument(b)):
        return None
    return ops, transposed


def _contraction(workload: Workload, core: Core) -> Contraction:
    rows, depth, columns = (number(workload, name) for name in ("rows", "depth", "columns"))
    clamped, table = bool(workload.attributes["clamped"]), bool(workload.attributes["table"])
    finish = Finish(1, str(workload.attributes["form"]), clamped, table, terms=True, pipeline=core.pipeline)
    one = (1, 1)
    geometry = Geometry(1, 1, rows, depth, one, one, (0, 0, 0, 0), one, 1, rows)
    return Contraction(geometry, columns, DOTS["i8"], finish)


def _is_transposed(workload: Workload) -> bool:
    return bool(workload.attributes.get("transposed"))


def _order(kernel: Tiled) -> tuple[np.ndarray, np.ndarray]:
    """int32 (packed columns,) each: the column of `b`, past its end for padding; where its bias lies, or -1."""
    order, block, fields = kernel.channel_order(), kernel.block, kernel.what.finish.fields
    sums, starts = np.arange(len(order)), np.arange(kernel.blocks)[:, None]
    columns = np.where(order < block, order + starts * block, kernel.what.channels)
    first = starts * fields * round_up(block, GROUP)
    bias = np.where(order < block, first + sums // GROUP * GROUP * fields + sums % GROUP, -1)
    return columns.ravel().astype(np.int32), bias.ravel().astype(np.int32)


def _kernel(batch: int, kernel: Tiled, order: int, factors: int, lookup: str, transposed: bool) -> tuple[str, int]:
    """C of the kernel, and its scratch bytes: what `kernel` uses, packed weights, factors."""
    what, weights = kernel.what, kernel.scratch_bytes
    seeds = round_up(weights + kernel.weight_bytes, VECTOR)
    rows = what.geometry.columns
    body = kernel.body(f"scratch + {weights}", f"(const int32_t *)(scratch + {seeds})", lookup)
    functions = kernel.functions()
    lines = [
        *([] if functions[: len(COPY.splitlines())] == COPY.splitlines() else COPY.splitlines()),
        *functions,
        *_row_sum(what.depth),
        *(_pack_rows(kernel) if transposed else _pack(kernel)),
        f"void @SYMBOL@({_signature(transposed)}, int8_t *restrict results,",
        "              const int8_t *restrict params, int8_t *restrict scratch)",
        "{",
        "  const int32_t *range = (const int32_t *)params;",
        f"  copy(scratch + {seeds}, params + {factors}, {kernel.factor_bytes});",
        f"  for (int i = 0; i < {batch}; i++) {{",
        f"    const int8_t *in = a + i * {rows * what.depth};",
        f"    int8_t *out = results + i * {rows * what.channels};",
        f"    pack(scratch + {weights}, (int32_t *)(scratch + {seeds}), b + i * {what.depth * what.channels}, range,",
        f"         (const int32_t *)(params + {order}));",
        *(f"    {line}" for line in body),
        "  }",
        "}",
        "",
    ]
    return "\n".join(lines), round_up(seeds + kernel.factor_bytes, VECTOR)


def _signature(transposed: bool) -> str:
    """C of the operands of a kernel in the order of its function's arguments."""
    names = ("b", "a") if transposed else ("a", "b")
    return ", ".join(f"const int8_t *restrict {name}" for name in names)


def _row_sum(depth: int) -> list[str]:
    """C of `row_sum`: the sum of one row of `a`."""
    whole, rest = divmod(depth, VECTOR)
    lines = ["INLINE int32_t row_sum(const int8_t *row)", "{", "  int32_t sum = 0;"]
    if whole:
        lines.append(f"  for (int k = 0; k < {whole}; k++, row += 16) sum = vaddvaq_s8(sum, vldrbq_s8(row));")
    if rest:
        lines.append(f"  sum = vaddvaq_s8(sum, vldrbq_z_s8(row, vctp8q({rest})));")
    return [*lines, "  return sum;", "}"]


_PACK = "INLINE void pack(int8_t *w, int32_t *factors, const int8_t *b, const int32_t *range, const int32_t *order)"


def _pack_rows(kernel: Tiled) -> list[str]:
    """C of `pack`, where columns of `b` lie as rows."""
    what, nr, order = kernel.what, kernel.tile[1], _order(kernel)
    padded = bool((order[1] < 0).any())
    whole, rest = divmod(what.depth, VECTOR)
    copy = f"__builtin_memcpy(to + k * {nr * VECTOR}, from + k * {VECTOR}, {VECTOR});"
    tail = f"__builtin_memcpy(to + {whole * nr * VECTOR}, from + {whole * VECTOR}, {rest});"
    return [
        _PACK,
        "{",
        f"  __builtin_memset(w, 0, {kernel.weight_bytes});" if rest or padded else "",
        f"  for (int tile = 0; tile < {len(order[0]) // nr}; tile++, w += {len(kernel.vectors) * nr * VECTOR})",
        f"    for (int c = 0; c < {nr}; c++, order += 2) {{",
        f"      int8_t *to = w + c * {VECTOR};",
        f"      const int8_t *from = b + order[0] * {what.depth};",
        *([f"      if (order[0] >= {what.channels}) continue;"] if padded else []),
        *([f"      for (int k = 0; k < {whole}; k++) {copy}"] if whole else []),
        *([f"      {tail}"] if rest else []),
        f"      const int32_t bias = range[3] * ({what.depth} * range[4] - row_sum(from));",
        f"      {'if (order[1] >= 0) ' * padded}factors[order[1]] = bias;",
        "    }",
        "}",
    ]


def _pack(kernel: Tiled) -> list[str]:
    """C of `pack`: columns of `b` to packed weights, and the bias of each among the factors."""
    what, nr, order = kernel.what, kernel.tile[1], _order(kernel)
    padded = bool((order[1] < 0).any())
    whole, rest = divmod(what.depth, VECTOR)
    at, inside = f"from + 8 * {what.channels}", f"column < {what.channels}"

    def move(count: int) -> list[str]:
        """C that packs `count` elements of a column, a vector of them."""
        lines = []
        for half, (to, source) in enumerate((("to", "from"), ("to + 8", at))):
            there = min(max(count - 8 * half, 0), 8)
            gather = f"vldrbq_gather_offset_s16({source}, steps)"
            if padded or there < 8:
                mask = f"{inside} ? vctp16q({there}) : 0" if padded else f"vctp16q({there})"
                gather = f"vldrbq_gather_offset_z_s16({source}, steps, {mask})"
            part = "low" if half == 0 else "high"
            lines += [f"const int16x8_t {part} = {gather};", f"vstrbq_s16({to}, {part});"]
        return [*lines, "sum = vaddvaq_s16(vaddvaq_s16(sum, low), high);"]

    return [
        _PACK,
        "{",
        f"  const uint16x8_t steps = vmulq_n_u16(vidupq_n_u16(0, 1), {what.channels});",
        f"  for (int tile = 0; tile < {len(order[0]) // nr}; tile++, w += {len(kernel.vectors) * nr * VECTOR})",
        f"    for (int c = 0; c < {nr}; c++, order += 2) {{",
        f"      int8_t *to = w + c * {VECTOR};",
        "      const int column = order[0], bias = order[1];",
        "      const int8_t *from = b + column;",
        "      int32_t sum = 0;",
        f"      for (int k = 0; k < {whole}; k++, from += {VECTOR * what.channels}, to += {nr * VECTOR}) {{",
        *(f"        {line}" for line in move(VECTOR)),
        "      }",
        *([f"      {line}" for line in move(rest)] if rest else []),
        f"      {'if (bias >= 0) ' * padded}factors[bias] = range[3] * ({what.depth} * range[4] - sum);",
        "    }",
        "}",
    ]
