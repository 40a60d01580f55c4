"""The kernel of a stream in C: it calls the kernels of its stages on strips of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tosaic.backends.cortex_m.kernel import Fed, KernelSource, Overlap
from tosaic.backends.cortex_m.kernels.mve import PRELUDE, VECTOR, round_up, with_symbol
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.sharing import as_one, whole_vectors, with_shared_weights
from tosaic.backends.cortex_m.streams.layout import lay_out
from tosaic.backends.cortex_m.streams.stage import EDGE, Argument, RowMap
from tosaic.backends.cortex_m.streams.stream import Plan, Stream
from tosaic.backends.target import Core

_Key: TypeAlias = tuple[int, int]
"""A stage, and the rows that a call of its kernel makes."""
Strips = Mapping[_Key, Sequence[KernelSource]]
"""The kernel of each stage, by its number and the rows that a call makes; one for each call where params differ."""

_WITH_VECTORS = (
    PRELUDE
    + """\
INLINE void slide(int8_t *to, const int8_t *from, int32_t bytes)
{
  for (; bytes >= 64; bytes -= 64, from += 64, to += 64) {
    const int8x16_t a = vldrbq_s8(from), b = vldrbq_s8(from + 16), c = vldrbq_s8(from + 32), d = vldrbq_s8(from + 48);
    vstrbq_s8(to, a), vstrbq_s8(to + 16, b), vstrbq_s8(to + 32, c), vstrbq_s8(to + 48, d);
  }
  for (; bytes > 0; bytes -= 16, from += 16, to += 16) {
    const mve_pred16_t left = vctp8q(bytes);
    vstrbq_p_s8(to, vldrbq_z_s8(from, left), left);
  }
}
INLINE void fill(int8_t *to, int8_t value, int32_t bytes)
{
  for (; bytes > 0; bytes -= 16, to += 16)
    vstrbq_p_s8(to, vdupq_n_s8(value), vctp8q(bytes));
}
"""
)
_WORKING = "const int8_t *params, int8_t *scratch"
_WITHOUT_VECTORS = """\
#include <stdint.h>
#include <string.h>
#define INLINE static inline __attribute__((always_inline))
INLINE void slide(int8_t *to, const int8_t *from, int32_t bytes)
{
  memmove(to, from, bytes);
}
INLINE void fill(int8_t *to, int8_t value, int32_t bytes)
{
  memset(to, value, bytes);
}
"""


def stream_kernel(plan: Plan, strips: Strips, resident: Collection[int], core: Core) -> KernelSource:
    """The kernel of a planned stream.

    Args:
        strips: the kernels of its stages; copies have none.
        resident: stages whose params are copied to scratch memory once, where every call then reads them.

    Raises:
        BackendError: the kernels of the calls of a stage differ.
    """
    return _Driver(plan, strips, resident, core).source()


class _Driver:
    def __init__(self, plan: Plan, strips: Strips, resident: Collection[int], core: Core) -> None:
        self._plan, self._core = plan, core
        self._stream, self._params = plan.stream, Params()
        self._own_params = {key: len(each[0].params) for key, each in strips.items() if len(each) > 1}
        self._strips = {key: as_one(each) for key, each in strips.items()}
        self._strips |= with_shared_weights(
            {key: source for key, source in self._strips.items() if key not in self._own_params}
        )
        self._end = 0
        self._at: dict[_Key, int] = {}
        self._resident: dict[_Key, int] = {}
        self._kept: dict[int, tuple[int, int]] = {}
        for block, begins in _blocks(self._strips):
            at = self._params.add(whole_vectors(block))
            self._at |= {key: at + begin for key, begin in begins.items()}
            if any(stage in resident for stage, _ in begins):
                copy = self._reserve(len(block))
                self._kept[at] = copy, round_up(len(block), VECTOR)
                self._resident |= {key: copy + begin for key, begin in begins.items()}
        self._state = self._reserve(4 * len(self._variables) if plan.stream.fed else 0)
        layout = lay_out(
            plan, [self._staged_bytes(number) + self._inner_bytes(number) for number in range(len(plan.units))]
        )
        start = self._reserve(layout.size)
        self._windows = {name: (start + place.at, start + place.kept_at) for name, place in layout.windows.items()}
        self._working = [start + at for at in layout.working]

    def _reserve(self, size: int) -> int:
        offset = self._end
        self._end = round_up(offset + size, VECTOR)
        return offset

    def _staged_bytes(self, number: int) -> int:
        """Bytes of the strips of a stage's arguments that have planes."""
        made = self._plan.units[number]
        size = sum(
            argument.planes * argument.rows.count(made) * argument.bytes
            for argument in self._stream.stages[number].arguments
            if argument.rows and argument.planes > 1
        )
        return round_up(size, VECTOR)

    def _inner_bytes(self, number: int) -> int:
        """Bytes of the working memory of a stage's kernels."""
        return max((source.scratch_bytes for (stage, _), source in self._strips.items() if stage == number), default=0)

    def source(self) -> KernelSource:
        plan, stream = self._plan, self._stream
        parts = {source.symbol: source for source in self._strips.values()}
        lines = [f"void {part.symbol}({', '.join(_prototype(part, self._strips, stream))});" for part in parts.values()]
        lines += self._fed_run(self._fed_input) if self._fed_input else self._whole_run()
        prelude = _WITH_VECTORS if self._core.mve else _WITHOUT_VECTORS
        symbol, text = with_symbol("stream", prelude + "\n".join(lines) + "\n")
        return KernelSource(
            symbol,
            "c",
            text,
            bytes(self._params),
            self._end,
            tuple(Overlap(i, o, lead) for (i, o), lead in plan.leads.items()),
            tuple(dict.fromkeys(library for part in parts.values() for library in part.libraries)),
            tuple({each.symbol: each for part in parts.values() for each in (*part.parts, part)}.values()),
            fed=self._fed_input,
        )

    def _whole_run(self) -> list[str]:
        """The function that runs the stream from the first row to the last."""
        return [
            f"void @SYMBOL@({', '.join(self._tensors())}, {_WORKING})",
            "{",
            *(f"  {line}" for line in self._begin()),
            *(f"  {line}" for line in self._loop("return;")),
            "}",
        ]

    @property
    def _fed_input(self) -> Fed | None:
        fed = self._stream.fed
        if fed is None:
            return None
        (copy, argument), *_ = self._stream.readers(fed)
        hop = self._plan.units[copy] if self._stream.slides else 0
        return Fed(self._stream.inputs.index(fed), argument.step, hop)

    def _fed_run(self, fed: Fed) -> list[str]:
        """Functions that begin, and that go on with some rows, between which the state lies in scratch memory: how many
        are left where the results are there, -1 where more are needed; and one that feeds a whole tensor row by row."""
        variables, own = ", ".join(self._variables), f"in{fed.input}"
        tensors = [tensor for number, tensor in enumerate(self._tensors()) if number != fed.input]
        passed = ", ".join([*(tensor.rpartition("*")[2] for tensor in tensors), "params", "scratch"])
        last, height = len(self._plan.units) - 1, self._stream.stages[-1].height
        return [
            f"struct state {{ int32_t {variables}; }};",
            f"void @SYMBOL@_begin({_WORKING})",
            "{",
            *(f"  {line}" for line in self._begin()),
            f"  *(struct state *)(scratch + {self._state}) = (struct state){{ {variables} }};",
            "}",
            f"int32_t @SYMBOL@_feed(const int8_t *rows, int32_t count, {', '.join(tensors)}, {_WORKING})",
            "{",
            f"  struct state *const state = (struct state *)(scratch + {self._state});",
            *(f"  {line}" for line in self._pointers()),
            *(f"  {line}" for line in self._whole_hop()),
            f"  int32_t {', '.join(f'{name} = state->{name}' for name in self._variables)};",
            f"  if (d{last} == {height}) {{",
            *(f"    {line}" for line in self._moved_on() or ["return count;"]),
            "  }",
            *(f"  {line}" for line in self._loop("break;")),
            f"  *state = (struct state){{ {variables} }};",
            f"  return d{last} == {height} ? count : -1;",
            "}",
            f"void @SYMBOL@({', '.join(self._tensors())}, {_WORKING})",
            "{",
            "  @SYMBOL@_begin(params, scratch);",
            f"  while (@SYMBOL@_feed({own}, 1, {passed}) < 0)",
            f"    {own} += {fed.row_bytes};",
            "}",
        ]

    def _whole_hop(self) -> list[str]:
        """Where all results are there, and all rows that the next ones need: counters are numbers then."""
        if not self._stream.slides:
            return []
        last, height = len(self._plan.units) - 1, self._stream.stages[-1].height
        ends = enumerate(self._plan.ends(self._plan.steps - 1))
        return [
            f"if (state->d{last} == {height} && count >= {self._plan.units[0]}) {{",
            f"  int32_t end, {', '.join(f'd{number} = {end}' for number, end in ends)};",
            f"  int32_t {', '.join(f'{first} = state->{first}' for first in self._firsts)};",
            *(f"  {line}" for line in self._moved_on()),
            "  do {",
            *(f"    {line}" for line in self._step()),
            "  } while (0);",
            *(f"  state->{first} = {first};" for first in self._firsts),
            "  return count;",
            "}",
        ]

    def _moved_on(self) -> list[str]:
        """Move all rows up by as many as come anew."""
        if not self._stream.slides:
            return []
        plan, stream = self._plan, self._stream
        lines = [f"end = {stream.stages[-1].height};"]
        for number, (stage, unit) in enumerate(zip(stream.stages, plan.units, strict=True)):
            name = stream.writes[number]
            if name in stream.outputs:
                made, rows = self._whole(name), self._result_rows(number) - unit
                if rows > 0:
                    lines.append(f"slide({made}, {made} + {unit * stage.bytes}, {rows * stage.bytes});")
            else:
                lines.append(f"f{number} -= {unit};")
            lines.append(f"d{number} -= {unit};")
        return lines

    def _tensors(self) -> list[str]:
        """The parameters that are tensors."""
        inputs = [f"const int8_t *in{i}" for i in range(len(self._stream.inputs))]
        return [*inputs, *(f"int8_t *out{i}" for i in range(len(self._stream.outputs)))]

    @property
    def _variables(self) -> list[str]:
        """What is kept from one step to the next."""
        done = [f"d{number}" for number in range(len(self._plan.units))]
        return ["end", *done, *self._firsts]

    @property
    def _firsts(self) -> list[str]:
        """The first row in each window."""
        return [f"f{self._number(name)}" for name in self._plan.windows]

    def _loop(self, leave: str) -> list[str]:
        """Step after step."""
        plan = self._plan
        return [
            f"for (;; end += {plan.rows}) {{",
            *(f"  {line}" for line in self._step()),
            f"  if (e{len(plan.units) - 1} == {self._stream.stages[-1].height})",
            f"    {leave}",
            *(f"  {line}" for line in self._restored(0)),
            "}",
        ]

    def _step(self) -> list[str]:
        """How far each stage shall go, and what it does for that."""
        stages = range(len(self._plan.units))
        return [*self._ends(), *(line for number in stages for line in self._stage(number))]

    def _pointers(self) -> list[str]:
        """Where windows lie, and what a step leaves of them to the next."""
        lines = []
        for name, (at, kept_at) in self._windows.items():
            lines.append(f"int8_t *const w{self._number(name)} = scratch + {at};")
            if kept_at != at:
                lines.append(f"int8_t *const k{self._number(name)} = scratch + {kept_at};")
        return lines

    def _begin(self) -> list[str]:
        """Buffers, padding above, and params that stay in scratch memory."""
        lines = [f"int32_t end = {self._plan.rows};"]
        lines.append(f"int32_t {', '.join(f'd{number} = 0' for number in range(len(self._plan.units)))};")
        lines += self._pointers()
        for name, window in self._plan.windows.items():
            number = self._number(name)
            lines.append(f"int32_t f{number} = {-window.above};")
            if window.above and window.padding != EDGE:
                to = self._kept_at(name) if window.first else f"w{number}"
                lines.append(f"fill({to}, {_signed(window.padding)}, {window.above * window.bytes});")
        for source, (offset, size) in self._kept.items():
            lines.append(f"slide(scratch + {offset}, params + {source}, {size});")
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
                    wanted = _behind(argument.rows, f"e{reader}", argument.rows.end(0))
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
            lines += self._restored(number)
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
                lines.append(f"  fill({at}, {_signed(window.padding)}, {window.below * window.bytes});")
        last = len(self._stream.stages) - 1
        for read in self._plan.windows if self._plan.is_eager else ():
            if self._plan.windows[read].last == number:
                going_on = f"if (e{last} < {self._stream.stages[last].height}) {{"
                lines += [going_on, *self._kept_rows(read), "}"]
        return lines

    def _repeated(self, name: str, to: str, row: str, count: int) -> str:
        """Copy a row of a window to `count` rows from row `to` of it on."""
        made, size = f"w{self._number(name)}", self._plan.windows[name].bytes
        head = f"for (int32_t row = 0; row < {count}; row++)"
        return f"{head} slide({made} + ({to} + row) * {size}, {made} + ({row}) * {size}, {size});"

    def _kept_at(self, name: str) -> str:
        """C of where the rows lie that a step leaves of a window to the next."""
        at, kept_at = self._windows[name]
        return f"{'w' if at == kept_at else 'k'}{self._number(name)}"

    def _kept_rows(self, name: str) -> list[str]:
        """Move the rows of a window that are still needed to where they are kept."""
        window, number = self._plan.windows[name], self._number(name)
        low = f"d{number}"
        for reader, rows in window.readers:
            first = _behind(rows, f"d{reader}", -rows.before)
            low = f"({low} < {first} ? {low} : {first})"
        lines = [f"  const int32_t low = {low};"]
        if window.kept:
            source = f"w{number} + (low - f{number}) * {window.bytes}"
            lines.append(f"  slide({self._kept_at(name)}, {source}, (d{number} - low) * {window.bytes});")
        return [*lines, f"  f{number} = low;"]

    def _restored(self, stage: int) -> list[str]:
        """Move the rows that a step has left of windows to where a stage makes the next ones."""
        lines = []
        for name, window in self._plan.windows.items():
            number = self._number(name)
            if window.first == stage and self._kept_at(name) == f"k{number}":
                lines.append(f"slide(w{number}, k{number}, (d{number} - f{number}) * {window.bytes});")
        return lines

    def _calls(self, number: int) -> list[str]:
        stage = self._stream.stages[number]
        if not stage.function:
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
        (argument,), to = stage.arguments, self._result(number)
        source = "rows" if self._stream.takes(number) else self._rows(number, name, argument)
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
        stage, part = self._stream.stages[number], self._strips[number, made]
        lines, pointers, staged = [], list[str](), self._working[number]
        for name, argument in zip(self._stream.reads[number], stage.arguments, strict=True):
            if argument.rows is None or argument.planes == 1:
                pointers.append(self._rows(number, name, argument))
                continue
            size, plane = argument.rows.count(made) * argument.bytes, argument.height * argument.bytes
            for index in range(argument.planes):
                source = f"{self._rows(number, name, argument)} + {index * plane}"
                lines.append(f"slide(scratch + {staged + index * size}, {source}, {size});")
            pointers.append(f"scratch + {staged}")
            staged += argument.planes * size
        key = number, made
        params = f"params + {self._at[key]}" if key in self._at else "params"
        if key in self._resident:
            params = f"scratch + {self._resident[key]}"
        if key in self._own_params:
            params += f" + d{number} / {made} * {round_up(self._own_params[key], VECTOR)}"
        inner = self._working[number] + self._staged_bytes(number)
        passed = ", ".join([*pointers, self._result(number), params, f"scratch + {inner}"])
        return [*lines, f"{part.symbol}({passed});"]

    def _rows(self, number: int, name: str, argument: Argument) -> str:
        """C of where the rows of an argument begin that a stage's next row is made of."""
        if argument.rows is None:
            return self._whole(name)
        first = _behind(argument.rows, f"d{number}", -argument.rows.before)
        if name in self._windows:
            made = self._number(name)
            return f"w{made} + ({first} - f{made}) * {argument.bytes}"
        return f"{self._whole(name)} + {first} * {argument.step}"

    def _result(self, number: int) -> str:
        """C of where a stage's next row lies."""
        name, stage = self._stream.writes[number], self._stream.stages[number]
        if name in self._windows:
            return f"w{number} + (d{number} - f{number}) * {stage.bytes}"
        before = self._stream.stages[number].height - self._result_rows(number)
        row = f"(d{number} > {before} ? d{number} - {before} : 0)" if before else f"d{number}"
        return f"{self._whole(name)} + {row} * {stage.step}" + (f" + {stage.offset}" if stage.offset else "")

    def _result_rows(self, number: int) -> int:
        """The rows of a stage's result that lie in memory."""
        is_last = number == len(self._stream.stages) - 1
        return self._stream.kept if is_last and self._stream.kept else self._stream.stages[number].height

    def _whole(self, name: str) -> str:
        if name in self._stream.inputs:
            return f"in{self._stream.inputs.index(name)}"
        return f"out{self._stream.outputs.index(name)}"

    def _number(self, name: str) -> int:
        return self._stream.writes.index(name)


