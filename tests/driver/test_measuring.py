"""`--measure`: where trials run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any, cast

import pytest
from conftest import NETS
from distributed import LocalCluster

from benchmarks.bench_board import emulated_board
from tosaic.target_files.ready import find_target

SMALL = f"{NETS}:small"


@pytest.mark.parametrize(
    "where, message",
    [
        ("mars", "trials cannot run on `mars`\n  try: local, dask://HOST:PORT"),
        ("serial:/dev/nothing", "the port `/dev/nothing` cannot be opened"),
        ("dask://127.0.0.1:1", "no Dask scheduler answers at `tcp://127.0.0.1:1`"),
    ],
)
def test_a_place_that_is_none(refused, monkeypatch, where, message):
    monkeypatch.setattr("tosaic.tuner.cluster._SECONDS_TO_CONNECT", 0.5)
    assert message in refused("tune", SMALL, "--tune-trials", 2, "--measure", where)


def test_a_checkout_of_cmsis_nn_that_workers_do_not_know(refused, tmp_path):
    from tosaic.backends.cortex_m.cmsis_nn import CmsisNn

    library = CmsisNn.find()
    assert library is not None
    for name in ("Include", "Source"):
        (tmp_path / name).symlink_to(library.root / name)
    options = ("--cmsis-nn", tmp_path, "--measure", "dask://127.0.0.1:1")
    message = refused("tune", SMALL, "--tune-trials", 2, *options)
    assert "workers do not know this checkout of CMSIS-NN" in message and "TOSAIC_CMSIS_NN" in message


def test_tuning_on_a_worker_of_a_cluster(succeed, tmp_path):
    code = "from tosaic.cli import main; main()"
    with LocalCluster(
        n_workers=0, processes=False, protocol="tcp://", dashboard_address=":0", silence_logs=50
    ) as found:
        cluster = cast(Any, found)
        command = [sys.executable, "-c", code, "worker", cluster.scheduler_address, "--slots", "1"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        worker = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            ends = time.monotonic() + 60
            while not cluster.scheduler_info["workers"]:
                assert time.monotonic() < ends and worker.poll() is None, "the worker did not come"
                time.sleep(0.05)
            where = cluster.scheduler_address.replace("tcp", "dask")
            asked = ("tune", SMALL, "--tune-trials", 6, "--workers", 1)
            on_cluster = succeed(*asked, "--measure", where, "--records", tmp_path / "cluster.db")
        finally:
            worker.kill()
            worker.communicate()
    local = succeed(*asked, "--records", tmp_path / "local.db")
    assert on_cluster["trials"] == local["trials"] >= 6
    assert on_cluster["best"] == local["best"]


def test_tuning_on_a_board(succeed, tmp_path):
    asked = ("tune", SMALL, "--tune-trials", 2, "--workers", 1, "--records", tmp_path / "records.db")
    with emulated_board(find_target("cortex-m55")) as port:
        on_board = succeed(*asked, "--measure", f"serial:{port}")
    assert on_board["trials"] >= 2 and not on_board["trials_failed"]
    assert all(best["instructions"] == 0 < best["cycles"] == best["cycles_with_memory"] for best in on_board["best"])
    simulated = succeed(*asked)
    assert simulated["trials_reused"] == 0  # figures of a board are none of the model
    assert simulated["trials_of_other_environments"] == on_board["trials"]
