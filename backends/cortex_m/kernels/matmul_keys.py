"""MATMUL of few int8 rows with a second operand that lies by columns, as the keys of attention do, in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from tosaic.backends.cortex_m.kernel import KernelSource, Site, Workload
from tosaic.backends.cortex_m.kernels.mve import PRELUDE, round_up, shift_factors, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import number
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.nest.keys import SCALED, TURN, Keys, KeysKernel
from tosaic.backends.target import Core
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Variant

KEYS = "keys"


def keys_of(workload: Workload) -> Keys | None:
    """The product of a workload; None where keys do not lie in rows, or results have more than one factor."""
    attributes, constants = workload.attributes, workload.constants
    if not attributes.get("transposed") or attributes["clamped"] or attributes["table"]:
        return None
    if any(len(np.unique(constants[name])) > 1 for name in ("multiplier", "shift")):
        return None
    batch, rows, depth, columns = (number(workload, name) for name in ("batch", "rows", "depth", "columns"))
    return Keys(batch, rows, depth, columns, str(attributes["form"]))


def variants(what: Keys) -> Sequence[Variant]:
    """The variant `keys`, which has no knobs; none where it is not legal."""
    with suppress(BackendError):
        KeysKernel(what, None).verify()
        return (Variant(KEYS),)
    return ()


def _scheduled(workload: Workload, core: Core) -> KeysKernel:
    what = keys_of(workload)
    assert what is not None
    return KeysKernel(what, core.pipeline)


def keys_features(workload: Workload, core: Core, site: Site) -> Mapping[str, float]:
    """Static features of the kernel."""
    return site.promised(_scheduled(workload, core), core.pipeline)


def keys_kernel(workload: Workload, core: Core) -> KernelSource:
    """The kernel of the variant `keys`.

    With zero points az and bz, the sum of (q - az)(k - bz) over a query q and a key k is that of their bytes, less az
    times the sum of k, which comes from a vector of az, less bz times the sum of q, plus depth * az * bz: a term.
    """
    kernel, constants, params = _scheduled(workload, core), workload.constants, Params()
    what = kernel.what
    multiplier, right, left = shift_factors(constants["multiplier"][:1], constants["shift"][:1])
    factors = {"multiplier": multiplier, "right": right, "left": left}
    zeros = [constants["a_zero_point"], constants["b_zero_point"], constants["range"][:1]]
    params.add(np.concatenate([*zeros, *(factors[name] for name in SCALED[what.form])]).astype(np.int32))
    queries, row = kernel.query_bytes, what.vectors * 16
    whole, rest = what.columns // TURN * TURN, what.columns % TURN

    def pass_over(first: str, turns: str) -> list[str]:
        finish = f"finish(totals + r * {kernel.block}, totals + {what.rows * kernel.block}"
        return [
            f"sums(b + ({first}) * {what.depth}, totals, w, {turns});",
            f"for (int r = 0; r < {what.rows}; r++)",
            f"  {finish}, results + r * {what.columns} + {first}, term[r], range + 2, {turns});",
        ]

    lines = [
        *kernel.functions(),
        "void @SYMBOL@(const int8_t *restrict b, const int8_t *restrict a, int8_t *restrict results,",
        "              const int8_t *restrict params, int8_t *restrict w)",
        "{",
        "  const int32_t *range = (const int32_t *)params;",
        f"  int32_t *totals = (int32_t *)(w + {queries}), term[{what.rows}];",
        "  const int8_t zero = (int8_t)range[0];",
        f"  int8_t *to = w + {what.rows * row};",
        f"  __builtin_memset(w, 0, {queries});",
        *(f"  {line}" for line in kernel.zeros()),
        f"  for (int i = 0; i < {what.batch}; i++, b += {what.columns * what.depth}) {{",
        f"    for (int r = 0; r < {what.rows}; r++, a += {what.depth}) {{",
        f"      to = w + r * {row};",
        *(f"      {line}" for line in kernel.queries()),
        "      int32_t sum = 0;",
        f"      for (int k = 0; k < {what.depth}; k++) sum += a[k];",
        f"      term[r] = range[1] * ({what.depth} * zero - sum);",
        "    }",
        f"    for (int n = 0; n < {whole}; n += {kernel.block}) {{",
        f"      const int turns = ({whole} - n < {kernel.block} ? {whole} - n : {kernel.block}) / {TURN};",
        *(f"      {line}" for line in pass_over("n", "turns")),
        "    }",
        *(f"    {line}" for line in (pass_over(str(what.columns - TURN), "1") if rest else [])),
        f"    results += {what.rows * what.columns};",
        "  }",
        "}",
        "",
    ]
    symbol, text = with_symbol("matmul", PRELUDE + "\n".join(lines))
    return KernelSource(symbol, "c", text, bytes(params), round_up(kernel.scratch_bytes, 16))