def _blocks(strips: Mapping[_Key, KernelSource]) -> list[tuple[bytes, dict[_Key, int]]]:
    """Params that lie together, and where those of each strip begin: equal ones once, and those of equal weights behind
    these, each with the distance to them at its end."""
    found: dict[bytes, tuple[Params, dict[bytes, int], dict[_Key, int]]] = {}
    for key, source in strips.items():
        block, known, begins = found.setdefault(source.shared or source.params, (Params(), {}, {}))
        if not len(block) and source.shared:
            block.add(whole_vectors(source.shared))
        if source.params not in known:
            begin = round_up(len(block), VECTOR)
            distance = (-begin - len(source.params)).to_bytes(4, "little", signed=True) if source.shared else b""
            known[source.params] = block.add(np.frombuffer(source.params + distance, np.uint8))
        begins[key] = known[source.params]
    return [(bytes(block), begins) for block, _, begins in found.values() if len(block)]


def _prototype(part: KernelSource, strips: Mapping[_Key, KernelSource], stream: Stream) -> list[str]:
    number = next(number for (number, _), source in strips.items() if source.symbol == part.symbol)
    tensors = ["const void *"] * len(stream.stages[number].arguments)
    return [*tensors, "void *", "const void *", "void *"]


def _behind(rows: RowMap, variable: str, offset: int) -> str:
    """C of `offset` and the rows behind those before `variable`."""
    return _affine(rows.stride, variable if rows.up == 1 else f"({variable} / {rows.up})", offset)


def _affine(factor: int, variable: str, offset: int) -> str:
    product = variable if factor == 1 else f"{factor} * {variable}"
    return f"({product} {'-' if offset < 0 else '+'} {abs(offset)})" if offset else f"({product})"


def _least(value: str, most: int | str) -> str:
    return f"{value} < {most} ? {value} : {most}"


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte
