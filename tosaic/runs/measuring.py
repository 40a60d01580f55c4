"""Where trials run: what `--measure` names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import tosaic
from tosaic.backends.bench.board import SerialBoard
from tosaic.backends.cortex_m.cmsis_nn import CmsisNn
from tosaic.backends.cortex_m.toolchain import clang_version
from tosaic.backends.digest import code_digest
from tosaic.backends.simulators.execution import Machine
from tosaic.backends.simulators.stand_in import simulation_of
from tosaic.backends.target import Layout, Target
from tosaic.support.errors import Error
from tosaic.support.processes import run_tool
from tosaic.terminal.console import stderr
from tosaic.tuner.cluster import DaskCluster, serve
from tosaic.tuner.measure import Executor, LocalWorkers

LOCAL = "local"
SERIAL = "serial:"


def tools() -> dict[str, str]:
    """What trials on this machine depend on."""
    library = CmsisNn.find()
    return {
        "tosaic": f"{tosaic.__version__}+{code_digest('cortex_m', 'simulators', 'firmware', 'reference')}",
        "clang": clang_version().splitlines()[0],
        "gcc": run_tool("arm-none-eabi-gcc", ["--version"]).splitlines()[0],
        "QEMU": run_tool("qemu-system-arm", ["--version"]).splitlines()[0],
        "CMSIS-NN": f"{library.root} {library.digest}" if library else "none",
    }


@dataclass(frozen=True)
class Bench:
    """What trials run on.

    Args:
        machine: runs their images.
        layout: where these lie.
        executor: runs the batches; None for processes of this machine.
    """

    machine: Machine
    layout: Layout
    executor: Executor | None


@contextmanager
def bench(where: str, target: Target, simulator: Machine) -> Iterator[Bench]:
    """What `--measure` names: `simulator` on this machine or on a cluster, or a board at a serial port.

    Raises:
        Error: `where` means nothing, or the cluster or the board cannot be used.
    """
    if where == LOCAL:
        yield Bench(simulator, simulation_of(target).trials, None)
    elif found := re.fullmatch(r"dask://(.+:\d+)|(.+\.json)", where):
        with DaskCluster(f"tcp://{found[1]}" if found[1] else found[2], tools, _refuse) as cluster:
            yield Bench(simulator, simulation_of(target).trials, cluster)
    elif where.startswith(SERIAL):
        board = SerialBoard.at(where.removeprefix(SERIAL), target)
        with LocalWorkers(1) as alone:
            yield Bench(board, board.layout, alone)
    else:
        hint = "local, dask://HOST:PORT, a Dask scheduler file (.json) or serial:PORT"
        raise Error(f"trials cannot run on `{where}`", hint=hint)


def run_worker(scheduler: str, count: int) -> None:
    """Take trials from a Dask scheduler until it goes.

    Raises:
        Error: Dask is not installed, or no scheduler answers.
    """
    stderr.print(f"{count} trials at a time for {scheduler}", highlight=False)
    serve(scheduler, count, tools())


def _refuse(worker: str, difference: str) -> None:
    stderr.print(f"warning: {worker} gets no trials: {difference}", highlight=False, soft_wrap=True)
