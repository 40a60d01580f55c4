"""Every schedule of many small functions against the reference model: one flatbuffer, one ELF, one run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from board import M55, Bench, Case, Outcome, run_cases
from mve_layers import UNCOMPARED
from tosa_graphs import Graph, random_inputs

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.reference import evaluate
from tosaic.backends.target import Core
from tosaic.support.mlir import functions, ir
from tosaic.tuner.space import Schedule, Space

Build = Callable[[Graph], ir.Value]
"""Appends a function to a graph; it builds the same one every time."""


def task_of(build: Build, families: Sequence[str] = (), core: Core = CORTEX_M55, site: Site = UNCOMPARED) -> KernelTask:
    """The task of the graph that `build` makes."""
    graph = Graph()
    (function,) = functions(graph.module(build(graph))).values()
    return replace(KernelTask.of(function, core, families), site=site)


def evaluate_all(cases: Mapping[str, Build], headroom: int = 0) -> dict[str, tuple[list[np.ndarray], np.ndarray]]:
    """(inputs, expected output) of every case, from one module that has all their results.

    Inputs cover the range of their type; int32 is shifted right by `headroom`.
    """
    rng, graph = np.random.default_rng(0), Graph()
    results, counts = [], []
    for build in cases.values():
        before = len(graph.inputs)
        results.append(build(graph))
        counts.append(len(graph.inputs) - before)
    inputs = [array >> headroom if array.dtype == np.int32 else array for array in random_inputs(rng, graph)]
    outputs = iter(evaluate(graph.module(*results), inputs))
    arrays = iter(inputs)
    return {
        name: ([next(arrays) for _ in range(count)], next(outputs)) for name, count in zip(cases, counts, strict=True)
    }


def outcomes_of(
    cases: Mapping[str, Build],
    families: Sequence[str],
    folder: Path,
    headroom: int = 0,
    samples: int | None = None,
    bench: Bench = M55,
) -> dict[str, list[Outcome]]:
    """What every schedule of each of `families` computes for every case on the board.

    Args:
        samples: of large spaces, the default of each variant and so many others.
    """
    expected, choose = evaluate_all(cases, headroom), random.Random(0)
    trials, labels = [], []
    for name, build in cases.items():
        for family in families:
            task = task_of(build, (family,), bench.core)
            for schedule in task.space.schedules() if samples is None else _some(task.space, samples, choose):
                assert schedule.variant.startswith(f"{family}."), f"{name} is not covered by {family}"
                inputs, output = expected[name]
                trials.append(Case(task.generate(schedule), inputs, [output], str(schedule)))
                labels.append(name)
    found: dict[str, list[Outcome]] = {name: [] for name in cases}
    for name, outcome in zip(labels, run_cases(trials, folder, bench=bench), strict=True):
        found[name].append(outcome)
    return found


def _some(space: Space, samples: int, choose: random.Random) -> Iterator[Schedule]:
    """The default of each variant, and others drawn at random."""
    yield from (first for variant in space.variants if (first := variant.first()))
    yield from (space.sample(choose) for _ in range(samples))
