"""Where what a model keeps between calls lies: a new value takes the place of the old one as soon as nothing reads that
any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tosaic.backends.firmware.program import CallSequence, Copy, Interface, KernelCall, NpuCall


def with_states(program: CallSequence, after: Sequence[Sequence[Interface]]) -> CallSequence:
    """Let the states take their new values, and let outputs that are states be copies of the old ones.

    The calls write the new values where they belong, or copies do that end an inference.

    Args:
        after: for each method, or the program where it has none, the new value of each state.
    """
    if not program.methods:
        (values,) = after
        return _with_new_values(program, values)
    parts = []
    for method, values in zip(program.methods, after, strict=True):
        calls = program.calls[method.first : method.end]
        part = replace(program, calls=calls, inputs=method.inputs, outputs=method.outputs, methods=())
        parts.append(_with_new_values(part, values))
    return _joined(program, parts)


def _joined(program: CallSequence, parts: Sequence[CallSequence]) -> CallSequence:
    """A program of methods of which each is a part."""
    buffers, aliases = dict(program.buffers), dict(program.aliases)
    methods, copies = [], list[Copy]()
    for method, part in zip(program.methods, parts, strict=True):
        buffers |= part.buffers
        aliases |= part.aliases
        methods.append(replace(method, outputs=part.outputs))
        copies += [replace(copy, before=method.end) for copy in part.copies]
    outputs = tuple(output for method in methods for output in method.outputs)
    return replace(
        program, buffers=buffers, aliases=aliases, outputs=outputs, copies=tuple(copies), methods=tuple(methods)
    )


def _with_new_values(program: CallSequence, after: Sequence[Interface]) -> CallSequence:
    for new, old in zip(after, program.states, strict=True):
        for name in _written_in_place(program, program.storage(new.buffer), old.buffer, after):
            program = replace(program, aliases={**program.aliases, name: old.buffer})
    return _with_copies(program, after)


def _with_copies(program: CallSequence, after: Sequence[Interface]) -> CallSequence:
    held = {program.storage(state.buffer) for state in program.states}
    buffers, outputs, copies = dict(program.buffers), list[Interface](), list[Copy]()
    end = len(program.calls)
    for output in program.outputs:
        if program.storage(output.buffer) in held:
            copy = Copy(output.buffer, f"{output.name}_given", end)
            copies.append(copy)
            buffers[copy.target] = program.buffers[output.buffer]
            output = replace(output, buffer=copy.target)
        outputs.append(output)
    taken = [Copy(new.buffer, old.buffer, end) for new, old in zip(after, program.states, strict=True)]
    copies += [copy for copy in taken if program.storage(copy.source) != copy.target]
    return replace(program, buffers=buffers, outputs=tuple(outputs), copies=tuple(copies))


def _written_in_place(program: CallSequence, new: str, old: str, after: Sequence[Interface]) -> Sequence[str]:
    """What may lie where a state does: its new value, and what becomes that call by call, each of which writes over
    what the one before it gave. None where the old value is still needed then.

    Args:
        new, old: storage.
    """
    states = {program.storage(state.buffer) for state in program.states}
    shown = {program.storage(each.buffer) for each in program.outputs}
    kept = shown | {program.storage(each.buffer) for each in after}
    makers = {program.storage(name): number for number, call in enumerate(program.calls) for name in call.writes}
    size, found, value = program.buffers[old].size, list[str](), new
    if new in shown or old in kept:
        return ()
    while value in makers and value not in states and program.buffers[value].size == size:
        found.append(value)
        before = _overwritten(program, makers[value], value)
        if before is None or before in kept or _last_read(program, before) > makers[value]:
            break
        value = before
    while found and not _is_read_by_then(program, old, makers[found[-1]], found[-1]):
        found.pop()
    return found


def _overwritten(program: CallSequence, number: int, value: str) -> str | None:
    """What a call reads that the `value` it makes may lie over."""
    call = program.calls[number]
    if not isinstance(call, KernelCall):
        return None
    reads, writes = ([program.storage(name) for name in names] for names in (call.inputs, call.outputs))
    over = (reads[pair.input] for pair in call.kernel.in_place if writes[pair.output] == value and not pair.lead)
    return next((name for name in over if reads.count(name) == 1), None)


def _is_read_by_then(program: CallSequence, old: str, number: int, value: str) -> bool:
    """Whether a call may write `value` where `old` lies: nothing reads that behind it, nor it itself but in place. An
    NPU's results are copied where they are not written in their own place."""
    last, call = _last_read(program, old), program.calls[number]
    if last < number:
        return True
    if isinstance(call, NpuCall):
        bound = [program.storage(port.buffer) for port in call.outputs if call.is_bound(port)]
        return last == number and value not in bound
    return last == number and _overwritten(program, number, value) == old


def _last_read(program: CallSequence, value: str) -> int:
    reads = [n for n, call in enumerate(program.calls) if value in map(program.storage, call.reads)]
    return max(reads, default=-1)
