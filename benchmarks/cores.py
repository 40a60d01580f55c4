"""Kernels of cores without vectors beside CMSIS-NN's: `python benchmarks/cores.py`, or `--networks` for whole ones.

`--generic` has ops that CMSIS-NN has no function for, beside the generic path through linalg, in cycles a result.

Each layer is built for each core under the schedule that tosaic guesses and under others drawn from its space, and run
on QEMU, as are the functions of the pinned copy of CMSIS-NN, compiled by clang. All outputs are compared with the
reference model's. Figures are cycles of the core's model a multiply-accumulate; of networks, cycles in all.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from tosaic.backends.cortex_m.cmsis_nn import LIBRARY, CmsisNn
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.simulators.measure import BatchMeasure
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.backends.simulators.stand_in import simulation_of
from tosaic.backends.target import Target
from tosaic.target_files.ready import find_target

_TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(_TESTS), str(_TESTS / "backends" / "cortex_m")]
import mve_layers  # noqa: E402  # pyright: ignore[reportMissingImports]
from tosa_graphs import Graph  # noqa: E402  # pyright: ignore[reportMissingImports]

CORES = ("cortex-m4", "cortex-m7", "cortex-m33", "cortex-m3", "cortex-m0plus")
NETWORKS = ("resnet8", "dscnn", "mobilenet_v1", "autoencoder")


class Layer(NamedTuple):
    """A layer of a network, and its multiply-accumulates."""

    name: str
    layer: mve_layers.Layer
    macs: int


class Row(NamedTuple):
    """A layer on a core: cycles a multiply-accumulate of the guess, of the best schedule tried, of CMSIS-NN."""

    core: str
    layer: str
    guess: float
    best: float
    cmsis_nn: float | None
    exact: bool


def layers() -> Iterator[Layer]:
    """Layers of DS-CNN, ResNet-8 and the autoencoder of MLPerf Tiny, and a stem."""
    draw, one = np.random.default_rng(0), (1, 1, 1, 1)
    conv2d = partial(mve_layers.conv2d, draw, least=-127)  # as symmetric weights are
    yield Layer("1x1 25x5x64->64", conv2d((1, 25, 5, 64), 64, (1, 1)), 125 * 64 * 64)
    yield Layer("3x3 16x16x32->32", conv2d((1, 16, 16, 32), 32, (3, 3), pad=one), 256 * 288 * 32)
    yield Layer("3x3 32x32x3->16", conv2d((1, 32, 32, 3), 16, (3, 3), pad=one), 1024 * 27 * 16)
    yield Layer("1x1 48x24x8->16", conv2d((1, 48, 24, 8), 16, (1, 1)), 1152 * 8 * 16)
    yield Layer("depthwise 3x3 25x5x64", mve_layers.depthwise(draw, (1, 25, 5, 64), (3, 3), pad=one), 125 * 64 * 9)
    yield Layer("fully connected 640->96", conv2d((1, 1, 1, 640), 96, (1, 1)), 640 * 96)
    int16 = partial(mve_layers.conv2d_i16, draw)
    yield Layer("1x1 25x5x64->64, int16", int16((1, 25, 5, 64), 64, (1, 1)), 125 * 64 * 64)
    yield Layer("3x3 16x16x32->32, int16", int16((1, 16, 16, 32), 32, (3, 3), pad=one), 256 * 288 * 32)
    yield Layer(
        "depthwise 3x3 25x5x64, int16", mve_layers.depthwise_i16(draw, (1, 25, 5, 64), (3, 3), pad=one), 125 * 64 * 9
    )
    yield Layer("matmul 4x32x16 by 32", mve_layers.matmul(draw, 4, 32, 16, 32), 4 * 32 * 16 * 32)


def row(layer: Layer, target: Target, library: CmsisNn, samples: int) -> Row:
    """A layer on a core."""
    core = target.core
    task = KernelTask.of(layer.layer.function, core, libraries={LIBRARY: library.root})
    rng, own = random.Random(0), next(v for v in task.space.variants if v.name.endswith(".program"))
    schedules = [task.default()]
    while len(schedules) <= samples:
        schedules.append(task.space.sample(rng))
    others = [first for v in task.space.variants if v.name.startswith("cmsis") and (first := v.first())]
    chosen = list(dict.fromkeys([s for s in schedules if s.variant == own.name])) + others
    machine, lie = Qemu.of(target), simulation_of(target).trials
    libraries = {"include": tuple(library.include), "libraries": (library.archive(core),)}
    measured = BatchMeasure(machine, core, lie, **libraries)(task, chosen)
    costs = [(each.cycles or math.inf) / layer.macs for each in measured]
    ours, theirs = costs[: len(chosen) - len(others)], costs[len(chosen) - len(others) :]
    exact = all(each.ok for each in measured)
    return Row(core.name, layer.name, ours[0], min(ours), min(theirs, default=None), exact)


def network(name: str, core: str, folder: Path, *options: str) -> int:
    """The cycles of a network of the zoo, untuned."""
    made = folder / "-".join((name, core, *options[-1:]))
    records = ("--records", str(made.with_suffix(".db")))
    tosaic("compile", f"zoo:{name}", "--target", core, "--no-prove", *records, *options, "-o", str(made))
    ran = tosaic("run", str(made), "--random", "1")
    assert ran["exact"], made
    return ran["cycles"]


def tosaic(*arguments: str) -> dict:
    """What a command prints with `--json`."""
    command = [sys.executable, "-m", "tosaic", *arguments, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def compared_networks(folder: Path, cores: tuple[str, ...]) -> Iterator[str]:
    """Markdown: cycles of each network on each core, and what they are of CMSIS-NN's."""
    yield f"| core | {' | '.join(NETWORKS)} | geometric mean |"
    yield "|---" * (len(NETWORKS) + 2) + "|"
    for core in cores:
        pairs = [
            (network(name, core, folder), network(name, core, folder, "--kernels", "cmsis-nn")) for name in NETWORKS
        ]
        cells = [f"{own:,} ({own / theirs:.2f} of {theirs:,})" for own, theirs in pairs]
        mean = math.exp(sum(math.log(own / theirs) for own, theirs in pairs) / len(pairs))
        yield f"| {core} | {' | '.join(cells)} | {mean:.2f} |"


