"""Which inputs a kernel may overwrite with its output: those that it has read by then, as its statements stand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.holding import meet
from tosaic.backends.cortex_m.program.legal import any_iteration
from tosaic.backends.cortex_m.program.places import Overlap
from tosaic.backends.cortex_m.program.program import Program, children, names_in
from tosaic.backends.cortex_m.program.remembered import remembered
from tosaic.backends.cortex_m.program.touches import meaning_of, own_touches, tables_of, touches
from tosaic.backends.cortex_m.program.tree import (
    BLOCKS,
    BYTES,
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    Instr,
    Let,
    Reduce,
    Seq,
    Statement,
)


@remembered
def overlaps(program: Program) -> tuple[Overlap, ...]:
    """The inputs and outputs, by number, that may begin at one place, or as it is told."""
    if program.over is not None:
        return program.over
    return tuple(
        Overlap(i, o)
        for (i, source), (o, target) in itertools.product(enumerate(program.inputs), enumerate(program.outputs))
        if source.bytes >= target.bytes and _reads_first(program, source, target)
    )


def relation(program: Program, source: Access, target: Access) -> Literal["apart", "one place", "shifted"]:
    """Where an element of an input lies to one of an output, if their buffers begin at one place: at `one place`, too,
    or `shifted`, as where it is told that buffers lie over each other. They lie `apart` where they may not."""
    if meet(program.buffers[source.buffer], program.buffers[target.buffer]):
        return "shifted"
    inputs, outputs = ([b.name for b in buffers] for buffers in (program.inputs, program.outputs))
    if source.buffer not in inputs or target.buffer not in outputs:
        return "apart"
    pair = inputs.index(source.buffer), outputs.index(target.buffer)
    told = next((each for each in overlaps(program) if each[:2] == pair), None)
    if told is None:
        return "apart"
    if told.lead is not None:
        return "shifted"
    places = (program.buffers[a.buffer].address(a.index) for a in (source, target))
    return "one place" if len(set(places)) == 1 else "shifted"


class _Span(NamedTuple):
    """Bytes of one access: where it begins as loops around iteration, how many there are up to its last iteration
    inside."""

    written: bool
    start: Affine
    size: int


class _MeetsError(Exception):
    """A byte may be read after it was written."""


def _reads_first(program: Program, source: Buffer, target: Buffer) -> bool:
    """Whether no byte of `source` is read after it was written as one of `target`."""
    touched = {access.buffer for _, access in touches(program.body)}
    if not {source.name, target.name} <= touched or source.name in tables_of(program.body):
        return False
    try:
        _spans(program.body, source, target)
    except _MeetsError:
        return False
    return True


def _spans(s: Statement, source: Buffer, target: Buffer) -> list[_Span]:
    """What a statement touches of the two.

    Raises:
        _MeetsError: it may read what it has overwritten.
    """
    match s:
        case Assign() | Reduce():
            return [span for how, access in touches(s) for span in _touched(how, access, source, target)]
        case Alloc():
            return _spans(s.body, source, target)
        case Let():
            own = [span for how, access in own_touches(s) for span in _touched(how, access, source, target)]
            inside = _over_all(any_iteration(s), _spans(s.body, source, target))
            _behind(own, inside)
            return [*own, *inside]
        case Seq():
            parts = [_spans(part, source, target) for part in s.body]
            for number, part in enumerate(parts):
                _behind([span for before in parts[:number] for span in before], part)
            return [span for part in parts for span in part]
        case For():
            inside = _spans(s.body, source, target)
            if s.kind in BLOCKS and not _are_apart(inside):
                _in_block(s, source, target)
            spans = _turned(s, inside)
            if s.early and source.name in names_in(s) and not _are_apart(spans):
                raise _MeetsError
            return spans
        case Instr():
            return _spans(meaning_of(s), source, target)
    if any(access.buffer in (source.name, target.name) for _, access in touches(s)):
        raise _MeetsError
    return []


def _are_apart(spans: Sequence[_Span]) -> bool:
    """Whether nothing of this is both read and written, in whatever order it is."""
    written, read = ([span for span in spans if span.written == is_written] for is_written in (True, False))
    return all(
        _least(r.start - w.start) >= w.size or _least(w.start - r.start) >= r.size
        for w, r in itertools.product(written, read)
    )


def _in_block(block: For, source: Buffer, target: Buffer) -> None:
    """Guard: instructions, whose order is that of registers, write no element but from what they read at its place.

    Of wider elements, pointers keep those loads in order that a hardware loop repeats.

    Raises:
        _MeetsError: they may.
    """
    read, written = set[Affine](), set[Affine]()
    for how, access in touches(block):
        if access.buffer in (source.name, target.name):
            (written if access.buffer == target.name else read).add(
                (source, target)[how != "read"].address(access.index)
            )
    if not read:
        return
    once = sum(access.buffer == source.name for s in children(block.body) for _, access in own_touches(s))
    if not written <= read or (BYTES[source.dtype] > BYTES[target.dtype] and once > 1):
        raise _MeetsError


def _touched(how: str, access: Access, source: Buffer, target: Buffer) -> list[_Span]:
    for b in (source, target):
        if access.buffer == b.name:
            if b is target and how != "write":
                raise _MeetsError
            return [_Span(b is target, b.address(access.index) * BYTES[b.dtype], BYTES[b.dtype])]
    return []


def _behind(before: Sequence[_Span], after: Sequence[_Span]) -> None:
    """Guard: what is read after something was written lies behind it.

    Raises:
        _MeetsError: it may not.
    """
    for write, read in itertools.product(before, after):
        if write.written and not read.written:
            distance = read.start - write.start
            if _least(distance) < write.size:
                raise _MeetsError


def _turned(loop: For, spans: list[_Span]) -> list[_Span]:
    """The spans of all iterations: each iteration begins behind what the one before wrote."""
    for write, read in itertools.product(spans, spans if loop.iterations > 1 else ()):
        if write.written and not read.written:
            moved = read.start.at({loop.var: loop.step}) - write.start.at({loop.var: 0})
            if read.start[loop.var] < write.start[loop.var] or _least(moved) < write.size:
                raise _MeetsError
    return _over_all(loop, spans)


def _over_all(loop: For, spans: list[_Span]) -> list[_Span]:
    """The spans of all iterations, as one each."""
    if any(span.start[loop.var] < 0 for span in spans):
        raise _MeetsError
    return [
        _Span(span.written, span.start.at({loop.var: 0}), span.size + span.start[loop.var] * loop.last)
        for span in spans
    ]


def _least(distance: Affine) -> int:
    """The least value of a number whose variables are not below 0; below all where there is none."""
    return distance.const if all(factor > 0 for _, factor in distance.terms) else -1 << 32
