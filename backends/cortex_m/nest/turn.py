"""What the lanes of one turn compute: values in vector registers, the memory that they come from, the statement of C.

A vector's lanes have the width `lanes`. A wider value takes several vectors, its parts: those of the even and the odd
lanes of the narrower one, as VMOVLB, VMULLB, VQMOVNB and their `T` twins have it. So no lane ever changes its place.
"""

from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tosaic.backends.cortex_m.kernel import WORTH_SHARING
from tosaic.backends.cortex_m.kernels.mve import VECTOR
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.nest.lanes import CHANNEL, FLAT, ROW, Value
from tosaic.backends.cortex_m.program.block import BlockInstruction, InstructionBlock, is_load, with_late_loads
from tosaic.backends.cortex_m.program.inline_assembly import assembly
from tosaic.backends.cortex_m.program.list_scheduler import ordered
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError
from tosaic.support.registry import Registry

_GENERAL = 12
_SPILL = "r10"
_VECTORS = 8
MOST_CONSTANTS = 4
_REACH_OF_LOOP = 4000
_LETTER = {8: "b", 16: "h", 32: "w"}


@dataclass(frozen=True)
class Form:
    """How a value lies in vectors: the distance of its elements in bits, and how many low bits of them hold it."""

    spacing: int
    valid: int


class LaneRow(ABC):
    """What an op of `lanes.Value` becomes in lanes of MVE: a class in `LANE_ROWS`, named as the op is.

    `predicates` where its instructions write the predicate.
    """

    name: ClassVar[str]
    predicates: ClassVar[bool] = False

    @abstractmethod
    def form(self, turn: Turn, value: Value) -> Form:
        """How it leaves its result."""

    @abstractmethod
    def emit(self, turn: Turn, value: Value, part: int) -> str:
        """Write the instructions of one part of the result, and give its register."""


LANE_ROWS: Registry[LaneRow] = Registry(
    "instruction row", "tosaic.backends.cortex_m.nest.lane_rows", "tosaic.lane_rows"
)
"""Every row: those in `lane_rows/`, and those that packages name in the group `tosaic.lane_rows`."""


