"""The kernel of a stream in C: it calls the kernels of its stages on strips of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tosaic.backends.cortex_m.kernel import Fed, KernelSource, Overlap
from tosaic.backends.cortex_m.kernels.mve import PRELUDE, with_symbol
from tosaic.backends.cortex_m.streams.memory import StageCall, StreamMemory, Strips
from tosaic.backends.cortex_m.streams.pointers import RowPointers
from tosaic.backends.cortex_m.streams.stage import EDGE
from tosaic.backends.cortex_m.streams.step import StreamStep, signed
from tosaic.backends.cortex_m.streams.stream import Plan, Stream
from tosaic.backends.target import Core

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


def stream_kernel(plan: Plan, strips: Strips, cached: Collection[int], core: Core) -> KernelSource:
    """The kernel of a planned stream.

    Args:
        strips: the kernels of its stages; copies have none.
        cached: stages whose params are copied to scratch memory once, where every call then reads them.

    Raises:
        BackendError: the kernels of the calls of a stage differ.
    """
    return _Driver(plan, strips, cached, core).source()


class _Driver:
    def __init__(self, plan: Plan, strips: Strips, cached: Collection[int], core: Core) -> None:
        self._plan, self._core, self._stream = plan, core, plan.stream
        self._memory = StreamMemory(plan, strips, cached)
        self._pointers = RowPointers(plan, self._memory.windows)
        self._step = StreamStep(plan, self._memory, self._pointers)

    def source(self) -> KernelSource:
        plan, stream = self._plan, self._stream
        parts = {source.symbol: source for source in self._memory.strips.values()}
        lines = [
            f"void {part.symbol}({', '.join(_prototype(part, self._memory.strips, stream))});"
            for part in parts.values()
        ]
        lines += self._fed_run(self._fed_input) if self._fed_input else self._whole_run()
        prelude = _WITH_VECTORS if self._core.mve else _WITHOUT_VECTORS
        symbol, text = with_symbol("stream", prelude + "\n".join(lines) + "\n")
        return KernelSource(
            symbol,
            "c",
            text,
            bytes(self._memory.params),
            self._memory.size,
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
            f"  *(struct state *)(scratch + {self._memory.state}) = (struct state){{ {variables} }};",
            "}",
            f"int32_t @SYMBOL@_feed(const int8_t *rows, int32_t count, {', '.join(tensors)}, {_WORKING})",
            "{",
            f"  struct state *const state = (struct state *)(scratch + {self._memory.state});",
            *(f"  {line}" for line in self._window_pointers()),
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
            *(f"    {line}" for line in self._step.lines()),
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
                made, rows = self._pointers.whole(name), self._pointers.result_rows(number) - unit
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
        return [f"f{self._pointers.number(name)}" for name in self._plan.windows]

    def _loop(self, leave: str) -> list[str]:
        """Step after step."""
        plan = self._plan
        return [
            f"for (;; end += {plan.rows}) {{",
            *(f"  {line}" for line in self._step.lines()),
            f"  if (e{len(plan.units) - 1} == {self._stream.stages[-1].height})",
            f"    {leave}",
            *(f"  {line}" for line in self._step.restored(0)),
            "}",
        ]

    def _window_pointers(self) -> list[str]:
        """Where windows lie, and what a step leaves of them to the next."""
        lines = []
        for name, (at, kept_at) in self._memory.windows.items():
            lines.append(f"int8_t *const w{self._pointers.number(name)} = scratch + {at};")
            if kept_at != at:
                lines.append(f"int8_t *const k{self._pointers.number(name)} = scratch + {kept_at};")
        return lines

    def _begin(self) -> list[str]:
        """Buffers, padding above, and params that stay in scratch memory."""
        lines = [f"int32_t end = {self._plan.rows};"]
        lines.append(f"int32_t {', '.join(f'd{number} = 0' for number in range(len(self._plan.units)))};")
        lines += self._window_pointers()
        for name, window in self._plan.windows.items():
            number = self._pointers.number(name)
            lines.append(f"int32_t f{number} = {-window.above};")
            if window.above and window.padding != EDGE:
                to = self._pointers.kept_at(name) if window.first else f"w{number}"
                lines.append(f"fill({to}, {signed(window.padding)}, {window.above * window.bytes});")
        for source, (offset, size) in self._memory.kept.items():
            lines.append(f"slide(scratch + {offset}, params + {source}, {size});")
        return lines


def _prototype(part: KernelSource, strips: Mapping[StageCall, KernelSource], stream: Stream) -> list[str]:
    number = next(number for (number, _), source in strips.items() if source.symbol == part.symbol)
    tensors = ["const void *"] * len(stream.stages[number].arguments)
    return [*tensors, "void *", "const void *", "void *"]
