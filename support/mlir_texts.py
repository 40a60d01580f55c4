"""The texts in a file of MLIR: names and messages, which Python can read only where they are UTF-8."""

from __future__ import annotations

import re
from contextlib import suppress

_BYTECODE = b"ML\xefR"
_ESCAPED = re.compile(rb"\\([0-9A-Fa-f]{2})")
_STRINGS, _ALIGNED = 0, 0x80


def holds_text(source: bytes) -> bool:
    """Whether all texts of a file, MLIR text or bytecode, are UTF-8; of bytecode that is damaged elsewhere, too."""
    try:
        _texts(source).decode()
    except UnicodeDecodeError:
        return False
    return True


def _texts(source: bytes) -> bytes:
    if not source.startswith(_BYTECODE):
        return _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), source)
    with suppress(IndexError, ValueError):
        return _strings(source)
    return b""


def _strings(source: bytes) -> bytes:
    """The data of the first section of strings (mlir.llvm.org/docs/BytecodeFormat)."""
    _, at = _number(source, len(_BYTECODE))
    at = source.index(0, at) + 1  # behind the producer
    while True:
        kind, (size, at) = source[at], _number(source, at + 1)
        if kind & _ALIGNED:
            alignment, at = _number(source, at)
            at += -at % alignment
        if kind & ~_ALIGNED == _STRINGS:
            break
        at += size
    end = at + size
    count, at = _number(source, at)
    for _ in range(count):
        _, at = _number(source, at)
    return source[at:end]


def _number(source: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends: the zeros that its first byte ends with count what follows."""
    first = source[at]
    if not first:
        return int.from_bytes(source[at + 1 : at + 9], "little"), at + 9
    size = (first & -first).bit_length()
    return int.from_bytes(source[at : at + size], "little") >> size, at + size
