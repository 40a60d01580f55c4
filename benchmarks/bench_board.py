"""Trials on an emulated board behind a pty, on a line that damages bytes: none may be wrong, none may be lost.

python benchmarks/bench_board.py zoo:dscnn --trials 200 --damage 0.01
"""

from __future__ import annotations

import os
import pty
import random
import re
import select
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import tty
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.table import tosaic
from tosaic.backends.bench.board import BAUD
from tosaic.backends.bench.monitor import build_monitor
from tosaic.backends.simulators.stand_in import MACHINE_OPTIONS
from tosaic.backends.target import Target
from tosaic.support.processes import ends_with_parent
from tosaic.target_files.ready import find_target


@contextmanager
def emulated_board(target: Target) -> Iterator[str]:
    """A QEMU that runs the monitor of a target; the pty of its serial port.

    Its clock stands still but for instructions, 32 ns each, so that SysTick counts the same in every run.
    """
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        elf = build_monitor(target, Path(folder), BAUD)
        machine = str(target.board.machine)
        command = ["qemu-system-arm", "-M", machine, *MACHINE_OPTIONS.get(machine, ()), "-display", "none",
                   "-monitor", "none", "-serial", "pty", "-icount", "shift=5", "-kernel", str(elf)]  # fmt: skip
        board = subprocess.Popen(ends_with_parent(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert board.stdout is not None
            said = board.stdout.readline()
            found = re.search(r"/dev/pts/\d+", said)
            assert found, said
            yield found[0]
        finally:
            board.kill()
            board.communicate()


class DamagedLine:
    """A pty whose bytes go to another and back, and each is changed, lost or doubled with some probability.

    Attributes:
        port: the pty.
        bytes, damaged: how many went through, in both directions.
    """

    def __init__(self, port: str, damage: float, seed: int = 0) -> None:
        self.bytes = self.damaged = 0
        self._damage, self._random = damage, random.Random(seed)
        self._far = os.open(port, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self._far)
        self._near, self._held = pty.openpty()
        tty.setraw(self._held)
        self.port = os.ttyname(self._held)
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._relay, daemon=True)

    def __enter__(self) -> DamagedLine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._stopped)
        self._thread.join()
        for descriptor in (self._far, self._near, self._held, self._stop):
            os.close(descriptor)

    def _relay(self) -> None:
        to = {self._far: self._near, self._near: self._far}
        while True:
            ready, _, _ = select.select([*to, self._stop], [], [])
            if self._stop in ready:
                return
            for source in ready:
                self._write(to[source], self._worn(os.read(source, 4096)))

    def _worn(self, data: bytes) -> bytes:
        self.bytes += len(data)
        result = bytearray()
        for byte in data:
            if self._random.random() >= self._damage:
                result.append(byte)
                continue
            self.damaged += 1
            how = self._random.random()
            if how < 0.8:
                result.append(byte ^ self._random.randrange(1, 256))
            elif how < 0.9:
                result += bytes([byte, byte])
        return bytes(result)

    def _write(self, to: int, data: bytes) -> None:
        while data:
            data = data[os.write(to, data) :]


@click.command()
@click.argument("model")
@click.option("--target", default="cortex-m55", show_default=True)
@click.option("--trials", default=200, show_default=True)
@click.option("--damage", default=0.01, show_default=True, help="Share of the bytes.")
def main(model: str, target: str, trials: int, damage: float) -> None:
    """The same tuning on a damaged line and on one that is not."""
    records = {}
    for share in (damage, 0.0):
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            port = stack.enter_context(emulated_board(find_target(target)))
            line = stack.enter_context(DamagedLine(port, share))
            started = time.monotonic()
            file = Path(folder, "records.db")
            tosaic("tune", model, "--target", target, "--tune-trials", str(trials), "--measure", f"serial:{line.port}",
                   "--records", str(file))  # fmt: skip
            records[share] = _records(file)
            print(f"{share:.1%} damaged: {len(records[share])} trials in {time.monotonic() - started:.0f} s, "
                  f"{dict(Counter(status for _, _, status, _ in records[share]))}, {line.bytes:,} bytes, "
                  f"{line.damaged:,} of them damaged", flush=True)  # fmt: skip
    same = sorted(records[damage]) == sorted(records[0.0])
    print("the same trials with the same results" if same else "THE RECORDS DIFFER")


def _records(file: Path) -> list[tuple]:
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
        return database.execute("SELECT key, schedule, status, cycles FROM trials").fetchall()


if __name__ == "__main__":
    main()
