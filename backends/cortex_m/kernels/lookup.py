"""GATHER of rows of a constant table of bytes, stored as a convolution of one pixel stores its weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.mve import VECTOR
from tosaic.backends.cortex_m.kernels.mve_match import INT8, dtype_of, number, workload
from tosaic.backends.cortex_m.kernels.nibble_sketch import NIBBLES
from tosaic.backends.cortex_m.kernels.sketch_constants import factor_group
from tosaic.backends.cortex_m.program.family import ProgramFamily
from tosaic.backends.cortex_m.program.indexing import MOVED_ROW, looked_up
from tosaic.backends.cortex_m.program.kernel import Knobs, Sketched
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sketches.movement import MANY, MovedBox, moved
from tosaic.backends.target import Core
from tosaic.support.functions import body_of, computing_ops, returned
from tosaic.support.mlir import constant_value, ir, shape_of
from tosaic.tuner.space import Choice, Schedule

_BESIDE = (1, 2, 3, 4)
"""Channels of a convolution's register block."""
_BEHIND = (0, 1, 2, 3)
"""Vectors that it reads ahead."""
_WORD = 4
"""Bytes that cores with halves unpack at a time."""


@dataclass(frozen=True)
class LookupSketch:
    """Rows of a table (rows, width), stored as a convolution stores its weights.

    Args:
        group: weights that have a factor, where two lie in a byte; 0 where each is a byte.
        vectors: whether rows move in vectors.
    """

    rows: int
    width: int
    count: int
    group: int
    vectors: bool
    constants: Mapping[str, np.ndarray] = field(compare=False, repr=False)

    def program(self) -> Program:
        return looked_up(self.rows, self.width, self.count)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `beside`, rows whose vectors lie one of each after the other; `order`, whether the
        rows of each sixteen lie in theirs or as a convolution's results are `narrowed`; `behind`, empty vectors behind
        the table; and, of four bits, `lanes`, bytes that hold two vectors."""
        whole = self.width % VECTOR == 0
        return {
            "beside": tuple(n for n in _BESIDE if n == 1 or (whole and self.rows % n == 0)),
            "order": ("own", "narrowed") if whole and core.mve and self.rows % VECTOR == 0 else ("own",),
            "behind": _BEHIND,
            "lanes": (_unpacked(core) if self.group else VECTOR,),
        }

    def steps(self, knobs: Knobs) -> Iterator[str]:
        beside, lanes, row = int(knobs["beside"]), int(knobs["lanes"]), "at"
        whole, vectors = self.width % VECTOR == 0 and not self.group, self.width // VECTOR
        if self.group:
            vectors = -(-self.width // self.group) * self.group // (2 * lanes)
            yield f"unpack(c, {self.group}, {lanes})"
        if knobs["order"] == "narrowed":
            yield f"narrowed_order({row}, w, p)"
            row = "p"
        if beside > 1:
            yield from (f"split({row}, b, {beside})", f"divide_dim(w, 0, {beside})")
        if whole and (self.vectors or beside > 1):
            yield f"split(c, ci, {VECTOR})"
            yield from (f"divide_dim(w, {1 + (beside > 1)}, {VECTOR})",) if vectors > 1 else ()
        if beside > 1 and vectors > 1:
            yield "reorder_dims(w, d0213)"
        if not self.group and self.width >= VECTOR:
            yield from self._moved(whole, beside)

    def _moved(self, whole: bool, beside: int) -> Iterator[str]:
        """The steps of the copy of a row of bytes."""
        if not self.vectors:
            yield "words(ci)" if beside > 1 else "words(c)"
        elif not whole:
            yield from moved(MovedBox(MOVED_ROW, ("c",), (self.width,), "c", "w", "", VECTOR, "i8", 0, 1, 0))
        else:
            yield from ("stage(w, c, vc, q, i8)", f"select(b{MOVED_ROW}, mve)")
            yield from ("hardware_loop(c)",) if self.width // VECTOR > MANY else ()
            yield f"block(b{MOVED_ROW})"

    def cost(self, knobs: Knobs) -> float:
        return int(knobs["beside"]) + int(knobs["behind"]) + _BESIDE[-1] * (knobs["order"] == "narrowed")


@FAMILIES.register
class Lookup(ProgramFamily):
    """One GATHER of whole rows of a constant int8 table (1, rows, width) by an argument of indices (1, count).

    In `nibbles` two numbers lie in a byte, as weights of four bits do.
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

    def sketch(self, workload: Workload) -> Sketched:
        return self._rows(workload, 0, False)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        source, knobs = super().generate(workload, schedule, core), dict(schedule.knobs)
        behind = int(knobs.get("behind", 0)) * int(knobs.get("lanes", VECTOR))
        return replace(source, params=source.params + bytes(behind))

    def _sketches(self, workload: Workload, core: Core) -> Mapping[str, Sketched]:
        group, lanes = number(workload, "group") if "group" in workload.attributes else 0, _unpacked(core)
        if group and lanes and number(workload, "width") % (2 * lanes) == 0:
            return {NIBBLES: self._rows(workload, group, core.mve)}
        return {"rows": self._rows(workload, 0, core.mve)}

    def _rows(self, workload: Workload, group: int, vectors: bool) -> LookupSketch:
        rows, width, count = (number(workload, name) for name in ("rows", "width", "count"))
        return LookupSketch(rows, width, count, group, vectors, {"w": workload.constants["weights"]})


def _unpacked(core: Core) -> int:
    """The bytes of four-bit weights that a core unpacks at a time; 0 where it reads bytes."""
    return VECTOR if core.mve else _WORD * ("dsp" in core.isa)
