"""Where the buffers of a program lie: constants in params, scratch memory by lifetime."""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np

from tosaic.backends.cortex_m.program.check import SLACK
from tosaic.backends.cortex_m.program.program import Program, children
from tosaic.backends.cortex_m.program.rewriting import seq
from tosaic.backends.cortex_m.program.touches import held_by, own_touches, touches
from tosaic.backends.cortex_m.program.tree import NUMPY, Alloc, Buffer, For, Invoke, Statement

SHARED = "w"
_WEIGHTS = (SHARED, "w16")
"""The constants that lie last, so that kernels may share them; a program has one of them, or none."""
_ALIGNMENT, _WORD = 16, 4


def constants_of(program: Program) -> tuple[Buffer, ...]:
    """The constants in the order in which they lie: those of less than a vector are first, so that little lies between
    them."""
    constants = (b for b in program.arguments if b.memory == "const")
    return tuple(sorted(constants, key=lambda b: (b.name in _WEIGHTS, b.bytes >= _ALIGNMENT)))


def weights_of(program: Program) -> str:
    """The name of the constant that lies last, so that kernels may share it; empty where there is none."""
    return next((b.name for b in constants_of(program) if b.name in _WEIGHTS), "")


def constant_offsets(program: Program) -> dict[str, int]:
    """Where each constant begins in the params, in bytes."""
    found, end = dict[str, int](), 0
    for b in constants_of(program):
        found[b.name] = end = aligned(end, b)
        end += b.bytes
    return found


def params_of(program: Program, constants: Mapping[str, np.ndarray]) -> bytes:
    """The params: constants as the program reads them, each at its offset, and slack where loads of them run ahead."""
    data = bytearray()
    for b in constants_of(program):
        data += bytes(aligned(len(data), b) - len(data))
        data += np.ascontiguousarray(constants[b.name].astype(np.dtype(NUMPY[b.dtype]).newbyteorder("<"))).tobytes()
    ahead = any(isinstance(s, For) and s.ahead and _walks_constants(program, s) for s in program.statements)
    return bytes(data) + bytes(SLACK * ahead)


def _walks_constants(program: Program, loop: For) -> bool:
    """Whether each iteration of a loop reads other elements of a constant."""
    read = (access for _, access in touches(loop) if program.buffers[access.buffer].memory == "const")
    return any(index[loop.var] for access in read for index in access.index)


def scratch_offsets(program: Program) -> dict[str, int]:
    """Where each buffer of scratch memory begins, in bytes; those that do not live together share memory."""
    return {name: start for name, (start, _) in _placed(program.body, 0, _called_alone(program)).items()}


def scratch_bytes(program: Program) -> int:
    """Bytes of working memory."""
    return max((end for _, end in _placed(program.body, 0, _called_alone(program)).values()), default=0)


def _placed(s: Statement, start: int, alone: Set[str]) -> dict[str, tuple[int, int]]:
    """Where buffers begin and end; behind those that calls `alone` use nothing is read."""
    found = dict[str, tuple[int, int]]()
    if isinstance(s, Alloc) and s.buffer.memory == "scratch":
        if s.buffer.at is not None:
            found[s.buffer.name] = s.buffer.at, aligned(s.buffer.at + s.buffer.bytes)
        else:
            end = aligned(start + s.buffer.bytes + (0 if s.buffer.name in alone else SLACK))
            found[s.buffer.name], start = (start, end), end
    for child in children(s):
        found |= _placed(child, start, alone)
    return found


def _called_alone(program: Program) -> Set[str]:
    """The names of buffers that no statement but calls uses."""
    calls = held_by(seq(*(s for s in program.statements if isinstance(s, Invoke))))
    if not calls:
        return calls
    others = (s for s in program.statements if not isinstance(s, Invoke))
    return calls - {access.buffer for s in others for _, access in own_touches(s)}


def aligned(offset: int, constant: Buffer | None = None) -> int:
    """Where a buffer may lie, from an offset on; a constant of less than a vector at any word."""
    unit = _WORD if constant is not None and constant.bytes < _ALIGNMENT else _ALIGNMENT
    return -(-offset // unit) * unit
