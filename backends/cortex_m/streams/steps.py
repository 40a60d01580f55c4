"""What each step of a stream does, in numbers: which kernels it calls where, and which rows move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from tosaic.backends.cortex_m.streams.layout import WindowPlace
from tosaic.backends.cortex_m.streams.pieces import Numbers
from tosaic.backends.cortex_m.streams.plan import Plan
from tosaic.backends.cortex_m.streams.stage import EDGE, Argument

Kind = Literal["bring", "take", "make", "above", "below", "keep"]
_ORDER: Sequence[Kind] = ("bring", "make", "above", "below", "keep")


class StepPart(NamedTuple):
    """A part of a step.

    Args:
        stage: at whose calls it stands.
        order: before those behind it of the same stage.
        kind: rows that were kept are brought back, those at an edge repeated or filled, or those that are still needed
            moved to where they are kept; or rows are made, or taken of what is fed.
        window: the stage that makes the rows; `rows` of them.
    """

    stage: int
    order: int
    kind: Kind
    window: int
    rows: int


class StreamSteps:
    """Executes a plan without data.

    Attributes:
        found: of each site the numbers of each time, by step. Of kernels these are bytes from where each argument
            begins, from where the result does, and which call it is; of rows that move, to where and from where.
    """

    def __init__(self, plan: Plan, places: dict[str, WindowPlace]) -> None:
        self._plan, self._stream, self._places = plan, plan.stream, places
        self._done = [0] * len(plan.units)
        self._first = {name: -window.above for name, window in plan.windows.items()}
        self.found: dict[StepPart, dict[int, list[Numbers]]] = {}
        self.phases = 1 + plan.slack if plan.stream.slides else 1
        self.first = -plan.steps % self.phases
        self.hops = range(self.first + plan.steps, self.first + plan.steps + 2 * self.phases * plan.stream.slides)
        for now in range(self.first, self.hops.stop):
            self._now = now
            if now in self.hops:
                self._move_on()
            self._step(plan.ends(min(now - self.first, plan.steps - 1)))
        for kind in ("keep", "bring"):
            self._even(kind)

    def _step(self, ends: Sequence[int]) -> None:
        stages, going_on = self._stream.stages, ends[-1] < self._stream.stages[-1].height
        for number, end in enumerate(ends):
            name = self._stream.writes[number]
            window = self._plan.windows.get(name)
            if window and not self._plan.is_eager:
                below = window.below if end == stages[number].height else 0
                full = end + below - self._first[name] > window.rows
                if self._now % self.phases == 0 if self._stream.slides else full:
                    self._keep(name, number, first=True)
            elif number > 0:
                self._bring(number)
            begins = self._done[number] == 0 < end
            self._make(number, end)
            if begins and window and window.above and window.padding == EDGE:
                self._do(self._site(number, "above", number, window.above), (0, window.above * window.bytes))
            if window and window.below and self._done[number] == stages[number].height:
                self._pad_below(number)
            for read in self._plan.windows if self._plan.is_eager and going_on else ():
                if self._plan.windows[read].last == number:
                    self._keep(read, number)
        if going_on:
            self._bring(0, len(stages))

    def _site(self, stage: int, kind: Kind, window: int, rows: int, *, first: bool = False) -> StepPart:
        return StepPart(stage, -1 if first else _ORDER.index(kind), kind, window, rows)

    def _do(self, site: StepPart, numbers: Numbers) -> None:
        self.found.setdefault(site, {}).setdefault(self._now, []).append(numbers)

    def _keep(self, name: str, stage: int, *, first: bool = False) -> None:
        """Move the rows of a window that are still needed to where they are kept."""
        window, number = self._plan.windows[name], self._stream.writes.index(name)
        low = min(self._done[number], *(rows.first(self._done[reader]) for reader, rows in window.readers))
        moved, rows = low - self._first[name], self._done[number] - low
        if rows and (moved or self._is_split(name)):
            self._do(self._site(stage, "keep", number, rows, first=first), (0, moved * window.bytes))
        self._first[name] = low

    def _bring(self, first: int, stage: int | None = None) -> None:
        """Bring rows back to where the stage `first` makes further ones, at this stage or another one."""
        for name, window in self._plan.windows.items():
            number = self._stream.writes.index(name)
            rows = self._done[number] - self._first[name]
            if window.first == first and self._is_split(name) and self._plan.is_eager and rows:
                self._do(self._site(first if stage is None else stage, "bring", number, rows), (0, 0))

    def _move_on(self) -> None:
        """Count rows from the first of the next window on, to where results move, too."""
        for number, (unit, name) in enumerate(zip(self._plan.units, self._stream.writes, strict=True)):
            self._done[number] -= unit
            if name in self._first:
                self._first[name] -= unit
            elif (rows := self.result_rows(number) - unit) > 0:
                size = self._stream.stages[number].bytes
                self._do(self._site(number, "keep", number, rows, first=True), (0, unit * size))

    def _even(self, kind: Kind) -> None:
        """Let equally many rows move at each step, where those behind that nobody needs are in the window."""
        moves = [s for s in self.found if s.kind == kind and self._stream.writes[s.window] in self._plan.windows]
        for most in sorted(moves, key=lambda site: -site.rows):
            window = self._plan.windows[self._stream.writes[most.window]]
            room = (window.rows - most.rows) * window.bytes
            for site in moves:
                if (
                    {site, most} <= self.found.keys()
                    and site.rows < most.rows
                    and site._replace(rows=most.rows) == most
                ):
                    inside = {step: times for step, times in self.found[site].items() if times[0][1] <= room}
                    self.found[most] |= inside
                    for step in inside:
                        del self.found[site][step]
                    if not self.found[site]:
                        del self.found[site]

    def _is_split(self, name: str) -> bool:
        return self._places[name].at != self._places[name].kept_at

    def _pad_below(self, number: int) -> None:
        """Behind the last row, as long as somebody reads what is there."""
        name = self._stream.writes[number]
        window, at = self._plan.windows[name], self._done[number] - self._first[name]
        if any(self._done[reader] < self._stream.stages[reader].height for reader, _ in window.readers):
            site = self._site(number, "below", number, window.below)
            self._do(site, (at * window.bytes, (at - 1) * window.bytes))

    def _make(self, number: int, end: int) -> None:
        stage, unit = self._stream.stages[number], self._plan.units[number]
        while self._done[number] < end:
            made = unit if self._done[number] + unit <= end else stage.together
            pairs = zip(self._stream.reads[number], stage.arguments, strict=True)
            read = [self._read(number, name, argument) for name, argument in pairs]
            numbers = *read, self._written(number), self._done[number] // made
            self._do(self._site(number, "make", number, made), numbers)
            self._done[number] += made

    def _read(self, number: int, name: str, argument: Argument) -> int:
        """Where the rows of an argument begin that a stage's next row is made of."""
        if argument.rows is None:
            return 0
        first = argument.rows.first(self._done[number])
        if name in self._first:
            return (first - self._first[name]) * argument.bytes
        return first * argument.step + argument.offset

    def _written(self, number: int) -> int:
        """Where a stage's next row lies."""
        name, stage = self._stream.writes[number], self._stream.stages[number]
        if name in self._first:
            return (self._done[number] - self._first[name]) * stage.bytes
        before = stage.height - self.result_rows(number)
        return max(0, self._done[number] - before) * stage.step + stage.offset

    def result_rows(self, number: int) -> int:
        """The rows of a stage's result that lie in memory."""
        is_last = number == len(self._stream.stages) - 1
        return self._stream.kept if is_last and self._stream.kept else self._stream.stages[number].height
