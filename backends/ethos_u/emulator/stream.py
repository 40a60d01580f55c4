"""The command stream: its containers for Arm's driver, and its commands.

A command is one 32-bit word (code, 16-bit parameter), or two where the second holds a 32-bit payload.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tosaic.backends.npu import EmulationError

_OPTIMIZER_CONFIG, _COMMAND_STREAM, _NOP = 1, 2, 5
_COP2_COMMAND_STREAM = 1


@dataclass(frozen=True)
class Command:
    """One command.

    Args:
        offset: byte offset in the command words.
        code: 10-bit command code.
        payload: the second word; None for a command of one word.
        parameter: the upper 16 bits of the first word.
    """

    offset: int
    code: int
    parameter: int
    payload: int | None


def command_words(stream: bytes) -> np.ndarray:
    """The command words (uint32) of a COP1 or COP2 container, or of bare words.

    Raises:
        EmulationError: the container is damaged.
    """
    if len(stream) % 4:
        raise EmulationError(f"a command stream is whole 32-bit words, this one has {len(stream)} bytes")
    words = np.frombuffer(stream, "<u4")
    if stream[:4] == b"COP1":
        return _unwrap_cop1(words)
    if stream[:4] == b"COP2":
        return _unwrap_cop2(words)
    return words


def _unwrap_cop1(words: np.ndarray) -> np.ndarray:
    """COP1: FourCC, then driver actions; the command stream's length in words is 24 bits wide."""
    position = 1
    while position < len(words):
        word = int(words[position])
        action = word & 0xFF
        if action == _COMMAND_STREAM:
            length = (word >> 8 & 0xFF) << 16 | word >> 16
            return _cut(words, position + 1, length)
        if action not in (_OPTIMIZER_CONFIG, _NOP):
            raise EmulationError(f"driver action {action} of a COP1 container is unknown")
        position += 3 if action == _OPTIMIZER_CONFIG else 1
    raise EmulationError("a COP1 container without a command stream")


def _unwrap_cop2(words: np.ndarray) -> np.ndarray:
    """COP2: 16-byte header, entry (kind, length, metadata length, metadata), command words at a multiple of 16."""
    if len(words) < 7:
        raise EmulationError("a COP2 container shorter than its header")
    kind, length, metadata = (int(w) for w in words[4:7])
    start = 28 + metadata
    if kind != _COP2_COMMAND_STREAM or start % 16 or length < 4 + metadata:
        raise EmulationError("a COP2 container with a damaged header")
    return _cut(words, start // 4, (length - 4 - metadata) // 4)


def _cut(words: np.ndarray, start: int, length: int) -> np.ndarray:
    if start + length > len(words):
        raise EmulationError(
            f"a command stream cut short: {length} words announced, {max(0, len(words) - start)} there"
        )
    return words[start : start + length]


def commands(words: np.ndarray) -> Iterator[Command]:
    """The commands, in order.

    Raises:
        EmulationError: the last command lacks its payload, or a word carries no valid command form.
    """
    values = words.tolist()
    position = 0
    while position < len(values):
        word = values[position]
        code, form, parameter = word & 0x3FF, word >> 14 & 3, word >> 16
        if form > 1 or word & 0x3C00:
            raise EmulationError(f"{word:#010x} is no command", offset=4 * position, command="?")
        if form and position + 1 >= len(values):
            raise EmulationError("the last command lacks its payload", offset=4 * position, command="?")
        yield Command(4 * position, code, parameter, values[position + 1] if form else None)
        position += 2 if form else 1
