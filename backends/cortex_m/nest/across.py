"""Reductions of rows as nests: vectors of a row, joined across their lanes in a general register."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.kernels.mve import PRELUDE, VECTOR, with_symbol
from tosaic.backends.cortex_m.nest.assembly import VECTORS, assembly
from tosaic.backends.cortex_m.nest.block import Block, Instruction, Ordered, cycles_of, ordered
from tosaic.backends.cortex_m.nest.nest import Nest
from tosaic.backends.cortex_m.nest.sketches import cheapest_first, verified
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Choice, Schedule, Variant

# VADDVA wants even registers.
_SUMS = ("r0", "r2", "r4", "r6")
_MOST_INSTRUCTIONS = 240
_MOST_TURNS = (1 << 16) - 1
_LETTER = {1: "b", 2: "h", 4: ""}
# Cycles of a statement before its first turn and behind its last.
_ENTRY = 12


@dataclass(frozen=True)
class Rows:
    """What is computed: one element of each row.

    Args:
        join: the instruction that joins a vector, `vaddva`, `vmaxv` or `vminv`.
        bits: of an element.
        result: bits of a result.
        rows, length: how many there are, and their elements.
        first: what elements are joined to.
    """

    join: str
    bits: int
    result: int
    rows: int
    length: int
    first: int

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return min(8 * VECTOR // self.bits, self.length)

    @property
    def nest(self) -> Nest:
        """The unscheduled stage."""
        return Nest.of(out={"y": self.rows, "x": self.length})

    def scheduled(self, variant: str, k: Mapping[str, Choice]) -> Nest:
        """The trace with its numbers filled in, applied."""
        if variant == "rows":
            nest = self.nest.apply("split", "out", "y", "yi", int(k["rows"])).apply(
                "split", "out", "x", "xi", self.lanes
            )
            nest = nest.apply("lanes", "out", "xi").apply("unroll", "out", "yi", "x").apply("turn", "out", "y")
            return nest.apply("hoist", "out", int(k["ahead"]))
        nest = self.nest.apply("split", "out", "x", "xv", self.lanes * int(k["vectors"]))
        nest = nest.apply("split", "out", "xv", "xi", self.lanes).apply("lanes", "out", "xi")
        nest = nest.apply("unroll", "out", "xv").apply("turn", "out", "x")
        return nest.apply("hoist", "out", int(k["ahead"]))


@dataclass(frozen=True)
class RowsKernel:
    """Scheduled reductions, ready to print.

    Args:
        what: the problem.
        nest: stage `out`, whose hardware loop walks over the rows, or over the vectors of each.
        pipeline: timings of the core; None leaves instructions in the order of their meaning.
    """

    what: Rows
    nest: Nest
    pipeline: Pipeline | None

    @cached_property
    def _by_rows(self) -> bool:
        return self.nest.loop("out", "y").how == "turn"

    @property
    def _masked(self) -> bool:
        """Whether only some lanes of a row's last vector exist; that of an unrolled row of extrema starts early."""
        what, lanes = self.what, 8 * VECTOR // self.what.bits
        return what.length < lanes or (what.length % lanes > 0 and (what.join == "vaddva" or not self._by_rows))

    @cached_property
    def parts(self) -> list[tuple[list[Instruction], int]]:
        """Blocks of instructions and their turns: of all rows, or of the vectors of a row, and of its end."""
        what, length = self.what, self.what.length
        if self._by_rows:
            step = self.nest.loop("out", "y").step
            sizes = [(step, what.rows // step), (what.rows % step, 1)]
            return [(self._rows(range(size), length), turns) for size, turns in sizes if size]
        step = self.nest.loop("out", "x").step
        return [(self._vectors(0, step), length // step), (self._rows([0], length % step)[1:], 1)]

    def _rows(self, rows: Iterable[int], length: int) -> list[Instruction]:
        """Rows of so many elements, or ends of rows."""
        code, size = list[Instruction](), self.what.result // 8
        for row in rows:
            code.append(Instruction("mov", f"{{s{row}}}, {{first}}", (f"s{row}",)))
            code += self._vectors(row, length)
            code.append(Instruction(f"str{_LETTER[size]}", f"{{s{row}}}, [{{o}}], #{size}", ("o",), ("o",)))
        return code

    def _vectors(self, row: int, length: int) -> list[Instruction]:
        """Vectors of so many elements of a row."""
        what, code, total, lanes = self.what, list[Instruction](), f"s{row}", 8 * VECTOR // self.what.bits
        starts = [start if self._masked else min(start, length - lanes) for start in range(0, length, lanes)]
        for start, following in itertools.pairwise([*starts, length]):
            pst, t = ("vpst\\n", "t") if start + lanes > length else ("", "")
            load, distance = (
                f"{pst}vldr{_LETTER[what.bits // 8] or 'w'}{t}.u{what.bits}",
                (following - start) * what.bits // 8,
            )
            code.append(Instruction(load, f"{{x}}, [{{p}}], #{distance}", ("x", "p"), ("p",)))
            join = what.join if what.join == "vaddva" else f"{pst}{what.join}{t}"
            code.append(Instruction(f"{join}.s{what.bits}", f"{{{total}}}, {{x}}", (total,), (total,)))
        return code

    def _ordered(self, code: Sequence[Instruction], turns: int) -> Ordered:
        registers = {name: f"%[{name}]" for name in ("p", "o", "first")}
        registers |= {f"s{row}": register for row, register in enumerate(_SUMS)}
        hoisted = self.nest.hoisted.get("out", 0) if turns > 1 else 0
        return ordered(Block(tuple(code), registers, VECTORS), self.pipeline, hoisted)

    def source(self, kind: str) -> KernelSource:
        """The kernel; `kind` is the prefix of its symbol."""
        if self._by_rows:
            loops = [line for code, turns in self.parts for line in self._statement([], code, [], turns)]
        else:
            (turn, turns), (end, _) = self.parts
            statement = self._statement(["mov r0, %[first]"], turn, self._ordered(end, 1).turn, turns)
            loops = [f"for (int y = 0; y < {self.what.rows}; y++) {{", *(f"  {line}" for line in statement), "}"]
        lines = [
            "void @SYMBOL@(const int8_t *restrict p, int8_t *restrict o, const void *params, void *scratch)",
            "{",
            f"  const int first = {self.what.first}, left = {self.what.length % (8 * VECTOR // self.what.bits)};",
            *(f"  {line}" for line in loops),
            "}",
            "",
        ]
        symbol, text = with_symbol(kind, PRELUDE + "\n".join(lines))
        return KernelSource(symbol, "c", text)

    def _statement(
        self, entry: Sequence[str], code: Sequence[Instruction], leave: Sequence[str], turns: int
    ) -> list[str]:
        """C of a statement: `entry`, so many turns of `code`, `leave`."""
        found = self._ordered(code, turns)
        before = ["vmrs r12, p0", f"vctp.{self.what.bits} %[left]"] if self._masked else []
        after = [*leave, *(["vmsr p0, r12"] if self._masked else [])]
        last, loops = (found.last, turns - 1) if found.entry else ((), turns)
        return assembly(
            [*before, *entry, *found.entry],
            found.turn,
            [*last, *after],
            loops,
            ["p", "o"],
            ["first", "left"],
            [*_SUMS, "r12"],
        )

    def verify(self) -> None:
        """Check what the printed code takes for granted.

        Raises:
            BackendError: the nest is not legal; the message says why.
        """
        if (longest := max(len(code) for code, _ in self.parts)) > _MOST_INSTRUCTIONS:
            raise BackendError(f"a turn of {longest} instructions is too long to unroll")
        if (most := max(turns for _, turns in self.parts)) > _MOST_TURNS:
            raise BackendError(f"a hardware loop does not count {most} turns")

    def walks(self) -> Sequence[Walk]:
        """The loop over memory: rows, one after another."""
        row, result = self.what.length * self.what.bits // 8, self.what.result // 8
        read = ArrayAccess("in", "input", row, (row,))
        return [Walk((self.what.rows,), (read, ArrayAccess("out", "output", result, (result,), writes=True)))]

    def counts(self) -> dict[str, float]:
        """What the code executes, for the cost model."""
        rows = 1 if self._by_rows else self.what.rows
        cycles = sum(rows * (self._cycles(code, turns) + _ENTRY) for code, turns in self.parts)
        issued = sum(rows * turns * len(code) for code, turns in self.parts)
        code = sum(len(code) for code, _ in self.parts)
        ahead = self.nest.hoisted.get("out", 0)
        return {"cycles": cycles, "issued": float(issued), "code": float(code), "ahead": float(ahead), "scratch": 0.0}

    def _cycles(self, code: Sequence[Instruction], turns: int) -> float:
        """Cycles of so many turns, without the timings of a core as many as there are instructions."""
        if self.pipeline is None:
            return float(len(code) * turns)
        turn = self._ordered(code, turns).turn
        once, twice = (cycles_of(turn, self.pipeline, times) for times in (1, 2))
        return float(once + (twice - once) * (turns - 1))


@lru_cache(maxsize=256)
def sketches(what: Rows, pipeline: Pipeline | None) -> Sequence[Variant]:
    """`rows`: the hardware loop walks over the rows, whose vectors are unrolled. `vectors`: over the vectors of a row.

    Knobs: `rows`, or `vectors`, in a turn; `ahead`, loads executed one turn ahead. The first schedule of a variant, and
    the first variant, promise the fewest cycles.
    """
    most = what.length // what.lanes
    knobs: dict[str, dict[str, tuple[Choice, ...]]] = {
        "rows": {"rows": tuple(range(1, min(len(_SUMS), what.rows) + 1)), "ahead": (0, 1, 2, 3, 4)},
        "vectors": {"vectors": tuple(n for n in (1, 2, 3, 4, 6, 8, 12, 16) if n <= most), "ahead": (0, 1, 2, 3, 4)},
    }
    return cheapest_first(RowsKernel, what, knobs, pipeline)


def scheduled(what: Rows, schedule: Schedule, pipeline: Pipeline | None) -> RowsKernel:
    """The kernel of a schedule out of `sketches`.

    Raises:
        BackendError: it is not legal.
    """
    return replace(verified(RowsKernel, what, schedule.variant, schedule.knobs), pipeline=pipeline)
