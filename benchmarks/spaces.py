"""How many legal schedules the kernels of a model have: `python benchmarks/spaces.py zoo:dscnn zoo:resnet8`.

Small variants are enumerated. Of the others assignments are drawn, each knob evenly, until enough legal ones tell the
share: the standard error printed is that of this estimate. The last two columns say how far schedules are programs,
whatever offsets of constants and of scratch memory stand in them: how many different ones 50 legal schedules print,
drawn evenly from all, and what share of changes of one knob, to another legal schedule, prints another program. Neither
says that programs differ in speed, and a space with few programs could still print 50 different ones.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import random
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import click

from tosaic.backends.cortex_m.task import KernelTask
from tosaic.support.errors import Error
from tosaic.tuner.measurement import Task, TaskT
from tosaic.tuner.space import Schedule, Space, Variant

ENUMERATED = 20_000
HITS = 100
MOST_DRAWS = 20_000
PRINTED = 50
_TRIES = 64


@dataclass(frozen=True)
class Legal:
    """The legal schedules of a variant.

    Args:
        number: how many there are; 0 where none was found.
        error: the standard error of that, 0 where they were enumerated.
        found: legal schedules, each with the same chance to be among them.
    """

    number: float
    error: float
    found: Sequence[Schedule]


@dataclass(frozen=True)
class Size:
    """The size of a task's space.

    Args:
        legal, error: its legal schedules, and the standard error of that number.
        printed, programs: legal schedules that were printed, and how many programs these are.
        changes, changed: changes of one knob that were printed, and how many of these gave another program.
    """

    task: str
    assignments: int
    legal: float
    error: float
    printed: int
    programs: int
    changes: int
    changed: int

    @property
    def row(self) -> str:
        """A row of a Markdown table."""
        error = f" ± {self.error:,.0f}" if self.error else ""
        changed = f"{self.changed / self.changes:.2f}" if self.changes else ""
        return (
            f"| {self.task} | {self.assignments:,} | {self.legal:,.0f}{error} "
            f"| {self.programs} of {self.printed} | {changed} |"
        )


def size(task: TaskT, label: str, program: Callable[[TaskT, Schedule], str]) -> Size:
    """The size of a task's space; `program` prints a schedule."""
    rng = random.Random(task.key)
    counts = [legal(variant, rng) for variant in task.space.variants]
    total = sum(count.number for count in counts)
    schedules = drawn(counts, min(PRINTED, round(total)), rng)
    programs = [program(task, schedule) for schedule in schedules]
    pairs = [
        (before, program(task, other))
        for schedule, before in zip(schedules, programs, strict=True)
        if (other := one_change(task.space, schedule, rng))
    ]
    return Size(
        label,
        task.space.assignments,
        total,
        math.hypot(*(count.error for count in counts)),
        len(programs),
        len(set(programs)),
        len(pairs),
        sum(before != after for before, after in pairs),
    )


def legal(variant: Variant, rng: random.Random) -> Legal:
    """The legal schedules of a variant, enumerated or estimated.

    Assignments are drawn until `HITS` are legal, which makes the standard error 10 % at most. Of as many draws the last
    is known to be legal, so that the share of the others is the unbiased estimate.
    """
    if variant.assignments <= ENUMERATED:
        schedules = list(variant.schedules())
        return Legal(len(schedules), 0, schedules)
    found, draws = list[Schedule](), 0
    while len(found) < HITS and draws < MOST_DRAWS:
        assignment = {name: rng.choice(choices) for name, choices in variant.knobs.items()}
        draws += 1
        if variant.legal(assignment):
            found.append(Schedule.of(variant.name, **assignment))
    share = (len(found) - 1) / (draws - 1) if len(found) == HITS else len(found) / draws
    number = share * variant.assignments
    return Legal(number, number * math.sqrt((1 - share) / max(1, len(found))), found)


def drawn(counts: Sequence[Legal], number: int, rng: random.Random) -> list[Schedule]:
    """Different legal schedules, fewer than `number` where not as many are found; each variant by its number."""
    left = [rng.sample(count.found, len(count.found)) for count in counts]
    chosen = list[Schedule]()
    while len(chosen) < number and any(left):
        weights = [count.number if schedules else 0 for count, schedules in zip(counts, left, strict=True)]
        chosen.append(rng.choices(left, weights)[0].pop())
    return chosen


def one_change(space: Space, schedule: Schedule, rng: random.Random) -> Schedule | None:
    """A legal schedule that differs in one knob, drawn evenly from all; None where none is hit."""
    variant = next(variant for variant in space.variants if variant.name == schedule.variant)
    knobs = dict(schedule.knobs)
    changes = [(name, choice) for name in knobs for choice in variant.knobs[name] if choice != knobs[name]]
    for name, choice in rng.sample(changes, min(_TRIES, len(changes))):
        if variant.legal(knobs | {name: choice}):
            return Schedule.of(variant.name, **(knobs | {name: choice}))
    return None


def program(task: KernelTask, schedule: Schedule) -> str:
    """The text of a schedule's kernel, without what follows from sizes alone: where constants and scratch memory lie;
    empty where it cannot be generated."""
    try:
        source = task.generate(schedule)
    except Error:
        return ""
    return re.sub(r"\b(params|scratch) \+ \d+", r"\1", source.text.replace(source.symbol, ""))


def label(task: Task) -> str:
    """The name of a task, with the window of a convolution: what its key says first of it."""
    said = {name: re.search(rf"\b{name}=(\w+)", task.key) for name in ("kernel", "stride", "channels")}
    kernel, stride, channels = (found[1] if found else "" for found in said.values())
    strides = f" by {stride}" if stride not in ("", "1x1") else ""
    of = f", of {channels} channels" if channels else ""
    return f"{task.name} ({kernel}{strides}{of})" if kernel else task.name


@click.command()
@click.argument("models", nargs=-1)
@click.option("--target", default="cortex-m55", show_default=True)
@click.option("--workers", default=2, show_default=True)
def main(models: Sequence[str], target: str, workers: int) -> None:
    """Print a Markdown table, a row for each distinct kernel of each model."""
    from tosaic.backends.cortex_m.cmsis_nn import CmsisNn
    from tosaic.compiler.compilation import lower_model
    from tosaic.compiler.options import CompileOptions
    from tosaic.compiler.tuning import Tuner
    from tosaic.target_files.ready import find_target
    from tosaic.terminal.progress import Stations

    click.echo("| model | task | assignments | legal schedules | programs | of one change |\n|---|---|---|---|---|---|")
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for model in models:
            options = CompileOptions(model, find_target(target))
            with Tuner(options.target, options.tuning, CmsisNn.find(None)) as tuner:
                middle = lower_model(options, Stations(quiet=True))
                found = tuner.tasks(middle.placement.module, options.kernels, middle.samples.drawn)
            distinct = list({task.key: task for task in found.values()}.values())
            for each in pool.map(size, distinct, map(label, distinct), itertools.repeat(program)):
                click.echo(f"| {model.removeprefix('zoo:')} {each.row}")


if __name__ == "__main__":
    main()
