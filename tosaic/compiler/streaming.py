"""Which kernels run together as streams, so that the model fits: fusion cuts, strip heights and resident weights."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from tosaic.backends.cortex_m.footprint import ArrayAccess, Place, Walk
from tosaic.backends.cortex_m.kernel import KernelSource, Site
from tosaic.backends.cortex_m.linalg import kernel_module
from tosaic.backends.cortex_m.sharing import adapted, pack_alike
from tosaic.backends.cortex_m.streams.across import groups, stage_across
from tosaic.backends.cortex_m.streams.layout import least_bytes
from tosaic.backends.cortex_m.streams.parts import side_by_side, whole_name
from tosaic.backends.cortex_m.streams.stage import Stage, stage_of, strip
from tosaic.backends.cortex_m.streams.stream import Plan, Stream
from tosaic.backends.cortex_m.streams.task import StreamTask, Strip
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.ethos_u.vela import NpuRegion
from tosaic.backends.firmware.build import build_firmware, out_of_flash
from tosaic.backends.firmware.crowding import Crowd, crowd
from tosaic.backends.firmware.memory_plan import (
    MemoryPlan,
    lifetimes,
    live_bytes,
    overlaps,
    plan_memory,
    program_blocks,
)
from tosaic.backends.firmware.program import KernelCall, Program
from tosaic.backends.target import Target
from tosaic.compiler.assembly import assemble
from tosaic.compiler.tuning import Tuner
from tosaic.passes.place.join import join
from tosaic.support.errors import Error, OutOfMemoryError
from tosaic.support.functions import body_of, callee_of, computing_ops, returned
from tosaic.support.locations import describe
from tosaic.support.mlir import copy_of, element_type, functions, ir
from tosaic.support.values import multiplications
from tosaic.tuner.measurement import Objective
from tosaic.tuner.space import Schedule

_HEIGHTS = (1, 2, 4, 8, 16)
"""Rows of the last result in a step."""
_LONGEST = 24
"""Calls in a stream."""
_CYCLES_OF_CALL, _CYCLES_OF_BYTE = 120, 0.3
"""What a call of a strip's kernel costs beyond its work, and a byte that slides."""
_SMALL_PARAMS = 4096
_STEPS = (7 / 8, 15 / 16, 31 / 32, 63 / 64)
"""What a way may have of the memory of the one before; a finer step where a coarse one finds none."""
_TRIES = 12
"""Ways whose memory is planned until one can do without gaps."""
_UNLIMITED = 1 << 30
_ROOM = 1 << 26
"""Bytes of a memory that holds any arena, and that the simulator has, too."""
_PENALTIES = (0.0, 1.0, 10.0, 100.0, 1e4)
"""What a byte of flash is deemed to cost, in turn until a way has no more than it may."""
_CODE = 1024
"""Bytes of a kernel's code, about."""
_SLACK = 3
"""Hops of a window before its rows move to the start of their buffers."""
_NEAR = 1.01
_LONG_WAIT = 0.5
"""Times a kernel's own cycles, for which streams are tried in its place."""
_LEAN, _LEANEST = 2048, 128
"""Bytes of working memory that kernels of strips are held to, and others where memory is short; and the least."""
_ROOMY = ((_LEAN, 0), (_LEANEST, 0))
_THRIFTY = ((_LEAN, 0), (_LEAN, 1), (_LEAN, 2), (_LEANEST, 2))
"""Bytes of working memory and thrift of streams, in turn until something fits; the latter where memory is short."""
_PARTS = (2, 3, 4)
"""Into which images are cut then."""
_MORE_SCRATCH = (512, 2048, 4096, 8192)
"""What is tried where the best family has no schedule for less."""

Tasks = Mapping[str, KernelTask | StreamTask]


@dataclass(frozen=True)
class Segment:
    """What executes the calls `first` to `last` of the program: a stream, or the kernel of one call.

    Args:
        rows: of the last result in a step; 0 where a kernel alone makes all.
        resident: which stages' params are copied to scratch memory: none, those of few bytes, or all.
        lean: bytes of working memory that its kernels are held to, if that can be; 0 for any number.
        thrift: what a stream does to save memory; see `Plan`.
        across: whether its rows are groups of channels.
        parts: side by side, into which its images are cut.
    """

    first: int
    last: int
    rows: int = 0
    resident: str = "none"
    lean: int = 0
    thrift: int = 0
    across: bool = False
    parts: int = 1


@dataclass(frozen=True)
class Price:
    """What a segment takes.

    Args:
        bytes: that are live while it runs.
        cost: in the tuner's objective.
        sized: whether the bytes are those of generated kernels; measured, whether the cost is that of a trial.
    """

    bytes: int
    cost: float
    sized: bool = False
    measured: bool = False


@dataclass(frozen=True)
class Need:
    """What executes the calls `first` to `last` in `rows` a step or more, while so many bytes or more are live."""

    first: int
    last: int
    rows: int
    bytes: int

    def is_met_by(self, segment: Segment, price: Price) -> bool:
        alike = (segment.first, segment.last) == (self.first, self.last)
        return alike and segment.rows >= self.rows and price.bytes >= self.bytes


