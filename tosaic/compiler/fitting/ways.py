"""Which ways there are to run calls: alone, or together as a stream, by strip height, cached weights and cuts."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.streams.parts import side_by_side, whole_name
from tosaic.backends.cortex_m.streams.plan import Plan
from tosaic.backends.cortex_m.streams.stage import Stage
from tosaic.backends.cortex_m.streams.stream import Stream
from tosaic.compiler.fitting.calls import Calls

_HEIGHTS = (1, 2, 4, 8, 16)
"""Rows of the last result in a step."""
_LONGEST = 24
"""Calls in a stream."""
ROOM = 14_336
"""Bytes of working memory that kernels of strips are held to where there is room."""
_SMALL_PARAMS = 4096
_SLACK = 3
"""Hops of a window before its rows move to the start of their buffers."""


@dataclass(frozen=True)
class Segment:
    """What executes the calls `first` to `last` of the program: a stream, or the kernel of one call.

    Args:
        rows: of the last result in a step; 0 where a kernel alone makes all.
        cached: which stages' params are copied to scratch memory: none, those of few bytes, or all.
        lean: bytes of working memory that its kernels are held to, if that can be; 0 for any number.
        thrift: what a stream does to save memory; see `Plan`.
        across: whether its rows are groups of channels.
        parts: side by side, into which its images are cut.
    """

    first: int
    last: int
    rows: int = 0
    cached: str = "none"
    lean: int = 0
    thrift: int = 0
    across: bool = False
    parts: int = 1


class Ways:
    """The streams that calls could run as.

    Args:
        calls: of the program.
    """

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self._plans: dict[Segment, Plan | None] = {}

    @cached_property
    def streamable(self) -> list[tuple[int, int, bool]]:
        """First and last call of what may be a stream, and whether across channels."""
        calls, found = self.calls, []
        for across, stages in ((False, calls.stages), (True, calls.stages_across)):
            for first in range(len(calls)):
                for last in range(first + (first not in calls.fed_calls), min(first + _LONGEST, len(calls))):
                    if stages[last] is None or stages[first] is None:
                        break
                    if self._stream(first, last, across) is not None:
                        found.append((first, last, across))
        return found

    def of(self, first: int, last: int) -> Iterator[Segment]:
        """The streams of some calls by rows of an image."""
        stage = self.calls.stages[last]
        assert stage is not None
        sizes = [len(self.calls.source(number).params) for number in range(first, last + 1)]
        cached_ways = ["none", *(["small"] if min(sizes) <= _SMALL_PARAMS else [])]
        cached_ways += ["all"] if max(sizes) > _SMALL_PARAMS else []
        least = stage.together
        for rows in (1,) if self.calls.slides(first) else (least * height for height in _HEIGHTS):
            if 2 * rows <= stage.height or rows == least:
                for cached in cached_ways:
                    yield Segment(first, last, rows, cached)

    def across(self, first: int, last: int) -> Iterator[Segment]:
        """The streams of some calls by groups of channels."""
        stage = self.calls.stages_across[last]
        assert stage is not None
        for rows in _HEIGHTS:
            if stage.height % rows == 0 and 2 * rows <= stage.height:
                yield Segment(first, last, rows, across=True)

    def plan(self, segment: Segment) -> Plan:
        """The plan of a stream."""
        plan = self.possible_plan(segment)
        assert plan is not None
        return plan

    def possible_plan(self, segment: Segment) -> Plan | None:
        """The plan of a stream; None where its images cannot be cut."""
        key = replace(segment, cached="none", lean=0)
        if key not in self._plans:
            stream = self._stream(segment.first, segment.last, segment.across)
            assert stream is not None
            cut = stream.with_copies() if segment.parts == 1 else side_by_side(stream, segment.parts)
            slack = _SLACK if stream.slides else 0
            self._plans[key] = Plan(cut, segment.rows, slack, segment.thrift) if cut else None
        return self._plans[key]

    def own_calls(self, segment: Segment) -> list[tuple[int, int]]:
        """The stages of a stream that are no copies, each with its call."""
        plan, program = self.plan(segment), self.calls.program
        calls = range(segment.first, segment.last + 1)
        made = {program.storage(program.calls[call].writes[0]): call for call in calls}
        if plan.stream.kept:
            made[plan.stream.writes[-1]] = segment.last - 1
        stages = enumerate(zip(plan.stream.stages, plan.stream.writes, strict=True))
        return [(number, made[whole_name(name)]) for number, (stage, name) in stages if stage.module]

    def own_sources(self, segment: Segment) -> list[tuple[int, KernelSource]]:
        """The stages of a stream that are no copies, each with the kernel of its call alone."""
        return [(number, self.calls.source(call)) for number, call in self.own_calls(segment)]

    def cached(self, segment: Segment) -> list[int]:
        """The stages of a stream whose params are copied to scratch memory."""
        most = {"none": 0, "small": _SMALL_PARAMS, "all": 1 << 31}[segment.cached]
        return [number for number, source in self.own_sources(segment) if 0 < len(source.params) <= most]

    def shares(self, segment: Segment) -> Iterator[tuple[int, float]]:
        """What a segment makes of the result of each call, as a share of it: parts make some columns twice."""
        if segment.parts == 1:
            yield from ((call, 1.0) for call in range(segment.first, segment.last + 1))
            return
        plan = self.plan(segment)
        for number, call in self.own_calls(segment):
            stage = self.calls.stages[call]
            assert stage is not None
            yield call, plan.stream.stages[number].bytes / stage.bytes

    def _stream(self, first: int, last: int, across: bool) -> Stream | None:
        """The stream of some calls, without copies; None where they are none."""
        known = self.calls.stages_across if across else self.calls.stages
        stages = [stage for stage in known[first : last + 1] if stage is not None]
        program, spans = self.calls.program, self.calls.spans
        calls = program.calls[first : last + 1]
        if len(stages) < len(calls) or program.method_at(first) is not program.method_at(last):
            return None
        reads = tuple(tuple(map(program.storage, call.reads)) for call in calls)
        writes = tuple(program.storage(call.writes[0]) for call in calls)
        inputs = tuple(dict.fromkeys(name for names in reads for name in names if name not in writes))
        outputs = tuple(name for name in writes if spans[name][1] > last)
        fed = self.calls.fed if self.calls.fed in inputs else None
        if fed and (across or first > 0 or last < max(self.calls.fed_calls)):
            return None
        if across and not all(map(self._is_pixel, (*_read_by_rows(stages, reads, inputs), *outputs))):
            return None
        found = Stream(tuple(stages), reads, writes, inputs, outputs, fed, bool(fed) and self.calls.sliding)
        found = found.keeping_last_rows()
        return found.without_slices() if found.is_legal() else None

    def _is_pixel(self, name: str) -> bool:
        """Whether a tensor has channels only, so that groups of them lie one behind the other."""
        *image, _ = self.calls.program.buffers[name].shape
        return math.prod(image) == 1


def _read_by_rows(stages: Sequence[Stage], reads: Sequence[Sequence[str]], names: Collection[str]) -> Iterator[str]:
    """Those of some tensors that stages do not read whole."""
    for stage, read in zip(stages, reads, strict=True):
        for name, argument in zip(read, stage.arguments, strict=True):
            if name in names and argument.rows is not None:
                yield name
