"""One step of a stream, in C: how many rows each stage shall have made, and the calls that make them."""

from __future__ import annotations

from tosaic.backends.cortex_m.streams.memory import StreamMemory
from tosaic.backends.cortex_m.streams.pointers import RowPointers, behind
from tosaic.backends.cortex_m.streams.stage import EDGE
from tosaic.backends.cortex_m.streams.stream import Plan


class StreamStep:
    """Prints the steps of a stream.

    In its C, stage 0 has made `d0` rows and shall have made `e0`; its window begins with row `f0`. The last stage shall
    have made `end` rows.
    """

    def __init__(self, plan: Plan, memory: StreamMemory, pointers: RowPointers) -> None:
        self._plan, self._stream = plan, plan.stream
        self._memory, self._pointers = memory, pointers

    def lines(self) -> list[str]:
        """How far each stage shall go, and what it does for that."""
        stages = range(len(self._plan.units))
        return [*self._ends(), *(line for number in stages for line in self._stage(number))]

    def restored(self, stage: int) -> list[str]:
        """Move the rows that a step has left of windows to where a stage makes the next ones."""
        lines = []
        for name, window in self._plan.windows.items():
            number = self._pointers.number(name)
            if window.first == stage and self._pointers.kept_at(name) == f"k{number}":
                lines.append(f"slide(w{number}, k{number}, (d{number} - f{number}) * {window.bytes});")
        return lines

    def _ends(self) -> list[str]:
        """How many rows each stage shall have made, from the last to the first."""
        stream = self._stream
        last = len(stream.stages) - 1
        lines = [f"const int32_t e{last} = {_least('end', stream.stages[last].height)};"]
        lines += [f"const int32_t e{number} = e{last};" for number in range(last) if number not in stream.inner]
        for number in stream.inner:
            height, made = stream.stages[number].height, stream.writes[number]
            needed = "0"
            for reader, argument in stream.readers(made):
                if argument.rows:
                    wanted = behind(argument.rows, f"e{reader}", argument.rows.end(0))
                    needed = wanted if needed == "0" else f"({needed} > {wanted} ? {needed} : {wanted})"
            together = stream.stages[number].together
            if together > 1:
                needed = f"({needed} + {together - 1}) / {together} * {together}"
            ends = _least(needed, height)
            if made in stream.outputs:
                ends = f"e{last} == {stream.stages[last].height} ? {height} : {ends}"
            lines.append(f"const int32_t e{number} = {ends};")
        return lines

    def _stage(self, number: int) -> list[str]:
        stage, name = self._stream.stages[number], self._stream.writes[number]
        window, lines = self._plan.windows.get(name), list[str]()
        if window and not self._plan.is_eager:
            below = f" + (e{number} == {stage.height} ? {window.below} : 0)" if window.below else ""
            lines += [f"if (e{number}{below} - f{number} > {window.rows}) {{", *self._kept_rows(name), "}"]
        elif number > 0:
            lines += self.restored(number)
        for read in dict.fromkeys(self._stream.reads[number]):
            above = self._plan.windows[read].above if read in self._plan.windows else 0
            if above and self._plan.windows[read].padding == EDGE:
                lines.append(f"if (d{number} == 0)")
                lines.append(f"  {self._repeated(read, '0', str(above), above)}")
        lines += self._calls(number)
        if window and window.below:
            behind = f"d{number} - f{number}"
            lines.append(f"if (d{number} == {stage.height})")
            if window.padding == EDGE:
                lines.append(f"  {self._repeated(name, behind, f'{behind} - 1', window.below)}")
            else:
                at = f"w{number} + ({behind}) * {window.bytes}"
                lines.append(f"  fill({at}, {signed(window.padding)}, {window.below * window.bytes});")
        last = len(self._stream.stages) - 1
        for read in self._plan.windows if self._plan.is_eager else ():
            if self._plan.windows[read].last == number:
                going_on = f"if (e{last} < {self._stream.stages[last].height}) {{"
                lines += [going_on, *self._kept_rows(read), "}"]
        return lines

    def _repeated(self, name: str, to: str, row: str, count: int) -> str:
        """Copy a row of a window to `count` rows from row `to` of it on."""
        made, size = f"w{self._pointers.number(name)}", self._plan.windows[name].bytes
        head = f"for (int32_t row = 0; row < {count}; row++)"
        return f"{head} slide({made} + ({to} + row) * {size}, {made} + ({row}) * {size}, {size});"

    def _kept_rows(self, name: str) -> list[str]:
        """Move the rows of a window that are still needed to where they are kept."""
        window, number = self._plan.windows[name], self._pointers.number(name)
        low = f"d{number}"
        for reader, rows in window.readers:
            first = behind(rows, f"d{reader}", -rows.before)
            low = f"({low} < {first} ? {low} : {first})"
        lines = [f"  const int32_t low = {low};"]
        if window.kept:
            source = f"w{number} + (low - f{number}) * {window.bytes}"
            lines.append(f"  slide({self._pointers.kept_at(name)}, {source}, (d{number} - low) * {window.bytes});")
        return [*lines, f"  f{number} = low;"]

    def _calls(self, number: int) -> list[str]:
        stage = self._stream.stages[number]
        if not stage.module:
            if self._stream.takes(number):
                return self._taken() if number == 0 else []
            return [*self._copied(number, f"e{number} - d{number}"), f"d{number} = e{number};"]
        unit, counts = self._plan.units[number], self._plan.calls[number]
        least, lines = stage.together, list[str]()
        if unit in counts:
            head = f"for (; d{number} + {unit} <= e{number}; d{number} += {unit})"
            lines += [f"{head} {{", *(f"  {line}" for line in self._call(number, unit)), "}"]
        if unit > least and least in counts:
            lines += [
                f"for (; d{number} < e{number}; d{number} += {least}) {{",
                *(f"  {line}" for line in self._call(number, least)),
                "}",
            ]
        return lines

    def _copied(self, number: int, rows: str) -> list[str]:
        """Copy rows, all of each or a part."""
        stage, (name,) = self._stream.stages[number], self._stream.reads[number]
        (argument,), to = stage.arguments, self._pointers.result(number)
        source = "rows" if self._stream.takes(number) else self._pointers.rows(number, name, argument)
        if argument.step == stage.bytes:
            return [f"slide({to}, {source}, ({rows}) * {stage.bytes});"]
        part = f"{source} + {argument.offset}"
        return [
            f"for (int32_t row = 0; row < {rows}; row++)",
            f"  slide({to} + row * {stage.bytes}, {part} + row * {argument.step}, {stage.bytes});",
        ]

    def _taken(self) -> list[str]:
        """Take what rows there are, and leave where more are needed."""
        takers = [number for number in range(len(self._plan.units)) if self._stream.takes(number)]
        return [
            f"const int32_t taken = {_least('count', 'e0 - d0')};",
            *(line for number in takers for line in self._copied(number, "taken")),
            *(f"d{number} += taken;" for number in takers),
            f"rows += taken * {self._stream.stages[0].arguments[0].step}, count -= taken;",
            "if (d0 < e0)",
            "  break;",
        ]

    def _call(self, number: int, made: int) -> list[str]:
        stage, part = self._stream.stages[number], self._memory.strips[number, made]
        lines, pointers, staged = [], list[str](), self._memory.working[number]
        for name, argument in zip(self._stream.reads[number], stage.arguments, strict=True):
            if argument.rows is None or argument.planes == 1:
                pointers.append(self._pointers.rows(number, name, argument))
                continue
            size, plane = argument.rows.count(made) * argument.bytes, argument.height * argument.bytes
            for index in range(argument.planes):
                source = f"{self._pointers.rows(number, name, argument)} + {index * plane}"
                lines.append(f"slide(scratch + {staged + index * size}, {source}, {size});")
            pointers.append(f"scratch + {staged}")
            staged += argument.planes * size
        inner = self._memory.working[number] + self._memory.staged_bytes(number)
        passed = ", ".join(
            [*pointers, self._pointers.result(number), self._memory.params_of((number, made)), f"scratch + {inner}"]
        )
        return [*lines, f"{part.symbol}({passed});"]


def _least(value: str, most: int | str) -> str:
    return f"{value} < {most} ? {value} : {most}"


def signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte
