"""What segments take: live bytes, cost in the tuner's objective, and flash; estimated first, measured when asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tosaic.backends.cortex_m.footprint import ArrayAccess, Place, Walk
from tosaic.backends.cortex_m.streams.layout import least_bytes
from tosaic.backends.cortex_m.streams.stream import Stream
from tosaic.backends.cortex_m.streams.task import StreamTask
from tosaic.backends.firmware.memory_plan import overlaps, program_blocks
from tosaic.backends.firmware.placing import live_bytes
from tosaic.backends.firmware.program import KernelCall
from tosaic.compiler.fitting.reuse import ConstantReuse, Kept
from tosaic.compiler.fitting.tasks import SegmentTasks
from tosaic.compiler.fitting.ways import ROOM, Segment, Ways
from tosaic.compiler.tuning import Tuner
from tosaic.support.errors import Error
from tosaic.tuner.measurement import Objective

_CYCLES_OF_CALL, _CYCLES_OF_BYTE = 120, 0.3
"""What a call of a strip's kernel costs beyond its work, and a byte that slides."""
_COST_OF_LITTLE = 1 / 50
"""What of its work a kernel costs more that is held to little working memory, about."""
_CODE = 1024
"""Bytes of a kernel's code, about."""
_LONG_WAIT = 0.5
"""Times a kernel's own cycles, for which streams are tried in its place."""


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