class LoopMemory:
    """Where the constants and the staged values of a kernel lie.

    Args:
        staged: the byte of scratch memory at which a staged value begins.
    """

    def __init__(self, staged: Mapping[Value, int]) -> None:
        self.staged, self._params, self._tables = staged, Params(), Params()
        self._numbers: list[int] = []
        self._vectors: list[str] = []
        self._at: dict[tuple[int, str, str], str] = {}

    def number(self, value: int) -> str:
        """C of a number, which lies in the params, so that kernels which differ in numbers only are one."""
        wrapped = (value + (1 << 31)) % (1 << 32) - (1 << 31)
        if wrapped not in self._numbers:
            self._numbers.append(wrapped)
        return f"k{self._numbers.index(wrapped)}"

    def vector(self, value: str) -> str:
        """The C variable of a vector that holds an expression of numbers in each of 32 bits."""
        if value not in self._vectors:
            self._vectors.append(value)
        return f"c{self._vectors.index(value)}"

    def constant(self, value: Value, form: str, data: Callable[[], np.ndarray]) -> str:
        """C of where the constants of a value lie in the params; those of values that share them lie there once."""
        key = id(value.data), value.op, form
        if key not in self._at:
            array = data()
            large = array.nbytes > WORTH_SHARING
            of, name = (self._tables, "packed") if large else (self._params, "params")
            self._at[key] = f"{name} + {of.add(array)}"
        return self._at[key]

    @property
    def weights(self) -> int | None:
        """Where `packed` begins: large tables, which other kernels may have, too. None without."""
        return -(-len(self._params) // VECTOR) * VECTOR if len(self._tables) else None

    @property
    def params(self) -> bytes:
        """All constants; `packed` ends them."""
        return bytes(self._params).ljust(self.weights or 0, b"\0") + bytes(self._tables)

    def head(self) -> list[str]:
        """C that reads the numbers, once all code is written."""
        if not self._numbers:
            return []
        at = self._params.add(np.array(self._numbers, np.int32))
        return [
            f"const int32_t *numbers = (const int32_t *)(params + {at});",
            *(f"const int32_t k{i} = numbers[{i}];" for i in range(len(self._numbers))),
            *(f"const int32x4_t c{i} = vdupq_n_s32({value});" for i, value in enumerate(self._vectors)),
        ]


class LoopRow:
    """What the statements over one row of positions share: pointers that walk, and where values are read.

    Args:
        memory: of the kernel.
        level: of what is computed: `once`, or for each `row`, `channel` or position, `flat`.
        lanes: bits of a lane.
        at: C of the row's number; empty where positions are not counted in rows.
        channels: positions of a row.
        values: everything that the kernel computes.
    """

    def __init__(
        self,
        memory: LoopMemory,
        level: str,
        lanes: int,
        at: str,
        channels: int,
        values: Sequence[Value],
    ) -> None:
        self.memory, self.level, self.lanes, self.at, self.channels = memory, level, lanes, at, channels
        self.uses = Counter(operand for value in values for operand in value.operands)
        computed = {value.op for value in values} - {"number", "array", "input"}
        self.predicates = any(LANE_ROWS.find(op).predicates for op in computed)
        self.declared: list[str] = []
        self.forms: dict[Value, Form] = {}
        self._names: dict[object, str] = {}

    def pointer(self, key: object, at: str, type_: str = "const int8_t") -> str:
        """The C variable of a pointer that begins at `at`."""
        if key not in self._names:
            self._names[key] = f"p{len(self._names)}"
            self.declared.append(f"{type_} *{self._names[key]} = {at};")
        return self._names[key]

    def is_scalar(self, value: Value) -> bool:
        """Whether it is the same at all positions of the row."""
        return value.number is not None or (value.level in ("once", ROW) and value.level != self.level)

    def scalar(self, value: Value) -> str:
        """C of the number that a value is in this row."""
        memory = self.memory
        if value.number is not None:
            return memory.number(value.number)
        at = self.at if value.level == ROW else "0"
        if (place := memory.staged.get(value)) is not None:
            return f"((const int32_t *)(scratch + {place}))[{at}]"
        if (entries := value.data) is not None and value.op == "array":
            return f"((const int32_t *)({memory.constant(value, 'row', lambda: entries.astype(np.int32))}))[{at}]"
        if value.op != "input":
            raise BackendError(f"`{value.op}` of a row is not at hand")
        index, size = value.numbers
        return f"((const int{8 * size}_t *)in{index})[{at}]"

    def start(self, index: int, value: Value, size: int) -> str:
        """C of where the row of an input begins."""
        return f"in{index}{self.offset(size) if value.level == FLAT else ''}"

    def offset(self, size: int) -> str:
        """C of the bytes before the row in a tensor of elements of `size` bytes."""
        return f" + {self.at} * {self.channels * size}" if self.at and self.level == FLAT else ""


class Turn:
    """The instructions of one turn.

    Args:
        row: what all statements over these positions share.
        left: how many lanes of the only vector exist; 0 for all.
    """

    def __init__(self, row: LoopRow, left: int) -> None:
        self.row, self.memory, self.lanes, self.left = row, row.memory, row.lanes, left
        self.code: list[BlockInstruction] = []
        self._ends: list[int] = []
        self.parts: dict[tuple[object, ...], str] = {}
        self.constants: dict[str, str] = {}
        self._registers: dict[str, str] = {}
        self._changes: list[str] = []
        self._scalars: dict[str, str] = {}
        self._next: dict[Value, int] = {}
        self._fresh = 0

    # One element of every lane.

    def element(self, value: Value, to: str, size: int) -> None:
        """Compute a value in the next vector of positions, and store it at `to`, elements of `size` bytes.

        What is staged is stored as `staged_form` says.
        """
        self.parts.clear()
        staged = self.row.level != FLAT
        form = self.staged_form(value) if staged else Form(self.lanes, 8 * size)
        bits = form.spacing if staged else 8 * size
        pointer = self._walking("out", to, "int8_t")
        for part in range(form.spacing // self.lanes):
            register = self.fetch(value, part, form)
            self._memory(f"vstr{_LETTER[bits]}", f".{form.spacing}", register, pointer, bits, whole=staged)
        self._ends.append(len(self.code))

    def staged_form(self, value: Value) -> Form:
        """How a value of a channel or a row lies in memory: in whole parts, or as int32."""
        if self.row.level != CHANNEL:
            return Form(32, 32)
        spacing = max(self.lanes, value.bits)
        return Form(spacing, spacing)

    def form(self, value: Value) -> Form:
        """How a value comes out of the instructions that compute it."""
        if value not in self.row.forms:
            self.row.forms[value] = self._form(value)
        return self.row.forms[value]

    def _form(self, value: Value) -> Form:
        scalar = self.row.is_scalar(value)
        if scalar or self._is_read(value):
            spacing = self.lanes if value.op == "input" and not scalar else max(self.lanes, value.bits)
            return Form(spacing, spacing)
        return LANE_ROWS.find(value.op)().form(self, value)

    def _is_read(self, value: Value) -> bool:
        if value.op in ("input", "array"):
            return True
        return value.level != self.row.level and value in self.memory.staged

    def _in_parts(self, value: Value) -> bool:
        """Whether a value lies in memory part by part, not element by element."""
        return value.op != "input" and not (value.op == "array" and value.bits <= self.lanes)

    def fetch(self, value: Value, part: int, form: Form) -> str:
        """The register of a part of a value in a form."""
        key = (value, part, form)
        if key not in self.parts:
            self.parts[key] = self._convert(value, part, form)
        return self.parts[key]

    def _convert(self, value: Value, part: int, form: Form) -> str:
        if self.row.is_scalar(value):
            return self.duplicate(self.row.scalar(value), form.valid)
        has = self.form(value)
        if has.spacing < form.spacing:
            half = Form(form.spacing // 2, form.spacing // 2)
            register = self.fetch(value, part // 2, half)
            return self.new(f"vmovl{'bt'[part % 2]}.s{half.spacing}", "{}", register)
        if has.spacing > form.spacing:
            wide = Form(2 * form.spacing, form.valid)
            return self.pack("vmovn", f".i{wide.spacing}", "", [self.fetch(value, 2 * part + i, wide) for i in (0, 1)])
        if has.valid >= form.valid:
            key = (value, part)
            if key not in self.parts:
                read = self._is_read(value)
                self.parts[key] = (
                    self._load(value, part) if read else LANE_ROWS.find(value.op)().emit(self, value, part)
                )
            return self.parts[key]
        half = Form(form.spacing, form.valid // 2)
        return self.new(f"vmovlb.s{half.valid}", "{}", self.fetch(value, part, half))

    def _load(self, value: Value, part: int) -> str:
        memory, lanes = self.memory, self.lanes
        if value.op == "input":
            index, size = value.numbers
            pointer, bits = self._walking(value, self.row.start(index, value, size)), 8 * size
        elif value.op == "array":
            bits = value.bits
            at = memory.constant(value, f"{lanes}", lambda: self._packed(value))
            pointer = self._walking(value, at + (self.row.offset(bits // 8) if value.level == FLAT else ""))
        else:
            bits = self.form(value).spacing
            pointer = self._walking(value, f"scratch + {memory.staged[value]}")
        register = self.name()
        kind = f".s{lanes}" if bits < lanes else f".u{bits}"
        whole = self._in_parts(value)
        if part != self._next.get(value, 0):
            raise BackendError("parts are not read in their order")
        self._next[value] = (part + 1) % (self.form(value).spacing // self.lanes)
        self._memory(f"vldr{_LETTER[bits]}", kind, register, pointer, bits, whole)
        return register

    def _packed(self, value: Value) -> np.ndarray:
        """A constant array as it is read: part by part where it is wider than the lanes, padded to whole vectors."""
        each, data = 8 * VECTOR // self.lanes, value.data
        if data is None:
            raise BackendError("an array has no data")
        padded = np.pad(data, (0, -data.size % each)).astype(f"int{value.bits}")
        return parted(padded.reshape(-1, each), max(1, value.bits // self.lanes))

    # Instructions.

    def name(self) -> str:
        """The name of a new register."""
        self._fresh += 1
        return f"v{self._fresh}"

    def new(self, mnemonic: str, operands: str, *registers: str, apart: bool = False) -> str:
        """Write an instruction with a new result; `operands` holds `{}` for each register that it reads."""
        result = self.name()
        text = operands.format(*(f"{{{register}}}" for register in registers))
        self.code.append(BlockInstruction(mnemonic, f"{{{result}}}, {text}", (result,), apart=apart))
        return result

    def change(self, mnemonic: str, target: str, operands: str, *registers: str) -> str:
        """Write an instruction that changes `target`."""
        text = operands.format(*(f"{{{register}}}" for register in registers))
        self.code.append(BlockInstruction(mnemonic, f"{{{target}}}, {text}", (target,), (target,)))
        return target

    def pack(self, name: str, kind: str, amount: str, halves: Sequence[str]) -> str:
        """Narrow two vectors into the even and odd lanes of one."""
        low = self.new(f"{name}b{kind}", f"{{}}{amount}", halves[0])
        return self.change(f"{name}t{kind}", low, f"{{}}{amount}", halves[1])

    def _memory(self, name: str, kind: str, register: str, pointer: str, bits: int, whole: bool = False) -> None:
        """Load or store a vector at a pointer that moves on; `whole` is for memory padded to whole vectors."""
        left = 0 if whole else self.left
        step = VECTOR if whole else (left or 8 * VECTOR // self.lanes) * bits // 8
        stores = name.startswith("vstr")
        writes, keeps = ((pointer,) if stores else (register, pointer)), (pointer,)
        prefix, suffix = ("vpst\\n", "t") if left else ("", "")
        if left and self.row.predicates:
            prefix = "vmsr p0, %[mask]\\n" + prefix
        text = f"{{{register}}}, [{{{pointer}}}], #{step}"
        self.code.append(BlockInstruction(f"{prefix}{name}{suffix}{kind}", text, writes, keeps))

    def _walking(self, key: object, at: str, type_: str = "const int8_t") -> str:
        """A pointer that moves on with each vector."""
        name = self.row.pointer(key, at, type_)
        if name not in self._changes:
            self._changes.append(name)
        self._registers[name] = f"%[{name}]"
        return name

    def standing(self, key: object, at: str) -> str:
        """A pointer that stays."""
        name = self.row.pointer(key, at)
        self._registers[name] = f"%[{name}]"
        self._scalars[name] = ""
        return name

    def general(self, at: str) -> str:
        """A general register that holds a C expression."""
        for name, known in self._scalars.items():
            if known == at:
                return name
        name = f"n{len(self._scalars)}"
        self._scalars[name] = at
        self._registers[name] = f"%[{name}]"
        return name

    def duplicate(self, at: str, bits: int) -> str:
        """A vector register that holds a C expression in each lane of `bits`."""
        value = {8: f"(uint8_t)({at}) * 0x01010101u", 16: f"(uint16_t)({at}) * 0x10001u", 32: at}[bits]
        if len(self.constants) == MOST_CONSTANTS and value not in self.constants.values():
            return self.new(f"vdup.{bits}", "{}", self.general(at))
        if re.fullmatch(r"k\d+", at):
            value = name = self.memory.vector(value)
        else:
            name = next((n for n, known in self.constants.items() if known == value), f"d{len(self.constants)}")
        self.constants[name] = value
        self._registers[name] = f"%q[{name}]"
        return name

    def second(self, value: Value, part: int, form: Form) -> str:
        """The second operand of an instruction that takes a vector or a number there."""
        return self.general(self.row.scalar(value)) if self.row.is_scalar(value) else self.fetch(value, part, form)

    # The statement.

    def statement(self, turns: int, pipeline: Pipeline | None, beside: int) -> tuple[Sequence[str], list[str]]:
        """The instructions of a turn in their order, and C of the statement that executes `turns` turns.

        Args:
            beside: vectors whose instructions alternate.

        Raises:
            BackendError: the registers do not hold it.
        """
        constants = list(self.constants)
        free = tuple(f"q{i}" for i in range(_VECTORS - len(constants)))
        self.code = self._alternating(beside)
        spilled = self._spill()
        if len(self._changes) + bool(self.left) + 2 * bool(spilled) > _GENERAL:
            raise BackendError(f"{len(self._changes)} pointers do not fit the registers")
        if turns > 1 and 4 * len(self.code) > _REACH_OF_LOOP:
            raise BackendError(f"a loop of {len(self.code)} instructions is out of the reach of its end")
        code = with_late_loads(self.code, self._registers)
        found = ordered(InstructionBlock(tuple(code), self._registers, free), pipeline)
        entry, reads, clobbers = list(found.entry), list(self._scalars), [_SPILL] if spilled else []
        lines = [f"const int32_t {name} = {at};" for name, at in self._scalars.items() if at]
        if spilled:
            reads = ["context", *(name for name in reads if name not in spilled)]
            lines.append(f"const int32_t context[] = {{{', '.join(f'(int32_t){name}' for name in spilled)}}};")
        lines += [f"const int32x4_t {name} = vdupq_n_s32({at});" for name, at in self.constants.items() if name != at]
        if self.left:
            lines.append(f"const uint32_t mask = {(1 << self.left * self.lanes // 8) - 1:#x};")
            entry, reads = ["vmsr p0, %[mask]", *entry], [*reads, "mask"]
        statement = assembly(entry, found.turn, (), turns, self._changes, reads, clobbers, constants, free)
        return found.turn, ["{", *(f"  {line}" for line in [*lines, *statement]), "}"]

    def _alternating(self, beside: int) -> list[BlockInstruction]:
        """All loads in their order, then the code of `beside` vectors in turns; each of them is stored once."""
        vectors = [self.code[start:end] for start, end in itertools.pairwise((0, *self._ends))]
        if beside == 1 or len(vectors) == 1:
            return self.code
        loads = [i for i in self.code if is_load(i, self._registers)]
        apart = [[i for i in vector if not is_load(i, self._registers)] for vector in vectors]
        groups = (apart[at : at + beside] for at in range(0, len(apart), beside))
        mixed = (i for group in groups for row in itertools.zip_longest(*group) for i in row if i is not None)
        return [*loads, *mixed]

    def _spill(self) -> list[str]:
        """Numbers that no register is left for; the code loads them from memory where it reads them."""
        room = _GENERAL - len(self._changes) - bool(self.left)
        if len(self._scalars) <= room:
            return []
        spilled = list(self._scalars)[max(0, room - 2) :]
        self._registers |= {"spilled": _SPILL, "context": "%[context]"}
        code = []
        for instruction in self.code:
            for name in set(instruction.reads) & set(spilled):
                code.append(
                    BlockInstruction("ldr", f"{{spilled}}, [{{context}}, #{4 * spilled.index(name)}]", ("spilled",))
                )
                operands = instruction.operands.replace(f"{{{name}}}", "{spilled}")
                instruction = replace(instruction, operands=operands)
            code.append(instruction)
        self.code = code
        return spilled


def parted(chunks: np.ndarray, parts: int) -> np.ndarray:
    """Elements (chunks, lanes) as parts: even and odd lanes apart, as often as it takes."""
    if parts == 1:
        return chunks.reshape(-1)
    halves = [parted(chunks[:, i::2], parts // 2).reshape(len(chunks), -1) for i in (0, 1)]
    return np.concatenate(halves, axis=1).reshape(-1)