@dataclass(frozen=True)
class Conflict:
    """Segments one after another that have no plan of `size` bytes together."""

    size: int
    needs: tuple[Need, ...]


Progress = frozenset[tuple[int, int]]
"""By the numbers of conflicts how many segments at the end of a way stand at their beginning."""


@dataclass(frozen=True)
class Fit:
    """A way to run the program: segments one after another.

    Args:
        bytes: the most that is live at once; what an arena needs at least.
        cost: in the tuner's objective; `weighed` with what its flash is deemed to cost.
    """

    segments: tuple[Segment, ...]
    bytes: int
    cost: float
    measured: bool
    weighed: float = 0.0

    @property
    def streams(self) -> tuple[Segment, ...]:
        """The segments that are streams."""
        return tuple(segment for segment in self.segments if segment.rows)


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
    tasks: Tasks
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
    """The ways to run a placed module's calls, with what is known of their price.

    Args:
        placed: `main` calls one function per NPU region and CPU kernel.
        regions: the compiled command stream of each NPU function.
        tasks: of the CPU functions, proven.
        stream_input: the first stream takes the input row by row.
        sliding: further rows then move the window on; what counts is what they cost.

    Raises:
        Error: the input is to be taken row by row, and the model has several.
    """

    def __init__(
        self,
        tuner: Tuner,
        placed: ir.Module,
        regions: Mapping[str, NpuRegion],
        tasks: Mapping[str, KernelTask],
        *,
        stream_input: bool = False,
        sliding: bool = False,
    ) -> None:
        self._tuner, self._placed, self._regions, self._tasks = tuner, placed, regions, tasks
        self._kernels = tuner.choose(tasks)
        self._program = self._assembled(placed, {name: kernel.source for name, kernel in self._kernels.items()})
        main = body_of(functions(placed)["main"])
        self._calls = [op.operation for op in main.operations if op.operation.name == "func.call"]
        self._names = [callee_of(call) for call in self._calls]
        self._sliding = sliding
        self._fed = self._only_input() if stream_input else None
        self._prices: dict[Segment, Price | None] = {}
        self._errors: dict[tuple[int, int], list[float]] = {}
        self._plans: dict[Segment, Plan | None] = {}
        self._tasks_of: dict[Segment, KernelTask | StreamTask] = {}
        self._known_conflicts: list[Conflict] = []
        self._conflicts: list[Conflict] = []
        self._flash: dict[tuple[Segment, ...], int] = {}
        self._penalty = 0.0

    # What is asked.

    def fastest_within(self, limit: int) -> Fit | None:
        """The fastest way to run the program with so many bytes live at once, all of it measured; None without one.

        Estimates guide the search. It ends where nothing promises to be faster by more than a hundredth.
        """
        while (hoped := self._cheapest(limit)) is not None and not hoped.measured:
            known = self._cheapest(limit, measured=True)
            if known is not None and known.weighed <= _NEAR * hoped.weighed:
                return known
            if rough := self._rough(hoped):
                self._size(rough)
            else:
                self._measure([s for s, price in self._open(hoped).items() if not price.measured])
        return hoped

    def _open(self, fit: Fit) -> dict[Segment, Price]:
        """The prices of segments that are estimates at first."""
        return {s: price for s in fit.segments if s.rows or s.lean if (price := self._price(s)) is not None}

    def _rough(self, fit: Fit) -> list[Segment]:
        """The segments whose bytes are estimates."""
        return [segment for segment, price in self._open(fit).items() if not price.sized]

    def front(self) -> list[Point]:
        """Ways to run the program, the fastest first, each with at least an eighth less memory than the one before, as
        far as there are such."""
        points = list[Point]()
        for planned in self._ever_smaller(_UNLIMITED, self.fastest_within):
            point = self._point(planned)
            points = [*(known for known in points if known.cost < point.cost), point]
        return points

    def _point(self, planned: Planned) -> Point:
        fit = planned.fit
        streams = tuple(tuple(self._names[s.first : s.last + 1]) for s in fit.streams)
        products = sum(self._products[call] * share for s in fit.segments for call, share in self._shares(s))
        cycles = fit.cost if self._tuner.objective == "cycles" else None
        time = self._tuner.target.milliseconds(cycles)
        return Point(planned.arena, self._flash_of(planned), fit.cost, round(products), streams, time)

    def chosen(self) -> Fitted:
        """The fastest way to run the program that fits the fastest memory of the arena; but for windows that move on,
        no stream needs more of it by itself than the neediest call does without streams.

        Raises:
            OutOfMemoryError: no way fits the arena at all; the message says what the least is.
        """
        if self._fed and not any(first == 0 for first, *_ in self._streamable):
            raise self._not_by_rows()
        fastest, *slower = self._tuner.target.layout.arena
        planned = self._planned_within(fastest.size, self.fastest_within)
        if planned is not None:
            return planned.fitted
        most = self._tuner.target.flash_size
        if most is not None and self._flash:
            if (smaller := self._smaller_in_both(fastest.size, most)) is not None:
                return smaller.fitted
            raise out_of_flash(self._program, most, f"the smallest way known takes {min(self._flash.values())} B")
        if slower and not self._fed:
            return self.as_it_is()
        try:
            plan_memory(self._program, self._tuner.target)
        except OutOfMemoryError as error:
            why = f"{error.why}; strip by strip, {self._least()} B do"
            raise OutOfMemoryError(error.what, where=error.where, why=why, hint=error.hint) from None
        if self._fed:
            raise OutOfMemoryError(
                f"the model needs more memory than `{self._tuner.target.name}` has for its arena",
                why=f"with its input row by row, {self._least()} B do",
            )
        return self.as_it_is()

    def _smaller_in_both(self, size: int, most: int) -> Planned | None:
        """A way in less memory than `size` with no more flash than `most`, where estimates of flash find none."""
        planned = self._planned(size, self.fastest_within)
        while planned is not None and self._flash_of(planned) > most:
            planned = self._planned(int(_STEPS[0] * planned.arena), self.fastest_within)
        return planned

    def _planned_within(self, size: int, search: Callable[[int], Fit | None]) -> Planned | None:
        """What a search for so many live bytes finds whose plan has no more than `size`, and which has no more flash
        than it may; None without it."""
        most, found = self._tuner.target.flash_size, None
        for self._penalty in _PENALTIES if most is not None else (0.0,):
            planned = self._planned(size, search)
            if planned is None or most is None or self._flash_of(planned) <= most:
                found = planned
                break
        self._penalty = 0.0
        return found

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

    def _planned(self, size: int, search: Callable[[int], Fit | None]) -> Planned | None:
        """What a search for so many live bytes finds whose plan has no more than `size`; None without it.

        Where a plan cannot do without gaps, the segments that have none together are not taken together again.
        """
        limit = min(size, self._tuner.target.layout.arena[0].size if self._sliding else self._most)
        self._conflicts = [conflict for conflict in self._known_conflicts if conflict.size >= size]
        found = None
        for _ in range(_TRIES):
            fit = search(limit)
            if fit is None:
                break
            fitted = self.built(fit)
            arena = self._plan_of(fitted).arena_bytes
            if arena <= size:
                found = Planned(fit, fitted, arena)
                break
            conflict = self._conflict(fit, self._program_of(fitted), size)
            self._known_conflicts.append(conflict)
            self._conflicts.append(conflict)
        self._conflicts = []
        return found

    def _ever_smaller(self, size: int, search: Callable[[int], Fit | None]) -> Iterator[Planned]:
        """Ways with ever smaller plans, from one of `size` on."""
        steps = [1.0, *_STEPS]
        while steps:
            planned = self._planned_within(int(steps[0] * size), search)
            if planned is not None:
                yield planned
                size = planned.arena
            if planned is None or steps[0] == 1:
                del steps[0]

    def _conflict(self, fit: Fit, program: Program, size: int) -> Conflict:
        """Which segments have no plan together: those that crowd, or all."""
        found = crowd(program, size) or Crowd(0, (0,) * len(fit.segments))
        segments = fit.segments[found.first : found.first + len(found.surplus)]
        needs = (
            Need(segment.first, segment.last, segment.rows, self._known(segment).bytes - surplus)
            for segment, surplus in zip(segments, found.surplus, strict=True)
        )
        return Conflict(size, tuple(needs))

    def _known(self, segment: Segment) -> Price:
        """The price of a segment of a way."""
        price = self._price(segment) if segment.rows or segment.lean else self._alone[segment.first]
        assert price is not None
        return price

    def _is_blamed(self, segment: Segment, price: Price) -> bool:
        """Whether a segment is part of a conflict."""
        return any(need.is_met_by(segment, price) for conflict in self._conflicts for need in conflict.needs)

    def _beyond(self, progress: Progress, segment: Segment, price: Price) -> Progress | None:
        """The progress of conflicts behind one more segment; None where one is complete."""
        begun = [*progress, *((number, 0) for number in range(len(self._conflicts)))]
        further = [(n, done + 1) for n, done in begun if self._conflicts[n].needs[done].is_met_by(segment, price)]
        return None if any(done == len(self._conflicts[n].needs) for n, done in further) else frozenset(further)

    def _only_input(self) -> str:
        """The buffer of the input."""
        if len(self._program.inputs) != 1:
            raise Error("--stream-input needs a model with one input", why=f"this one has {len(self._program.inputs)}")
        return self._program.storage(self._program.inputs[0].buffer)

    def _not_by_rows(self) -> Error:
        first = min(self._fed_calls)
        call, task = self._program.calls[first], self._tasks.get(self._names[first])
        if task is not None and task.given is not None:
            why = f"the schedule of `{self._names[first]}` is given by hand, and a kernel that makes rows takes none"
            return Error("the input cannot be taken row by row", where=call.where, why=why)
        why = f"`{call.name}` is not made of rows of the input, or they are not all that reads it"
        hint = "an image comes in rows with --input-layout nhwc"
        if self._sliding:
            why += "; or its results at the ends of a window are made of padding, or not of all rows at one pace"
            hint = "a window slides over layers without padding in time; without --sliding each stands for itself"
        return Error("the input cannot be taken row by row", where=call.where, why=why, hint=hint)

    def _least(self) -> int:
        """The fewest bytes of an arena with which some way to run the program is known."""
        size = self._tuner.target.layout.arena[0].size
        while self._planned_within(size, self._sized_within) is None:
            size += size // 8 + 1
        return min(planned.arena for planned in self._ever_smaller(size, self._sized_within))

    def _sized_within(self, limit: int) -> Fit | None:
        """The way that promises to be the fastest with so many bytes live at once, which are no estimates."""
        while (fit := self._cheapest(limit)) is not None and (rough := self._rough(fit)):
            self._size(rough)
        return fit

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

    def _retuned(self, strip: Strip) -> Strip:
        record = self._tuner.record(strip.task)
        return replace(strip, schedule=record.schedule) if record else strip

    def _cost(self, task: KernelTask | StreamTask) -> float:
        record = self._tuner.record(task)
        return math.inf if record is None else float(record.measurement.cost(self._tuner.objective) or 0)

    def as_it_is(self) -> Fitted:
        """The program without streams."""
        return Fitted(copy_of(self._placed), dict(self._tasks))

    def _plan_of(self, fitted: Fitted) -> MemoryPlan:
        """The plan of the memory, however large."""
        return plan_memory(self._program_of(fitted), self._roomy)

    @property
    def _roomy(self) -> Target:
        """The target with memory for any arena."""
        layout = self._tuner.target.layout
        return replace(self._tuner.target, layout=replace(layout, arena=(replace(layout.arena[0], size=_ROOM),)))

    def _program_of(self, fitted: Fitted) -> Program:
        sources = {name: chosen.source for name, chosen in self._tuner.choose(fitted.tasks).items()}
        return self._assembled(fitted.module, sources)

    def _assembled(self, module: ir.Module, sources: Mapping[str, KernelSource]) -> Program:
        main = functions(module)["main"]
        inputs = [f"input_{i}" for i in range(len(body_of(main).arguments))]
        outputs = [f"output_{i}" for i in range(len(returned(main)))]
        where = {name: describe(function.location) for name, function in functions(module).items()}
        return assemble(module, sources, self._regions, where, inputs, outputs)

    def built(self, fit: Fit) -> Fitted:
        """The module with the streams of a fit, and the tasks of its CPU functions."""
        module, tasks, members = copy_of(self._placed), dict[str, KernelTask | StreamTask](self._tasks), {}
        for segment in fit.segments:
            if segment.lean and not segment.rows:
                tasks[self._names[segment.first]] = self._task(segment)
        for number, segment in enumerate(fit.streams):
            names, symbol = self._names[segment.first : segment.last + 1], f"cpu_{number}_stream"
            join(module, names, symbol)
            tasks = {name: task for name, task in tasks.items() if name not in names}
            tasks[symbol] = self._task(segment)
            members[symbol] = names
        return Fitted(module, tasks, members)

    # Search.

    def _cheapest(self, limit: int, measured: bool = False) -> Fit | None:
        """The cheapest sequence of segments within a limit, by what is known of their prices, or of `measured` ones."""
        count = len(self._calls)
        best: list[dict[Progress, Fit]] = [{frozenset(): Fit((), 0, 0.0, True)}, *({} for _ in range(count))]
        by_end: dict[int, list[tuple[Segment, Price]]] = {}
        for segment, price in self._priced(limit):
            if not measured or price.measured:
                by_end.setdefault(segment.last, []).append((segment, price))
        for end, known in enumerate(best[1:]):
            for segment, price in by_end.get(end, ()):
                for progress, fit in best[segment.first].items():
                    beyond = self._beyond(progress, segment, price)
                    if beyond is None:
                        continue
                    whole = fit.measured and price.measured
                    most = max(fit.bytes, price.bytes)
                    weighed = (
                        fit.weighed + price.cost + (self._penalty and self._penalty * self._bytes_of_flash(segment))
                    )
                    joined = Fit((*fit.segments, segment), most, fit.cost + price.cost, whole, weighed)
                    if beyond not in known or _by_cost(joined) < _by_cost(known[beyond]):
                        known[beyond] = joined
        return min(best[count].values(), key=_by_cost, default=None)

    def _priced(self, limit: int) -> Iterator[tuple[Segment, Price]]:
        """Every segment that fits, with its price: streams for what does not fit, and for what needs most memory."""
        hot = [*self._fed_calls]
        hot += [number for number, price in enumerate(self._alone) if price.bytes > min(limit, self._most - 1)]
        hot += self._waiting
        hot += [n for conflict in self._conflicts for need in conflict.needs for n in range(need.first, need.last + 1)]
        for number, alone in enumerate(self._alone):
            if number in self._fed_calls:
                continue
            if fits := alone.bytes <= limit:
                yield Segment(number, number), alone
            if fits and not self._is_blamed(Segment(number, number), alone):
                continue
            if self._names[number] in self._tasks and self._tasks[self._names[number]].exact:
                yield from self._leaner(Segment(number, number), limit)
        for first, last, across in self._streamable:
            if not any(first <= number <= last for number in hot) or (across and limit >= self._most):
                continue
            for segment in self._ways_across(first, last) if across else self._ways(first, last):
                yield from self._leaner(segment, limit)

    def _leaner(self, segment: Segment, limit: int) -> Iterator[tuple[Segment, Price]]:
        """The segment with no less working memory than it must have to fit, and its price; none where it does not."""
        price = None
        is_short = limit < self._most
        for most, thrift in _THRIFTY if is_short else _ROOMY:
            lean = replace(segment, lean=most, thrift=thrift if segment.rows else 0)
            price = self._price(lean)
            if price is not None and price.bytes <= limit:
                yield lean, price
                if not self._is_blamed(lean, price):
                    return
        if not is_short or segment.rows != 1 or segment.across or segment.resident != "none" or price is None:
            return
        always = self._bytes(segment, 0, self._plan(segment).leads)
        for parts in _PARTS:
            cut = replace(segment, lean=_LEANEST, thrift=2, parts=parts)
            if always + (price.bytes - always) // parts <= limit and self._possible_plan(cut):
                price_cut = self._price(cut)
                if price_cut is not None and price_cut.bytes <= limit:
                    yield cut, price_cut
                    if not self._is_blamed(cut, price_cut):
                        return

    def _ways(self, first: int, last: int) -> Iterator[Segment]:
        stage = self._stages[last]
        assert stage is not None
        sizes = [len(self._source(number).params) for number in range(first, last + 1)]
        residents = ["none", *(["small"] if min(sizes) <= _SMALL_PARAMS else [])]
        residents += ["all"] if max(sizes) > _SMALL_PARAMS else []
        least = stage.together
        for rows in (1,) if self._slides(first) else (least * height for height in _HEIGHTS):
            if 2 * rows <= stage.height or rows == least:
                for resident in residents:
                    yield Segment(first, last, rows, resident)

    def _ways_across(self, first: int, last: int) -> Iterator[Segment]:
        height = self._stages_across[last].height  # type: ignore[union-attr]
        for rows in _HEIGHTS:
            if height % rows == 0 and 2 * rows <= height:
                yield Segment(first, last, rows, across=True)

    def _price(self, segment: Segment) -> Price | None:
        """What a stream costs, estimated until it is measured; None where it was found wrong."""
        if segment not in self._prices:
            self._prices[segment] = self._estimate(segment)
        price = self._prices[segment]
        if price is None:
            return None
        share = 1.0 if price.measured else self._error(segment)
        if segment.rows and self._slides(segment.first):
            plan = self._plan(segment)
            share *= plan.units[0] / plan.stream.stages[0].height
        return replace(price, cost=price.cost * share)

    def _slides(self, first: int) -> bool:
        """Whether the stream that begins with a call is to go on from window to window."""
        return self._sliding and first in self._fed_calls

    def _error(self, segment: Segment) -> float:
        """What streams of the same calls, else of any, were measured to cost beyond their estimates."""
        same = self._errors.get((segment.first, segment.last))
        known = same or [error for errors in self._errors.values() for error in errors]
        return sum(known) / len(known) if known else 1.0

    def _estimate(self, segment: Segment) -> Price:
        if not segment.rows:
            alone, scratch = self._alone[segment.first], self._source(segment.first).scratch_bytes
            return replace(alone, bytes=alone.bytes - max(0, scratch - segment.lean), sized=False, measured=False)
        plan = self._plan(segment)
        kept = self._resident(plan, segment)
        own = {number for number, _ in self._own_calls(plan, segment)}
        scratch = least_bytes(plan, [segment.lean * (number in own) for number in range(len(plan.units))])
        cost = sum(self._costs_of_work[call] * share for call, share in self._shares(segment))
        calls = [sum(counts.values()) for counts in plan.calls]
        cost += _CYCLES_OF_CALL * sum(calls) + _CYCLES_OF_BYTE * plan.moved
        sources = self._own_sources(plan, segment)
        stays = self._cache_holds(scratch + sum(len(source.params) for _, source in sources))
        for number, source in sources:
            size = len(source.params)
            waits = self._waits(size)
            if number in kept:
                scratch += size
                cost += _CYCLES_OF_BYTE * size + waits
            else:
                cost += waits if segment.across or stays else calls[number] * waits
        cost += self._waits_for_tensors(plan.stream, scratch)
        return Price(self._bytes(segment, scratch, plan.leads), cost)

    def _shares(self, segment: Segment) -> Iterator[tuple[int, float]]:
        """What a segment makes of the result of each call, as a share of it: parts make some columns twice."""
        if segment.parts == 1:
            yield from ((call, 1.0) for call in range(segment.first, segment.last + 1))
            return
        plan = self._plan(segment)
        for number, call in self._own_calls(plan, segment):
            stage = self._stages[call]
            assert stage is not None
            yield call, plan.stream.stages[number].bytes / stage.bytes

    def _bytes_of_flash(self, segment: Segment) -> int:
        """What a segment takes of flash, about."""
        if segment.rows:
            plan = self._plan(segment)
            own = self._own_sources(plan, segment)
            kernels = 1 + sum(len(plan.calls[number]) for number, _ in own)
            return sum(len(source.params) for _, source in own) + _CODE * kernels
        call = self._program.calls[segment.first]
        return len(call.kernel.params) + _CODE if isinstance(call, KernelCall) else 0

    def _waits_for_tensors(self, stream: Stream, scratch: int) -> float:
        """What a stream waits for what it reads and makes, and for what lies in between where no cache holds that."""
        sizes = {name: buffer.size for name, buffer in self._program.buffers.items()}
        waits = sum(self._waits(sizes[name], "input") for name in stream.inputs if name in sizes)
        waits += sum(self._waits(sizes[name], "output") for name in stream.outputs if name in sizes)
        if self._cache_holds(scratch):
            return waits
        between = [name for name in stream.writes if name not in stream.outputs]
        return waits + sum(2 * self._waits(sizes[name], "output") for name in between if name in sizes)

    def _cache_holds(self, size: int) -> bool:
        """Whether so many bytes stay in the data cache from step to step."""
        cache = self._tuner.tensors.data_cache if self._tuner.tensors else None
        return cache is not None and size <= cache.size

    def _waits(self, size: float, place: Place = "params") -> float:
        """What one walk over so many bytes costs beyond the instructions."""
        walk = Walk((), (ArrayAccess(place, place, size, (), writes=place == "output"),))
        return self._tuner.site().waits([walk], self._tuner.target.core.pipeline)

    # What is known of calls.

    @cached_property
    def _stages(self) -> list[Stage | None]:
        """The stage of each call; None of one that cannot be part of a stream."""
        return self._made_stages(stage_of)

    @cached_property
    def _stages_across(self) -> list[Stage | None]:
        """The stage of each call whose rows are groups of channels; None of one that has none."""
        return self._made_stages(stage_across)

    def _made_stages(self, make: Callable[[ir.Operation], Stage | None]) -> list[Stage | None]:
        known, tasks = functions(self._placed), self._tasks
        return [
            make(known[name]) if name in tasks and _may_stream(known[name], tasks[name]) else None
            for name in self._names
        ]

    @cached_property
    def _alone(self) -> list[Price]:
        """The price of each call's kernel alone."""
        blocks, leads = program_blocks(self._program, 1), overlaps(self._program)
        costs = {name: kernel.record.measurement for name, kernel in self._kernels.items() if kernel.record}
        prices = []
        for number, name in enumerate(self._names):
            cost = costs[name].cost(self._tuner.objective) if name in costs else 0
            prices.append(Price(live_bytes(blocks, leads, number), float(cost or 0), True, True))
        return prices

    @cached_property
    def _waiting(self) -> list[int]:
        """The calls whose kernels alone wait long for tensors, which a stream may keep in the cache."""
        if self._waits(1, "output") == 0:
            return []
        waits = [alone.cost - work for alone, work in zip(self._alone, self._costs_of_work, strict=True)]
        return [number for number, work in enumerate(self._costs_of_work) if waits[number] > _LONG_WAIT * work]

    @property
    def _most(self) -> int:
        """Bytes of the call that needs most by itself; 0 where nothing is called: results are inputs or constants."""
        return max((price.bytes for price in self._alone), default=0)

    @cached_property
    def _costs_of_work(self) -> list[float]:
        """What each call's kernel alone costs but for waiting for memory."""
        objective: Objective = "instructions" if self._tuner.objective == "instructions" else "core-cycles"
        records = {name: kernel.record for name, kernel in self._kernels.items()}
        found = [records.get(name) for name in self._names]
        return [float((record.measurement.cost(objective) if record else 0) or 0) for record in found]

    @cached_property
    def _products(self) -> list[int]:
        """The multiply-accumulates of each call."""
        known = functions(self._placed)
        return [sum(map(multiplications, computing_ops(known[name]))) for name in self._names]

    @cached_property
    def _spans(self) -> dict[str, tuple[int, int]]:
        return lifetimes(self._program)

    @cached_property
    def _fed_calls(self) -> list[int]:
        """The calls that read what is fed."""
        reads = [map(self._program.storage, call.reads) for call in self._program.calls]
        return [number for number, names in enumerate(reads) if self._fed and self._fed in names]

    @cached_property
    def _streamable(self) -> list[tuple[int, int, bool]]:
        """First and last call of what may be a stream, and whether across channels."""
        found = []
        for across, stages in ((False, self._stages), (True, self._stages_across)):
            for first in range(len(self._calls)):
                for last in range(first + (first not in self._fed_calls), min(first + _LONGEST, len(self._calls))):
                    if stages[last] is None or stages[first] is None:
                        break
                    if self._stream(first, last, across) is not None:
                        found.append((first, last, across))
        return found

    def _stream(self, first: int, last: int, across: bool) -> Stream | None:
        """The stream of some calls, without copies; None where they are none."""
        known = self._stages_across if across else self._stages
        stages = [stage for stage in known[first : last + 1] if stage is not None]
        calls = self._program.calls[first : last + 1]
        if len(stages) < len(calls):
            return None
        reads = tuple(tuple(map(self._program.storage, call.reads)) for call in calls)
        writes = tuple(self._program.storage(call.writes[0]) for call in calls)
        spans = self._spans
        inputs = tuple(dict.fromkeys(name for names in reads for name in names if name not in writes))
        outputs = tuple(name for name in writes if spans[name][1] > last)
        fed = self._fed if self._fed in inputs else None
        if fed and (across or first > 0 or last < max(self._fed_calls)):
            return None
        if across and not all(map(self._is_pixel, (*_read_by_rows(stages, reads, inputs), *outputs))):
            return None
        found = Stream(tuple(stages), reads, writes, inputs, outputs, fed, bool(fed) and self._sliding)
        found = found.keeping_last_rows()
        return found.without_slices() if found.is_legal() else None

    def _plan(self, segment: Segment) -> Plan:
        """The plan of a stream."""
        plan = self._possible_plan(segment)
        assert plan is not None
        return plan

    def _possible_plan(self, segment: Segment) -> Plan | None:
        """The plan of a stream; None where its images cannot be cut."""
        key = replace(segment, resident="none", lean=0)
        if key not in self._plans:
            stream = self._stream(segment.first, segment.last, segment.across)
            assert stream is not None
            cut = stream.with_copies() if segment.parts == 1 else side_by_side(stream, segment.parts)
            slack = _SLACK if stream.slides else 0
            self._plans[key] = Plan(cut, segment.rows, slack, segment.thrift) if cut else None
        return self._plans[key]

    def _is_pixel(self, name: str) -> bool:
        """Whether a tensor has channels only, so that groups of them lie one behind the other."""
        *image, _ = self._program.buffers[name].shape
        return math.prod(image) == 1

    def _source(self, number: int) -> KernelSource:
        call = self._program.calls[number]
        assert isinstance(call, KernelCall)
        return call.kernel

    def _own_sources(self, plan: Plan, segment: Segment) -> list[tuple[int, KernelSource]]:
        """The stages that are no copies, each with the kernel of its call alone."""
        return [(number, self._source(call)) for number, call in self._own_calls(plan, segment)]

    def _own_calls(self, plan: Plan, segment: Segment) -> list[tuple[int, int]]:
        """The stages that are no copies, each with its call."""
        calls = range(segment.first, segment.last + 1)
        made = {self._program.storage(self._program.calls[call].writes[0]): call for call in calls}
        if plan.stream.kept:
            made[plan.stream.writes[-1]] = segment.last - 1
        stages = enumerate(zip(plan.stream.stages, plan.stream.writes, strict=True))
        return [(number, made[whole_name(name)]) for number, (stage, name) in stages if stage.function]

    def _resident(self, plan: Plan, segment: Segment) -> list[int]:
        most = {"none": 0, "small": _SMALL_PARAMS, "all": 1 << 31}[segment.resident]
        return [number for number, source in self._own_sources(plan, segment) if 0 < len(source.params) <= most]

    def _bytes(self, segment: Segment, scratch: int, leads: Mapping[tuple[int, int], int]) -> int:
        """Bytes that are live while a stream runs."""
        spans, buffers = self._spans, self._program.buffers
        stream = self._plan(segment).stream
        lying = {name: span for name, span in spans.items() if name != self._fed}
        beside = sum(buffers[name].size for name, (begin, end) in lying.items() if begin < segment.first <= end)
        saved = 0
        for (read, made), lead in leads.items():
            old, new = stream.inputs[read], stream.outputs[made]
            if old in spans and spans[old][1] <= segment.last:
                sizes = buffers[old].size, buffers[new].size
                saved = max(saved, sum(sizes) - max(lead + sizes[0], sizes[1]))
        return beside + sum(buffers[name].size for name in stream.outputs) + scratch - saved

    # Streams as tasks.

    def _task(self, segment: Segment) -> KernelTask | StreamTask:
        """The task of a stream, with the best known kernels of its strips, or of a call's lean kernel."""
        if segment not in self._tasks_of:
            self._tasks_of[segment] = self._new_task(segment)
        return self._tasks_of[segment]

    def _new_task(self, segment: Segment) -> KernelTask | StreamTask:
        if not segment.rows:
            whole = self._tasks[self._names[segment.first]]
            return _lean(whole, self._tuner.site(), segment.lean)
        plan = self._plan(segment)
        module = copy_of(self._placed)
        join(module, self._names[segment.first : segment.last + 1], "stream")
        kernel = kernel_module(functions(module)["stream"], "main")
        (function,) = functions(kernel).values()
        core, kept = self._tuner.target.core, self._resident(plan, segment)
        strips: list[Strip] = []
        like: dict[int | bytes, Strip] = {}
        for number, call in self._own_calls(plan, segment):
            whole = self._tasks[self._names[call]]
            site = self._tuner.site().inside if number in kept else self._tuner.site()
            strips += self._strips(plan, number, whole, site, segment.lean, like.get(whole.weights or call))
            like[whole.weights or call] = strips[-1]
        return StreamTask(str(function), core, plan, tuple(strips), tuple(kept), self._inputs(segment, plan.stream))

    def _inputs(self, segment: Segment, stream: Stream) -> tuple[bytes, ...]:
        """What a stream takes in the model, as far as its calls know; none where random bytes do."""
        known = dict[str, bytes]()
        for number in range(segment.first, segment.last + 1):
            reads = map(self._program.storage, self._program.calls[number].reads)
            known |= zip(reads, self._tasks[self._names[number]].inputs, strict=False)
        if not known:
            return ()
        sizes = {name: self._program.buffers[name].size for name in stream.inputs}
        return tuple(known.get(name) or np.random.default_rng(0).bytes(size) for name, size in sizes.items())

    def _strips(
        self, plan: Plan, number: int, whole: KernelTask, site: Site, lean: int, known: Strip | None
    ) -> list[Strip]:
        """The kernels of a stage: for the rows of a step, and for single rows, with weights packed alike if that
        can be, also as what is known of the same weights packs them."""
        stage, unit, counts = plan.stream.stages[number], plan.units[number], plan.calls[number]
        found = []
        for rows in sorted(counts, key=lambda rows: rows != unit):
            text, *further = _texts(stage, rows)
            task = _lean(replace(whole, function=text, inputs=()), site, lean)
            record = self._tuner.record(task)
            schedule = record.schedule if record else task.default()
            if known is not None:
                schedule = _like(known, task, schedule)
            known = Strip(number, rows, task, schedule, tuple(replace(task, function=text) for text in further))
            found.append(known)
        return found

    def _size(self, segments: Sequence[Segment]) -> None:
        """Find out what memory streams really take."""
        for segment in segments:
            task, price = self._task(segment), self._estimate(segment)
            try:
                scratch = task.generate(task.default()).scratch_bytes
            except Error:  # the kernels of the calls of a stage differ
                self._prices[segment] = None
                continue
            if isinstance(task, StreamTask):
                size = self._bytes(segment, scratch, task.plan.leads)
            else:
                size = self._alone[segment.first].bytes - self._source(segment.first).scratch_bytes + scratch
            self._prices[segment] = replace(price, bytes=size, sized=True)

    def _measure(self, segments: Sequence[Segment]) -> None:
        """Find out what streams really cost."""
        tasks = [self._task(segment) for segment in segments]
        self._tuner.try_once(tasks)
        for segment, task in zip(segments, tasks, strict=True):
            record, price = self._tuner.record(task), self._prices[segment]
            cost = record.measurement.cost(self._tuner.objective) if record else None
            if price is None or cost is None:
                self._prices[segment] = None
                continue
            self._prices[segment] = replace(price, cost=float(cost), measured=True)
            if segment.rows:
                self._errors.setdefault((segment.first, segment.last), []).append(cost / price.cost)


