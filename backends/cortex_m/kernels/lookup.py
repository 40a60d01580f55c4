"""GATHER of rows of a constant table of bytes, stored as a convolution of one pixel stores its weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload, weights_at
from tosaic.backends.cortex_m.kernels.mve import NARROWED, VECTOR, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import INT8, dtype_of, number, workload
from tosaic.backends.cortex_m.kernels.nibble_sketch import NIBBLES
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.kernels.sketch_constants import factor_group
from tosaic.backends.cortex_m.program.derived import DERIVED
from tosaic.backends.target import Core
from tosaic.support.functions import body_of, computing_ops, returned
from tosaic.support.mlir import constant_value, ir, shape_of
from tosaic.tuner.space import Schedule, Variant

_BESIDE = (1, 2, 3, 4)
"""Channels of a convolution's register block."""
_BEHIND = (0, 1, 2, 3)
"""Vectors that it reads ahead."""
_WORD = 4
"""Bytes that cores with halves unpack at a time."""


@FAMILIES.register
class Lookup(KernelFamily):
    """One GATHER of whole rows of a constant int8 table (1, rows, width) by an argument of indices (1, count).

    Knobs: `beside`, rows whose vectors lie one of each after the other; `order`, whether the rows of each sixteen lie
    in theirs or as a convolution's results are `narrowed`; `behind`, empty vectors behind the table. In `nibbles` two
    numbers lie in a byte, as weights of four bits do.
    """

    name = "lookup"

    def match(self, function: ir.Operation) -> Workload | None:
        ops, arguments = computing_ops(function), list(body_of(function).arguments)
        if len(ops) != 1 or ops[0].name != "tosa.gather" or returned(function) != list(ops[0].results):
            return None
        table, indices = ops[0].operands
        values = constant_value(table)
        if values is None or dtype_of(table) != INT8 or len(values) != 1 or [indices] != arguments:
            return None
        _, rows, width = values.shape
        group = factor_group(values[0])
        attributes = {
            "rows": rows,
            "width": width,
            "count": shape_of(indices)[1],
            **({"group": group} if group else {}),
        }
        return workload(self.name, attributes, {"weights": values[0]})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        rows, width = number(workload, "rows"), number(workload, "width")
        lanes = _unpacked(core) if "group" in workload.attributes else 0
        if lanes and width % (2 * lanes) == 0:
            return (_variant(NIBBLES, rows, True, core),)
        return (_variant("rows", rows, width % VECTOR == 0, core),)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        count, width, narrowed = number(workload, "count"), number(workload, "width"), schedule["order"] == "narrowed"
        table, params, copied = workload.constants["weights"], Params(), _copied(width, int(schedule["beside"]))
        lanes, factors = VECTOR, 0
        if schedule.variant.endswith(NIBBLES):
            lanes, group = _unpacked(core), number(workload, "group")
            table, of_groups = _packed(table, group, lanes)
            factors, copied = params.add(of_groups), [*_unpacked_row(width, group, lanes, int(schedule["beside"]))]
        weights = params.add(_ordered(table, int(schedule["beside"]), lanes, narrowed))
        places = ", ".join(str(NARROWED.index(row)) for row in range(VECTOR))
        lines = [
            "#include <stdint.h>",
            *([f"static const uint8_t places[{VECTOR}] = {{{places}}};"] if narrowed else []),
            "void @SYMBOL@(const int32_t *restrict indices, int8_t *restrict out, const int8_t *restrict params,",
            "              void *scratch)",
            "{",
            "  (void)scratch;",
            weights_at(weights),
            *([f"  const int8_t *const factors = params + {factors};"] if weights else []),
            f"  for (int i = 0; i < {count}; i++, out += {width}) {{",
            f"    const int32_t row = {'(indices[i] & ~15) | places[indices[i] & 15]' if narrowed else 'indices[i]'};",
            *(f"    {line}" for line in copied),
            "  }",
            "}",
            "",
        ]
        symbol, text = with_symbol(self.name, "\n".join(lines))
        behind = bytes(lanes * int(schedule["behind"]))
        return KernelSource(symbol, "c", text, bytes(params) + behind, weights=weights)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        moved = number(workload, "count") * number(workload, "width")
        return {"bytes": float(moved), "beside": float(int(schedule["beside"])), "scratch": 0.0}


def _unpacked(core: Core) -> int:
    """The bytes of four-bit weights that a core unpacks at a time; 0 where it reads bytes."""
    return VECTOR if core.mve else _WORD * ("dsp" in core.isa)


def _variant(name: str, rows: int, whole: bool, core: Core) -> Variant:
    """A variant for rows of `whole` vectors, or others."""
    beside = tuple(n for n in _BESIDE if n == 1 or (whole and rows % n == 0))
    orders = ("own", "narrowed") if whole and core.mve and rows % VECTOR == 0 else ("own",)
    return Variant(name, {"beside": beside, "behind": _BEHIND, "order": orders})


def _packed(table: np.ndarray, group: int, lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a table of four bits, two numbers in a byte, and the factors of their groups."""
    rows = table.astype(np.int64)
    nibbles, factors = DERIVED[NIBBLES](rows, group, lanes), DERIVED["factors"](rows, group)
    assert nibbles is not None and factors is not None
    return nibbles.astype(np.int8).reshape(len(rows), -1), factors.astype(np.int8)


def _ordered(table: np.ndarray, beside: int, lanes: int, narrowed: bool) -> np.ndarray:
    """A table [rows, bytes] in the order of a convolution's weights."""
    width = table.shape[1]
    if narrowed:
        table = table.reshape(-1, VECTOR, width)[:, NARROWED].reshape(-1, width)
    return table.reshape(-1, beside, width // lanes, lanes).swapaxes(1, 2) if beside > 1 else table


def _copied(width: int, beside: int) -> list[str]:
    """C that copies `row`."""
    if beside == 1:
        return [f"__builtin_memcpy(out, packed + row * {width}, {width});"]
    return [
        _from(width, VECTOR, beside),
        f"for (int c = 0; c < {width}; c += {VECTOR})",
        f"  __builtin_memcpy(out + c, from + c * {beside}, {VECTOR});",
    ]


def _unpacked_row(width: int, group: int, lanes: int, beside: int) -> Iterator[str]:
    """C that unpacks `row`, and multiplies by the factors of its groups."""
    groups = -(-width // group)
    yield _from(groups * group // 2, lanes, beside)
    yield f"for (int c = 0; c < {width // 2}; c += {lanes}) {{"
    yield f"  const int32_t factor = factors[indices[i] * {groups} + c / {group // 2}];"
    yield f"  for (int j = 0; j < {lanes}; j++) {{"
    yield f"    const int32_t two = from[c * {beside} + j];"
    yield "    out[2 * c + j] = (int8_t)(((two & 15) ^ 8) - 8) * factor;"
    yield f"    out[2 * c + {lanes} + j] = (two >> 4) * factor;"
    yield "  }"
    yield "}"


def _from(width: int, lanes: int, beside: int) -> str:
    """C that finds the first bytes of a row of so many."""
    return f"const int8_t *from = packed + row / {beside} * {beside * width} + row % {beside} * {lanes};"
