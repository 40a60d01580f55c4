"""How a stream goes in steps: rows a step, and a window of rows for each tensor between its stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tosaic.backends.cortex_m.kernels.mve import round_up
from tosaic.backends.cortex_m.streams.stream import FIRST_STEPS, Stream
from tosaic.backends.cortex_m.streams.window import StreamWindow


@dataclass(frozen=True)
class Plan:
    """A stream with its step.

    Args:
        rows: of the last stage's result in a step; a multiple of what it makes together.
        slack: steps for which a window's buffer has room before what is needed is moved to its start.
        thrift: 0 where a window keeps its memory. 1 where others may have it while only what a step leaves to the next
            is needed. 2 where even this may lie elsewhere then.
    """

    stream: Stream
    rows: int
    slack: int = 0
    thrift: int = 0

    @cached_property
    def steps(self) -> int:
        return self.early - (-self.stream.stages[-1].height // self.rows)

    @cached_property
    def early(self) -> int:
        """Steps before the last stage begins, in which others make what its first rows need, no more in a step than
        later."""
        steps = 0
        while any(end > 0 for end in self._wanted(-steps - 1)):
            steps += 1
        return steps

    @cached_property
    def units(self) -> tuple[int, ...]:
        """Rows that each stage makes in a call, while no end is near; what is left over is made one by one, or as few
        as are made together."""
        stages = self.stream.stages
        units = [min(self.rows, stages[-1].height)] * len(stages)
        for number in self.stream.inner:
            made = [
                argument.rows.stride * units[reader] // argument.rows.up
                for reader, argument in self.stream.readers(self.stream.writes[number])
                if argument.rows
            ]
            units[number] = min(round_up(max(made), stages[number].together), stages[number].height)
        return tuple(units)

    def ends(self, step: int) -> list[int]:
        """The rows that each stage has made after a step."""
        return [max(0, end) for end in self._wanted(step - self.early)]

    def _wanted(self, step: int) -> list[int]:
        """The rows that each stage shall have made after a step, of which the last stage begins with step 0; negative
        where it has long to wait."""
        stages = self.stream.stages
        ends = [min(self.rows * (step + 1), stages[-1].height)] * len(stages)
        for number in self.stream.inner:
            made = self.stream.writes[number]
            needed = [a.rows.end(ends[reader]) for reader, a in self.stream.readers(made) if a.rows]
            if made in self.stream.outputs and ends[-1] == stages[-1].height:
                needed.append(stages[number].height)
            ends[number] = min(round_up(max(needed), stages[number].together), stages[number].height)
        return ends

    @cached_property
    def windows(self) -> dict[str, StreamWindow]:
        """The buffer of each tensor between stages, by its name."""
        return {
            name: self._window(number)
            for number, name in enumerate(self.stream.writes)
            if name not in self.stream.outputs
        }

    def _window(self, number: int) -> StreamWindow:
        stage, name = self.stream.stages[number], self.stream.writes[number]
        arguments = self.stream.readers(name)
        readers = tuple((reader, argument.rows) for reader, argument in arguments if argument.rows)
        above = max(0, *(rows.before for _, rows in readers))
        below = max(0, *(rows.end(self.stream.stages[reader].height) - stage.height for reader, rows in readers))
        paddings = [argument.padding for reader, argument in arguments if self.stream.is_padded(reader, argument)]
        held = 0
        for done, ends in (*self._moments, *self._further):
            end = ends[number] + (below if ends[number] == stage.height else 0)
            held = max(held, end - min(done[number], *(rows.first(done[reader]) for reader, rows in readers)))
        rows = held + self.slack * self.units[number]
        left = max(
            done[number] - min(done[number], *(each.first(done[reader]) for reader, each in readers))
            for done, _ in self._moments
        )
        kept, last = left if self.is_eager else rows, max(reader for reader, _ in readers)
        first = 0 if self.stream.takes(number) else number
        return StreamWindow(rows, stage.bytes, kept, first, last, above, below, max(paddings, default=0), readers)

    @property
    def is_eager(self) -> bool:
        """Whether what is needed moves to the start of a buffer as soon as a step has read it, else when its end is
        reached.

        The rest of the buffer is free then until the next rows are made.
        """
        return self.thrift > 0 and not self.slack and not self.stream.slides

    def is_split(self, window: StreamWindow) -> bool:
        """Whether what a step leaves of a window to the next may lie elsewhere meanwhile."""
        always = (window.first, window.last) == (0, len(self.units) - 1)
        return self.thrift > 1 and self.is_eager and not always and window.kept > 0

    @cached_property
    def _moments(self) -> list[tuple[list[int], list[int]]]:
        """The rows of each stage before and after every step, but for those in the middle where all do the same."""
        heights = [stage.height for stage in self.stream.stages]
        if any(stage.together > 1 for stage in self.stream.stages):
            return list(pairwise([[0] * len(heights), *map(self.ends, range(self.steps))]))
        found = [([0] * len(heights), self.ends(0))]
        last, first = self.steps - 1, self.early + FIRST_STEPS
        begun, ended = range(1, min(first, last + 1)), list[int]()
        for step in range(last, first - 1, -1):
            ended.append(step)
            if all(end < height for end, height in zip(self.ends(step), heights, strict=True)):
                break
        return found + [(self.ends(step - 1), self.ends(step)) for step in (*begun, *reversed(ended))]

    @property
    def _further(self) -> list[tuple[list[int], list[int]]]:
        """The rows of each stage before and after a step with which a window has moved on."""
        if not self.stream.slides:
            return []
        ends = self.ends(self.steps - 1)
        return [([end - unit for end, unit in zip(ends, self.units, strict=True)], ends)]

    @cached_property
    def calls(self) -> tuple[Mapping[int, int], ...]:
        """How often each stage is called, by the rows that a call makes."""
        counts = [Counter[int]() for _ in self.stream.stages]
        alike = self.steps - len(self._moments)
        for number, unit in enumerate(self.units):
            counts[number][unit] = alike
            for done, ends in self._moments:
                whole, rest = divmod(ends[number] - done[number], unit)
                together = self.stream.stages[number].together
                counts[number].update({unit: whole})
                counts[number].update({together: rest // together})
        return tuple(+count for count in counts)

    @cached_property
    def leads(self) -> dict[tuple[int, int], int]:
        """By input and output the bytes by which the output must begin before the input, where they share memory: then
        no row is written that another still needs."""
        stream = self.stream
        lying = [i for i, name in enumerate(stream.inputs) if name != stream.fed]
        leads = {(i, o): 0 for i in lying for o in range(len(stream.outputs))}
        for before, ends in self._moments:
            done = list(before)
            for number, end in enumerate(ends):
                if stream.writes[number] not in stream.outputs:
                    done[number] = end
                    continue
                output = stream.outputs.index(stream.writes[number])
                while done[number] < end:
                    unit = self.units[number]
                    made = unit if done[number] + unit <= end else stream.stages[number].together
                    written = (done[number] + made) * stream.stages[number].step
                    for index in lying:
                        needed = self._needed(stream.inputs[index], done)
                        if needed is not None:
                            leads[index, output] = max(leads[index, output], written - needed)
                    done[number] += made
        return leads

    def _needed(self, name: str, done: Sequence[int]) -> int | None:
        """The byte of an input from which on stages that have `done` so many rows need it; None where none does."""
        begins = [
            max(0, argument.rows.first(done[reader])) * argument.step if argument.rows else 0
            for reader, argument in self.stream.readers(name)
            if done[reader] < self.stream.stages[reader].height
        ]
        return min(begins, default=None)

    @property
    def moved(self) -> int:
        """Bytes that slide to the start of their buffers, all in all."""
        kept = sum(
            (window.rows - (1 + self.slack) * self.units[self.stream.writes.index(name)])
            * window.bytes * (1 + self.is_split(window))
            for name, window in self.windows.items()
        )  # fmt: skip
        return kept * self.steps // (1 + self.slack)