class Prices:
    """The price of each segment, as far as it is known.

    Args:
        tasks: of the segments; `ways` tells their streams.
    """

    def __init__(self, tuner: Tuner, ways: Ways, tasks: SegmentTasks) -> None:
        self._tuner, self._ways, self._calls, self._tasks = tuner, ways, ways.calls, tasks
        self._known: dict[Segment, Price | None] = {}
        self._errors: dict[tuple[int, int], list[float]] = {}
        self._site = tuner.site()
        self.reuse = ConstantReuse(tuner, ways.calls)

    # What is known.

    def of(self, segment: Segment) -> Price | None:
        """What a segment costs, estimated until it is measured; None where it was found wrong."""
        if segment not in self._known:
            self._known[segment] = self._estimate(segment)
        price = self._known[segment]
        if price is None:
            return None
        share = 1.0 if price.measured else self._error(segment)
        if segment.rows and self._calls.slides(segment.first):
            plan = self._ways.plan(segment)
            share *= plan.units[0] / plan.stream.stages[0].height
        return price if share == 1 else replace(price, cost=price.cost * share)

    @cached_property
    def alone(self) -> list[Price]:
        """The price of each call's kernel alone."""
        calls = self._calls
        blocks, leads = program_blocks(calls.program, 1), overlaps(calls.program)
        costs = {name: kernel.record.measurement for name, kernel in calls.kernels.items() if kernel.record}
        prices = []
        for number, name in enumerate(calls.names):
            cost = costs[name].cost(self._tuner.objective) if name in costs else 0
            prices.append(Price(live_bytes(blocks, leads, number), float(cost or 0), True, True))
        return prices

    @property
    def most(self) -> int:
        """Bytes of the call that needs most by itself; 0 where nothing is called: results are inputs or constants."""
        return max((price.bytes for price in self.alone), default=0)

    @cached_property
    def waiting(self) -> list[int]:
        """The calls whose kernels alone wait long for tensors, which a stream may keep in the cache."""
        if self._waits(1, "output") == 0:
            return []
        segments = [Segment(number, number) for number in range(len(self._calls))]
        found = []
        for number, (alone, work) in enumerate(zip(self.alone, self._costs_of_work, strict=True)):
            spared = self.spared(self.reuse.kept(segments[:number]), segments[number])
            if alone.cost - spared > (1 + _LONG_WAIT) * work:
                found.append(number)
        return found

    def spared(self, kept: Kept, segment: Segment) -> float:
        """What a segment costs less than its trial where the cache holds constants when it begins."""
        size = self.reuse.found(kept, segment)
        waits = self.alone[segment.first].cost - self._costs_of_work[segment.first]
        return min(self._waits(size), waits) if size else 0.0

    def live_bytes(self, segment: Segment, scratch: int, leads: Mapping[tuple[int, int], int]) -> int:
        """Bytes that are live while a stream runs.

        Args:
            scratch: its working memory.
            leads: see `Plan`.
        """
        spans, buffers = self._calls.spans, self._calls.program.buffers
        stream = self._ways.plan(segment).stream
        lying = {name: span for name, span in spans.items() if name != self._calls.fed}
        beside = sum(buffers[name].size for name, (begin, end) in lying.items() if begin < segment.first <= end)
        saved = 0
        for (read, made), lead in leads.items():
            old, new = stream.inputs[read], stream.outputs[made]
            if old in spans and spans[old][1] <= segment.last:
                sizes = buffers[old].size, buffers[new].size
                saved = max(saved, sum(sizes) - max(lead + sizes[0], sizes[1]))
        return beside + sum(buffers[name].size for name in stream.outputs) + scratch - saved

    def flash_bytes(self, segment: Segment) -> int:
        """What a segment takes of flash, about."""
        if segment.rows:
            plan, own = self._ways.plan(segment), self._ways.own_sources(segment)
            kernels = 1 + sum(len(plan.calls[number]) for number, _ in own)
            return sum(len(source.params) for _, source in own) + _CODE * kernels
        call = self._calls.program.calls[segment.first]
        return len(call.kernel.params) + _CODE if isinstance(call, KernelCall) else 0

    # What is found out.

    def size(self, segments: Sequence[Segment]) -> None:
        """Find out what memory segments really take."""
        for segment in segments:
            task, price = self._tasks.of(segment), self._estimate(segment)
            try:
                scratch = task.generate(task.default()).scratch_bytes
            except Error:  # the kernels of the calls of a stage differ
                self._known[segment] = None
                continue
            if isinstance(task, StreamTask):
                size = self.live_bytes(segment, scratch, task.plan.leads)
            else:
                usual = self._calls.source(segment.first).scratch_bytes
                size = self.alone[segment.first].bytes - usual + scratch
            self._known[segment] = replace(price, bytes=size, sized=True)

    def measure(self, segments: Sequence[Segment]) -> None:
        """Find out what segments really cost."""
        tasks = [self._tasks.of(segment) for segment in segments]
        self._tuner.try_once(tasks)
        for segment, task in zip(segments, tasks, strict=True):
            record, price = self._tuner.record(task), self._known[segment]
            cost = record.measurement.cost(self._tuner.objective) if record else None
            if price is None or cost is None:
                self._known[segment] = None
                continue
            self._known[segment] = replace(price, cost=float(cost), measured=True)
            if segment.rows:
                self._errors.setdefault((segment.first, segment.last), []).append(cost / price.cost)

    # Estimates.

    def _error(self, segment: Segment) -> float:
        """What streams of the same calls, else of any, were measured to cost beyond their estimates."""
        same = self._errors.get((segment.first, segment.last))
        known = same or [error for errors in self._errors.values() for error in errors]
        return sum(known) / len(known) if known else 1.0

    def _estimate(self, segment: Segment) -> Price:
        if not segment.rows:
            alone, scratch = self.alone[segment.first], self._calls.source(segment.first).scratch_bytes
            return replace(alone, bytes=alone.bytes - max(0, scratch - segment.lean), sized=False, measured=False)
        plan = self._ways.plan(segment)
        kept = self._ways.cached(segment)
        own = {number for number, _ in self._ways.own_calls(segment)}
        scratch = least_bytes(plan, [segment.lean * (number in own) for number in range(len(plan.units))])
        cost = sum(self._costs_of_work[call] * share for call, share in self._ways.shares(segment))
        cost *= 1 + _COST_OF_LITTLE * (0 < segment.lean < ROOM)
        calls = [sum(counts.values()) for counts in plan.calls]
        cost += _CYCLES_OF_CALL * sum(calls) + _CYCLES_OF_BYTE * plan.moved
        sources = self._ways.own_sources(segment)
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
        return Price(self.live_bytes(segment, scratch, plan.leads), cost)

    @cached_property
    def _costs_of_work(self) -> list[float]:
        """What each call's kernel alone costs but for waiting for memory."""
        objective: Objective = "instructions" if self._tuner.objective == "instructions" else "core-cycles"
        records = {name: kernel.record for name, kernel in self._calls.kernels.items()}
        found = [records.get(name) for name in self._calls.names]
        return [float((record.measurement.cost(objective) if record else 0) or 0) for record in found]

    def _waits_for_tensors(self, stream: Stream, scratch: int) -> float:
        """What a stream waits for what it reads and makes, and for what lies in between where no cache holds that."""
        sizes = {name: buffer.size for name, buffer in self._calls.program.buffers.items()}
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
        return self._site.waits([walk], self._tuner.target.core.pipeline)
