"""Calls of kernels, and guards of their windows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.legal import any_iteration, bounds_of, elements_of
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.structs import read_of
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    Access,
    Alloc,
    Around,
    Buffer,
    Callee,
    If,
    Invoke,
    Let,
    RefusedError,
    Statement,
)


def kernel(name: str, tensors: Iterable[Buffer], params: int, scratch: int, align: int = 16) -> Callee:
    """A kernel, given what it reads and writes, and bytes of its params and of its working memory."""
    own = (Buffer("params", "i8", (params,), "const"), Buffer("scratch", "i8", (scratch,), "scratch"))
    return Callee(name, (*tensors, *(b for b in own if b.size)), align)


def call_of(callee: Callee, tensors: Sequence[Access], params: Access, scratch: str) -> Invoke:
    """A call on tensors, with params and working memory where the kernel has some."""
    own = {"const": params, "scratch": Access(scratch, (Affine(),))}
    return Invoke(callee, (*tensors, *(own[b.memory] for b in callee.arguments if b.memory in own)))


def with_scratch(callee: Callee, scratch: str, body: Statement) -> Statement:
    """A statement with the working memory of a kernel that is called in it."""
    own = next((b for b in callee.arguments if b.memory == "scratch"), None)
    return body if own is None else Alloc(replace(own, name=scratch), body)


def check_call(program: Program, call: Invoke, around: Sequence[Around]) -> None:
    """Guard: each window lies inside of a buffer in memory, side by side, aligned, and apart from what is written.

    Raises:
        RefusedError: the message says which does not.
    """
    sizes = {b.name: b.size for b in call.callee.arguments}
    for name, number in (read for each in call.callee.takes for read in read_of(each)):
        if not number < sizes.get(name, 0):
            raise RefusedError(f"{call.callee.name} has no window `{name}` of more than {number} elements")
    for window, start in call.windows:
        _lies(program.buffers[start.buffer], window, start, around, call)
    for (one, first), (other, second) in itertools.combinations(call.windows, 2):
        b = program.buffers[first.buffer]
        if first.buffer == second.buffer and {one.memory, other.memory} & {"out", "scratch"}:
            _apart(b, (one, first), (other, second), around, call)


def _lies(b: Buffer, window: Buffer, start: Access, around: Sequence[Around], call: Invoke) -> None:
    name = f"{window.name} of {call.callee.name}"
    if b.in_registers or b.dtype != window.dtype:
        raise RefusedError(f"{name} is no {b.dtype} in {b.memory}, as {b.name} is")
    if window.memory in ("out", "scratch") and b.memory not in ("out", "scratch"):
        raise RefusedError(f"{call.callee.name} writes {b.name}, which lies in {b.memory}")
    outer = len(b.shape) - len(window.shape)
    extents = (*(1,) * outer, *window.shape)
    counted = [dim for dim, extent in enumerate(extents) if extent > 1]
    if outer < 0 or any(extents[dim] != b.shape[dim] for dim in counted[1:]):
        raise RefusedError(f"{name}, {list(window.shape)}, does not lie side by side in {b.name}{list(b.shape)}")
    for index, extent, whole in zip(start.index, extents, b.shape, strict=True):
        low, high = bounds_of(index, around)
        if low < 0 or high + extent > whole:
            raise RefusedError(f"{name}, {list(window.shape)}, reaches outside of {b.name}{list(b.shape)}")
    still = {s.var: 0 for s in around if not isinstance(s, If) and s.last == 0}
    if not (b.address(start.index).at(still) * BYTES[b.dtype]).is_multiple(call.callee.align):
        raise RefusedError(f"{call.callee.name} takes addresses of {b.name} that {call.callee.align} divides")


def _apart(
    b: Buffer, one: tuple[Buffer, Access], other: tuple[Buffer, Access], around: Sequence[Around], call: Invoke
) -> None:
    """Guard of two windows of one buffer, of which one is written."""
    (first, start), (second, behind) = one, other
    distance = b.address(behind.index) - b.address(start.index)
    loops = [any_iteration(s) if isinstance(s, Let) else s for s in around if not isinstance(s, If)]
    if any(-second.size < place < first.size for place in elements_of(distance, loops)):
        raise RefusedError(f"{first.name} and {second.name} of {call.callee.name} overlap in {b.name}")
