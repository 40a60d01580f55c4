"""Images on a board that runs the monitor: a target's board on a serial line, or an emulated one behind a pty."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tosaic.backends.bench.link import FrameKind, LateError, opened
from tosaic.backends.bench.monitor import Identity, Monitor, identity, image_layout
from tosaic.backends.simulators.execution import Cost, Execution
from tosaic.backends.simulators.faults import describe_fault
from tosaic.backends.simulators.npu_bridge import Execute
from tosaic.backends.target import Layout, Memory, Target
from tosaic.support.errors import Error, SimulatorError

BAUD = 115_200
_NO_LIMIT = 0xFFFF_FFFF
_FAULT_WORDS = ("pc", "lr", "cfsr", "hfsr", "bfar")
_OPEN, _CLOSE, _WRITE0, _WRITE, _READ, _EXIT = 0x01, 0x02, 0x04, 0x05, 0x06, 0x20
_TEXT_AT_ONCE = 16


@dataclass(frozen=True)
class SerialBoard:
    """Runs images under the monitor at a serial port. Its cycles are those that the core's own counter tells.

    Args:
        port: as `link.opened` takes it.
        baud: bits a second.
        identity: what the monitor must say that it is.
        layout: where images lie.
        counter: what counts its cycles, and of which core.
    """

    port: str
    baud: int
    identity: str
    layout: Layout
    counter: str
    monitored: ClassVar[bool] = True

    @classmethod
    def at(cls, where: str, target: Target) -> SerialBoard:
        """The board at `PORT[?baud=N]`, which is asked for its monitor.

        Raises:
            Error: `where` reads otherwise, or there is no monitor of this target and version.
        """
        port, baud = serial_place(where)
        board = cls(port, baud, identity(target), image_layout(target), "")
        with opened(port, baud) as link:
            found = board._known(Monitor(link))
        return cls(port, baud, board.identity, board.layout, f"{found.counter}, CPUID {found.cpuid:#010x}")

    def version(self) -> str:
        """What counts, on what core, and the monitor: what other counters or a model tell is of another version."""
        return f"serial: cycles by {self.counter}; {self.identity}"

    def run(
        self,
        elf: Path,
        files: Mapping[str, bytes],
        *,
        npu: Execute | None = None,
        timeout: float = 120.0,
        region_limit: int | None = None,
        count: bool = True,
        memories: Sequence[Memory] = (),
    ) -> Execution:
        """As `Machine.run`, for an image linked with `toolchain.monitored_objects`.

        `region_limit` is in cycles. Costs have cycles and no instructions; nothing else is counted.

        Raises:
            Error: the port cannot be opened, or no monitor answers there.
        """
        ends = time.monotonic() + timeout
        host = _Host(files)
        costs: list[Cost] = []
        failure, late, limited = "", False, False
        with opened(self.port, self.baud) as link:
            monitor = Monitor(link)
            self._known(monitor)
            entry, segments = _image(elf)
            for address, data in segments:
                monitor.write(address, data)
            try:
                stack = self.layout.stack.base + self.layout.stack.size
                event = monitor.run(entry, stack, region_limit or _NO_LIMIT, ends - time.monotonic())
                while host.status is None:
                    value = 0
                    if event.kind is FrameKind.REGION:
                        costs.append(Cost(0, event.words[0]))
                    elif event.kind is FrameKind.CALL:
                        value = host.call(monitor, *event.words)
                    elif event.kind is FrameKind.FAULT:
                        failure = describe_fault(elf, dict(zip(_FAULT_WORDS, event.words, strict=True)))
                        break
                    else:
                        failure, limited = f"region {len(costs) + 1} took more than {region_limit} cycles", True
                        break
                    if host.status is None:
                        event = monitor.resume(value, ends - time.monotonic())
            except LateError:
                failure, late = f"it did not end within {timeout:g} s", True
        written = {name: bytes(data) for name, data in host.files.items() if name not in files}
        return Execution(host.status or 0, host.console, written, tuple(costs), failure, late or limited, late)

    def _known(self, monitor: Monitor) -> Identity:
        found = monitor.identity
        if found.text != self.identity:
            why = f"it is `{found.text}`, and images are made for `{self.identity}`"
            hint = "build it with tosaic monitor and flash it"
            raise Error(f"the monitor at `{self.port}` is another", why=why, hint=hint)
        return found


def serial_place(where: str) -> tuple[str, int]:
    """Port and bits a second of `PORT[?baud=N]`.

    Raises:
        Error: it reads otherwise.
    """
    port, _, query = where.partition("?")
    found = re.fullmatch(r"baud=([1-9]\d*)", query) if query else None
    if not port or (query and not found):
        raise Error(f"`serial:{where}` names no board", hint="serial:/dev/ttyACM0?baud=115200")
    return port, int(found[1]) if found else BAUD


class _Host:
    """Semihosting of an image: files in memory, a console, an end."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = {name: bytearray(data) for name, data in files.items()}
        self.console = ""
        self.status: int | None = None
        self._open: list[tuple[str, int]] = []

    def call(self, monitor: Monitor, operation: int, r1: int, *arguments: int) -> int:
        """What a call gives in r0, as the semihosting specification has it."""
        if operation == _OPEN:
            address, mode, size = arguments
            return self._opened(monitor.read(address, size).decode(errors="replace"), mode)
        if operation == _READ:
            return self._read(monitor, *arguments)
        if operation == _WRITE:
            return self._written(monitor, *arguments)
        if operation == _WRITE0:
            self.console += _text(monitor, r1)
        elif operation == _EXIT:
            self.status = arguments[1]
        elif operation != _CLOSE:
            raise SimulatorError(f"the image asks for semihosting call {operation:#x}, which no board has")
        return 0

    def _opened(self, name: str, mode: int) -> int:
        writes = mode >= 4
        if writes:
            self.files[name] = bytearray()
        elif name not in self.files:
            return -1
        self._open.append((name, 0))
        return len(self._open) - 1

    def _read(self, monitor: Monitor, handle: int, address: int, size: int) -> int:
        name, place = self._open[handle]
        data = bytes(self.files[name][place : place + size])
        monitor.write(address, data)
        self._open[handle] = (name, place + len(data))
        return size - len(data)

    def _written(self, monitor: Monitor, handle: int, address: int, size: int) -> int:
        self.files[self._open[handle][0]] += monitor.read(address, size)
        return 0


def _text(monitor: Monitor, address: int) -> str:
    text = b""
    while b"\0" not in text:
        text += monitor.read(address + len(text), _TEXT_AT_ONCE)
    return text.partition(b"\0")[0].decode(errors="replace")


def _image(elf: Path) -> tuple[int, list[tuple[int, bytes]]]:
    """The entry of an ELF, and what is loaded where."""
    data = elf.read_bytes()
    entry, headers = struct.unpack_from("<II", data, 24)
    size, count = struct.unpack_from("<HH", data, 42)
    segments = []
    for number in range(count):
        kind, offset, _, address, stored = struct.unpack_from("<5I", data, headers + number * size)
        if kind == 1 and stored:
            segments.append((address, data[offset : offset + stored]))
    return entry, segments
