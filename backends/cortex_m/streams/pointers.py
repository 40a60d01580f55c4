"""Where rows of a stream's tensors lie, in C."""

from __future__ import annotations

from collections.abc import Mapping

from tosaic.backends.cortex_m.streams.stage import Argument, RowMap
from tosaic.backends.cortex_m.streams.stream import Plan


class RowPointers:
    """C of pointers to rows, where `d0`, `d1` and so on are the rows that each stage has made.

    Args:
        plan: the stream.
        windows: offsets in scratch memory of each window: where stages write it, and where its rows are kept.
    """

    def __init__(self, plan: Plan, windows: Mapping[str, tuple[int, int]]) -> None:
        self._stream, self.windows = plan.stream, windows

    def rows(self, number: int, name: str, argument: Argument) -> str:
        """C of where the rows of an argument begin that a stage's next row is made of."""
        if argument.rows is None:
            return self.whole(name)
        first = behind(argument.rows, f"d{number}", -argument.rows.before)
        if name in self.windows:
            made = self.number(name)
            return f"w{made} + ({first} - f{made}) * {argument.bytes}"
        return f"{self.whole(name)} + {first} * {argument.step}"

    def result(self, number: int) -> str:
        """C of where a stage's next row lies."""
        name, stage = self._stream.writes[number], self._stream.stages[number]
        if name in self.windows:
            return f"w{number} + (d{number} - f{number}) * {stage.bytes}"
        before = self._stream.stages[number].height - self.result_rows(number)
        row = f"(d{number} > {before} ? d{number} - {before} : 0)" if before else f"d{number}"
        return f"{self.whole(name)} + {row} * {stage.step}" + (f" + {stage.offset}" if stage.offset else "")

    def result_rows(self, number: int) -> int:
        """The rows of a stage's result that lie in memory."""
        is_last = number == len(self._stream.stages) - 1
        return self._stream.kept if is_last and self._stream.kept else self._stream.stages[number].height

    def whole(self, name: str) -> str:
        """C of an input or output of the stream."""
        if name in self._stream.inputs:
            return f"in{self._stream.inputs.index(name)}"
        return f"out{self._stream.outputs.index(name)}"

    def number(self, name: str) -> int:
        """The stage that makes a tensor."""
        return self._stream.writes.index(name)

    def kept_at(self, name: str) -> str:
        """C of where the rows lie that a step leaves of a window to the next."""
        at, kept_at = self.windows[name]
        return f"{'w' if at == kept_at else 'k'}{self.number(name)}"


def behind(rows: RowMap, variable: str, offset: int) -> str:
    """C of `offset` and the rows behind those before `variable`."""
    return _affine(rows.stride, variable if rows.up == 1 else f"({variable} / {rows.up})", offset)


def _affine(factor: int, variable: str, offset: int) -> str:
    product = variable if factor == 1 else f"{factor} * {variable}"
    return f"({product} {'-' if offset < 0 else '+'} {abs(offset)})" if offset else f"({product})"
