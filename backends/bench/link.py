"""The host's side of the line to a monitor: frames, repeated until they arrive."""

from __future__ import annotations

import contextlib
import random
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tosaic.support.errors import Error, SimulatorError

if TYPE_CHECKING:
    from serial import Serial

PAYLOAD = 1024
_HEADER, _CRC = struct.Struct("<BBH"), struct.Struct("<I")
_END, _ESCAPE = b"\xc0", b"\xdb"
_ESCAPES = ((_ESCAPE, b"\xdb\xdd"), (_END, b"\xdb\xdc"))
_BITS_PER_BYTE = 10
_PATIENCE = 0.1
_LONGEST_PATIENCE = 1.0
_SECONDS_TO_ANSWER = 10.0


class FrameKind(IntEnum):
    """What a frame is; `monitor.c` tells their payloads."""

    HELLO = 1
    CHECK = 2
    LOAD = 3
    DUMP = 4
    RUN = 5
    RESUME = 6
    CALL = 0x40
    REGION = 0x41
    FAULT = 0x42
    LIMIT = 0x43
    REFUSED = 0x7E
    DAMAGED = 0x7F


class LateError(Exception):
    """No reply came in time."""


class DamagedError(Exception):
    """A frame did not arrive undamaged in as many attempts as it had."""


class Link:
    """Asks the monitor at the other end of a serial port.

    Only this side repeats. A request keeps its sequence number until its reply is there, so that it is done once.
    """

    def __init__(self, port: Serial) -> None:
        self._port = port
        self._sequence = random.randrange(256)
        self._received = bytearray()
        self.repeated = 0

    def ask(
        self, kind: FrameKind, payload: bytes = b"", *, seconds: float | None = None, attempts: int | None = None
    ) -> tuple[FrameKind, bytes]:
        """The kind and the payload of the reply.

        Args:
            seconds: how long to wait for it; what a monitor that has nothing else to do never takes when None.
            attempts: how often the request may be sent; None until the time is over.

        Raises:
            LateError: there was none in time.
            DamagedError: all attempts were spent on damaged frames.
            SimulatorError: the port is gone.
        """
        self._sequence = (self._sequence + 1) % 256
        frame = _encode(kind, self._sequence, payload)
        ends = time.monotonic() + (_SECONDS_TO_ANSWER if seconds is None else seconds)
        on_the_wire = _BITS_PER_BYTE * (len(frame) + PAYLOAD) / self._port.baudrate
        patience = _PATIENCE + on_the_wire
        sent = 0
        while True:
            if sent == attempts:
                raise DamagedError
            self.repeated += sent > 0
            sent += 1
            try:
                self._port.write(frame)
                reply = self._reply(min(time.monotonic() + patience, ends))
            except OSError as error:  # pyserial's own errors are such
                raise SimulatorError(f"the port `{self._port.port}` is gone", why=str(error)) from None
            if reply is not None:
                return reply
            if time.monotonic() >= ends:
                raise LateError
            patience = min(2 * patience, max(_LONGEST_PATIENCE, on_the_wire))

    def _reply(self, until: float) -> tuple[FrameKind, bytes] | None:
        """The reply to the last request; None where its frame or the request's arrived damaged, or nothing did."""
        while (frame := self._frame(until)) is not None:
            if frame == b"":
                continue
            decoded = _decode(frame)
            if decoded is None or decoded[0] == FrameKind.DAMAGED:
                return None
            kind, sequence, payload = decoded
            if sequence == self._sequence:
                return kind, payload
        return None

    def _frame(self, until: float) -> bytes | None:
        """What came up to the next END byte; None where none came in time."""
        while _END not in self._received:
            left = until - time.monotonic()
            if left <= 0:
                return None
            self._port.timeout = left
            self._received += self._port.read(max(1, self._port.in_waiting))
        frame, _, rest = bytes(self._received).partition(_END)
        self._received[:] = rest
        return frame


def _encode(kind: FrameKind, sequence: int, payload: bytes) -> bytes:
    frame = _HEADER.pack(kind, sequence, len(payload)) + payload
    frame += _CRC.pack(zlib.crc32(frame))
    for byte, escaped in _ESCAPES:
        frame = frame.replace(byte, escaped)
    return _END + frame + 2 * _END  # where one is damaged, the other ends the frame


def _decode(frame: bytes) -> tuple[FrameKind, int, bytes] | None:
    """Kind, sequence number and payload; None where the frame is damaged."""
    for byte, escaped in reversed(_ESCAPES):
        frame = frame.replace(escaped, byte)
    if len(frame) < _HEADER.size + _CRC.size:
        return None
    body, (crc,) = frame[: -_CRC.size], _CRC.unpack(frame[-_CRC.size :])
    kind, sequence, size = _HEADER.unpack_from(body)
    if zlib.crc32(body) != crc or size != len(body) - _HEADER.size:
        return None
    return FrameKind(kind), sequence, body[_HEADER.size :]


@contextmanager
def opened(port: str, baud: int) -> Iterator[Link]:
    """The monitor's end of the line at a port.

    Raises:
        Error: as `serial_line`.
    """
    with serial_line(port, baud) as line:
        yield Link(line)


@contextmanager
def serial_line(port: str, baud: int) -> Iterator[Serial]:
    """The line at a port: a device, or a URL of pyserial's (`socket://HOST:PORT`, `rfc2217://HOST:PORT`).

    Raises:
        Error: pyserial is not installed, or the port cannot be opened.
    """
    if find_spec("serial") is None:
        raise Error("pyserial is not installed", hint="pip install tosaic[serial]")
    import serial

    try:
        line = serial.serial_for_url(port, baudrate=baud, exclusive=True)
    except (OSError, ValueError) as error:
        raise Error(f"the port `{port}` cannot be opened", why=str(error)) from None
    try:
        line.reset_input_buffer()
        yield line
    finally:
        with contextlib.suppress(OSError):
            line.close()
