"""What a Dask cluster costs: overhead of a trial, throughput of many workers, and a run in which workers die and join.

python benchmarks/cluster.py scaling                                  # workers and trials simulated by a sleep
python benchmarks/cluster.py churn zoo:resnet8 --trials 2000 --workers 4
python benchmarks/cluster.py churn zoo:resnet8 --trials 200 --namespaces    # as root: each worker at a cable of its own
"""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import click
from distributed import LocalCluster

from tosaic.tuner import cluster
from tosaic.tuner.cluster import DaskCluster
from tosaic.tuner.database import Database, Environment
from tosaic.tuner.measure import Executor, LocalWorkers, Pending
from tosaic.tuner.measurement import Measurement
from tosaic.tuner.space import Schedule, Space, Variant
from tosaic.tuner.tune import tune

_SLOTS = 8
"""Trials at a time of a simulated machine."""
_ENVIRONMENT = Environment("simulated", "", "", "", "")


@dataclass(frozen=True)
class Numbers:
    """A task of a million schedules, whose cost is known."""

    key: str = "numbers"
    name: str = "numbers"

    @property
    def space(self) -> Space:
        return Space((Variant("only", {"a": tuple(range(1000)), "b": tuple(range(1000))}),))

    def code(self, schedule: Schedule) -> str:
        return ""

    def features(self, schedule: Schedule) -> Mapping[str, float]:
        return {knob: float(schedule[knob]) for knob in ("a", "b")}


@dataclass(frozen=True)
class Sleep:
    """A measure that only takes time."""

    seconds: float

    def __call__(
        self, task: object, schedules: Sequence[Schedule], best: Measurement | None = None
    ) -> list[Measurement]:
        time.sleep(self.seconds * len(schedules))
        return [Measurement("ok", 1 + abs(int(s["a"]) - 700), 1 + abs(int(s["b"]) - 300)) for s in schedules]


