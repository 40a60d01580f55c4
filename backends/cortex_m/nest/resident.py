"""Products of two activations of int8 of which some columns stay in vector registers while a hardware loop walks over
the rows of the other one.

A turn computes the four sums of a row, moves them to the lanes of a vector, and finishes them there: no sum goes
through memory. It pays where rows are short, one to three vectors: more columns do not fit the registers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernels.mve import VECTOR, shift_factors
from tosaic.backends.cortex_m.nest.assembly import VECTORS, assembly
from tosaic.backends.cortex_m.nest.block import BlockInstruction, InstructionBlock, Ordered, advance, cycles_of, ordered
from tosaic.backends.cortex_m.nest.finish import GROUP, narrowed, update
from tosaic.backends.cortex_m.nest.nest import NestLoop
from tosaic.backends.cortex_m.nest.tiled import REACH_OF_LOOP, Tiled
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

_SUMS = ("r0", "r2", "r4", "r6")
_GENERAL = 13
_WORD_REACH = 508
_STORE_REACH = 127
_MOST_TURNS = (1 << 16) - 1
_FIXED = {**{f"s{i}": register for i, register in enumerate(_SUMS)}, "term": "r8"}
# Groups of a turn that take the registers which any number of them takes: a first, a last, one in between.
_LIKE_ALL = 3
# Vector registers that sums and their finish need at least.
_WORKING = 2
_PARAMETERS = ("zero_point", "low", "high", "lookup")
_READ = ("w", "t", *_PARAMETERS)
_CHANGED = ("p0", "o", "terms")


@dataclass(frozen=True)
class ResidentKernel(Tiled):
    """A scheduled product, ready to print.

    Args:
        nest: stage `sums` at the hardware loop of `out` over rows, which are its pixels; of operand `weights` some
            vectors of a group of channels are held, and those of `factors`, or all of them are read in each turn.
    """

    # What the nest says.

    def _loop(self, name: str) -> NestLoop:
        return self.nest.loop("out", name)

    @cached_property
    def shared(self) -> list[NestLoop]:
        loops = self.nest.stages["out"]
        return list(loops[: loops.index(self._loop("no"))])

    @cached_property
    def tile(self) -> tuple[int, int]:
        return 1, self._loop("ni").extent

    @property
    def unrolled(self) -> int:
        """Groups of four sums in a turn."""
        return self._loop("xo").step

    @property
    def _turns(self) -> int:
        return self.pixels // self._loop("xo").step

    @property
    def held(self) -> int:
        """Weight vectors of a group of channels that stay in registers."""
        return min(self.nest.held["weights"], len(self.vectors) * self.tile[1])

    @property
    def _holds_factors(self) -> bool:
        return self.nest.held["factors"] > 0

    @property
    def sums_bytes(self) -> int:
        return 0

    # What the host packs.

    def channel_order(self) -> np.ndarray:
        return np.arange(self.block, dtype=np.int32)

    def pack_factors(self, bias: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """int32 (groups of channels, fields, 4): the factors behind each of the four sums of a turn."""
        multiplier, right, left = shift_factors(np.asarray(multiplier), np.asarray(shift))
        values = {"bias": bias, "left": left, "multiplier": multiplier, "right": right}
        names = self.what.finish.names
        return np.stack([np.asarray(values[name], np.int32).reshape(-1, self.tile[1]) for name in names], axis=1)

    @property
    def _group_factors(self) -> int:
        """int32 factors of a group of channels."""
        return GROUP * self.what.finish.fields

    @property
    def block_factors(self) -> int:
        return 4 * self._group_factors * (self.block // self.tile[1])

    # The code.

    def functions(self) -> list[str]:
        lines = self._group_function("group", self._turns, self.unrolled)
        if self._left:
            lines += self._group_function("rest", 1, self._left)
        return self._with_copies(lines)

    @property
    def _left(self) -> int:
        """Pixels behind the hardware loop."""
        return self.pixels - self._turns * self.unrolled

    def _tile(self) -> list[str]:
        nr, stride = self.tile[1], self._result_stride
        shared = f"w + c * {len(self.vectors) * VECTOR}, t + c / {nr} * {self._group_factors}"
        calls = list[str]()
        for name, first in [("group", 0), *([("rest", self.pixels - self._left)] if self._left else [])]:
            numbers = ", ".join([*_PARAMETERS, f"terms + {first}"])
            calls.append(f"  {name}(p0 + {first * self.reader.pitch}, {shared}, o + {first * stride} + c, {numbers});")
        return [
            f"int8_t *o = out + (y * {self.reader.geometry.columns} + x) * {self.what.channels} + n;",
            f"for (int c = 0; c < {self.block}; c += {nr}) {{",
            *calls,
            "}",
        ]

    def _group_function(self, name: str, turns: int, groups: int) -> list[str]:
        """C of a function: `turns` times `groups` groups of pixels, all with one group of channels."""
        return [
            f"INLINE void {name}(const int8_t *p0, const int8_t *w, const int32_t *t, int8_t *o,",
            "  int32_t zero_point, int32_t low, int32_t high, const int8_t *lookup, const int32_t *terms)",
            "{",
            *(f"  {line}" for line in self._statement(turns, groups)),
            "}",
        ]

    @property
    def _constants(self) -> dict[str, str]:
        """The vectors that stay in registers, as C declares them."""
        found = {f"w{i}": f"int8x16_t w{i} = vldrbq_s8(w + {VECTOR * i})" for i in range(self.held)}
        if self._holds_factors:
            names = enumerate(self.what.finish.names)
            found |= {name: f"int32x4_t {name} = vldrwq_s32(t + {GROUP * i})" for i, name in names}
        return found

    def _statement(self, turns: int, groups: int) -> list[str]:
        found = self._ordered(turns, groups, self.pipeline)
        leave, loops = (found.last, turns - 1) if found.entry else ((), turns)
        used = " ".join([*found.entry, *found.turn])
        reads = [name for name in _READ if f"%[{name}]" in used]
        clobbers = [register for register in _FIXED.values() if register in used]
        statement = assembly(
            found.entry, found.turn, leave, loops, _CHANGED, reads, clobbers, list(self._constants), self._free
        )
        base = self._addresses(groups)[0]
        return [
            *(f"const {constant};" for constant in self._constants.values()),
            *([f"p0 += {base};"] if base else []),
            *statement,
        ]

    @property
    def _free(self) -> tuple[str, ...]:
        return VECTORS[: len(VECTORS) - len(self._constants)]

    def _ordered(self, turns: int, groups: int, pipeline: Pipeline | None) -> Ordered:
        registers = {name: f"%[{name}]" for name in (*_CHANGED, *_READ)} | _FIXED
        registers |= {name: f"%q[{name}]" for name in self._constants}
        code, opening = self._code(groups)
        opening = opening if turns > 1 else 0
        block = InstructionBlock(tuple(code[opening:]), registers, self._free, tuple(code[:opening]))
        return ordered(block, pipeline, issue=self.nest.issue("out"))

    def _code(self, groups: int) -> tuple[list[BlockInstruction], int]:
        """The instructions of `groups` times four sums and their results, and how many of them come before the first
        results are begun."""
        code: list[BlockInstruction] = []
        addresses = self._addresses(groups)[1]
        opening = 0
        for group in range(groups):
            code += self._sums(group, addresses)
            opening = opening or len(code)
            code += self._finished()
        if not self._moves(groups):
            code += advance("p0", self._step(groups))
        return code, opening

    def _step(self, groups: int) -> int:
        """Bytes from the windows of a turn to those of the next."""
        return groups * self.reader.pitch

    def _moves(self, groups: int) -> bool:
        """Whether the last load at a pointer moves it on."""
        return self._step(groups) <= self._reach

    @property
    def _reach(self) -> int:
        return (self.what.dot.load_words if self.reader.words else self.what.dot.load)[1]

    def _addresses(self, groups: int) -> tuple[int, dict[tuple[int, int], str]]:
        """How far the pointer stands behind the first row, and the address of (group, vector)."""
        keys = list(itertools.product(range(groups), range(len(self.vectors))))
        at = {(g, i): self.vectors[i].offset + g * self.reader.pitch for g, i in keys}
        base = at[keys[-1]] if self._moves(groups) else 0
        if any(abs(place - base) > self._reach for place in at.values()):
            raise BackendError("the windows of a turn are out of the reach of their pointer")
        found = {key: f"[{{p0}}, #{at[key] - base}]" for key in keys}
        if self._moves(groups):
            found[keys[-1]] = f"[{{p0}}], #{self._step(groups)}"
        return base, found

    def _sums(self, group: int, addresses: dict[tuple[int, int], str]) -> list[BlockInstruction]:
        """Four sums, and the vector `v` of them."""
        dot, nr, code = self.what.dot, self.tile[1], list[BlockInstruction]()
        load = (dot.load_words if self.reader.words else dot.load)[0]
        for i in range(len(self.vectors)):
            address = addresses[group, i]
            moved = ("p0",) if "]," in address else ()
            code.append(BlockInstruction(load, f"{{x}}, {address}", ("x", *moved), moved))
            for c in range(nr):
                weights = f"w{i * nr + c}"
                if i * nr + c >= self.held:
                    weights, at = "f", VECTOR * (i * nr + c)
                    code.append(BlockInstruction("vldrw.u32", f"{{f}}, [{{w}}, #{at}]", ("f",)))
                operands = f"{{s{c}}}, {{x}}, {{{weights}}}"
                kept = (f"s{c}",) if i else ()
                code.append(BlockInstruction(dot.more if i else dot.first, operands, (f"s{c}",), kept))
        code.append(BlockInstruction("vmov", "{v}[2], {v}[0], {s0}, {s2}", ("v",)))
        code.append(BlockInstruction("vmov", "{v}[3], {v}[1], {s1}, {s3}", ("v",), ("v",)))
        return code

    def _finished(self) -> list[BlockInstruction]:
        """From four sums to results in memory."""
        finish, code = self.what.finish, list[BlockInstruction]()

        def use(mnemonic: str, factor: str, last: str = "") -> None:
            if not self._holds_factors:
                at = VECTOR * finish.names.index(factor)
                code.append(BlockInstruction("vldrw.u32", f"{{{factor}}}, [{{t}}, #{at}]", (factor,)))
            operands = f"{{v}}, {{{factor}}}, {{{last}}}" if last else f"{{v}}, {{v}}, {{{factor}}}"
            code.append(BlockInstruction(mnemonic, operands, ("v",), ("v",)))

        use("vadd.i32", "bias")
        code.append(BlockInstruction("ldr", "{term}, [{terms}], #4", ("term", "terms"), ("terms",)))
        code.append(update("vadd.i32", "v", "term"))
        if finish.form == "left":
            use("vqshl.s32", "left")
        if finish.form == "round":
            use("vqrdmlash.s32", "multiplier", "zero_point")
        else:
            use("vqdmulh.s32", "multiplier")
            use("vrshl.s32", "right")
            code.append(update("vadd.i32", "v", "zero_point"))
        code += narrowed(finish.clamped, finish.table)
        value = "v"
        if finish.table:
            code.append(BlockInstruction("vldrb.u32", "{y}, [{lookup}, {v}]", ("y",), apart=True))
            value = "y"
        stride = self._result_stride
        if stride <= _STORE_REACH:
            return [*code, BlockInstruction("vstrb.32", f"{{{value}}}, [{{o}}], #{stride}", ("o",), ("o",))]
        return [*code, BlockInstruction("vstrb.32", f"{{{value}}}, [{{o}}]"), *advance("o", stride)]

    # What must hold.

    def verify(self) -> None:
        self.verify_sizes()
        self._ordered(self._turns, min(self.unrolled, _LIKE_ALL), None)

    def verify_sizes(self) -> None:
        nr, vectors, finish = self.tile[1], len(self.vectors), self.what.finish
        if self.block % nr or self.what.channels % self.block:
            raise BackendError(f"groups of {nr} channels do not divide {self.block} of {self.what.channels}")
        if VECTOR * vectors * nr > _WORD_REACH:
            raise BackendError("weight vectors are out of the reach of their pointer")
        if len(self._constants) > len(VECTORS) - _WORKING:
            raise BackendError(f"{len(self._constants)} vectors that stay leave no registers")
        if not self._turns or self._turns > _MOST_TURNS:
            raise BackendError(f"{self.pixels} pixels have no turns of {self.unrolled} groups")
        if 4 * len(self._code(self.unrolled)[0]) > REACH_OF_LOOP:
            raise BackendError("a turn is out of the reach of the loop's end")
        general = len(_SUMS) + 5 + finish.table + 2 * finish.clamped
        general += (self.held < vectors * nr) + (not self._holds_factors)
        if general > _GENERAL:
            raise BackendError(f"{general} general registers are too many")
        self.verify_windows()

    @property
    def _loads(self) -> int:
        """Vectors that are loaded for four sums and their finish."""
        nr, vectors, finish = self.tile[1], len(self.vectors), self.what.finish
        return vectors + vectors * nr - self.held + (0 if self._holds_factors else finish.fields)

    @property
    def pace(self) -> float:
        """Cycles of four sums and their finish as far as the pipes that they hold tell."""
        issued = len(self._code(self.unrolled)[0]) / self.unrolled
        held = max(2 * (4 * len(self.vectors) + 2), 2 * (self._loads + 1 + self.what.finish.table))
        return max(issued, held) + 2 / self.unrolled

    @cached_property
    def measured_pace(self) -> float:
        """The same of the order that the block has on the timings of the core."""
        if (pipeline := self.what.finish.pipeline) is None:
            return self.pace
        turn = self._ordered(self._turns, self.unrolled, pipeline).turn
        return (cycles_of(turn, pipeline, 2) - cycles_of(turn, pipeline, 1)) / self.unrolled

    def walks(self) -> Sequence[Walk]:
        nr, row = self.tile[1], self._result_stride
        position = {"y": row * self.reader.geometry.columns, "x": row, "n": 1}
        channels = self.block // nr
        group = (self.block_bytes + self.block_factors) / channels
        all_held = self._holds_factors and self.held == len(self.vectors) * nr
        accesses = [
            *self._image_accesses(1, 0, 1),
            *self._weight_accesses(group, *((1,) if all_held else (1, 0))),
            ArrayAccess("out", "output", nr, (*self._moving(**position), nr, row), writes=True),
        ]
        return [Walk((*(loop.turns for loop in self.shared), channels, self.pixels), tuple(accesses))]

    def counts(self) -> dict[str, float]:
        nr, vectors = self.tile[1], len(self.vectors)
        tiles = math.prod(loop.turns for loop in self.shared)
        statements = tiles * self.block // nr * (1 + (self._left > 0))
        groups = tiles * self.block // nr * (self._turns * self.unrolled + self._left)
        loads, issued = self._loads, len(self._code(self.unrolled)[0]) / self.unrolled
        read = tiles * self.block // nr * (VECTOR * self.held + self._holds_factors * 4 * self._group_factors)
        read += groups * (VECTOR * (vectors * nr - self.held) + 4 * self._group_factors * (not self._holds_factors))
        counts = {
            "cycles": groups * self.pace + statements * (20 + 2 * self.held),
            "products": 4 * groups * vectors,
            "loads": groups * loads,
            "issued": groups * issued,
            "statements": statements,
            "unrolled": self.unrolled,
            "held": self.held,
            "vectors": vectors,
            "code": 4 * len(self._code(self.unrolled)[0]) * 2,
            "constants_read": read,
            **self.window_counts(tiles, read),
        }
        return {name: float(value) for name, value in counts.items()}
