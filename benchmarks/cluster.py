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
from typing import Any, cast

import click
import psutil
from distributed import Client, LocalCluster, as_completed

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
@click.option("--trials", default=256, show_default=True, help="Of each slot; of few, the last round decides.")
def scaling(seconds: float, trials: int) -> None:
    """Trials a second of simulated workers, and the overhead of a trial at one.

    Tuner, scheduler and each worker of up to 8 trials at a time are processes of this machine, as on a cluster they
    would be of several. `Dask alone` are as many sleeps without a tuner, as many of them in flight.
    """
    with LocalWorkers(1) as local:
        alone = _seconds(local, seconds, 80)
    with _Simulated(1, sleeping=False) as one:
        overhead = _seconds(one.executor, seconds, 80) / alone - 1
    print(f"one worker: {1000 * alone:.1f} ms a trial on a local process, {100 * overhead:+.1f} % on a cluster")
    print("| Slots | Trials | Trials a second | of ideal | Dask alone | CPU ms a trial: tuner | scheduler | workers |")
    print("|---|---|---|---|---|---|---|---|")
    for count in (1, 4, 16, 64):
        with (
            _Simulated(count, sleeping=True) as simulated,
            tempfile.TemporaryDirectory() as folder,
            Database(Path(folder, "records.db"), _ENVIRONMENT) as database,
        ):
            before = simulated.cpu_seconds()
            found = tune([(Numbers(), 1.0)], Sleep(seconds), database, trials=trials * count, search="random",
                         batch=_SLOTS * (count + 1), workers=count, executor=simulated.executor)  # fmt: skip
            used = [after - since for after, since in zip(simulated.cpu_seconds(), before, strict=True)]
            bare = simulated.bare_seconds(found.measured // _SLOTS, _SLOTS * seconds, count + 1)
        pace, least = found.measured / found.seconds, trials * seconds
        costs = " | ".join(f"{1000 * each / found.measured:.2f}" for each in used)
        print(f"| {count} | {found.measured} | {pace:.1f} | {100 * least / found.seconds:.0f} % | "
              f"{100 * least / bare:.0f} % | {costs} |", flush=True)  # fmt: skip


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
    """A scheduler and workers of up to 8 trials at a time, whose trials run as `tosaic worker` runs them or only sleep.

    Attributes:
        executor: gives batches to them.
    """

    def __init__(self, count: int, *, sleeping: bool) -> None:
        slots = min(count, _SLOTS)
        self._folder = tempfile.TemporaryDirectory(prefix="tosaic-")
        file = Path(self._folder.name, "scheduler.json")
        scheduler = ["-m", "dask", "scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
        worker = ["-c", f"from cluster import serve; serve({str(file)!r}, {slots}, {sleeping})"]
        self._processes = [_python(*scheduler)]
        while not file.exists():
            time.sleep(0.1)
        self._processes += [_python(*worker) for _ in range(count // slots)]
        self._client = Client(scheduler_file=str(file), set_as_default=False)
        self._client.wait_for_workers(count // slots)
        self.executor = DaskCluster(str(file), tools, print)

    def __enter__(self) -> _Simulated:
        return self

    def __exit__(self, *_: object) -> None:
        self.executor.close()
        self._client.close()
        for process in self._processes:
            process.kill()
            process.wait()
        self._folder.cleanup()

    def cpu_seconds(self) -> tuple[float, float, float]:
        """What this process, the scheduler and all workers have used so far."""
        scheduler, *workers = [sum(psutil.Process(each.pid).cpu_times()[:2]) for each in self._processes]
        return time.process_time(), scheduler, sum(workers)

    def bare_seconds(self, count: int, seconds: float, flying: int) -> float:
        """Wall time of `count` sleeps, of which `flying` are submitted ahead."""

        def sleep() -> Any:
            resources = {cluster._resource(tools()): 1}
            return self._client.submit(time.sleep, seconds, pure=False, resources=resources)

        started = time.monotonic()
        ahead = min(count, flying)
        done = as_completed([sleep() for _ in range(ahead)], loop=self._client.loop)
        for number, _ in enumerate(done):
            if number < count - ahead:
                done.add(sleep())
        return time.monotonic() - started


def serve(scheduler: str, slots: int, sleeping: bool) -> None:
    """Be a worker; what it takes only sleeps, or runs as under `tosaic worker`."""
    if sleeping:
        cluster.LocalWorkers = _OnThisThread  # type: ignore[assignment, misc]
    cluster.serve(scheduler, slots, tools())


def _python(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, *arguments], cwd=Path(__file__).parent, stderr=subprocess.DEVNULL)


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
