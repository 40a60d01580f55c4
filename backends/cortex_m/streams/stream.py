"""Kernels executed together, strip by strip of rows, so that tensors between them keep only the rows in use.

The last stage makes `rows` rows a step; each other stage makes what these need and nobody has made before, so that
nothing is computed twice. A tensor between stages is a window of rows that slides down in a buffer: what is still
needed moves to the buffer's start when its end is reached. Rows of padding lie in the buffer too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tosaic.backends.cortex_m.streams.row_map import RowMap
from tosaic.backends.cortex_m.streams.stage import Argument, Stage

FIRST_STEPS = 3
"""Steps of the last stage after which, up to the first end of a tensor, all do the same."""


@dataclass(frozen=True)
class Stream:
    """Stages in an order in which each reads what stands before it; only the last result is read by none of them.

    Args:
        reads: the tensors behind each stage's arguments; `writes` the one that it makes.
        inputs, outputs: the tensors that lie in memory as a whole, in the order of the kernel's arguments.
        fed: the input whose rows arrive one after another, and which so never lies in memory as a whole.
        slides: whether further rows of it move a window on, whose results follow without computing anything twice.
        kept: of the last stage's rows how many, the last ones, are the result; 0 for all.
    """

    stages: tuple[Stage, ...]
    reads: tuple[tuple[str, ...], ...]
    writes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    fed: str | None = None
    slides: bool = False
    kept: int = 0

    def is_legal(self) -> bool:
        """Whether the stages can run row by row, and a window can move on where it shall.

        What one stage makes is read by a later one, by rows and with one kind of padding around it. Only the last
        result is read by none.
        """
        for number, made in enumerate(self.writes):
            arguments = [argument for _, argument in self.readers(made)]
            if (number == len(self.writes) - 1) == bool(arguments):
                return False
            if any(argument.rows is None or argument.planes > 1 for argument in arguments):
                return False
        if self.fed and (
            self.fed not in self.reads[0] or any(not a.rows or a.planes > 1 for _, a in self.readers(self.fed))
        ):
            return False
        if self.stages[-1].height == 1 or (self.slides and not self._can_slide()):
            return False
        for name in {*self.inputs, *self.writes}:
            if len({a.padding for reader, a in self.readers(name) if self.is_padded(reader, a)}) > 1:
                return False
        return self.writes[-1] in self.outputs

    def keeping_last_rows(self) -> Stream:
        """The stream of windows that move on without a last stage that takes the last rows of what is made before."""
        *_, made, last = ("", *self.writes)
        (taken, *_) = self.stages[-1].arguments
        height = self.stages[-1].height
        is_slice = self.slides and not self.stages[-1].module and self.reads[-1] == (made,) and made not in self.outputs
        if not is_slice or taken.rows is None or taken.rows.end(height) != taken.height:
            return self
        writes = (*self.writes[:-2], last)
        return replace(self, stages=self.stages[:-1], reads=self.reads[:-1], writes=writes, kept=height)

    def without_slices(self) -> Stream:
        """The stream whose stages read what lies behind slices of rows, but for slices that must lie somewhere: those
        that are results, and those with rows of padding around them."""
        found = self
        for made, stage in zip(self.writes, self.stages, strict=True):
            readers = found.readers(made)
            if not stage.module and made not in self.outputs and not any(found.is_padded(*each) for each in readers):
                found = found._passing_over(made)
        return found

    def _passing_over(self, slice_: str) -> Stream:
        number = self.writes.index(slice_)
        (source,), (taken,) = self.reads[number], self.stages[number].arguments
        assert taken.rows is not None

        def behind(argument: Argument) -> Argument:
            assert argument.rows is not None and taken.rows is not None
            rows = replace(argument.rows, before=argument.rows.before + taken.rows.before)
            return replace(argument, rows=rows, height=taken.height)

        stages, reads = list[Stage](), list[tuple[str, ...]]()
        for stage, names in zip(self.stages, self.reads, strict=True):
            pairs = list(zip(names, stage.arguments, strict=True))
            arguments = tuple(behind(argument) if name == slice_ else argument for name, argument in pairs)
            stages.append(replace(stage, arguments=arguments))
            reads.append(tuple(source if name == slice_ else name for name in names))
        del stages[number], reads[number]
        writes = (*self.writes[:number], *self.writes[number + 1 :])
        return replace(self, stages=tuple(stages), reads=tuple(reads), writes=writes)

    def with_copies(self) -> Stream:
        """The stream with copies of rows that stages cannot read where they lie.

        These are the rows of a whole tensor, where a stage needs rows of padding around it, and what is fed as it
        comes.
        """
        stages, reads, writes = list[Stage](), list[tuple[str, ...]](), list[str]()
        copies, whole = dict[str, str](), {*self.inputs, *self.outputs}
        for stage, names, made in zip(self.stages, self.reads, self.writes, strict=True):
            for name, argument in zip(names, stage.arguments, strict=True):
                kept = name == self.fed or _reads_padding(argument, stage.height)
                if name in whole and name not in copies and kept:
                    copies[name] = f"rows of {name}"
                    plain = Argument(RowMap(), argument.height, argument.bytes)
                    stages.append(Stage(b"", (plain,), argument.height, argument.bytes))
                    reads.append((name,))
                    writes.append(copies[name])
            taken = [
                copies[name] if argument.rows and name in copies else name
                for name, argument in zip(names, stage.arguments, strict=True)
            ]
            stages.append(stage)
            reads.append(tuple(taken))
            writes.append(made)
        return replace(self, stages=tuple(stages), reads=tuple(reads), writes=tuple(writes))

    def _can_slide(self) -> bool:
        """Whether a window that moves on gives every stage new rows at one pace.

        None of them is made of padding, and all rows of what is fed are read.
        """
        paces = [1] * len(self.stages)
        ends = [self.stages[-1].height] * len(self.stages)

        def wanted(tensor: str) -> tuple[set[int], int]:
            """The rows that each reader wants anew, and the end of those that any wants at all."""
            read = [(reader, a.rows) for reader, a in self.readers(tensor) if a.rows]
            return {rows.stride * paces[n] for n, rows in read}, max(rows.end(ends[n]) for n, rows in read)

        for number in reversed(range(len(self.stages) - 1)):
            made, ends[number] = wanted(self.writes[number])
            if len(made) > 1 or max(made) > ends[number] or self.stages[number].together > 1:
                return False
            paces[number] = max(made)
        if any(self.is_padded(reader, a) for readers in self._readers.values() for reader, a in readers):
            return False
        assert self.fed is not None
        (_, fed), *_ = self.readers(self.fed)
        made, end = wanted(self.fed)
        return len(made) == 1 and end == fed.height

    @property
    def parts(self) -> int:
        """Side by side, into which its images are cut."""
        return self.writes.count(self.writes[-1])

    @property
    def inner(self) -> Sequence[int]:
        """The stages that do not make the last result, or a part of it, each before those that it reads."""
        numbers = reversed(range(len(self.stages)))
        return [number for number in numbers if self.writes[number] != self.writes[-1]]

    def takes(self, number: int) -> bool:
        """Whether a stage copies rows of what is fed."""
        return bool(self.fed) and self.reads[number] == (self.fed,) and not self.stages[number].module

    def readers(self, tensor: str) -> Sequence[tuple[int, Argument]]:
        """The stages that read a tensor, each with the argument that it is."""
        return self._readers.get(tensor, ())

    @cached_property
    def _readers(self) -> dict[str, list[tuple[int, Argument]]]:
        found: dict[str, list[tuple[int, Argument]]] = {}
        for number, (stage, names) in enumerate(zip(self.stages, self.reads, strict=True)):
            for name, argument in zip(names, stage.arguments, strict=True):
                found.setdefault(name, []).append((number, argument))
        return found

    def is_padded(self, reader: int, argument: Argument) -> bool:
        """Whether a stage reads rows around what its argument is."""
        return _reads_padding(argument, self.stages[reader].height)


def _reads_padding(argument: Argument, height: int) -> bool:
    """Whether a stage of so many rows reads rows around an image."""
    rows = argument.rows
    return rows is not None and argument.planes == 1 and (rows.before > 0 or rows.end(height) > argument.height)
