"""Segments as tasks: streams with the kernels of their strips, and kernels held to little working memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.linalg import kernel_module
from tosaic.backends.cortex_m.sharing import adapted, pack_alike
from tosaic.backends.cortex_m.streams.across import groups
from tosaic.backends.cortex_m.streams.stage import Stage, strip
from tosaic.backends.cortex_m.streams.stream import Stream
from tosaic.backends.cortex_m.streams.task import StreamTask, StripKernel
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.compiler.chosen import AnyTask
from tosaic.compiler.fitting.ways import Segment, Ways
from tosaic.compiler.tuning import Tuner
from tosaic.passes.place.join import join
from tosaic.support.mlir import bare_bytecode, copy_of, functions
from tosaic.tuner.space import Schedule

_MORE_SCRATCH = (512, 2048, 4096, 8192)
"""Bytes of working memory that are tried where the best family has no schedule for less."""


class SegmentTasks:
    """The task of each segment, made once.

    Args:
        ways: the streams that calls could run as.
    """

    def __init__(self, tuner: Tuner, ways: Ways) -> None:
        self._tuner, self._ways, self._calls = tuner, ways, ways.calls
        self._made: dict[Segment, AnyTask] = {}

    def of(self, segment: Segment) -> AnyTask:
        """The task of a stream, with the best known kernels of its strips, or of a call's lean kernel."""
        if segment not in self._made:
            self._made[segment] = self._stream_task(segment) if segment.rows else self._lean_task(segment)
        return self._made[segment]

    def _lean_task(self, segment: Segment) -> KernelTask:
        whole = self._calls.tasks[self._calls.names[segment.first]]
        return lean_task(whole, self._tuner.site(), segment.lean, _family(whole))

    def _stream_task(self, segment: Segment) -> StreamTask:
        plan, calls = self._ways.plan(segment), self._calls
        module = copy_of(calls.placed)
        join(module, calls.names[segment.first : segment.last + 1], "stream")
        meaning = bare_bytecode(kernel_module(functions(module)["stream"], "main"))
        core, kept = self._tuner.target.core, self._ways.cached(segment)
        strips: list[StripKernel] = []
        like: dict[int | bytes, StripKernel] = {}
        for number, call in self._ways.own_calls(segment):
            whole = calls.tasks[calls.names[call]]
            site = self._tuner.site().inside if number in kept else self._tuner.site()
            strips += self._strips(segment, number, whole, site, like.get(whole.weights or call))
            like[whole.weights or call] = strips[-1]
        return StreamTask(meaning, core, plan, tuple(strips), tuple(kept), self._inputs(segment, plan.stream))

    def _inputs(self, segment: Segment, stream: Stream) -> tuple[bytes, ...]:
        """What a stream takes in the model, as far as its calls know; none where random bytes do."""
        known, program = dict[str, bytes](), self._calls.program
        for number in range(segment.first, segment.last + 1):
            reads = map(program.storage, program.calls[number].reads)
            known |= zip(reads, self._calls.tasks[self._calls.names[number]].inputs, strict=False)
        if not known:
            return ()
        sizes = {name: program.buffers[name].size for name in stream.inputs}
        return tuple(known.get(name) or np.random.default_rng(0).bytes(size) for name, size in sizes.items())

    def _strips(
        self, segment: Segment, number: int, whole: KernelTask, site: Site, known: StripKernel | None
    ) -> list[StripKernel]:
        """The kernels of a stage: for the rows of a step, and for single rows.

        Both have weights packed alike if that can be, also as what is known of the same weights packs them.
        """
        plan = self._ways.plan(segment)
        stage, unit, counts = plan.stream.stages[number], plan.units[number], plan.calls[number]
        found = []
        for rows in sorted(counts, key=lambda rows: rows != unit):
            first, *further = _modules(stage, rows)
            task = lean_task(replace(whole, module=first, inputs=()), site, segment.lean, _family(whole))
            record = self._tuner.record(task)
            schedule = record.schedule if record else task.default()
            if known is not None:
                schedule = _like(known, task, schedule)
            known = StripKernel(number, rows, task, schedule, tuple(replace(task, module=each) for each in further))
            found.append(known)
        return found


def _modules(stage: Stage, rows: int) -> list[bytes]:
    """What calls of a stage compute that make so many rows: one module for all, or one for each call."""
    if not stage.across:
        return [strip(stage, rows)]
    modules = [groups(stage, first, rows) for first in range(0, stage.height, rows)]
    return modules if len(set(modules)) > 1 else modules[:1]


def lean_task(task: KernelTask, site: Site, least: int, family: str) -> KernelTask:
    """The task held to a family, and to so much working memory, or to as little more as that has a schedule for; the
    generic lowering is no way out, as it takes what it takes.

    Args:
        family: of the best guess for the whole call; where it does not know the task, that of the best guess for it.
    """
    usual = replace(task, site=site)
    if not usual.is_known_to(family):
        family = _family(usual)
    own = replace(usual, families=(family,))
    for most in (least, *(more for more in _MORE_SCRATCH if more > least)):
        lean = replace(own, site=replace(site, most_scratch=most))
        if _family(lean) == family:
            return lean
    return own


def _family(task: KernelTask) -> str:
    """The family of a task's best guess; empty where no schedule is legal."""
    guess = next((variant.name for variant in task.space.variants if variant.first() is not None), "")
    return guess.partition(".")[0]


def _like(known: StripKernel, task: KernelTask, schedule: Schedule) -> Schedule:
    """A schedule of a strip that packs weights as another strip does; its own where it has none."""
    source = known.task.generate(known.schedule)
    if known.schedule in task.space and pack_alike(task.generate(known.schedule), source):
        return known.schedule
    return (source.weights is not None and adapted(task, schedule, source, known.schedule)) or schedule
