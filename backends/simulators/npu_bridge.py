"""The host's side of NPU calls under a simulator without an NPU: the guest's bytes come through pipes and go back."""

from __future__ import annotations

import os
import select
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tosaic.support.errors import SimulatorError

COMMAND_STREAM = -1
"""The number under which `execute` finds the command stream among the regions."""

Execute = Callable[[int, dict[int, bytearray]], None]
"""`execute(call_number, regions)`: run the stream on the regions, by base pointer number, and leave the results there.

Changes to region 0 and to the command stream do not reach the guest.
"""

_REGIONS = 8
_HEADER = struct.Struct(f"<{2 + _REGIONS}I")


class _StopError(Exception):
    pass


class NpuBridge:
    """Serves the guest that runs in `folder` while the context is open; on exit raises what `execute` raised."""

    def __init__(self, folder: Path, execute: Execute) -> None:
        self._folder, self._execute = folder, execute
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name="npu-bridge", daemon=True)

    def __enter__(self) -> NpuBridge:
        # Opened for both directions, a pipe neither blocks nor ends while the guest comes and goes.
        self._request, self._reply = (self._pipe(name) for name in ("npu.request", "npu.reply"))
        self._stop, self._stopper = os.pipe()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._stopper)
        self._thread.join()
        for descriptor in (self._stop, self._request, self._reply):
            os.close(descriptor)
        if self._failure is not None:
            raise SimulatorError("the NPU call failed on the host", why=str(self._failure)) from self._failure

    def _pipe(self, name: str) -> int:
        path = self._folder / name
        os.mkfifo(path)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def _serve(self) -> None:
        try:
            while self._failure is None:
                self._serve_one()
        except _StopError:
            pass

    def _serve_one(self) -> None:
        number, stream_bytes, *sizes = _HEADER.unpack(self._read(_HEADER.size))
        regions = {COMMAND_STREAM: self._read(stream_bytes)}
        regions |= {region: self._read(size) for region, size in enumerate(sizes) if size}
        try:
            self._execute(number, regions)
            changed = [region for region, size in enumerate(sizes) if size and len(regions[region]) != size]
            if changed:
                raise SimulatorError(f"call {number} changed the size of regions {changed}")
        except Exception as error:
            self._failure = error
        self._write(struct.pack("<I", int(self._failure is not None)))
        if self._failure is None:
            for region in range(1, _REGIONS):
                self._write(regions.get(region, b""))

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            ready, _, _ = select.select([self._request, self._stop], [], [])
            if self._request not in ready:
                raise _StopError
            view = view[os.readv(self._request, [view]) :]
        return data

    def _write(self, data: bytes | bytearray) -> None:
        view = memoryview(data)
        while view:
            stopped, ready, _ = select.select([self._stop], [self._reply], [])
            if not ready and stopped:
                raise _StopError
            view = view[os.write(self._reply, view) :]
