"""The instructions of a block with vectors in the order of their meaning, each with its registers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from tosaic.backends.cortex_m.program.assembly import register
from tosaic.backends.cortex_m.program.block import BlockInstruction, advance
from tosaic.backends.cortex_m.program.pointers import Address, PointerUse
from tosaic.backends.cortex_m.program.rewriting import changes_target, meaning
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    REGISTERS,
    Access,
    Alloc,
    Assign,
    Buffer,
    Instr,
    Op,
    Reduce,
    RefusedError,
    Statement,
)

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
            again = tuple(name for name in targets if name in self.sources)
            keeps = targets if adds or self.keeps or number else again
            pointer = moved if number + 1 == len(lines) or not row.together else ()
            writes, kept, early = (*targets, *pointer), (*keeps, *pointer), bool(row.gathers) or row.early
            found.append(BlockInstruction(mnemonic, text.format(**operands), writes, kept, early, self.alias))
        if address is not None and address.behind:
            found += advance(address.pointer, address.behind)
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


def steps_of(
    part: Sequence[Statement], buffers: Mapping[str, Buffer], lanes: dict[str, int], short: dict[str, int]
) -> list[VectorStep]:
    """The instructions of a part; zeros that another instruction begins its sum with are none.

    What makes lanes of a vector needs no mask where nobody wrote its other lanes.

    Args:
        lanes: of each vector that lives in the block, the first ones that have been written before; is changed.
        short: of each vector, the first lanes of a load whose mask brought 0 to others; is changed.
    """
    found, zero, started, born = list[VectorStep](), dict[str, VectorStep](), set[str](), set[str]()
    moved = dict[str, str]()
    steps = {id(s): _step(s, buffers) for s in part if isinstance(s, Instr)}
    for name in (name for step in steps.values() for name in step.targets):
        short.pop(name, None)
    for s, over in zip(part, _last_reads(part, steps), strict=True):
        if isinstance(s, Alloc):
            own = _own(s)
            started, born = started - own, born | own
            moved = {name: place for name, place in moved.items() if name not in own}
            lanes.update(dict.fromkeys(own, 0) if s.buffer.memory == "q" else {})
            continue
        assert isinstance(s, Instr)
        step = _where_moved(steps[id(s)], moved)
        what, step = meaning(s.row), _of_written(step, born - started - zero.keys())
        targets, sources = step.targets, step.sources
        moves = any(formal.memory == "m" for formal in s.row.formals)
        partial = bool(targets and what.target.index) and what.target.index[0]["l"] != 1
        whole = {*targets} <= born - started - zero.keys()
        if s.row.spoils and not whole:
            raise RefusedError(f"{s} spoils lanes that were written before")
        known = [lanes.get(name, s.row.lanes) for name in targets]
        alone = not moves and bool(targets) and max(known) <= (0 if partial else s.limit)
        if s.limit and (alone or _adds_zeros(what, any(short.get(name) == s.limit for name in sources))):
            step = replace(step, instr=replace(s, limit=0))
        lanes.update({name: max(s.limit or s.row.lanes, lanes[name]) for name in targets if name in lanes})
        short.update(dict.fromkeys(targets, s.limit if moves else 0))
        if targets and isinstance(what, Assign) and what.value == 0:
            zero[targets[0]] = step
            continue
        adds = isinstance(what, Reduce)
        begins = bool(s.row.first) and bool(targets) and targets[0] in zero
        for name in sources if begins else [*sources, *targets]:
            if (before := zero.pop(name, None)) is not None and (name in sources or adds):
                found.append(before)
        for name in targets:
            zero.pop(name, None)
        alias = s.row.alias and whole and over.issuperset(sources) and born.issuperset(sources)
        found.append(replace(step, keeps=partial and targets[0] in started, begins=begins, alias=alias))
        started.update(targets)
    return [*found, *zero.values()]


def _own(s: Alloc) -> set[str]:
    """The registers of a buffer."""
    return {f"{s.buffer.name}__{i}" for i in range(s.buffer.size // s.buffer.lanes)}


def _last_reads(part: Sequence[Statement], steps: Mapping[int, VectorStep]) -> list[set[str]]:
    """Of each statement, the registers that it reads, and that nothing behind touches before they live anew."""
    later, found = set[str](), list[set[str]]()
    for s in reversed(part):
        if isinstance(s, Alloc):
            later -= _own(s)
            found.append(set())
        else:
            found.append({*steps[id(s)].sources} - later)
            later.update((*steps[id(s)].sources, *steps[id(s)].targets))
    return found[::-1]


def _where_moved(step: VectorStep, moved: dict[str, str]) -> VectorStep:
    """A step with registers that have become others; one that moves in place adds to these, and takes one away.

    Raises:
        RefusedError: it reads what has been moved.
    """
    if not all(moved.get(name, name) for name in (*step.sources, *step.targets)):
        raise RefusedError(f"{step.instr} takes a register whose lanes have moved on")
    found = {formal: [moved.get(name, name) for name in names] for formal, names in step.registers.items()}
    if step.instr.row.moves_in_place:
        (source,), (target,) = step.sources, step.targets
        moved |= {target: moved.get(source, source), source: ""}
        found[step.target] = [moved[target]]
    return replace(step, registers=found) if found != step.registers else step


def _of_written(step: VectorStep, unwritten: Set[str]) -> VectorStep:
    """A step that reads, of an operand of several registers, one that was written in place of each that was not."""
    found, numbered = dict(step.registers), set[str]()
    for formal, names in step.registers.items():
        written = [name for name in names if name not in unwritten]
        if formal not in (step.target, step.instr.row.together) and 0 < len(written) < len(names):
            numbered |= {f"{formal}{i}" for i, name in enumerate(names) if name in unwritten}
            found[formal] = [written[0] if name in unwritten else name for name in names]
    return replace(step, registers=found, unwritten=frozenset(numbered)) if numbered else step


def _adds_zeros(what: Assign | Reduce, short: bool) -> bool:
    """Whether lanes that a mask would keep from a sum add 0 to it: a masked load brings 0 to them."""
    value = what.value if isinstance(what, Reduce) and short else None
    return isinstance(value, Access) or (isinstance(value, Op) and value.name == "mul")


def _step(s: Instr, buffers: Mapping[str, Buffer]) -> VectorStep:
    operands = zip(s.row.formals, s.operands, strict=True)
    names = {f.name: _registers(s, f.name, access, buffers) for f, access in operands if f.memory != "m"}
    return VectorStep(s, names, meaning(s.row).target.buffer)


def _registers(s: Instr, formal: str, access: Access, buffers: Mapping[str, Buffer]) -> list[str]:
    """The registers of an operand: of several, its text numbers them."""
    b, several = buffers[access.buffer], s.row.registers(formal)
    behind = (Access(b.name, (*access.index[:-1], access.index[-1] + i * b.lanes)) for i in range(1, several))
    return [register(b, each) for each in (access, *behind)]


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
        bits, together = 8 * row.align, row.inner[0] * width // row.align
        inner = ((together, row.align),) if together > 1 else ()
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
