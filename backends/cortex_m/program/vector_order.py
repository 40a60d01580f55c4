"""Steps of a block with vectors: which move behind its loop, which run ahead, and which share registers."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace

from tosaic.backends.cortex_m.program.pointer_uses import Address
from tosaic.backends.cortex_m.program.tree import Buffer, RefusedError
from tosaic.backends.cortex_m.program.vector_steps import VectorStep, are_distances, names_of, use_of

_TOGETHER = (2, 4)
"""Gathers that begin at one pointer."""
SHARED = "shared"
"""The name of registers that numbers share whose lives do not meet."""


def behind_loop(parts: Sequence[Sequence[VectorStep]]) -> list[list[VectorStep]]:
    """The steps before a loop, of an iteration, and behind; vectors of a number that are read behind alone are made
    there."""
    before, iteration, after = parts
    needed = {name for step in iteration for name in (*step.sources, *step.targets)}
    first, behind = list[VectorStep](), list(after)
    for step in reversed(before):
        spread = [formal.memory for formal in step.instr.row.formals] == ["q", "r"]
        if spread and iteration and needed.isdisjoint((*step.sources, *step.targets)):
            reads = (
                number for number, other in enumerate(behind) if set(step.targets) & {*other.sources, *other.targets}
            )
            behind.insert(next(reads, len(behind)), step)
        else:
            first.insert(0, step)
            needed.update((*step.sources, *step.targets))
    return [first, [*iteration], behind]


def sharing_numbers(steps: Sequence[VectorStep], names: Sequence[str], count: int) -> list[VectorStep]:
    """The steps with numbers that live in them alone in so many registers: the one whose number is read no more for the
    longest time takes the next one. Where more live at a time, what is made of them comes earlier.

    Raises:
        RefusedError: more live at a time even so.
    """
    with suppress(RefusedError):
        return _in_registers(_with_late_numbers(steps, names), names, count)
    return _in_registers(_with_late_numbers(_with_early_epilogue(steps, {*names}), names), names, count)


def _in_registers(steps: Sequence[VectorStep], names: Sequence[str], count: int) -> list[VectorStep]:
    """As above, of steps that stay in their order."""
    ends = _ends(steps)
    free, taken, found = [f"{SHARED}__{number}" for number in range(count)], dict[str, str](), list[VectorStep]()
    last = dict[str, int]()
    for number, step in enumerate(steps):
        over = [name for name in taken if last[name] < number]
        free += [taken.pop(name) for name in over]
        for name in step.targets:
            if name in names:
                if name not in taken:
                    if not free:
                        raise RefusedError(f"more than {count} numbers live in a block at a time")
                    taken[name] = free.pop(0)
                last[name] = ends.get((name, number), last.get(name, number))
        registers = {f: [taken.get(name, name) for name in each] for f, each in step.registers.items()}
        found.append(replace(step, registers=registers))
    return found


def _ends(steps: Sequence[VectorStep]) -> dict[tuple[str, int], int]:
    """By a name and the step that begins its number, the step that reads this for the last time."""
    found, last = dict[tuple[str, int], int](), dict[str, int]()
    for number, step in reversed(list(enumerate(steps))):
        for name in step.targets:
            if step.keeps or step.adds:
                last.setdefault(name, number)
            else:
                found[name, number] = last.pop(name, number)
        for name in step.sources:
            last.setdefault(name, number)
    return found


def _with_late_numbers(steps: Sequence[VectorStep], names: Sequence[str]) -> list[VectorStep]:
    """Steps with each load of numbers right before what reads them, or writes what it reads."""
    found, waiting = list[VectorStep](), list[VectorStep]()
    for step in steps:
        if step.targets and {*names}.issuperset(step.targets) and not step.sources:
            waiting.append(step)
            continue
        due = [each for each in waiting if _meet(_touched(each), _touched(step))]
        waiting = [each for each in waiting if each not in due]
        found += [*due, step]
    return [*found, *waiting]


def _with_early_epilogue(steps: Sequence[VectorStep], numbers: Set[str]) -> list[VectorStep]:
    """Steps in an order in which the epilogue begins early.

    A step that loads numbers, or reads them or what was made of them, stands right behind the last one that it has to
    do with, or that moved before it.
    """
    found, made = list[VectorStep](), {*numbers}
    first = 0
    for step in steps:
        reads, writes = _touched(step)
        place = len(found)
        if (writes <= numbers and not step.sources) or (made & reads and not writes <= numbers):
            made |= writes
            while place > first and not _meet(_touched(found[place - 1]), (reads, writes)):
                place -= 1
            first = place + 1
        found.insert(place, step)
    return found


def _meet(one: tuple[Set[str], Set[str]], other: tuple[Set[str], Set[str]]) -> bool:
    """Whether one of two steps writes what the other touches, given what each reads and writes."""
    return bool(one[1] & (other[0] | other[1]) or other[1] & one[0])


def needed_first(steps: Sequence[VectorStep], made: str) -> tuple[list[VectorStep], list[VectorStep]]:
    """Steps that a buffer needs to be made, and the others, which may all come behind these: what they write, none of
    the first ones reads or writes, and what they read, none of them writes."""
    needed, written = set[str](), set[str]()
    first, rest = list[VectorStep](), list[VectorStep]()
    for step in reversed(steps):
        own = any(name.rpartition("__")[0] == made for name in step.targets)
        reads, writes = _touched(step)
        if own or needed & writes or written & reads:
            needed |= reads | writes
            written |= writes
            first.insert(0, step)
        else:
            rest.insert(0, step)
    return first, rest


def _touched(step: VectorStep) -> tuple[set[str], set[str]]:
    """The registers and the buffers in memory that it reads, and those that it writes."""
    formals = zip(step.instr.row.formals, step.instr.operands, strict=True)
    memory = {access.buffer for formal, access in formals if formal.memory == "m"}
    reads, writes = {*step.sources}, {*step.targets}
    return (reads | memory, writes) if step.targets else (reads, memory)


def running_ahead(
    iteration: Sequence[VectorStep], hoisted: int, fixed: Collection[str], addresses: Mapping[Hashable, Address]
) -> list[VectorStep]:
    """The steps that the list scheduler lets run ahead: the first that start vectors from registers as an iteration
    finds them.

    Args:
        fixed: names that are no free vectors.
    """
    found, changed = list[VectorStep](), set[str]()
    for step in iteration:
        address = addresses.get(step)
        pointers = {address.pointer} if address is not None else set[str]()
        touched = {name for name in (*step.sources, *step.targets) if name in fixed} | pointers
        starts = {*fixed}.issuperset(step.sources) and any(name not in fixed for name in step.targets)
        if len(found) < hoisted and starts and not touched & changed:
            found.append(step)
        else:
            moved = pointers if address is not None and (address.moves or address.behind) else set[str]()
            changed |= {name for name in step.targets if name in fixed} | moved
    return found


def gathers_together(iteration: Sequence[VectorStep], free: int) -> list[int]:
    """How many gathers in a row of an iteration could begin at one pointer, each with distances of its own: some of so
    many vectors hold these, others live all the time."""
    gathers = [i for i, step in enumerate(iteration) if step.instr.row.dense]
    if len(gathers) < 2:
        return []
    vectors = {name for name, kind in names_of(iteration[: gathers[0]]).items() if kind == "q"}
    lasting = vectors & {name for step in iteration[gathers[-1] :] for name in step.sources}
    return [several for several in _TOGETHER if several <= min(len(gathers), free - len(lasting) - 1)]


def from_one_pointer(part: Sequence[VectorStep], buffers: Mapping[str, Buffer], several: int) -> list[VectorStep]:
    """The steps of a part in which so many gathers in a row begin at one pointer, where their distances reach."""
    found = list(part)
    gathers = [i for i, step in enumerate(part) if step.instr.row.dense]
    for count, number in enumerate(gathers):
        first, use = (use_of(part[i], buffers) for i in (gathers[count // several * several], number))
        assert first is not None and use is not None
        ahead = use.where - first.where
        step = replace(part[number], beyond=ahead.const)
        if use.buffer == first.buffer and not ahead.terms and ahead.const >= 0 and are_distances(step):
            found[number] = step
    return found
