"""`tosaic npu measured`: what a board's NPU counted, beside what Vela estimates."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tosaic.backends.bench.board import serial_place
from tosaic.backends.bench.link import serial_line
from tosaic.builds.build import BuildFolder
from tosaic.runs.measuring import SERIAL
from tosaic.support.errors import Error

_LINE = re.compile(r"npu call (\d+): (\d+) cycles")
_SECONDS = 60.0
"""How long a board may take until each region has been told once."""


@dataclass(frozen=True)
class MeasuredRegion:
    """An NPU region on a board.

    Args:
        name: the region's.
        calls: how many were told.
        estimate: cycles that Vela estimates.
        cycles: the median of those told.
    """

    name: str
    calls: int
    estimate: int
    cycles: float

    @property
    def ratio(self) -> float:
        """Cycles on the board by those of the estimate."""
        return self.cycles / self.estimate


def measured_regions(build: BuildFolder, source: str) -> list[MeasuredRegion]:
    """The regions that a log tells of, in the order of their calls.

    Args:
        source: a file, `-` for stdin, or `serial:PORT[?baud=N]`, read until each region was told of. Lines are
            `npu call NUMBER: CYCLES cycles`; others are passed over.

    Raises:
        Error: the build has no NPU region, the log cannot be read, or a line tells of none of its calls.
    """
    if not build.manifest.regions:
        raise Error(f"`{build.folder}` has no NPU region", why=f"its target is {build.manifest.target.name}")
    calls = build.manifest.firmware.calls
    regions = {region.name: region for region in build.manifest.regions}
    told = {call.name: list[int]() for call in calls if call.name in regions}
    for number, cycles in _counts(source):
        name = calls[number].name if number < len(calls) else ""
        if name not in told:
            raise Error(f"call {number} of the build is none of an NPU", hint="is it the build that the board runs?")
        told[name].append(cycles)
        if source.startswith(SERIAL) and all(told.values()):
            break
    if not any(told.values()):
        hint = "the firmware prints `npu call 0: 12345 cycles` lines, by tosaic_npu_count"
        raise Error(f"`{source}` tells of no NPU call", hint=hint)
    return [
        MeasuredRegion(name, len(counts), regions[name].cycles, median(counts))
        for name, counts in told.items()
        if counts
    ]


def _counts(source: str) -> Iterator[tuple[int, int]]:
    """Numbers and cycles of the calls that lines tell of, as they come."""
    for line in _lines(source):
        if found := _LINE.search(line):
            yield int(found[1]), int(found[2])


def _lines(source: str) -> Iterator[str]:
    if source.startswith(SERIAL):
        yield from _lines_of_a_port(source)
    elif source == "-":
        yield from sys.stdin
    else:
        try:
            yield from Path(source).read_text(errors="replace").splitlines()
        except OSError as error:
            raise Error(f"cannot read `{source}`", why=str(error)) from None


def _lines_of_a_port(source: str) -> Iterator[str]:
    ends = time.monotonic() + _SECONDS
    with serial_line(*serial_place(source.removeprefix(SERIAL))) as line:
        while (left := ends - time.monotonic()) > 0:
            line.timeout = left
            try:
                told = line.readline()
            except OSError as error:  # pyserial's own errors are such
                raise Error(f"the port `{line.port}` is gone", why=str(error)) from None
            yield told.decode(errors="replace")
