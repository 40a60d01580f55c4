"""A block of instructions as one statement of assembly: pointers, registers, and pairs of loads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.block import BlockInstruction, InstructionBlock, halves
from tosaic.backends.cortex_m.program.block_cycles import cycles_of
from tosaic.backends.cortex_m.program.list_scheduler import ordered
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.cortex_m.program.touches import meaning
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    Access,
    Alloc,
    Buffer,
    Instr,
    Reduce,
    RefusedError,
    Seq,
    Statement,
)
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

GENERAL = 14
"""General registers that a block may use: r0 to r12 and lr. The compiler moves to the stack what else it holds."""
FLOATS = 32
"""Registers of floats."""
_PAIR_REACH = 1020
_OPERAND = re.compile(r"%\[(\w+)\]")
_LOAD = re.compile(r"\S+ (\S+), \[(\S+), #(-?\d+)\]")


@dataclass
class Assembly:
    """A block in order.

    Args:
        lines: of assembly, operands by name.
        pointers: a name for each address, as the buffer, the loops' part of the byte address, and a constant.
        changed, begun, read: registers of buffers that live outside: written after they are read, written first, read.
        temporaries: names of registers that live in the block alone.
        floats: which of the names are registers of floats.
        lost: other registers that it changes.
    """

    lines: list[str]
    pointers: dict[str, tuple[str, Affine]]
    changed: list[str]
    begun: list[str]
    read: list[str]
    temporaries: list[str] = field(default_factory=list)
    floats: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)


def flat(s: Statement) -> list[Statement]:
    """The statements of a block in order, each Alloc before what it holds."""
    match s:
        case Seq():
            return [part for each in s.body for part in flat(each)]
        case Alloc():
            return [s, *flat(s.body)]
    return [s]


def register(b: Buffer, access: Access) -> str:
    """The name of the register that an access begins in.

    Raises:
        RefusedError: a loop counts it.
    """
    where = b.address(access.index)
    if where.terms:
        raise RefusedError(f"a loop counts registers of {b.name}: {access}")
    return f"{b.name}__{where.const // b.lanes}"


def assembled(body: Statement, buffers: Mapping[str, Buffer], pipeline: Pipeline | None = None) -> Assembly:
    """The block of an iteration whose loops are written out; loads pair where that is no slower on the core's timings.

    Raises:
        RefusedError: it takes more registers than there are.
    """
    parts = flat(body)
    inside = {s.buffer.name for s in parts if isinstance(s, Alloc)}
    if any(s.buffer.memory == "scratch" for s in parts if isinstance(s, Alloc)):
        raise RefusedError("a block has no working memory of its own")
    instructions = [s for s in parts if isinstance(s, Instr)]
    places = _addresses(instructions, buffers)
    pointers, uses = dict[str, tuple[str, Affine]](), dict[str, set[str]]()
    floats, pairs, assigned = set[str](), dict[str, str](), dict[str, str]()
    made = list[tuple[Row, list[BlockInstruction]]]()
    for instr in instructions:
        operands = dict[str, str]()
        target = meaning(instr.row).target.buffer
        for formal, access in zip(instr.row.formals, instr.operands, strict=True):
            b = buffers[access.buffer]
            if formal.memory == "m":
                where = b.address(access.index) * BYTES[b.dtype]
                base = _base(places[b.name, where.terms], where.const, instr.row)
                start = (b.name, Affine(where.terms, base))
                name = next((n for n, known in pointers.items() if known == start), f"p{len(pointers)}")
                pointers[name] = start
                operands[formal.name] = f"[{{{name}}}, #{where.const - base}]"
                continue
            name = register(b, access)
            operands[formal.name] = f"{{{name}}}"
            if formal.memory == "p":
                pairs |= halves(name)
                operands |= {f"{formal.name}{i}": f"{{{half}}}" for i, half in enumerate(halves(name))}
            if formal.memory == "s":
                floats.add(name)
                if access.buffer in inside:
                    assigned.setdefault(name, f"s{FLOATS - 1 - len(assigned)}")
            if access.buffer not in inside:
                adds = isinstance(meaning(instr.row), Reduce)
                how = "read" if formal.name != target else "add" if adds else "write"
                uses.setdefault(name, set()).add(how if name in uses or how != "write" else "begin")
        made.append((instr.row, _instructions(instr, operands, target)))
    rows, code = _side_by_side_loads(made)
    if len(floats) > FLOATS:
        raise RefusedError(f"{len(floats)} floats live in a block, which has {FLOATS} registers for them")
    fixed = {name: f"%[{name}]" for name in (*uses, *pointers) if f"{name}_low" not in pairs} | assigned | pairs
    free = GENERAL - len([name for name in fixed if name not in floats])
    lines, temporaries = _allocated(code, rows, tuple(fixed.items()), free, pipeline)
    return Assembly(
        lines,
        pointers,
        [n for n, how in uses.items() if "begin" not in how and how & {"write", "add"}],
        [n for n, how in uses.items() if "begin" in how],
        [n for n, how in uses.items() if how == {"read"}],
        temporaries,
        floats,
        [*assigned.values()],
    )


def _addresses(instructions: Sequence[Instr], buffers: Mapping[str, Buffer]) -> dict[tuple[str, tuple], list[int]]:
    """By buffer and loops' part of a byte address, the constants that are added to it."""
    found: dict[tuple[str, tuple], list[int]] = {}
    for instr in instructions:
        for formal, access in zip(instr.row.formals, instr.operands, strict=True):
            if formal.memory == "m":
                b = buffers[access.buffer]
                where = b.address(access.index) * BYTES[b.dtype]
                found.setdefault((b.name, where.terms), []).append(where.const)
    return {key: sorted(set(consts)) for key, consts in found.items()}


