"""The instructions of a block with vectors in the order of their meaning, each with its registers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tosaic.backends.cortex_m.program.block import BlockInstruction, advance, distance_name, update
from tosaic.backends.cortex_m.program.pointer_uses import Address, PointerUse
from tosaic.backends.cortex_m.program.touches import changes_target, meaning
from tosaic.backends.cortex_m.program.tree import BYTES, REGISTERS, Access, Buffer, Instr, Reduce, RefusedError

_BETWEEN, CARRY = "between", "carry"
"""The names of a vector that lives between the lines of a row, and of a number that means nothing."""
_NUMBERED = re.compile(r"{(\w+\d)}")
"""A register of an operand of several."""
_VECTOR_FORM = re.compile(r"^(v\w+)(\.)")
"""The mnemonic of an instruction, up to its type; one that a mask may keep lanes from ends in a `t`."""
_BY_DISTANCES = re.compile(r"\[({\w+}), {o}\]")
"""The address of lanes at distances from a pointer."""
_BY_ADDRESSES = re.compile(r"vldrw\.u32 {\w+}, " + _BY_DISTANCES.pattern)
"""A load that has a form on addresses of lanes."""


@dataclass(frozen=True, eq=False)
class VectorStep:
    """An instruction of a block.

    Args:
        registers: the names of the registers of each operand that is none in memory, by formal.
        target: the formal that it writes.
        keeps: whether lanes of its target are written before, which stay.
        begins: whether it begins its sum.
        mask: the line that sets its mask right before it; empty where nothing else changes that.
        unwritten: registers of an operand of several that nobody wrote, as its text numbers them.
        beyond: bytes from its pointer to its first lane, where lanes lie apart.
        alias: whether the vector that it writes may be the one that it reads, as of `Row`.
    """

    instr: Instr
    registers: Mapping[str, Sequence[str]]
    target: str
    keeps: bool = False
    begins: bool = False
    mask: str = ""
    unwritten: frozenset[str] = frozenset()
    beyond: int = 0
    alias: bool = False

    @property
    def targets(self) -> Sequence[str]:
        """The registers that it writes."""
        return self.registers.get(self.target, ())

    @property
    def sources(self) -> list[str]:
        """The registers that it reads alone."""
        return [name for formal, names in self.registers.items() if formal != self.target for name in names]

    @property
    def is_sum(self) -> bool:
        """Whether it adds up."""
        return isinstance(meaning(self.instr.row), Reduce)

    @property
    def adds(self) -> bool:
        """Whether it adds to what its target holds."""
        return self.is_sum and not self.begins

    @property
    def lines(self) -> list[str]:
        row = self.instr.row
        lines = [line.strip() for line in (row.first if self.begins else row.text).split(";")]
        if self.unwritten:
            lines = [line for line in lines if not self.unwritten.issuperset(_NUMBERED.findall(line))]
        if not self.instr.limit:
            return lines
        before = f"{self.mask}\\\\n" if self.mask else ""
        return [_VECTOR_FORM.sub(rf"{before}vpst\\n\1t\2", line) for line in lines]

    def made(self, address: Address | None) -> list[BlockInstruction]:
        """The lines of the instruction; `address` is that of its operand in memory."""
        row, operands = self.instr.row, dict[str, str]()
        for formal in row.formals:
            if formal.memory == "m":
                assert address is not None
                alone = bool(row.apart or row.gathers) and not address.of_lanes
                operands[formal.name] = f"{{{address.pointer}}}" if alone else address.text
                if row.together:
                    operands[formal.name] = f"[{{{address.pointer}}}]"
                continue
            names = self.registers[formal.name]
            operands |= {f"{formal.name}{i}": f"{{{name}}}" for i, name in enumerate(names)}
            operands[formal.name] = f"{{{names[0]}}}"
        of_lanes = address is not None and address.of_lanes
        if (apart := distances(self)) is not None and not of_lanes:
            operands["o"] = f"{{{apart.name}}}"
        operands |= {name: f"{{{name}}}" for name in (_BETWEEN, CARRY)}
        targets, found = tuple(self.targets), list[BlockInstruction]()
        if row.moves_in_place:
            both = (*targets, CARRY)
            mnemonic, _, text = row.text.partition(" ")
            return [BlockInstruction(mnemonic, text.format(**operands), both, both)]
        moved = (address.pointer,) if address is not None and address.moves else ()
        adds = self.adds or changes_target(row)
        lines = [_BY_DISTANCES.sub(r"\1", line) for line in self.lines] if of_lanes else self.lines
        if moved and row.together:
            lines = [*lines[:-1], f"{lines[-1]}!"]
        for number, line in enumerate(lines):
            mnemonic, _, text = line.partition(" ")
            if text.startswith("{between}"):
                found.append(BlockInstruction(mnemonic, text.format(**operands), (_BETWEEN,)))
                continue
            text, spent = text.format(**operands), self.registers.get(row.spends, ())
            again = tuple(name for name in targets if name in self.sources)
            keeps = targets if adds or self.keeps or number else again
            pointer = moved if number + 1 == len(lines) or not row.together else ()
            writes, kept, early = (*targets, *pointer), (*keeps, *pointer), bool(row.gathers) or row.early
            if len(lines) > 1 and (spent or len(targets) > 1):  # a line names some of the registers
                writes, kept = (
                    tuple(name for name in (*names, *spent) if f"{{{name}}}" in text) for names in (writes, kept)
                )
            found.append(BlockInstruction(mnemonic, text, writes, kept, early, self.alias))
        if address is not None and address.behind:
            of_all = [update("vadd.i32", address.pointer, distance_name(address.behind))]
            found += of_all if of_lanes else advance(address.pointer, address.behind)
        return found

    @property
    def has_condition(self) -> bool:
        """Whether values say which lanes it changes."""
        return any("vpt" in line or "vcmp" in line for line in self.lines)

    @property
    def as_one(self) -> BlockInstruction:
        """Its lines as one instruction, wherever memory lies; what lines make for others does not live before."""
        lines = self.made(Address("[at]", "", False))
        writes = dict.fromkeys(name for line in lines for name in line.writes)
        first = {name: next(line for line in lines if name in line.writes) for name in writes}
        keeps = tuple(name for name in writes if name in first[name].keeps)
        return BlockInstruction(lines[0].mnemonic, " ".join(line.operands for line in lines), tuple(writes), keeps)


def names_of(steps: Sequence[VectorStep]) -> dict[str, str]:
    """The registers of a part, each with its class."""
    found = dict[str, str]()
    for step in steps:
        for formal in step.instr.row.formals:
            found.update(dict.fromkeys(step.registers.get(formal.name, ()), formal.memory))
    return found


def mask_of(steps: Iterable[VectorStep]) -> tuple[int, int] | None:
    """The mask of a block: its first lanes that do something, and the bits of a lane; None where all do.

    Raises:
        RefusedError: there are several.
    """
    masks = {(step.instr.limit, 8 * REGISTERS["q"] // step.instr.row.lanes) for step in steps if step.instr.limit}
    if len(masks) > 1:
        raise RefusedError(f"a block has one mask, not {len(masks)}")
    return next(iter(masks), None)


def use_of(step: VectorStep, buffers: Mapping[str, Buffer]) -> PointerUse | None:
    """The access of memory of an instruction; None of others."""
    for formal, access in zip(step.instr.row.formals, step.instr.operands, strict=True):
        if formal.memory == "m":
            b = buffers[access.buffer]
            size = BYTES[b.dtype]
            where = b.address(access.index) * size - step.beyond
            return PointerUse(step, b.name, where, step.instr.row, step.instr.stride * size)
    return None


class Distances(NamedTuple):
    """A vector of distances: lanes of so many bits, and bytes from lane to lane; of each inner level its lanes, and the
    bytes between these; the first one is `beyond`."""

    bits: int
    bytes: int
    inner: tuple[tuple[int, int], ...] = ()
    beyond: int = 0

    @property
    def name(self) -> str:
        """Its name in C."""
        groups = "".join(f"_{lanes}_{apart}" for lanes, apart in self.inner)
        beyond = f"_from_{self.beyond}" if self.beyond else ""
        return f"apart__{self.bits}_{self.bytes}{groups}{beyond}"

    @property
    def numbers(self) -> list[int]:
        """What its lanes hold."""
        return [self._number(lane) for lane in range(128 // self.bits)]

    def _number(self, lane: int) -> int:
        found = self.beyond
        for lanes, apart in reversed(self.inner):
            lane, at = divmod(lane, lanes)
            found += at * apart
        return found + lane * self.bytes

    def at(self, name: str, pointer: str) -> str:
        """C that declares a vector of the addresses at these distances from a pointer."""
        kind = "uint32_t __attribute__((vector_size(16)))"
        return f"{kind} {name} = ({kind}){self.name} + (uint32_t)({pointer});"

    @property
    def declared(self) -> str:
        """C that declares it."""
        data = b"".join(number.to_bytes(self.bits // 8, "little") for number in self.numbers)
        return f"const uint8_t {self.name} __attribute__((vector_size(16))) = {{{', '.join(map(str, data))}}};"


def distances(step: VectorStep) -> Distances | None:
    """Those of the lanes of an instruction that may lie apart; None of others."""
    row = step.instr.row
    if not row.apart:
        return None
    dtypes = {formal.name: BYTES[formal.dtype] for formal in row.formals}
    width = dtypes[row.apart]
    bits, apart = 8 * REGISTERS["q"] // row.lanes, step.instr.stride * width
    inner = tuple((lanes, stride * width) for lanes, stride in zip(row.inner, step.instr.inner, strict=True))
    if row.dense:
        bits, together = 8 * row.align, row.inner[-1] * width // row.align
        inner = (*inner[:-1], *([(together, row.align)] if together > 1 else []))
    return Distances(bits, apart, inner, step.beyond)


def are_distances(step: VectorStep) -> bool:
    """Whether lanes hold how far from the pointer of an instruction its lanes lie."""
    found = distances(step)
    return found is not None and max(found.numbers) < 1 << found.bits


def addresses(step: VectorStep) -> Distances | None:
    """The distances of the lanes of an instruction whose addresses a vector may hold; None of others."""
    return distances(step) if _BY_ADDRESSES.fullmatch(step.instr.row.text) else None


class SpreadNumber(NamedTuple):
    """A vector with a C variable in each of so many lanes."""

    name: str
    number: str
    lanes: int

    @property
    def declared(self) -> str:
        """C that declares it."""
        kind = {4: "int32_t", 8: "int16_t", 16: "int8_t"}[self.lanes]
        numbers = ", ".join([self.number] * self.lanes)
        return f"const {kind} {self.name} __attribute__((vector_size(16))) = {{{numbers}}};"


def spread_number(step: VectorStep) -> SpreadNumber | None:
    """That which an instruction makes; None of others."""
    row, what = step.instr.row, meaning(step.instr.row)
    kinds = {formal.name: (formal.memory, formal.dtype) for formal in row.formals}
    if not isinstance(what.value, Access) or what.value.index or "f32" in (dtype for _, dtype in kinds.values()):
        return None
    if kinds[what.target.buffer][0] != "q" or kinds[what.value.buffer][0] != "r" or step.instr.limit:
        return None
    (name,), (number,) = step.targets, step.sources
    return SpreadNumber(name, number, row.lanes)
