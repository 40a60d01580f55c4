"""Whether a tree may run on a core: scopes, bounds, alignment, instructions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tosaic.backends.cortex_m.isa.isa import registers_of, rows_on
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.around import loops_of, under
from tosaic.backends.cortex_m.program.calls import check_call
from tosaic.backends.cortex_m.program.copied_rows import copied_row
from tosaic.backends.cortex_m.program.holding import in_class
from tosaic.backends.cortex_m.program.legal import Use, bounds_of, uses
from tosaic.backends.cortex_m.program.names import is_free
from tosaic.backends.cortex_m.program.program import Program, children, walk
from tosaic.backends.cortex_m.program.rewriting import parts_of, written_out
from tosaic.backends.cortex_m.program.touches import own_touches, tables_of, touches, window_bounds
from tosaic.backends.cortex_m.program.tree import (
    BLOCKS,
    BYTES,
    REGISTERS,
    SCALAR,
    Access,
    Alloc,
    Around,
    Assign,
    Buffer,
    For,
    If,
    Instr,
    Invoke,
    Let,
    Op,
    Reduce,
    RefusedError,
    Statement,
)
from tosaic.backends.target import Core

SLACK = 16
"""Bytes behind a buffer of scratch memory that may be read, and mean nothing."""


def check(program: Program, core: Core) -> None:
    """Guard of what is printed.

    Raises:
        RefusedError: the message says what does not hold.
    """
    rows, classes = rows_on(core), registers_of(core)
    for b in program.buffers.values():
        if b.in_registers and b.memory not in classes:
            raise RefusedError(f"a {core.name} has no registers `{b.memory}`, where {b.name} lies")
        if b.in_registers and not in_class(b.dtype, b.memory):
            raise RefusedError(f"registers `{b.memory}`, where {b.name} lies, hold no {b.dtype}")
        if b.at is not None and (b.memory, b.dtype) != ("scratch", "i8"):
            raise RefusedError(f"{b.name} is no bytes of working memory, whose places may be told")
    _named(program)
    _in_scope(program.body, {b.name for b in program.arguments})
    for s, around in under(program.body):
        match s:
            case For(kind="words"):
                copied_row(s, program.buffers)
                _meeting_apart(program, s, around)
            case For() if s.kind in BLOCKS:
                _instructions_only(s)
                _memory_apart(program, s)
                _meeting_apart(program, s, around)
            case Alloc() if s.buffer.memory == "q" and not any(isinstance(f, For) and f.kind in BLOCKS for f in around):
                raise RefusedError(f"{s.buffer.name} lies in vectors outside of a block")
            case Assign() | Reduce() | Let():
                for name in tables_of(s):
                    if program.buffers[name].in_registers:
                        raise RefusedError(f"values say what is read of {name}, which lies in registers")
                _long_alone(program, s)
                for _, access in own_touches(s):
                    _inside(program, access, around)
                    _whole(program, access)
            case Instr():
                if s.row not in rows:
                    raise RefusedError(f"a {core.name} has no {s.row.name}")
                if not any(isinstance(f, For) and f.kind in BLOCKS for f in around):
                    raise RefusedError(f"{s.row.name} stands outside of a block")
                _windows_inside(program, s, around)
            case Invoke():
                check_call(program, s, around)
    _registers_counted(program)


def _long_alone(program: Program, s: Assign | Reduce | Let) -> None:
    """Guard: sums of 64 bits are copied and scaled, as other operations of C take 32 bits."""
    to = "" if isinstance(s, Let) else program.buffers[s.target.buffer].dtype
    parts = [part for part in parts_of(s.value) if isinstance(part, Op)]
    taken = [arg for part in parts for arg in (part.args[1:] if part.name == "scale64" else part.args)]
    for value in (*taken, *([] if to == "i64" else [s.value])):
        if isinstance(value, Access) and program.buffers[value.buffer].dtype == "i64":
            raise RefusedError(f"{value} has 64 bits, of which only `scale64` makes fewer")


def _named(program: Program) -> None:
    """Guard: names that are free, and no buffer's that is a loop's too."""
    numbers = {s.var for s in program.statements if isinstance(s, For | Let)}
    for name in (*program.buffers, *numbers):
        if not is_free(name) or (name in program.buffers and name in numbers):
            raise RefusedError(f"`{name}` is no name of a loop, or of a buffer")


def _in_scope(s: Statement, known: set[str]) -> None:
    if isinstance(s, Alloc):
        known = known | {s.buffer.name}
    for child in children(s):
        _in_scope(child, known)
    if isinstance(s, Assign | Reduce | Instr | Invoke | Let):
        for _, access in own_touches(s):
            if access.buffer not in known:
                raise RefusedError(f"{access.buffer} is used where it does not live")


def _instructions_only(block: For) -> None:
    """Guard: a block is instructions in loops that are written out, and a hardware loop at most."""
    loops = [s for s in walk(block.body) if isinstance(s, For) and s.kind == "hardware_loop"]
    if len(loops) > (block.kind == "block"):
        raise RefusedError(f"the block `{block.var}` has more than one hardware loop")
    for s in walk(block.body):
        if isinstance(s, SCALAR) or (isinstance(s, For) and s.kind not in ("unroll", "hardware_loop")):
            raise RefusedError(f"the block `{block.var}` holds what is no instruction")
        if isinstance(s, For) and s.kind == "unroll" and any(loop in walk(s) for loop in loops):
            raise RefusedError(f"the hardware loop in the block `{block.var}` is written out several times")


def _memory_apart(program: Program, block: For) -> None:
    """Guard: a block with vectors reads nothing that it writes to memory, as its order is that of registers.

    Registers that it brings back to where they come from are an exception.
    """
    if not any(isinstance(s, Alloc) and s.buffer.memory == "q" for s in walk(block)):
        return
    names = {
        how: {a.buffer for kind, a in touches(block.body) if (kind == "read") == (how == "read")}
        for how in ("read", "write")
    }
    for name in names["read"] & names["write"]:
        if not program.buffers[name].in_registers and not _brings_back(block, program.buffers[name]):
            raise RefusedError(f"the block `{block.var}` reads what it writes to {name}")


def _meeting_apart(program: Program, loop: For, around: Sequence[Around]) -> None:
    """Guard: where buffers lie over each other, an iteration that moves much at once reads no byte that it, or one
    before, writes."""
    found = [use for use in uses(loop) if _told(program, use)]
    read, written = ([use for use in found if (use.how == "read") == is_read] for is_read in (True, False))
    for use, other in itertools.product(read, written):
        if _told(program, use) != _told(program, other):
            continue
        (start, pace, inner, whole), (to, its_pace, its_inner, its_whole) = (
            _bytes_of(program, each) for each in (use, other)
        )
        low, high = bounds_of(start - to, around)
        ahead = pace == its_pace > 0 and low + inner[0] > its_inner[1]
        if not (ahead or low + whole[0] > its_whole[1] or high + whole[1] < its_whole[0]):
            raise RefusedError(f"`{loop.var}` reads of {use.access.buffer} what it writes to {other.access.buffer}")


def _told(program: Program, use: Use) -> str:
    """What a buffer is a part of by what is told: working memory, or what an input and an output share."""
    b = program.buffers[use.access.buffer]
    if b.at is not None:
        return "scratch"
    shared = (each for each in program.over or () if each.lead is None)
    return next((str(each) for each in shared if b in (program.inputs[each.input], program.outputs[each.output])), "")


def _bytes_of(program: Program, use: Use) -> tuple[Affine, int, tuple[int, int], tuple[int, int]]:
    """Of bytes whose place is told, where a use begins, by how many an iteration of the outer loop moves it on, and
    what its inner loops, and all of them, add to it at least and at most."""
    b, (own, *inside), last = program.buffers[use.access.buffer], use.loops, {f.var: f.last for f in use.loops}
    where = b.address(use.access.index) + (b.at or 0)
    inner, whole = (Affine(tuple(t for t in where.terms if t[0] in {f.var for f in loops})).bounds(last)
                    for loops in (inside, use.loops))  # fmt: skip
    return where.at(dict.fromkeys(last, 0)), where[own.var], inner, whole


def _brings_back(block: For, b: Buffer) -> bool:
    """Whether a block loads registers from a buffer, once each, and at last stores each to where it was loaded."""
    if block.kind == "hardware_loop" or any(isinstance(s, For) and s.kind == "hardware_loop" for s in walk(block.body)):
        return False
    moves = [
        s for s in walk(written_out(block.body)) if isinstance(s, Instr) and any(o.buffer == b.name for o in s.operands)
    ]
    half = len(moves) // 2
    pairs = [s.operands for s in moves]
    loads, stores = pairs[:half], [pair[::-1] for pair in pairs[half:]]
    if {*loads} != {*stores} or len({*loads}) < half or len({register for register, _ in loads}) < half:
        return False
    places = sorted((b.address(place.index) for _, place in loads), key=lambda where: where.const)
    apart = (after - before for before, after in itertools.pairwise(places))
    return all(not each.terms and each.const * BYTES[b.dtype] >= REGISTERS["q"] for each in apart)


def _inside(program: Program, access: Access, around: Sequence[Around]) -> None:
    b = program.buffers[access.buffer]
    for i, extent in zip(access.index, b.shape, strict=True):
        low, high = bounds_of(i, around)
        if low < 0 or high >= extent:
            raise RefusedError(f"{access} lies outside of {b.name}{list(b.shape)}")


def _whole(program: Program, access: Access) -> None:
    """Guard: C reads and writes whole registers."""
    b = program.buffers[access.buffer]
    if b.lanes > 1:
        raise RefusedError(f"no instruction reads or writes {access} alone")


def _windows_inside(program: Program, instr: Instr, around: Sequence[Around]) -> None:
    for formal, operand in zip(instr.row.formals, instr.operands, strict=True):
        b = program.buffers[operand.buffer]
        slack = SLACK // BYTES[b.dtype] if b.memory == "scratch" and b.at is None else 0
        start, inner = b.address(operand.index), window_bounds(instr, formal.name)
        low, high = _reached(b, operand, start, around, inner)
        if low < 0 or high >= b.size + slack:
            raise RefusedError(f"{instr.row.name} reaches outside of {b.name}{list(b.shape)}: {low} to {high}")
        if formal.memory == "m" and not (start * BYTES[b.dtype]).is_multiple(instr.row.align):
            raise RefusedError(f"{instr.row.name} takes addresses of {b.name} that {instr.row.align} divides")


def _reached(
    b: Buffer, access: Access, start: Affine, around: Sequence[Around], window: tuple[int, int]
) -> tuple[int, int]:
    """The first and the last element of windows that begin at an access: of the address, and of each index by what
    conditions say."""
    low, high = bounds_of(start, around)
    if any(isinstance(s, If) for s in around):
        ends = [bounds_of(i, around) for i in access.index]
        first, last = (b.address(tuple(Affine.of(end[side]) for end in ends)).const for side in (0, 1))
        low, high = max(low, first), min(high, last)
    return low + window[0], high + window[1]


def _registers_counted(program: Program) -> None:
    """Guard: registers have names, which no loop that iterates can count."""
    for s, around in under(program.body):
        if not isinstance(s, Assign | Reduce | Instr | Let):
            continue
        counted = {f.var for f in loops_of(around) if f.kind in BLOCKS or (f.kind == "each" and f.iterations > 1)}
        counted |= {let.var for let in around if isinstance(let, Let)}
        for _, access in own_touches(s):
            b = program.buffers[access.buffer]
            if b.in_registers and counted & b.address(access.index).names:
                raise RefusedError(f"a loop counts registers of {b.name}: {access}")