def _base(consts: Sequence[int], const: int, row: Row) -> int:
    """Where the pointer stands that reaches `const`: pointers follow each other as far as one instruction reaches."""
    base = consts[0]
    for each in consts:
        base = each if each - base > row.reach[1] else base
        if each == const:
            break
    return base


def _instructions(instr: Instr, operands: Mapping[str, str], target: str) -> list[BlockInstruction]:
    """A row as instructions of the list scheduler: the first one of several begins what the others change."""
    found = []
    adds = isinstance(meaning(instr.row), Reduce)
    for number, line in enumerate(instr.row.text.split(";")):
        mnemonic, _, text = line.strip().partition(" ")
        registers = [operands[name] for name in (target, f"{target}0", f"{target}1") if name in operands]
        text = text.format(**operands)
        writes = tuple(each.strip("{}") for each in registers if each.startswith("{") and each in text)
        keeps = writes if adds or number else ()
        found.append(BlockInstruction(mnemonic, text, writes, keeps))
    return found


def _side_by_side_loads(
    made: Sequence[tuple[Row, list[BlockInstruction]]],
) -> tuple[tuple[Row, ...], tuple[BlockInstruction, ...]]:
    """The instructions in order, each with its row.

    Equal rows of several lines may follow each other. Where none of them writes a register of another, all their first
    lines come first, so that their loads may pair.
    """
    groups = list[list[tuple[Row, list[BlockInstruction]]]]()
    for each in made:
        if not groups or groups[-1][0][0] != each[0] or _share(groups[-1], each[1]):
            groups.append([])
        groups[-1].append(each)
    rows, code = list[Row](), list[BlockInstruction]()
    for group in groups:
        for line in zip(*(lines for _, lines in group), strict=True):
            code += line
            rows += [group[0][0]] * len(line)
    return tuple(rows), tuple(code)


def _share(group: Sequence[tuple[Row, list[BlockInstruction]]], lines: Sequence[BlockInstruction]) -> bool:
    """Whether some lines and a group of others write a register of each other."""
    before = [line for _, others in group for line in others]
    return _writes(before, lines) or _writes(lines, before)


def _writes(some: Sequence[BlockInstruction], others: Sequence[BlockInstruction]) -> bool:
    """Whether some lines write a register that is in others."""
    return not {name for line in some for name in line.writes}.isdisjoint(
        name for line in others for name in line.names
    )


@lru_cache(maxsize=1024)
def _allocated(
    code: tuple[BlockInstruction, ...],
    rows: tuple[Row, ...],
    fixed: tuple[tuple[str, str], ...],
    free: int,
    pipeline: Pipeline | None,
) -> tuple[list[str], list[str]]:
    """The lines of a block, and the names of the temporaries in it.

    Raises:
        RefusedError: there are too few registers.
    """
    temporaries = [f"t{i}" for i in range(free)]
    try:
        lines = ordered(InstructionBlock(code, dict(fixed), tuple(f"%[{t}]" for t in temporaries)), None).iteration
    except BackendError:
        raise RefusedError(
            f"{len(fixed)} registers that live outside of a block leave {max(free, 0)}, too few for it"
        ) from None
    used = {name for line in lines for name in _OPERAND.findall(line)}
    paired = _paired(lines, rows)
    if pipeline is not None and cycles_of(lines, pipeline) < cycles_of(paired, pipeline):
        paired = list(lines)
    return paired, [t for t in temporaries if t in used]


def _paired(lines: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """The lines with neighboring loads of words that lie side by side as one."""
    found, skip = list[str](), False
    for number, line in enumerate(lines):
        if skip:
            skip = False
            continue
        row = rows[number]
        first, second = _LOAD.fullmatch(line), _LOAD.fullmatch(lines[number + 1]) if number + 1 < len(lines) else None
        if row.pair and first and second and rows[number + 1] is row and _side_by_side(first, second):
            text = row.pair.format(d0=first[1], d1=second[1], a=f"[{first[2]}, #{first[3]}]")
            found.append(text)
            skip = True
        else:
            found.append(line)
    return found


def _side_by_side(first: re.Match[str], second: re.Match[str]) -> bool:
    near = first[2] == second[2] and int(second[3]) == int(first[3]) + 4
    return near and first[1] != second[1] and 0 <= int(first[3]) <= _PAIR_REACH
