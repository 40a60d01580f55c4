"""A tuning run that is killed at random moments and started again, and a disk that is too small."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.campaigns.planted_bugs import MODEL
from benchmarks.campaigns.trials import Outcome
from tosaic.support.processes import ends_with_parent

BATCH = 16  # kernels that are proven together; of trials one worker has 8 at a time
_TOSAIC = str(Path(sys.executable).with_name("tosaic"))
_SIMULATOR = """#!/bin/sh
for argument; do case $argument in *trials.elf)
  {nm} --defined-only $argument | awk '$2 == "T" {{ printf "%s ", $3 }} END {{ print "" }}' >> {log};;
esac; done
exec {qemu} "$@"
"""


class Run:
    """A tuning run in a folder of its own, whose simulator keeps a log of the kernels that it was given."""

    def __init__(self, folder: Path, seed: int, trials: int) -> None:
        self.folder, self.seed, self.trials = folder, seed, trials
        self.records, self.log, tools = folder / "records.db", folder / "simulated", folder / "bin"
        for name in ("bin", "temporary", "outputs"):
            (folder / name).mkdir()
        simulator = _SIMULATOR.format(nm=shutil.which("llvm-nm-22"), qemu=shutil.which("qemu-system-arm"), log=self.log)
        for name, text in (("qemu-system-arm", simulator), ("bwrap", "#!/bin/sh\nexit 1\n")):  # unconfined, for the log
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        self.environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(folder / "temporary")}

    def start(self) -> subprocess.Popen[str]:
        """The command that tunes, from what the records hold."""
        tuning = ("--tune-trials", str(self.trials), "--search", "random", "--workers", "1", "--seed", str(self.seed))
        places = ("--records", str(self.records), "-o", str(self.folder / "outputs" / "build"))
        return subprocess.Popen(
            ends_with_parent([_TOSAIC, "compile", MODEL, *tuning, *places]),
            env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def recorded(self) -> Counter[str]:
        """How many records there are of each kernel's code."""
        if not self.records.exists():
            return Counter()
        with sqlite3.connect(self.records) as connection:
            return Counter(dict(connection.execute("SELECT code, COUNT(*) FROM trials GROUP BY code")))

    def simulated(self) -> list[set[str]]:
        """The kernels that the simulator was given, run by run; those that a stream calls are no trials beside it."""
        runs = [set(line.split()) for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return [{symbol for symbol in run if symbol.startswith("stream_")} or run for run in runs]

    def tried(self) -> int:
        """How many kernels the simulator was given, one as often as it was."""
        return sum(map(len, self.simulated()))

    def left(self) -> list[str]:
        """What stands where only a build may stand."""
        return [path.name for name in ("temporary", "outputs") for path in (self.folder / name).iterdir()]


def kill_trial(seed: int, kills: int = 5, trials: int = 400) -> Outcome:
    """Tuning, killed a few times: nothing lost but one batch, nothing measured twice, nothing left behind."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="tosaic-campaign-") as name:
        run = Run(Path(name), seed, trials)
        again, lost = set[str](), list[set[str]]()
        for number in range(kills + 1):
            before, started = run.recorded(), len(run.simulated())
            process = run.start()
            if number < kills:
                _wait(process, run, run.tried() + rng.randrange(24))
                time.sleep(rng.uniform(0, 1))
            if number < kills and process.poll() is None:
                os.kill(process.pid, rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
            _, said = process.communicate()
            if "Traceback" in said:
                return Outcome("raises", said[-600:], fault=True)
            after, given = run.recorded(), set().union(*run.simulated()[started:])
            if before - after:
                return Outcome("loses records", str(before - after), fault=True)
            again |= given & set(before)
            lost.append(given - set(after))
            if number == kills and process.returncode:
                return Outcome("fails", said[-600:], fault=True)
        recorded = run.recorded()
        kernels = {code for code, schedules in recorded.items() if schedules == 1}  # another schedule, another trial
        if again & kernels:
            return Outcome("measures twice", f"{len(again & kernels)} of {len(kernels)}", fault=True)
        counts = [len(some & kernels) for some in lost]
        if max(counts) > BATCH:
            return Outcome("loses trials", f"{counts} by each kill", fault=True)
        if run.left() != ["build"]:
            return Outcome("leaves behind", ", ".join(run.left()), fault=True)
        return Outcome("whole", f"{counts} trials lost by each kill, {len(kernels)} measured once")


def _wait(process: subprocess.Popen[str], run: Run, kernels: int) -> None:
    """Until the simulator was given so many kernels, whatever the machine's load."""
    while process.poll() is None and run.tried() < kernels:
        time.sleep(0.05)


def disk_trial(number: int) -> Outcome:
    """A disk of some size for the output, the records or the temporary files: an error that says so, nothing left."""
    rng = random.Random(number)
    size, use = rng.choice((4, 16, 48, 96, 200, 400, 1000, 4000)), ("output", "records", "temporary")[number % 3]
    with _disk(size) as disk, tempfile.TemporaryDirectory(prefix="tosaic-campaign-") as name:
        places = {kind: disk if kind == use else Path(name) for kind in ("output", "records", "temporary")}
        done = subprocess.run(
            [_TOSAIC, "compile", MODEL, "-o", places["output"] / "build", "--records", places["records"] / "r.db"],
            env=os.environ | {"TMPDIR": str(places["temporary"])}, capture_output=True, text=True,
        )  # fmt: skip
        left = [path.name for path in (*disk.iterdir(), *Path(name).iterdir()) if "r.db" not in path.name]
        if done.returncode == 0:
            return Outcome("fits") if left == ["build"] else Outcome("leaves behind", str(left), fault=True)
        words = ("No space left on device", "has space", "database or disk is full")
        if done.returncode != 1 or not any(word in done.stderr for word in words):
            return Outcome("ends", f"{use} of {size} KiB: code {done.returncode}, {done.stderr[-600:]}", fault=True)
        return Outcome("leaves behind", str(left), fault=True) if left else Outcome("refused")


@contextmanager
def _disk(size: int) -> Iterator[Path]:
    """A disk of `size` KiB."""
    folder = Path(tempfile.mkdtemp(prefix="tosaic-campaign-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()