def _by_cost(fit: Fit) -> tuple[float, int]:
    return fit.weighed, fit.bytes


def _texts(stage: Stage, rows: int) -> list[str]:
    """What calls of a stage compute that make so many rows: one function for all, or one for each call."""
    if not stage.across:
        return [strip(stage, rows)]
    texts = [groups(stage, first, rows) for first in range(0, stage.height, rows)]
    return texts if len(set(texts)) > 1 else texts[:1]


def _read_by_rows(stages: Sequence[Stage], reads: Sequence[Sequence[str]], names: Collection[str]) -> Iterator[str]:
    """Those of some tensors that stages do not read whole."""
    for stage, read in zip(stages, reads, strict=True):
        for name, argument in zip(read, stage.arguments, strict=True):
            if name in names and argument.rows is not None:
                yield name


def _may_stream(function: ir.Operation, task: KernelTask) -> bool:
    """Whether a function's kernels for strips can be proven, and their schedules are not given by hand."""
    return task.exact and task.given is None and _has_data(function, task)


def _has_data(function: ir.Operation, task: KernelTask) -> bool:
    """Whether there is something to try a function of int8 or int16 on: random bytes, or what it takes in the model."""
    kinds = {str(element_type(argument)) for argument in body_of(function).arguments}
    return kinds <= {"i8"} or (kinds <= {"i8", "i16"} and bool(task.inputs))


def _lean(task: KernelTask, site: Site, least: int) -> KernelTask:
    """The task held to the family of its best guess, and to so much working memory, or to as little more as that has a
    schedule for; the generic lowering is no way out, as it takes what it takes."""
    usual = replace(task, site=site)
    own = replace(usual, families=(_family(usual),))
    for most in (least, *(more for more in _MORE_SCRATCH if more > least)):
        lean = replace(own, site=replace(site, most_scratch=most))
        if _family(lean) == _family(own):
            return lean
    return own


def _family(task: KernelTask) -> str:
    """The family of a task's best guess; empty where no schedule is legal."""
    guess = next((variant.name for variant in task.space.variants if variant.first() is not None), "")
    return guess.partition(".")[0]


def _like(known: Strip, task: KernelTask, schedule: Schedule) -> Schedule:
    """A schedule of a strip that packs weights as another strip does; its own where it has none."""
    source = known.task.generate(known.schedule)
    if known.schedule in task.space and pack_alike(task.generate(known.schedule), source):
        return known.schedule
    return (source.weights is not None and adapted(task, schedule, source, known.schedule)) or schedule
