"""Which kernels run together as streams, so that the model fits: the choice, and the front of all choices."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tosaic.backends.cortex_m.streams.task import StreamTask, StripKernel
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.firmware.build import build_firmware, out_of_flash
from tosaic.backends.firmware.fragmentation import Fragmented, fragmented
from tosaic.backends.firmware.memory_plan import MemoryPlan, plan_memory
from tosaic.backends.firmware.program import CallSequence
from tosaic.backends.target import Target
from tosaic.compiler.chosen import AnyTask
from tosaic.compiler.fitting.calls import Calls
from tosaic.compiler.fitting.costs import Prices
from tosaic.compiler.fitting.search import Conflict, Fit, Limits, Need, WaySearch
from tosaic.compiler.fitting.tasks import SegmentTasks
from tosaic.compiler.fitting.ways import Segment, Ways
from tosaic.compiler.tuning import Tuner
from tosaic.passes.place.join import join
from tosaic.support.errors import OutOfMemoryError
from tosaic.support.mlir import copy_of, ir

_STEPS = (7 / 8, 15 / 16, 31 / 32, 63 / 64)
"""What a way may have of the memory of the one before; a finer step where a coarse one finds none."""
_TRIES = 12
"""Ways whose memory is planned until one can do without gaps."""
_UNLIMITED = 1 << 30
_ROOM = 1 << 26
"""Bytes of a memory that holds any arena, and that the simulator has, too."""
_PENALTIES = (0.0, 1.0, 10.0, 100.0, 1e4)
"""What a byte of flash is deemed to cost, in turn until a way has no more than it may."""

Finder = Callable[[Limits], Fit | None]


@dataclass(frozen=True)
class Point:
    """A way to run a program.

    Args:
        arena: bytes; as `--arena-size` they are enough.
        flash: bytes of code, constants and data.
        cost: in the tuner's objective, with the arena in the fastest memory.
        products: multiply-accumulates; those of the model but where a stream computes something twice.
        streams: the functions that each stream executes together.
        milliseconds: of the CPU's share; None where the cost is not in cycles with memory, or no clock is known.
    """

    arena: int
    flash: int
    cost: float
    products: int
    streams: tuple[tuple[str, ...], ...]
    milliseconds: float | None = None


@dataclass(frozen=True)
class Fitted:
    """A placed module with streams.

    Args:
        tasks: of its CPU functions; those of streams with the kernels of their strips.
        members: by stream the functions that it executes together.
    """

    module: ir.Module
    tasks: Mapping[str, AnyTask]
    members: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def to_tune(self) -> list[tuple[KernelTask, int]]:
        """The tasks of kernels, of functions and of the strips of streams, with their calls in an inference."""
        found = []
        for task in self.tasks.values():
            if isinstance(task, StreamTask):
                found += [(strip.task, task.plan.calls[strip.stage][strip.rows]) for strip in task.strips]
            else:
                found.append((task, 1))
        return found


@dataclass(frozen=True)
class Planned:
    """A way to run the program as it is built, with the bytes of its arena."""

    fit: Fit
    fitted: Fitted
    arena: int


class Fitter:
    """Chooses how a placed module's calls run."""

    def __init__(self, tuner: Tuner, calls: Calls) -> None:
        self._tuner, self._calls = tuner, calls
        self._ways = Ways(self._calls)
        self._tasks = SegmentTasks(tuner, self._ways)
        self._prices = Prices(tuner, self._ways, self._tasks)
        self._search = WaySearch(self._ways, self._prices)
        self._conflicts: list[Conflict] = []
        self._flash: dict[tuple[Segment, ...], int] = {}

    def as_it_is(self) -> Fitted:
        """The program without streams."""
        return Fitted(copy_of(self._calls.placed), dict(self._calls.tasks))

    def chosen(self) -> Fitted:
        """The fastest way to run the program that fits the fastest memory of the arena; but for windows that move on,
        no stream needs more of it by itself than the neediest call does without streams.

        Raises:
            OutOfMemoryError: no way fits the arena at all; the message says what the least is.
        """
        if self._calls.fed and not any(first == 0 for first, *_ in self._ways.streamable):
            raise self._calls.not_by_rows()
        fastest, *slower = self._tuner.target.layout.arena
        planned = self._within_flash(fastest.size, self._search.fastest)
        if planned is not None:
            return planned.fitted
        most = self._tuner.target.flash_size
        if most is not None and self._flash:
            if (smaller := self._smaller_in_both(fastest.size, most)) is not None:
                return smaller.fitted
            least = min(self._flash.values())
            raise out_of_flash(self._calls.program, most, f"the smallest way known takes {least} B")
        if slower and not self._calls.fed:
            return self.as_it_is()
        self._check_least()
        return self.as_it_is()

    def front(self) -> list[Point]:
        """Ways to run the program, the fastest first, as far as there are such.

        Each takes at least an eighth less memory than the one before.
        """
        points = list[Point]()
        for planned in self._ever_smaller(_UNLIMITED, self._search.fastest):
            point = self._point(planned)
            points = [*(known for known in points if known.cost < point.cost), point]
        return points

    def retuned(self, fitted: Fitted) -> Fitted:
        """The same streams with the best kernels that trials have found since for their strips, where that pays."""
        tasks = dict(fitted.tasks)
        for name, task in fitted.tasks.items():
            if isinstance(task, StreamTask):
                better = replace(task, strips=tuple(map(self._retuned, task.strips)))
                self._tuner.try_once([better])
                if self._cost(better) < self._cost(task):
                    tasks[name] = better
        return replace(fitted, tasks=tasks)

    def _retuned(self, strip: StripKernel) -> StripKernel:
        record = self._tuner.record(strip.task)
        return replace(strip, schedule=record.schedule) if record else strip

    def _cost(self, task: AnyTask) -> float:
        record = self._tuner.record(task)
        return math.inf if record is None else float(record.measurement.cost(self._tuner.objective) or 0)

    def _check_least(self) -> None:
        """
        Raises:
            OutOfMemoryError: the program does not fit the arena without streams, or takes its input row by row.
        """
        try:
            plan_memory(self._calls.program, self._tuner.target)
        except OutOfMemoryError as error:
            why = f"{error.why}; strip by strip, {self._least()} B do"
            raise OutOfMemoryError(error.what, where=error.where, why=why, hint=error.hint) from None
        if self._calls.fed:
            raise OutOfMemoryError(
                f"the model needs more memory than `{self._tuner.target.name}` has for its arena",
                why=f"with its input row by row, {self._least()} B do",
            )

    def _least(self) -> int:
        """The fewest bytes of an arena with which some way to run the program is known."""
        size = self._tuner.target.layout.arena[0].size
        while self._within_flash(size, self._search.sized) is None:
            size += size // 8 + 1
        return min(planned.arena for planned in self._ever_smaller(size, self._search.sized))

    def _smaller_in_both(self, size: int, most: int) -> Planned | None:
        """A way in less memory than `size` with no more flash than `most`, where estimates of flash find none."""
        planned = self._planned(size, self._search.fastest)
        while planned is not None and self._flash_of(planned) > most:
            planned = self._planned(int(_STEPS[0] * planned.arena), self._search.fastest)
        return planned

    def _ever_smaller(self, size: int, find: Finder) -> Iterator[Planned]:
        """Ways with ever smaller plans, from one of `size` on."""
        steps = [1.0, *_STEPS]
        while steps:
            planned = self._within_flash(int(steps[0] * size), find)
            if planned is not None:
                yield planned
                size = planned.arena
            if planned is None or steps[0] == 1:
                del steps[0]

    def _within_flash(self, size: int, find: Finder) -> Planned | None:
        """The way that `find` gives whose plan has no more than `size`, and which has no more flash than it may."""
        most = self._tuner.target.flash_size
        for penalty in _PENALTIES if most is not None else (0.0,):
            planned = self._planned(size, find, penalty)
            if planned is None or most is None or self._flash_of(planned) <= most:
                return planned
        return None

    def _planned(self, size: int, find: Finder, penalty: float = 0.0) -> Planned | None:
        """The way that `find` gives whose plan has no more than `size`; None without it.

        Where a plan cannot do without gaps, the segments that have none together are not taken together again.
        """
        live = min(size, self._tuner.target.layout.arena[0].size if self._calls.sliding else self._prices.most)
        for _ in range(_TRIES):
            known = tuple(conflict for conflict in self._conflicts if conflict.size >= size)
            fit = find(Limits(live, known, penalty))
            if fit is None:
                return None
            fitted = self._built(fit)
            arena = self._plan_of(fitted).arena_bytes
            if arena <= size:
                return Planned(fit, fitted, arena)
            self._conflicts.append(self._conflict(fit, self._program_of(fitted), size))
        return None

    def _conflict(self, fit: Fit, program: CallSequence, size: int) -> Conflict:
        """Which segments have no plan together: those that leave gaps, or all."""
        found = fragmented(program, size) or Fragmented(0, (0,) * len(fit.segments))
        segments = fit.segments[found.first : found.first + len(found.surplus)]
        needs = (
            Need(segment.first, segment.last, segment.rows, self._search.price(segment).bytes - surplus)
            for segment, surplus in zip(segments, found.surplus, strict=True)
        )
        return Conflict(size, tuple(needs))

    def _built(self, fit: Fit) -> Fitted:
        """The module with the streams of a way, and the tasks of its CPU functions."""
        calls, members = self._calls, dict[str, Sequence[str]]()
        module, tasks = copy_of(calls.placed), dict[str, AnyTask](calls.tasks)
        for segment in fit.segments:
            if segment.lean and not segment.rows:
                tasks[calls.names[segment.first]] = self._tasks.of(segment)
        for number, segment in enumerate(fit.streams):
            names, symbol = calls.names[segment.first : segment.last + 1], f"cpu_{number}_stream"
            join(module, names, symbol)
            tasks = {name: task for name, task in tasks.items() if name not in names}
            tasks[symbol] = self._tasks.of(segment)
            members[symbol] = names
        return Fitted(module, tasks, members)

    def _point(self, planned: Planned) -> Point:
        fit, calls = planned.fit, self._calls
        streams = tuple(tuple(calls.names[s.first : s.last + 1]) for s in fit.streams)
        products = sum(calls.products[call] * share for s in fit.segments for call, share in self._ways.shares(s))
        cycles = fit.cost if self._tuner.objective == "cycles" else None
        time = self._tuner.target.milliseconds(cycles)
        return Point(planned.arena, self._flash_of(planned), fit.cost, round(products), streams, time)

    def _flash_of(self, planned: Planned) -> int:
        """Bytes of code, constants and data of a way as it is built."""
        if planned.fit.segments not in self._flash:
            tuner, program = self._tuner, self._program_of(planned.fitted)
            buffers = [program.buffers[state.buffer] for state in program.states]
            with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
                built = build_firmware(
                    program,
                    replace(self._roomy, flash_size=None),
                    Path(folder),
                    include=tuner.headers,
                    libraries=tuner.libraries,
                    states=[np.zeros(buffer.shape, buffer.dtype) for buffer in buffers],
                )
            self._flash[planned.fit.segments] = built.flash_bytes
        return self._flash[planned.fit.segments]

    def _plan_of(self, fitted: Fitted) -> MemoryPlan:
        """The plan of the memory, however large."""
        return plan_memory(self._program_of(fitted), self._roomy)

    @property
    def _roomy(self) -> Target:
        """The target with memory for any arena."""
        layout = self._tuner.target.layout
        return replace(self._tuner.target, layout=replace(layout, arena=(replace(layout.arena[0], size=_ROOM),)))

    def _program_of(self, fitted: Fitted) -> CallSequence:
        sources = {name: chosen.source for name, chosen in self._tuner.choose(fitted.tasks).items()}
        return self._calls.assembled(fitted.module, sources)