def others() -> Iterator[tuple[str, mve_layers.Layer]]:
    """Ops of activations alone."""
    draw, twice = np.random.default_rng(0), ((4, 2, 4, 2), (-1, -1), (1, 1))
    for kind, element, channels in (("bilinear", "i8", 16), ("bilinear", "i8", 3), ("bilinear", "i16", 16)):
        graph = Graph()
        blended = graph.resize(graph.input((1, 16, 16, channels), element), kind.upper(), *twice)
        result = graph.requantize(blended, element, 1 / 16)
        yield f"{kind} 2x, {channels} channels of {element}", mve_layers.drawn(graph, result, draw)
    graph = Graph()
    image = graph.input((1, 16, 16, 16))
    yield (
        "nearest 2x, 16 channels of i8",
        mve_layers.drawn(graph, graph.resize(image, "NEAREST_NEIGHBOR", *twice), draw),
    )
    yield "matmul 4x32x16 by 32 of i16", mve_layers.matmul_i16(draw, 4, 32, 16, 32)


def compared_generic(cores: tuple[str, ...]) -> Iterator[str]:
    """Markdown: cycles a result of tosaic's guess, and of the generic path."""
    yield f"| op | {' | '.join(cores)} |"
    yield "|---" * (len(cores) + 1) + "|"
    for name, layer in others():
        cells = []
        for core in cores:
            target = find_target(core)
            machine, lie = Qemu.of(target), simulation_of(target).trials
            tasks = [KernelTask.of(layer.function, target.core, families) for families in ((), ("linalg",))]
            measure = BatchMeasure(machine, target.core, lie)
            found = [measure(task, [task.default()])[0] for task in tasks]
            assert all(each.ok for each in found), (name, core)
            own, generic = ((each.cycles or math.inf) / layer.expected[0].size for each in found)
            cells.append(f"{own:.1f} ({own / generic:.2f} of {generic:.1f})")
        yield f"| {name} | {' | '.join(cells)} |"


@click.command(help=__doc__)
@click.option("--samples", default=40, show_default=True, help="Schedules drawn from the space of each layer.")
@click.option("--networks", is_flag=True, help="Whole networks, untuned.")
@click.option("--generic", is_flag=True, help="Ops beside the generic path.")
@click.option("--core", "cores", multiple=True, default=CORES, help="A core; may be repeated.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path("build/cores"), show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print an object a line; of layers.")
def main(samples: int, networks: bool, generic: bool, cores: tuple[str, ...], folder: Path, as_json: bool) -> None:
    if generic:
        for line in compared_generic(cores):
            click.echo(line)
        return
    library = CmsisNn.find()
    if library is None:
        raise click.ClickException("CMSIS-NN is not there")
    if networks:
        for line in compared_networks(folder, cores):
            click.echo(line)
        return
    if not as_json:
        print("| core | layer | guess | best | CMSIS-NN | exact |\n|---|---|---|---|---|---|")
    for name in cores:
        target = find_target(name)
        for layer in layers():
            found = row(layer, target, library, samples)
            if as_json:
                print(json.dumps(found._asdict()), flush=True)
            else:
                theirs = f"{found.cmsis_nn:.2f}" if found.cmsis_nn is not None else ""
                cells = (found.core, found.layer, f"{found.guess:.2f}", f"{found.best:.2f}", theirs, found.exact)
                print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
