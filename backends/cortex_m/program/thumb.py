"""A block of instructions of the baseline cores as one statement of assembly, in the order of the program.

Registers are r0 to r7: pointers first, which walk on, then what the block loads. Sums lie in r8 to lr, which no
more than MOV and ADD reach. A product takes the place of one factor; where that is read again, a copy is
multiplied. Words that follow each other are loaded by one LDM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.assembly import flat, register
from tosaic.backends.cortex_m.program.row import Formal, Row
from tosaic.backends.cortex_m.program.touches import meaning
from tosaic.backends.cortex_m.program.tree import BYTES, Alloc, Buffer, Instr, RefusedError, Statement

LOW = tuple(f"r{number}" for number in range(8))
HIGH = 6
"""Registers that sums may lie in: r8 to r12, and lr."""
_MOST_ADDED = 255


@dataclass
class ThumbBlock:
    """A block in order.

    Args:
        lines: of assembly; sums are operands by name, all other registers stand as they are.
        pointers: by register, the buffer and the loops' part of the byte address that it begins at, and a constant.
        sums: names of registers of sums.
        used: registers that hold what the block loads.
    """

    lines: list[str] = field(default_factory=list)
    pointers: dict[str, tuple[str, Affine]] = field(default_factory=dict)
    sums: list[str] = field(default_factory=list)
    used: list[str] = field(default_factory=list)


def is_thumb(body: Statement) -> bool:
    """Whether a block has instructions of the baseline cores."""
    return any(isinstance(s, Instr) and s.row.low for s in flat(body))


def thumb(body: Statement, buffers: Mapping[str, Buffer]) -> ThumbBlock:
    """The block of an iteration whose loops are written out.

    Raises:
        RefusedError: it takes more registers than there are.
    """
    parts = flat(body)
    inside = {s.buffer.name for s in parts if isinstance(s, Alloc)}
    instructions = [s for s in parts if isinstance(s, Instr)]
    return _ThumbWriter(instructions, buffers, inside).block


class _ThumbWriter:
    def __init__(self, instructions: Sequence[Instr], buffers: Mapping[str, Buffer], inside: set[str]) -> None:
        self.block, self._buffers, self._inside = ThumbBlock(), buffers, inside
        self._at: dict[str, int] = {}
        self._pointers: dict[tuple[str, tuple], str] = {}
        self._place: dict[str, str] = {}
        self._uses: dict[str, list[tuple[int, bool]]] = {}
        for number, s in enumerate(instructions):
            for name, writes in self._names(s):
                self._uses.setdefault(name, []).append((number, writes))
        for s in instructions:
            self._point(s)
        if len(self._pointers) >= len(LOW):
            raise RefusedError(f"a block has {len(self._pointers)} pointers, and {len(LOW)} registers")
        self._free = list(LOW[len(self._pointers) :])
        number = 0
        while number < len(instructions):
            run = self._run(instructions, number)
            if len(run) > 1:
                self._load_several(run)
            else:
                self._write(instructions[number], number)
            number += len(run)
            self._release(number)
        if len(self.block.sums) > HIGH:
            raise RefusedError(f"{len(self.block.sums)} sums, and {HIGH} registers for them")

    def _names(self, s: Instr) -> list[tuple[str, bool]]:
        """The low registers that an instruction names, and whether it writes them."""
        pairs, target = zip(s.row.formals, s.operands, strict=True), meaning(s.row).target.buffer
        return [(register(self._buffers[a.buffer], a), f.name == target) for f, a in pairs if f.memory == "r"]

    def _lives(self, name: str, number: int) -> bool:
        """Whether what a register holds is read behind an instruction."""
        return next((not writes for at, writes in self._uses[name] if at > number), False)

    def _address(self, s: Instr) -> tuple[tuple[str, tuple], int] | None:
        """Buffer and loops' part, and the constant part, of the byte address of an instruction."""
        for formal, access in zip(s.row.formals, s.operands, strict=True):
            if formal.memory == "m":
                b = self._buffers[access.buffer]
                where = b.address(access.index) * BYTES[b.dtype]
                return (b.name, where.terms), where.const
        return None

    def _point(self, s: Instr) -> None:
        found = self._address(s)
        if found is None or found[0] in self._pointers:
            return
        key, const = found
        pointer = f"r{len(self._pointers)}"
        self._pointers[key], self._at[pointer] = pointer, const
        self.block.pointers[pointer] = (key[0], Affine(key[1], const))

    def _run(self, instructions: Sequence[Instr], number: int) -> list[Instr]:
        """The instruction of a number, and loads behind it of words that follow its own."""
        run = [instructions[number]]
        start = self._address(run[0])
        if run[0].row.name != "ldr" or start is None:
            return run
        for s in instructions[number + 1 :]:
            if s.row is not run[0].row or self._address(s) != (start[0], start[1] + 4 * len(run)):
                break
            run.append(s)
        return run

    def _load_several(self, run: Sequence[Instr]) -> None:
        found = self._address(run[0])
        assert found is not None
        pointer = self._pointers[found[0]]
        self._move(pointer, found[1])
        targets = sorted(self._taken() for _ in run)
        for s, place in zip(run, targets, strict=True):
            self._place[self._names(s)[0][0]] = place
        self.block.lines.append(f"ldm {pointer}!, {{{', '.join(targets)}}}")
        self._at[pointer] += 4 * len(run)

    def _move(self, pointer: str, const: int) -> None:
        """Let a pointer stand at a byte."""
        left = const - self._at[pointer]
        while left:
            step = min(abs(left), _MOST_ADDED)
            self.block.lines.append(f"{'adds' if left > 0 else 'subs'} {pointer}, #{step}")
            left -= step if left > 0 else -step
        self._at[pointer] = const

    def _write(self, s: Instr, number: int) -> None:
        row, target = s.row, meaning(s.row).target.buffer
        operands = {f.name: self._operand(s, f, f.name == target) for f in row.formals}
        lines = [line.strip() for line in row.text.split(";")]
        spoiled = lines[0].split(" ")[1].strip("{},")
        factors = [f.name for f in row.formals if f.memory == "r" and f.name != target]
        if spoiled in factors:
            lives = [f for f in factors if self._lives(self._name(s, f), number)]
            if spoiled in lives and len(lives) < len(factors):
                other = next(f for f in factors if f not in lives)
                operands[spoiled], operands[other] = operands[other], operands[spoiled]
            elif spoiled in lives:
                copy = self._taken()
                self._free.insert(0, copy)
                self.block.lines.append(f"mov {copy}, {operands[spoiled]}")
                operands[spoiled] = copy
        self.block.lines += [line.format(**operands) for line in lines]

    def _name(self, s: Instr, formal: str) -> str:
        access = s.operands[[f.name for f in s.row.formals].index(formal)]
        return register(self._buffers[access.buffer], access)

    def _operand(self, s: Instr, formal: Formal, is_target: bool) -> str:
        access = s.operands[s.row.formals.index(formal)]
        b = self._buffers[access.buffer]
        if formal.memory == "m":
            return self._memory(s, s.row)
        name = register(b, access)
        if formal.memory == "h":
            if b.name in self._inside:
                raise RefusedError(f"{b.name} lives in a block alone, and has no high registers")
            if name not in self.block.sums:
                self.block.sums.append(name)
            return f"%[{name}]"
        if b.name not in self._inside:
            raise RefusedError(f"{b.name} lives outside of a block, in low registers")
        if is_target:
            self._place[name] = self._taken()
        return self._place[name]

    def _memory(self, s: Instr, row: Row) -> str:
        found = self._address(s)
        assert found is not None
        pointer = self._pointers[found[0]]
        if not row.reach[0] <= found[1] - self._at[pointer] <= row.reach[1]:
            self._move(pointer, found[1])
        return f"[{pointer}, #{found[1] - self._at[pointer]}]"

    def _taken(self) -> str:
        if not self._free:
            raise RefusedError("a block takes more than r0 to r7")
        self._free.sort()
        place = self._free.pop(0)
        if place not in self.block.used:
            self.block.used.append(place)
        return place

    def _release(self, number: int) -> None:
        """Registers of what no instruction from `number` on reads are free."""
        for name in [n for n in self._place if not self._lives(n, number - 1)]:
            self._free.append(self._place.pop(name))
