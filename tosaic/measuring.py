"""Where trials run: what `--measure` names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import tosaic
from tosaic.backends.cortex_m.cmsis_nn import CmsisNn
from tosaic.backends.cortex_m.toolchain import clang_version
from tosaic.backends.digest import code_digest
from tosaic.console import stderr
from tosaic.support.errors import Error
from tosaic.support.processes import run_tool
from tosaic.tuner.cluster import DaskCluster, serve
from tosaic.tuner.measure import Executor

LOCAL = "local"


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


@contextmanager
def executor(where: str) -> Iterator[Executor | None]:
    """What runs batches: None for processes of this machine, or a cluster.

    Raises:
        Error: `where` means nothing, or the cluster cannot be used.
    """
    if where == LOCAL:
        yield None
    elif found := re.fullmatch(r"dask://(.+:\d+)|(.+\.json)", where):
        with DaskCluster(f"tcp://{found[1]}" if found[1] else found[2], tools, _refuse) as cluster:
            yield cluster
    else:
        raise Error(f"trials cannot run on `{where}`", hint="local, dask://HOST:PORT or a Dask scheduler file (.json)")


def run_worker(scheduler: str, count: int) -> None:
    """Take trials from a Dask scheduler until it goes.

    Raises:
        Error: Dask is not installed, or no scheduler answers.
    """
    stderr.print(f"{count} trials at a time for {scheduler}", highlight=False)
    serve(scheduler, count, tools())


def _refuse(worker: str, difference: str) -> None:
    stderr.print(f"warning: {worker} gets no trials: {difference}", highlight=False, soft_wrap=True)
