"""A Dask cluster of worker processes: as local ones, whichever come, go and die."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import dask.config
import pytest
from cluster_tools import OURS, killing_the_worker, tools
from distributed import LocalCluster
from synthetic import ENVIRONMENT, Gemm, Line, Slow, analytic

from tosaic.support.errors import Error
from tosaic.tuner.cluster import DaskCluster
from tosaic.tuner.database import Database
from tosaic.tuner.measure import LocalWorkers
from tosaic.tuner.tune import tune

HERE = Path(__file__).parent
LINE = Line("line")


class Workers:
    """Worker processes of a scheduler, by the order in which they came."""

    def __init__(self, scheduler):
        self.scheduler, self.processes = scheduler, []

    def start(self, count=1, **environment):
        path = os.pathsep.join([str(HERE), *sys.path])
        command = [sys.executable, HERE / "cluster_tools.py", self.scheduler.scheduler_address, "1"]
        for _ in range(count):
            self.processes.append(subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path, **environment}))

    def wait_for(self, count):
        ends = time.monotonic() + 60
        while len(self.scheduler.scheduler_info["workers"]) != count:
            assert time.monotonic() < ends, "workers did not come"
            time.sleep(0.05)


@pytest.fixture
def workers():
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        scheduler = LocalCluster(
            n_workers=0, processes=False, dashboard_address=":0", protocol="tcp://", silence_logs=50
        )
    with scheduler:
        found = Workers(scheduler)
        yield found
        for process in found.processes:
            process.kill()
            process.wait()


def connect(workers, refused=lambda *_: None):
    return DaskCluster(workers.scheduler.scheduler_address, tools, refused)


def test_the_records_are_those_of_local_processes_though_a_worker_dies_and_one_joins(workers, tmp_path):
    task, measure, seen = Gemm(), Slow(tmp_path / "log", 0.01), []

    def change(progress):
        seen.append(progress.done)
        if len(seen) == 4:
            workers.processes[0].kill()
            workers.start()

    workers.start(2)
    workers.wait_for(2)
    records = {}
    for name in ("local", "cluster"):
        with Database(tmp_path / name, ENVIRONMENT) as database:
            with LocalWorkers(2) if name == "local" else connect(workers) as executor:
                listen = (lambda _: None) if name == "local" else change
                result = tune(
                    [(task, 1.0)], measure, database, trials=120, workers=2, executor=executor, progress=listen
                )
            assert result.measured == 120
            records[name] = [(record.schedule, record.measurement) for record in database.records(task.key)]
    assert len(seen) > 5 and workers.processes[0].poll() is not None
    assert records["cluster"] == records["local"]
    assert len({schedule for schedule, _ in records["cluster"]}) == 120


def test_a_batch_that_takes_its_workers_with_it_is_halved(workers):
    workers.start(3)
    workers.wait_for(3)
    found = {schedule["x"]: schedule for schedule in LINE.space.schedules()}
    with connect(workers) as cluster:
        assert cluster.slots == 3
        answers = cluster.submit(killing_the_worker, LINE, [found[4], found[5]]).result()
    assert answers[0] == analytic(LINE, [found[4]])[0]
    assert answers[1].status == "crash" and "workers died" in answers[1].message


def test_workers_with_other_tools_get_no_trials(workers):
    workers.start(1, TEST_CLANG="23.0.0")
    workers.wait_for(1)
    difference = r"clang 23\.0\.0, here 22\.1\.3"
    with pytest.raises(
        Error, match=rf"no worker of the cluster .*\n  because: tcp://\S+: {difference}\n  try: tosaic worker"
    ):
        connect(workers)
    workers.start()
    workers.wait_for(2)
    refused = {}
    with connect(workers, refused.__setitem__) as cluster:
        assert cluster.slots == 1
        (worker,) = refused.items()
        assert worker[1] == "clang 23.0.0, here 22.1.3"
        batches = [cluster.submit(analytic, LINE, list(LINE.space.schedules())[:2]) for _ in range(8)]
        assert all(batch.result() == analytic(LINE, list(LINE.space.schedules())[:2]) for batch in batches)
        ran = dict(cluster._client.who_has([batch._future for batch in batches]))  # type: ignore[call-overload]
        assert worker[0] not in {address for addresses in ran.values() for address in addresses}


def test_a_scheduler_that_is_not_there(monkeypatch):
    monkeypatch.setattr("tosaic.tuner.cluster._SECONDS_TO_CONNECT", 0.5)
    with pytest.raises(Error, match=r"no Dask scheduler answers at `tcp://127\.0\.0\.1:1`"):
        DaskCluster("tcp://127.0.0.1:1", lambda: OURS, lambda *_: None)
