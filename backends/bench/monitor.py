"""The resident monitor of a target: where it lies, how it is built, and what it does for the host."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from tosaic.backends.bench.link import PAYLOAD, DamagedError, FrameKind, LateError, Link
from tosaic.backends.digest import short_digest
from tosaic.backends.firmware import toolchain
from tosaic.backends.target import Layout, Memory, Target
from tosaic.support.errors import Error, SimulatorError, unknown_name
from tosaic.support.processes import run_tool

_SOURCES = Path(__file__).parent
_CODE_BYTES, _RAM_BYTES = 16 * 1024, 8 * 1024
_BLOCK = 128
_LEAST_CHUNK, _MOST_CHUNK, _GOOD_IN_A_ROW = 16, PAYLOAD - 4, 8
_ATTEMPTS = 3
_CRC = struct.Struct("<I")
_SCRIPT = """\
MEMORY {{
  CODE (rx) : ORIGIN = {code.base:#x}, LENGTH = {code.size:#x}
  RAM (rwx) : ORIGIN = {ram.base:#x}, LENGTH = {ram.size:#x}
}}
SECTIONS {{
  .text : {{ KEEP(*(.vectors)) *(.text .text.*) *(.rodata .rodata.*) . = ALIGN(8); }} > CODE
  .data : {{ __data_start__ = .; *(.data .data.*) . = ALIGN(8); __data_end__ = .; }} > RAM AT> CODE
  __data_load__ = LOADADDR(.data);
  .bss (NOLOAD) : {{ __bss_start__ = .; *(.bss .bss.* COMMON) . = ALIGN(8); __bss_end__ = .; }} > RAM
  __stack = ORIGIN(RAM) + LENGTH(RAM);
  ASSERT(__stack - __bss_end__ >= 2048, "no room for the monitor's stack")
}}
"""


def image_layout(target: Target) -> Layout:
    """Where images lie beside the monitor: it has the first 16 KiB of the code's memory, and the last 8 of the stack's.

    Raises:
        Error: a memory is too small.
    """
    taken = (_code(target), _ram(target))

    def room(memory: Memory) -> Memory:
        for area in taken:
            if area.base == memory.base:
                memory = replace(memory, base=memory.base + area.size, size=memory.size - area.size)
            elif memory.base < area.base < memory.base + memory.size:
                memory = replace(memory, size=area.base - memory.base)
        return memory

    lie = target.trials
    return Layout(room(lie.code), room(lie.stack), tuple(map(room, lie.arena)), room(lie.constants))


def identity(target: Target) -> str:
    """What a monitor of this version says that it is: images of another layout or protocol cannot run on it."""
    layout = image_layout(target)
    made_of = [(_SOURCES / "monitor.c").read_bytes(), repr(layout).encode(), repr(target.core.name).encode()]
    return f"tosaic monitor {short_digest(made_of)} of {target.name}"


def build_monitor(target: Target, folder: Path, baud: int, uart: Path | None = None) -> Path:
    """Write `monitor.elf` and `monitor.bin` to `folder`; the path of the first.

    Args:
        baud: bits a second.
        uart: a C file that defines what `uart.h` declares; tosaic's own driver of the target's UART where None.

    Raises:
        Error: nobody has said how the target's UART is driven, or there is no such driver.
        BackendError: it does not compile or link.
    """
    folder.mkdir(parents=True, exist_ok=True)
    flags = [f"-DBAUD={baud}u", f"-I{_SOURCES}"]
    if uart is None:
        if target.board.uart is None:
            hint = "--uart FILE.c, which defines what tosaic/backends/bench/uart.h declares"
            raise Error(f"how the serial port of `{target.name}` is driven is not known", hint=hint)
        drivers = {path.stem: path for path in sorted((_SOURCES / "uarts").glob("*.c"))}
        if target.board.uart.driver not in drivers:
            raise unknown_name("UART driver", target.board.uart.driver, drivers)
        uart = drivers[target.board.uart.driver]
        flags += [f"-DUART_BASE={target.board.uart.base:#x}u", f"-DUART_CLOCK={target.board.uart.clock}u"]
    ranges = ", ".join(f"{{{m.base:#x}u, {m.size:#x}u}}" for m in image_layout(target).memories)
    own = [f"-DMEMORIES={ranges}", f'-DIDENTITY="{identity(target)}"']
    own += ["-DHAS_FLOATS"] * bool({"fp", "mve"} & set(target.core.isa)) + ["-DHAS_LOOPS"] * target.core.mve
    own += ["-DBASELINE"] * target.core.baseline
    core = replace(target.core, float_abi="soft")  # it leaves the registers of floats to images
    objects = []
    for source, options in ((_SOURCES / "monitor.c", own), (uart, [])):
        objects.append(folder / f"{source.stem}.o")
        toolchain.compile_c(source, objects[-1], core, *flags, *options)
    script, elf = folder / "monitor.ld", folder / "monitor.elf"
    script.write_text(_SCRIPT.format(code=_code(target), ram=_ram(target)))
    toolchain.link(objects, script, elf, core)
    run_tool("llvm-objcopy-22", ["-O", "binary", elf, elf.with_suffix(".bin")])
    for path in (*objects, script):
        path.unlink()
    return elf


def _code(target: Target) -> Memory:
    return _part(target.layout.code, 0, _CODE_BYTES)


def _ram(target: Target) -> Memory:
    stack = target.trials.stack
    return _part(stack, stack.size - _RAM_BYTES, _RAM_BYTES)


def _part(memory: Memory, offset: int, size: int) -> Memory:
    if memory.size < 2 * size:
        raise Error(f"the monitor takes {size} bytes of `{memory.name}`, which has {memory.size}")
    return replace(memory, base=memory.base + offset, size=size)


@dataclass(frozen=True)
class Identity:
    """Who answered: the core's CPUID register, what counts cycles, and what the monitor says that it is."""

    cpuid: int
    counter: str
    text: str


@dataclass(frozen=True)
class Event:
    """What an image did: a CALL, a REGION, a FAULT or a LIMIT, and its words."""

    kind: FrameKind
    words: tuple[int, ...]


class Monitor:
    """The monitor at the end of a line.

    The constructor and every method may raise SimulatorError where it no longer answers, or refuses.

    Attributes:
        identity: who is there; an image that waits for the host waits on.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._chunk, self._good = _MOST_CHUNK, 0
        self.identity = self._hello()

    def _hello(self) -> Identity:
        """The first request: an earlier host's last one may have had its number, and only HELLO is always answered."""
        reply = self._ask(FrameKind.HELLO)
        cpuid, _, systick = struct.unpack_from("<III", reply)
        return Identity(cpuid, "SysTick" if systick else "DWT CYCCNT", reply[12:].decode(errors="replace"))

    def write(self, address: int, data: bytes) -> None:
        """Write memory: only blocks that differ from what is there are sent, and they are checked then."""
        for start, end in self._different(address, data):
            offset = start
            while offset < end:
                part = data[offset : min(end, offset + self._chunk)]
                if self._try(FrameKind.LOAD, struct.pack("<I", address + offset) + part) is not None:
                    offset += len(part)
        if wrong := self._different(address, data):
            raise SimulatorError(f"memory at {address + wrong[0][0]:#010x} does not keep what is written to it")

    def read(self, address: int, size: int) -> bytes:
        """Read memory."""
        data = bytearray()
        while len(data) < size:
            wanted = min(size - len(data), self._chunk)
            data += self._try(FrameKind.DUMP, struct.pack("<II", address + len(data), wanted)) or b""
        return bytes(data)

    def run(self, entry: int, stack: int, limit: int, seconds: float) -> Event:
        """Start an image, and wait for its first event.

        Raises:
            LateError: there was none in time.
        """
        return self._event(FrameKind.RUN, struct.pack("<III", entry, stack, limit), seconds)

    def resume(self, value: int, seconds: float) -> Event:
        """Let the image go on with `value` as what its call gives, and wait for the next event.

        Raises:
            LateError: there was none in time.
        """
        return self._event(FrameKind.RESUME, struct.pack("<I", value & 0xFFFFFFFF), seconds)

    def _event(self, kind: FrameKind, payload: bytes, seconds: float) -> Event:
        answered, reply = self._link.ask(kind, payload, seconds=seconds)
        if answered is FrameKind.REFUSED:
            raise SimulatorError(f"the monitor refuses to {kind.name}")
        return Event(answered, struct.unpack(f"<{len(reply) // 4}I", reply))

    def _different(self, address: int, data: bytes) -> list[tuple[int, int]]:
        """Where `data` differs from memory: begins and ends, in whole blocks."""
        runs: list[tuple[int, int]] = []
        whole, offset = len(data) // _BLOCK, 0
        while offset < len(data):
            size = _BLOCK if offset < whole * _BLOCK else len(data) - offset
            count = max(1, min(self._chunk // _CRC.size, (len(data) - offset) // size))
            found = self._try(FrameKind.CHECK, struct.pack("<III", address + offset, size, count))
            if found is None:
                continue
            for (crc,) in _CRC.iter_unpack(found):
                if crc != zlib.crc32(data[offset : offset + size]):
                    if runs and runs[-1][1] == offset:
                        runs[-1] = (runs[-1][0], offset + size)
                    else:
                        runs.append((offset, offset + size))
                offset += size
        return runs

    def _try(self, kind: FrameKind, payload: bytes) -> bytes | None:
        """The reply; None where frames of this size do not arrive, and the next shall be shorter."""
        try:
            reply = self._ask(kind, payload, attempts=_ATTEMPTS)
        except DamagedError:
            self._chunk, self._good = max(_LEAST_CHUNK, self._chunk // 2), 0
            return None
        self._good += 1
        if self._good == _GOOD_IN_A_ROW:
            self._chunk, self._good = min(_MOST_CHUNK, 2 * self._chunk), 0
        return reply

    def _ask(self, kind: FrameKind, payload: bytes = b"", attempts: int | None = None) -> bytes:
        try:
            answered, reply = self._link.ask(kind, payload, attempts=attempts)
        except LateError:
            hint = "is it flashed, at this speed? Reset the board and try again"
            raise SimulatorError("the monitor does not answer", hint=hint) from None
        if answered is not kind:
            raise SimulatorError(f"the monitor refuses to {kind.name} {payload[:8].hex(' ', 4)}")
        return reply
