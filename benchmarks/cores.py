"""Kernels of cores without vectors beside CMSIS-NN's: `python benchmarks/cores.py`.

Each layer is built for each core under the schedule that tosaic guesses and under others drawn from its space, and run
on QEMU, as are the functions of the pinned copy of CMSIS-NN, compiled by clang. All outputs are compared with the
reference model's. Figures are instructions a multiply-accumulate.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from tosaic.backends.cores import find_core
from tosaic.backends.cortex_m.cmsis_nn import LIBRARY, CmsisNn
from tosaic.backends.cortex_m.task import KernelTask

_TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(_TESTS), str(_TESTS / "backends" / "cortex_m")]
import mve_layers  # noqa: E402  # pyright: ignore[reportMissingImports]
from board import M3, M4, Bench, Case, run_cases  # noqa: E402  # pyright: ignore[reportMissingImports]

CORES = ("cortex-m4", "cortex-m7", "cortex-m33", "cortex-m3", "cortex-m0plus")


class Layer(NamedTuple):
    """A layer of a network, and its multiply-accumulates."""

    name: str
    layer: mve_layers.Layer
    macs: int


class Row(NamedTuple):
    """A layer on a core: instructions a multiply-accumulate of the guess, of the best schedule tried, of CMSIS-NN."""

    core: str
    layer: str
    guess: float
    best: float
    cmsis_nn: float | None
    exact: bool


def layers() -> Iterator[Layer]:
    """Layers of DS-CNN, ResNet-8 and the autoencoder of MLPerf Tiny, and a stem."""
    draw, one = np.random.default_rng(0), (1, 1, 1, 1)
    yield Layer("1x1 25x5x64->64", mve_layers.conv2d(draw, (1, 25, 5, 64), 64, (1, 1)), 125 * 64 * 64)
    yield Layer("3x3 16x16x32->32", mve_layers.conv2d(draw, (1, 16, 16, 32), 32, (3, 3), pad=one), 256 * 288 * 32)
    yield Layer("3x3 32x32x3->16", mve_layers.conv2d(draw, (1, 32, 32, 3), 16, (3, 3), pad=one), 1024 * 27 * 16)
    yield Layer("1x1 48x24x8->16", mve_layers.conv2d(draw, (1, 48, 24, 8), 16, (1, 1)), 1152 * 8 * 16)
    yield Layer("depthwise 3x3 25x5x64", mve_layers.depthwise(draw, (1, 25, 5, 64), (3, 3), pad=one), 125 * 64 * 9)
    yield Layer("fully connected 640->96", mve_layers.conv2d(draw, (1, 1, 1, 640), 96, (1, 1)), 640 * 96)
    yield Layer("matmul 4x32x16 by 32", mve_layers.matmul(draw, 4, 32, 16, 32), 4 * 32 * 16 * 32)


def row(layer: Layer, bench: Bench, library: CmsisNn, samples: int, folder: Path) -> Row:
    """A layer on a core."""
    task = KernelTask.of(layer.layer.function, bench.core, libraries={LIBRARY: library.root})
    rng, own = random.Random(0), next(v for v in task.space.variants if v.name.endswith(".program"))
    schedules = [task.default()]
    while len(schedules) <= samples:
        schedules.append(task.space.sample(rng))
    others = [first for v in task.space.variants if v.name.startswith("cmsis") and (first := v.first())]
    chosen = list(dict.fromkeys([s for s in schedules if s.variant == own.name])) + others
    archive = (library.archive(bench.core),)
    cases = [Case(task.generate(s), layer.layer.inputs, layer.layer.expected, str(s), archive) for s in chosen]
    outcomes = run_cases(cases, folder, library.include, bench)
    costs = [outcome.instructions / layer.macs for outcome in outcomes]
    ours, theirs = costs[: len(chosen) - len(others)], costs[len(chosen) - len(others) :]
    exact = all(outcome.exact for outcome in outcomes)
    return Row(bench.core.name, layer.name, ours[0], min(ours), min(theirs, default=None), exact)


@click.command(help=__doc__)
@click.option("--samples", default=40, show_default=True, help="Schedules drawn from the space of each layer.")
@click.option("--json", "as_json", is_flag=True, help="Print an object a line.")
def main(samples: int, as_json: bool) -> None:
    library = CmsisNn.find()
    if library is None:
        raise click.ClickException("CMSIS-NN is not there")
    if not as_json:
        print("| core | layer | guess | best | CMSIS-NN | exact |\n|---|---|---|---|---|---|")
    for name in CORES:
        core = find_core(name)
        # The boards of M3 and M4 execute the code of all, as QEMU's M4 has what M7 and M33 take from DSP.
        bench = replace(M4 if "dsp" in core.isa else M3, core=core)
        for layer in layers():
            with tempfile.TemporaryDirectory() as folder:
                found = row(layer, bench, library, samples, Path(folder))
            if as_json:
                print(json.dumps(found._asdict()), flush=True)
            else:
                theirs = f"{found.cmsis_nn:.2f}" if found.cmsis_nn is not None else ""
                cells = (found.core, found.layer, f"{found.guess:.2f}", f"{found.best:.2f}", theirs, found.exact)
                print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
