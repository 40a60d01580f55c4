"""Strips of four interleaved rows: VST4 writes the bytes of four rows side by side, behind the left padding.

A turn of the hardware loop packs some vectors of the rows, or, where a block of channels is packed, some columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from tosaic.backends.cortex_m.kernels.mve import VECTOR
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.nest.nest import Nest
from tosaic.backends.cortex_m.program.block import BlockInstruction, InstructionBlock
from tosaic.backends.cortex_m.program.inline_assembly import VECTORS, assembly
from tosaic.backends.cortex_m.program.list_scheduler import Ordered, cycles_of, ordered
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

ROWS = 4
"""Rows of a strip."""

_MOST_INSTRUCTIONS = 160
# The last turn stands behind the loop where loads are executed ahead.
_FEWEST_TURNS = 3


@dataclass(frozen=True)
class Packing:
    """How four rows of an image of int8 become a strip.

    Args:
        geometry: of the image.
        nest: the loops of its stage `strip`; without a hardware loop, rows are shorter than a vector.
        rows: those that a window meets; what is packed in place of the others does not matter.
        block: channels that are packed together, whole vectors; None packs whole rows.
        pipeline: timings of the core; None leaves instructions in the order of their meaning.
    """

    geometry: Geometry
    nest: Nest
    rows: int
    block: int | None
    pipeline: Pipeline | None

    @property
    def parts(self) -> list[tuple[int, int]]:
        """(vectors or columns in a turn, turns): of the hardware loop, and what it leaves."""
        loop = next((loop for loop in self.nest.stages["strip"] if loop.how == "turn"), None)
        if loop is None:
            return []
        unit = 1 if self.block else VECTOR
        size = loop.step // unit
        turns, left = divmod(loop.extent // unit, size)
        return [(size, turns), *([(left, 1)] if left else [])]

    @property
    def ahead(self) -> int:
        """Loads that are executed a turn ahead."""
        return self.nest.hoisted.get("strip", 0)

    def verify(self) -> None:
        """Check what the printed code takes for granted.

        Raises:
            BackendError: the nest is not legal; the message says why.
        """
        if self.ahead > self.rows:
            raise BackendError(f"a strip of {self.rows} rows has no {self.ahead} loads to execute ahead")
        for (size, turns), hoisted in zip(self.parts, (self.ahead, 0), strict=False):
            if hoisted and turns < _FEWEST_TURNS:
                raise BackendError(f"{turns} turns leave no loop in which loads are executed ahead")
            if len(self._code(size)) > _MOST_INSTRUCTIONS:
                raise BackendError(f"{size} vectors or columns in a turn are too much code")

    @property
    def turns(self) -> int:
        """Turns of one call."""
        return sum(turns for _, turns in self.parts)

    def cycles(self) -> int:
        """Cycles of one call, as far as the timings of the core tell."""
        if self.pipeline is None:
            return sum(turns * len(self._code(size)) for size, turns in self.parts)
        found = 0
        for number, (size, turns) in enumerate(self.parts):
            turn = self._ordered(size, self.ahead if number == 0 else 0).turn
            once, twice = (cycles_of(turn, self.pipeline, times) for times in (1, 2))
            found += once + (twice - once) * (turns - 1)
        return found

    # The code.

    def function(self, padding: int) -> list[str]:
        """C of `pack`: interleave input rows y..y+3, `padding` bytes behind `to`; rows outside are zero points."""
        row_bytes = self.geometry.width * self.geometry.channels
        lines = [
            "INLINE void pack(int8_t *restrict to, const int8_t *in, const int8_t *zeros, int y)",
            "{",
            f"  to += {padding};",
        ]
        for row in range(self.rows):
            inside = f"(unsigned)(y + {row}) < {self.geometry.height}"
            lines.append(f"  const int8_t *r{row} = {inside} ? in + (y + {row}) * {row_bytes} : zeros;")
            if self.block:
                step = self.geometry.channels - self.block
                lines.append(f"  const int step{row} = {inside} ? {step} : {-self.block};")
        for number, (size, turns) in enumerate(self.parts):
            found = self._ordered(size, self.ahead if number == 0 else 0)
            last, loops = (found.last, turns - 1) if found.entry else ((), turns)
            changes = [*(f"r{row}" for row in range(self.rows)), "to"]
            reads = [f"step{row}" for row in range(self.rows)] if self.block else []
            statement = assembly(found.entry, found.turn, last, loops, changes, reads, ())
            lines += [f"  {line}" for line in statement]
        return [*lines, *([] if self.block else self._rest(row_bytes % VECTOR)), "}"]

    def _rest(self, rest: int) -> list[str]:
        """C of the vector at the end of rows that is not whole; the right padding begins in it."""
        if not rest:
            return []
        load = f"vldrbq_z_s8(@, vctp8q({rest}))"
        if self.geometry.pad[3]:
            load = f"vpselq_s8({load}, vdupq_n_s8(*zeros), vctp8q({rest}))"
        four = ", ".join(load.replace("@", f"r{min(row, self.rows - 1)}") for row in range(ROWS))
        return [f"  vst4q_s8(to, (int8x16x4_t){{{{{four}}}}});"]

    def _code(self, size: int) -> list[BlockInstruction]:
        """The instructions of so many vectors or columns."""
        if not self.block:
            return [each for number in range(size) for each in self._four(number % 2)]
        vectors, code = self.block // VECTOR, list[BlockInstruction]()
        for number in range(size * vectors):
            code += self._four(number % 2)
            if (number + 1) % vectors == 0:
                names = [(f"r{row}", f"step{row}") for row in range(self.rows)]
                code += [BlockInstruction("add.w", f"{{{r}}}, {{{r}}}, {{{by}}}", (r,), (r,)) for r, by in names]
        return code

    def _four(self, number: int) -> list[BlockInstruction]:
        """The instructions that interleave a vector of each row, in one of two sets of registers."""
        values = [f"x{ROWS * number + row}" for row in range(ROWS)]
        loads = [
            BlockInstruction("vldrb.u8", f"{{{value}}}, [{{r{row}}}], #{VECTOR}", (value, f"r{row}"), (f"r{row}",))
            for row, value in enumerate(values[: self.rows])
        ]
        four = f"{{{', '.join(f'{{{value}}}' for value in values)}}}, [{{to}}]"
        stores = [BlockInstruction(f"vst4{part}.8", four) for part in range(ROWS - 1)]
        return [*loads, *stores, BlockInstruction(f"vst4{ROWS - 1}.8", f"{four}!", ("to",), ("to",))]

    def _ordered(self, size: int, ahead: int) -> Ordered:
        # All vectors are named: what VST4 reads stands side by side.
        named = {f"x{i}": vector for i, vector in enumerate(VECTORS)}
        pointers = ("to", *(f"{name}{row}" for name in ("r", "step") for row in range(self.rows)))
        registers = named | {name: f"%[{name}]" for name in pointers}
        code = self._code(size)
        block = InstructionBlock(tuple(code[ahead:]), registers, VECTORS[-1:], tuple(code[:ahead]))
        return ordered(block, self.pipeline)
