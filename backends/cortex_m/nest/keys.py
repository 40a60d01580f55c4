"""Products of few rows with many, all of one depth, where they lie: queries of a head of attention with its keys.

A turn loads the vectors of sixteen keys. VMLADAV adds up their products with each query, which stay in vector registers
as far as these suffice, and with a vector of the queries' zero point. The sums go through memory to the finish, in the
order in which it narrows them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernels.mve import NARROWED, VECTOR
from tosaic.backends.cortex_m.nest.assembly import VECTORS, assembly
from tosaic.backends.cortex_m.nest.block import (
    BlockInstruction,
    InstructionBlock,
    advance,
    cycles_of,
    ordered,
    update,
)
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

TURN = VECTOR
"""Keys of a turn: a vector of results."""
_BLOCK = 128
_SUMS = ("r0", "r2", "r4", "r8", "r10")
_HELD = 6
"""Vectors that stay in registers; the others are for what is loaded."""
_REACH = 127
_MOST_INSTRUCTIONS = 900
_MOST_VECTORS = 32  # as far as the immediate of VLDRW reaches
_ENTRY = 12  # cycles of a statement before its first turn and behind its last
SCALED = {"round": ("multiplier",), "right": ("multiplier", "right"), "left": ("left", "multiplier", "right")}


@dataclass(frozen=True)
class Keys:
    """What is computed: `rows` queries with `columns` keys of `depth` bytes each, for every one of a batch.

    Args:
        form: of `VectorEpilogue`, the same factors for all results.
    """

    batch: int
    rows: int
    depth: int
    columns: int
    form: str

    @cached_property
    def parts(self) -> list[list[tuple[int, int, int]]]:
        """The vectors of a query, for each key of a vector of keys: where in the vector its bytes begin, where in the
        query, and how many there are. A short query lies in one for each key; of a long one the last vector begins
        early, and what it has in common with the one before is left out."""
        depth = self.depth
        if depth < VECTOR:
            return [[(key * depth, 0, depth)] for key in range(VECTOR // depth)]
        whole, rest = divmod(depth, VECTOR)
        last = [(VECTOR - rest, depth - rest, rest)] if rest else []
        return [[*((0, VECTOR * number, VECTOR) for number in range(whole)), *last]]

    @cached_property
    def starts(self) -> list[int]:
        """Where the vectors of a key begin, or one of several keys."""
        return [first - at for at, first, _ in self.parts[0]]

    @property
    def vectors(self) -> int:
        """Vectors of a query, of all its keys."""
        return sum(map(len, self.parts))


@dataclass(frozen=True)
class KeysKernel:
    """A scheduled product.

    Args:
        pipeline: timings of the core; None leaves instructions in the order of their meaning.
    """

    what: Keys
    pipeline: Pipeline | None

    def verify(self) -> None:
        """Check what the printed code takes for granted.

        Raises:
            BackendError: it does not hold; the message says why.
        """
        what = self.what
        if what.depth < VECTOR and VECTOR % what.depth:
            raise BackendError(f"keys of {what.depth} bytes are no part of a vector, and not as long as one")
        if what.depth > _REACH:
            raise BackendError(f"no immediate reaches over {what.depth} bytes")
        if what.columns < TURN:
            raise BackendError(f"{what.columns} keys are no turn")
        if what.vectors * (what.rows + 1) > _MOST_VECTORS or what.rows >= len(_SUMS):
            raise BackendError(f"{what.rows} queries are too many")
        if len(self._products) > _MOST_INSTRUCTIONS:
            raise BackendError(f"a turn of {len(self._products)} instructions is too long")

    @property
    def block(self) -> int:
        """Keys whose sums lie in scratch memory at a time, of whole turns."""
        return min(_BLOCK, self.what.columns // TURN * TURN)

    @property
    def query_bytes(self) -> int:
        """Bytes of the vectors of all queries, and of the zero point behind them."""
        return VECTOR * self.what.vectors * (self.what.rows + 1)

    @property
    def scratch_bytes(self) -> int:
        return self.query_bytes + 4 * self.block * (self.what.rows + 1)

    # The sums.

    @cached_property
    def _held(self) -> dict[int, str]:
        """The vectors of queries that stay in registers, by their number: the first ones."""
        count = self.what.vectors * (self.what.rows + 1)
        return {number: f"h{number}" for number in range(min(count, _HELD))}

    @cached_property
    def _products(self) -> list[BlockInstruction]:
        """A turn of the sums."""
        what, code = self.what, list[BlockInstruction]()
        sums, rows = itertools.cycle(range(len(_SUMS))), range(what.rows + 1)
        distances = [*(b - a for a, b in itertools.pairwise(what.starts)), self._key_bytes - what.starts[-1]]
        for first in range(0, TURN, len(what.parts)):
            for key in range(len(what.parts)):
                totals = [f"s{next(sums)}" for _ in rows]
                for n, distance in enumerate(distances):
                    if not key:
                        load = f"{{x{n}}}, [{{k}}], #{distance}"
                        code.append(BlockInstruction("vldrb.u8", load, (f"x{n}", "k"), ("k",)))
                    code += [each for row in rows for each in self._product(row, key, n, totals[row])]
                places = [4 * (row * self.block + NARROWED.index(first + key)) for row in rows]
                code += [
                    BlockInstruction("str.w", f"{{{total}}}, [{{a}}, #{place}]")
                    for total, place in zip(totals, places, strict=True)
                ]
        return [*code, *advance("a", 4 * TURN)]

    @property
    def _key_bytes(self) -> int:
        """From a vector of keys to the next one, or from a key to the next one."""
        return len(self.what.parts) * self.what.depth

    def _product(self, row: int, key: int, n: int, total: str) -> list[BlockInstruction]:
        """A vector of keys with a vector of a query."""
        number = (row * len(self.what.parts) + key) * len(self.what.parts[0]) + n
        keeps = (total,) if n else ()
        query, code = self._held.get(number), list[BlockInstruction]()
        if query is None:
            query = "y"
            code.append(BlockInstruction("vldrw.u32", f"{{y}}, [{{w}}, #{VECTOR * number}]", ("y",)))
        mnemonic = "vmladava.s8" if n else "vmladav.s8"
        return [*code, BlockInstruction(mnemonic, f"{{{total}}}, {{x{n}}}, {{{query}}}", (total,), keeps)]

    def _sums(self, pipeline: Pipeline | None) -> tuple[list[str], tuple[str, ...]]:
        """What stands before the loop over the sums, and a turn of it."""
        homes = dict(zip(self._held.values(), VECTORS[::-1], strict=False))
        registers = {name: f"%[{name}]" for name in ("k", "a", "w")} | homes
        registers |= {f"s{number}": register for number, register in enumerate(_SUMS)}
        free = tuple(vector for vector in VECTORS if vector not in homes.values())
        code = ordered(InstructionBlock(tuple(self._products), registers, free), pipeline)
        held = [f"vldrw.u32 {homes[name]}, [%[w], #{VECTOR * number}]" for number, name in self._held.items()]
        return [*held, *code.entry], code.turn

    # The finish.

    def _finished(self, pipeline: Pipeline | None) -> tuple[list[str], tuple[str, ...]]:
        """What stands before the loop over a row's results, and a turn of it."""
        homes, turn = dict(zip(SCALED[self.what.form], VECTORS[::-1], strict=False)), list[BlockInstruction]()
        for narrowed in ("even", "odd"):
            for lane in "bt":
                turn += [
                    BlockInstruction("vldrw.u32", "{v}, [{a}], #16", ("v", "a"), ("a",)),
                    BlockInstruction("vldrw.u32", "{c}, [{z}], #16", ("c", "z"), ("z",)),
                    update("vsub.i32", "v", "c"),
                    update("vadd.i32", "v", "term"),
                    *self._scaled(),
                ]
                keeps = (narrowed,) if lane == "t" else ()
                turn.append(BlockInstruction(f"vqmovn{lane}.s32", f"{{{narrowed}}}, {{v}}", (narrowed,), keeps))
        turn += [
            BlockInstruction("vqmovnb.s16", "{r}, {even}", ("r",)),
            BlockInstruction("vqmovnt.s16", "{r}, {odd}", ("r",), ("r",)),
            BlockInstruction("vstrb.8", "{r}, [{o}], #16", ("o",), ("o",)),
        ]
        registers = {name: f"%[{name}]" for name in ("a", "z", "o", "term", "zero")} | homes
        free = tuple(vector for vector in VECTORS if vector not in homes.values())
        ready = ordered(InstructionBlock(tuple(turn), registers, free), pipeline)
        return [*(f"vdup.32 {register}, %[{name}]" for name, register in homes.items()), *ready.entry], ready.turn

    def _scaled(self) -> list[BlockInstruction]:
        """The RESCALE of `v`, and the zero point."""
        if self.what.form == "round":
            return [BlockInstruction("vqrdmlash.s32", "{v}, {multiplier}, {zero}", ("v",), ("v",))]
        code = [update("vqshl.s32", "v", "left")] if self.what.form == "left" else []
        return [
            *code,
            update("vqdmulh.s32", "v", "multiplier"),
            update("vrshl.s32", "v", "right"),
            update("vadd.i32", "v", "zero"),
        ]

    # The code.

    def functions(self) -> list[str]:
        """C of `sums(k, a, w, turns)` and of `finish(a, z, o, term, range, turns)`, which begins with the zero point of
        the results and goes on with the factors."""
        entry, turn = self._sums(self.pipeline)
        factors = SCALED[self.what.form]
        sums = assembly(entry, turn, (), "turns", ["k", "a"], ["w", "turns"], _SUMS)
        entry, turn = self._finished(self.pipeline)
        reads = ["term", "zero", *factors, "turns"]
        finish = assembly(entry, turn, (), "turns", ["a", "z", "o"], reads, ())
        return [
            "static void sums(const int8_t *k, int32_t *a, const int8_t *w, int turns)",
            "{",
            *(f"  {line}" for line in sums),
            "}",
            "static void finish(const int32_t *a, const int32_t *z, int8_t *o, int32_t term, const int32_t *range,",
            "                   int turns)",
            "{",
            f"  const int32_t {', '.join(f'{name} = range[{n}]' for n, name in enumerate(('zero', *factors)))};",
            *(f"  {line}" for line in finish),
            "}",
        ]

    def queries(self) -> list[str]:
        """C that lays out the query at `a` as vectors at `to`, behind each other."""
        what = self.what
        lines = []
        for key, parts in enumerate(what.parts):
            for n, (at, first, count) in enumerate(parts):
                to = VECTOR * (key * len(parts) + n) + at
                lines.append(f"__builtin_memcpy(to + {to}, a + {first}, {count});")
        return lines

    def zeros(self) -> list[str]:
        """C that fills the vectors at `to` with `zero` where queries have bytes."""
        what = self.what
        return [
            f"__builtin_memset(to + {VECTOR * (key * len(parts) + n) + at}, zero, {count});"
            for key, parts in enumerate(what.parts)
            for n, (at, _, count) in enumerate(parts)
        ]

    # What it costs.

    def walks(self) -> Sequence[Walk]:
        """The loop over the keys of a batch."""
        what = self.what
        keys = ArrayAccess("b", "input", what.depth, (what.depth,))
        results = ArrayAccess("out", "output", what.rows, (what.rows,), writes=True)
        return [Walk((float(what.batch * what.columns),), (keys, results))]

    def counts(self) -> dict[str, float]:
        """What the code executes, for the cost model."""
        what = self.what
        turns = -(-what.columns // TURN)
        blocks = -(-what.columns // self.block)
        sums, finish = self._sums(self.pipeline)[1], self._finished(self.pipeline)[1]
        cycles = turns * (self._cycles(sums) + what.rows * self._cycles(finish))
        cycles += blocks * (1 + what.rows) * _ENTRY + 8 * what.vectors * what.rows
        code = float(len(sums) + len(finish))
        return {
            "cycles": what.batch * cycles,
            "issued": what.batch * turns * (len(sums) + what.rows * float(len(finish))),
            "code": code,
            "scratch": float(self.scratch_bytes),
        }

    def _cycles(self, turn: Sequence[str]) -> float:
        if self.pipeline is None:
            return float(len(turn))
        once, twice = (cycles_of(turn, self.pipeline, times) for times in (1, 2))
        return float(twice - once)