class _OnThisThread:
    """In place of the process that a worker has for trials."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, measure, task, schedules, best) -> _OnThisThread:
        self._answers = measure(task, schedules, best)
        return self

    def result(self) -> list[Measurement]:
        return self._answers


def tools() -> dict[str, str]:
    return {"simulated": "1"}


@click.group()
def main() -> None:
    """What a Dask cluster costs."""


@main.command()
@click.option("--seconds", default=0.25, show_default=True, help="Of a simulated trial.")
def scaling(seconds: float) -> None:
    """Trials a second of simulated workers, and the overhead of a trial at one.

    Tuner, scheduler and simulated workers are one process: what it uses of one core bounds the pace.
    """
    with LocalWorkers(1) as local:
        alone = _seconds(local, seconds, 80)
    with _Simulated(1, processes=True) as one:
        overhead = _seconds(one, seconds, 80) / alone - 1
    print(f"one worker: {1000 * alone:.1f} ms a trial on a local process, {100 * overhead:+.1f} % on a cluster")
    print("| Workers | Trials | Trials a second | of ideal | CPU ms a trial |\n|---|---|---|---|---|")
    for count in (1, 4, 16, 64):
        with (
            _Simulated(count, processes=False) as executor,
            tempfile.TemporaryDirectory() as folder,
            Database(Path(folder, "records.db"), _ENVIRONMENT) as database,
        ):
            trials, used = 64 * count, time.process_time()
            found = tune([(Numbers(), 1.0)], Sleep(seconds), database, trials=trials, search="random",
                         workers=count, executor=executor)  # fmt: skip
            used = time.process_time() - used
        pace = found.measured / found.seconds
        print(f"| {count} | {found.measured} | {pace:.1f} | {100 * pace * seconds / count:.0f} % | "
              f"{1000 * used / found.measured:.1f} |", flush=True)  # fmt: skip


def _seconds(executor: Executor, seconds: float, trials: int) -> float:
    """Wall time of a trial, in batches of 8 with one ahead, after one that starts everything."""
    schedules = [schedule for schedule, _ in zip(Numbers().space.schedules(), range(8), strict=False)]
    executor.submit(Sleep(0), Numbers(), schedules).result()
    started = time.monotonic()
    flying: list[Pending] = [executor.submit(Sleep(seconds), Numbers(), schedules) for _ in range(trials // 8)]
    for batch in flying:
        batch.result()
    return (time.monotonic() - started) / trials


class _Simulated:
    """A scheduler of this process with workers: threads that sleep, or one process as `tosaic worker` starts it."""

    def __init__(self, count: int, *, processes: bool) -> None:
        slots = min(count, _SLOTS)
        resources = {cluster._resource(tools()): slots}
        self._cluster = LocalCluster(
            n_workers=0 if processes else count // slots, threads_per_worker=slots, processes=False, protocol="tcp://",
            dashboard_address=":0", resources=resources, silence_logs=50,
        )  # fmt: skip
        self._process: subprocess.Popen | None = None
        if processes:
            code = f"from cluster import cluster, tools; cluster.serve({self._cluster.scheduler_address!r}, 1, tools())"
            self._process = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent)
            while not self._cluster.scheduler_info["workers"]:
                time.sleep(0.1)
        else:
            cluster.LocalWorkers = _OnThisThread  # type: ignore[assignment, misc]

    def __enter__(self) -> DaskCluster:
        self._executor = DaskCluster(self._cluster.scheduler_address, tools, print)
        return self._executor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cluster.LocalWorkers = LocalWorkers  # type: ignore[misc]
        self._executor.close()
        if self._process:
            self._process.kill()
            self._process.wait()
        self._cluster.close()


class _Machine:
    """A network namespace at the end of a cable to this machine (iproute2, as root)."""

    def __init__(self, number: int) -> None:
        self._name, self._cable = f"tosaic-{os.getpid()}-{number}", f"t{os.getpid()}-{number}"
        self.gateway, self._address = f"10.77.{number}.1", f"10.77.{number}.2"

    def __enter__(self) -> _Machine:
        inside = ("netns", "exec", self._name, "ip")
        _ip("netns", "add", self._name)
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self._name)
        _ip("addr", "add", f"{self.gateway}/30", "dev", self._cable)
        _ip("link", "set", self._cable, "up")
        _ip(*inside, "addr", "add", f"{self._address}/30", "dev", "eth0")
        for name in ("lo", "eth0"):
            _ip(*inside, "link", "set", name, "up")
        return self

    def __exit__(self, *_: object) -> None:
        _ip("netns", "del", self._name)

    def command(self, *command: str) -> list[str]:
        return ["ip", "netns", "exec", self._name, *command]


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


_TOSAIC = [sys.executable, "-c", "from tosaic.cli import main; main()"]


@main.command()
@click.argument("model")
@click.option("--trials", default=2000, show_default=True)
@click.option("--workers", default=4, show_default=True)
@click.option("--namespaces", is_flag=True, help="Each worker in a network namespace of its own; as root.")
def churn(model: str, trials: int, workers: int, namespaces: bool) -> None:
    """The same tuning on local processes and on a cluster, where halfway one worker is killed and another joins."""
    folder = Path(tempfile.mkdtemp(prefix="tosaic-churn-"))
    asked = ["tune", model, "--tune-trials", str(trials), "--workers", str(workers)]
    subprocess.run([*_TOSAIC, *asked, "--records", folder / "local.db"], check=True, stdout=subprocess.DEVNULL)
    with (
        ExitStack() as machines,
        LocalCluster(
            n_workers=0, processes=False, protocol="tcp://", dashboard_address=":0", host="0.0.0.0"
        ) as found,
    ):  # fmt: skip
        scheduler = cast(Any, found)
        port = scheduler.scheduler_address.rsplit(":", 1)[1]
        numbers = itertools.count(1)

        def worker() -> subprocess.Popen:
            gateway, command = "127.0.0.1", list(_TOSAIC)
            if namespaces:
                machine = machines.enter_context(_Machine(next(numbers)))
                gateway, command = machine.gateway, machine.command(*_TOSAIC)
            return subprocess.Popen(
                [*command, "worker", f"tcp://{gateway}:{port}", "--slots", "1"], start_new_session=True
            )

        started = [worker() for _ in range(workers)]
        while len(scheduler.scheduler_info["workers"]) < workers:
            time.sleep(0.1)
        command = [*_TOSAIC, *asked, "--measure", f"dask://127.0.0.1:{port}", "--records", folder / "cluster.db"]
        tuning = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while tuning.poll() is None and _count(folder / "cluster.db") < trials // 2:
            time.sleep(0.2)
        print(f"after {_count(folder / 'cluster.db')} trials a worker is killed and another joins", flush=True)
        os.killpg(started[0].pid, signal.SIGKILL)
        started.append(worker())
        assert tuning.wait() == 0
        for process in started[1:]:
            os.killpg(process.pid, signal.SIGKILL)
    local, on_cluster = (_rows(folder / name) for name in ("local.db", "cluster.db"))
    twice = len(on_cluster) - len({row[:2] for row in on_cluster})
    print(f"{len(local)} trials on local processes, {len(on_cluster)} on the cluster, {twice} of them twice")
    print("the same trials with the same results" if sorted(local) == sorted(on_cluster) else "THE RECORDS DIFFER")


def _rows(file: Path) -> list[tuple]:
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
        return database.execute(
            "SELECT key, schedule, status, instructions, cycles, waits, code FROM trials"
        ).fetchall()


def _count(file: Path) -> int:
    return len(_rows(file)) if file.exists() and file.stat().st_size else 0


if __name__ == "__main__":
    from cluster import main  # so that workers can import what they measure

    main()
