"""A part of a block with vectors as instructions, each with its registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from tosaic.backends.cortex_m.program.assembly import register
from tosaic.backends.cortex_m.program.block import halves
from tosaic.backends.cortex_m.program.touches import changes_target, meaning
from tosaic.backends.cortex_m.program.tree import (
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
from tosaic.backends.cortex_m.program.vector_steps import VectorStep


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
        adds = isinstance(what, Reduce) or changes_target(s.row)
        begins = bool(s.row.first) and bool(targets) and targets[0] in zero
        for name in sources if begins else [*sources, *targets]:
            if (before := zero.pop(name, None)) is not None and (name in sources or adds):
                found.append(before)
        for name in targets:
            zero.pop(name, None)
        if not over.issuperset(step.registers.get(s.row.spends, ())):
            raise RefusedError(f"{s} spends registers that others read")
        alias = s.row.alias and whole and over.issuperset(sources) and born.issuperset(sources)
        found.append(replace(step, keeps=partial and targets[0] in started, begins=begins, alias=alias))
        started.update(targets)
    return [*found, *zero.values()]


def _own(s: Alloc) -> set[str]:
    """The registers of a buffer."""
    names = [f"{s.buffer.name}__{i}" for i in range(s.buffer.size // s.buffer.lanes)]
    return {half for name in names for half in (halves(name) if s.buffer.memory == "p" else (name,))}


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
    if b.memory == "p":
        return [*halves(register(b, access))]
    behind = (Access(b.name, (*access.index[:-1], access.index[-1] + i * b.lanes)) for i in range(1, several))
    return [register(b, each) for each in (access, *behind)]
