"""Batches of candidates on the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, cast

from tosaic.support.errors import Error
from tosaic.tuner.measure import SECONDS_PER_TRIAL, LocalWorkers
from tosaic.tuner.measurement import Measure, Measurement, NamedT
from tosaic.tuner.space import Schedule

if TYPE_CHECKING:
    from distributed import Client, Future

Tools = Mapping[str, str]
"""The version of everything that trials depend on, by name."""

Answers = futures.Future[list[Measurement]]

_SECONDS_TO_CONNECT = 20.0
_pools = threading.local()


class DaskCluster:
    """Runs batches on the workers of a cluster that `serve` started with the same tools.

    Workers may join, leave and die at any time. Each takes trials in a process apart, as `LocalWorkers` does, so that
    only a machine that goes takes a worker with it; its batches then run elsewhere. A batch whose workers all
    die is halved until the candidate stands alone, which is then a `crash`.

    Args:
        address: of the scheduler, or its scheduler file.
        tools: tells the tools of the machine that calls it; importable by the workers.
        refused: called with a worker's address and how its tools differ, for each that gets no trials.

    Raises:
        Error: Dask is not installed, no scheduler answers, or no worker has the same tools.
    """

    def __init__(self, address: str, tools: Callable[[], Tools], refused: Callable[[str, str], object]) -> None:
        _check_installed()
        from distributed import Client

        where: dict[str, Any] = {"scheduler_file" if address.endswith(".json") else "address": address}
        try:
            self._client: Client = Client(**where, timeout=_SECONDS_TO_CONNECT, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise Error(f"no Dask scheduler answers at `{address}`", why=str(error), hint="dask scheduler") from None
        ours = tools()
        self._resource = _resource(ours)
        client = cast(Any, self._client)  # whose calls may be coroutines, and are none here
        workers = client.scheduler_info(n_workers=-1)["workers"]
        self.slots = sum(int(worker["resources"].get(self._resource, 0)) for worker in workers.values())
        others = [address for address, worker in workers.items() if self._resource not in worker["resources"]]
        theirs = client.run(tools, workers=others, on_error="return") if others else {}
        differences = {worker: _difference(ours, found) for worker, found in theirs.items()}
        if not self.slots:
            self.close()
            why = "; ".join(f"{worker}: {found}" for worker, found in differences.items()) or "it has none at all"
            hint = f"tosaic worker {address}"
            raise Error(f"no worker of the cluster at `{address}` has the tools of this machine", why=why, hint=hint)
        for worker, difference in differences.items():
            refused(worker, difference)

    def __enter__(self) -> DaskCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster; what is under way is given up."""
        self._client.close()

    def submit(
        self,
        measure: Measure[NamedT],
        task: NamedT,
        schedules: Sequence[Schedule],
        best: Measurement | None = None,
        /,
    ) -> _ClusterBatch:
        """Queue a batch."""
        return _ClusterBatch(self, measure, task, schedules, best)

    def send(self, *batch: Any) -> tuple[Future, Answers]:
        """A batch on its way, and its measurements, which are fetched as soon as they are there."""
        future = self._client.submit(_measured, *batch, pure=False, resources={self._resource: 1})
        client = cast(Any, self._client)
        fetched = client.gather(future, asynchronous=True)
        return future, asyncio.run_coroutine_threadsafe(fetched, client.loop.asyncio_loop)


class _ClusterBatch:
    def __init__(self, cluster: DaskCluster, measure: Any, task: Any, schedules: Sequence[Schedule], best: Any) -> None:
        self._cluster, self._measure, self._task, self._best = cluster, measure, task, best
        self._schedules = list(schedules)
        self._future, self._answers = cluster.send(measure, task, self._schedules, best)

    def result(self) -> list[Measurement]:
        """Wait for the measurements.

        Raises:
            Error: the cluster is gone.
            Exception: what the measure itself raised.
        """
        from distributed import KilledWorker

        try:
            return self._answers.result()
        except KilledWorker as error:
            if len(self._schedules) == 1:
                return [Measurement("crash", message=f"its workers died: {error}")]
        except CancelledError as error:
            hint = "the same command goes on where it was, once there is a scheduler"
            raise Error("the cluster is gone", why=str(error), hint=hint) from None
        middle = len(self._schedules) // 2
        parts = (self._schedules[:middle], self._schedules[middle:])
        halves = [_ClusterBatch(self._cluster, self._measure, self._task, part, self._best) for part in parts]
        return [measurement for half in halves for measurement in half.result()]


def serve(address: str, count: int, tools: Tools) -> None:
    """Take batches from a scheduler, `count` at a time, until it goes.

    Args:
        address: of the scheduler, or its scheduler file.
        tools: of this machine; a client gives batches to workers with its own tools only.

    Raises:
        Error: Dask is not installed, or no scheduler answers.
    """
    _check_installed()
    import dask.config
    from distributed import Worker

    async def run() -> None:
        with (
            tempfile.TemporaryDirectory(prefix="tosaic-") as folder,
            dask.config.set({"distributed.worker.profile.enabled": False}),  # its threads only wait for processes
        ):
            where: dict[str, Any] = {"scheduler_file" if address.endswith(".json") else "scheduler_ip": address}
            worker = Worker(
                **where,
                nthreads=count,
                resources={_resource(tools): count},
                local_directory=folder,
                memory_limit=0,
                death_timeout=_SECONDS_TO_CONNECT,
            )
            async with worker:
                await worker.finished()

    try:
        asyncio.run(run())
    except (OSError, TimeoutError) as error:
        raise Error(f"no Dask scheduler answers at `{address}`", why=str(error), hint="dask scheduler") from None


def _measured(measure: Any, task: Any, schedules: list[Schedule], best: Measurement | None) -> list[Measurement]:
    """On a thread of a worker, which has a process of its own for trials."""
    if not hasattr(_pools, "pool"):
        _pools.pool = LocalWorkers(1, SECONDS_PER_TRIAL)
    return _pools.pool.submit(measure, task, schedules, best).result()


def _resource(tools: Tools) -> str:
    """The Dask resource that workers with these tools have."""
    return f"tosaic-{hashlib.sha256(repr(sorted(tools.items())).encode()).hexdigest()[:16]}"


def _difference(ours: Tools, theirs: object) -> str:
    if not isinstance(theirs, Mapping):
        return f"no tools of tosaic's: {theirs}"
    names = [name for name in ours if theirs.get(name) != ours[name]]
    return ", ".join(f"{name} {theirs.get(name, 'missing')}, here {ours[name]}" for name in names) or (
        "the same tools, but it was not started by `tosaic worker`"
    )


def _check_installed() -> None:
    if importlib.util.find_spec("distributed") is None:
        raise Error("Dask is not installed", hint="pip install tosaic[cluster]")
