"""A stream whose input comes row by row: programs that begin it, take a row and go on by a step, and their caller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from tosaic.backends.cortex_m.kernel import Fed, KernelSource
from tosaic.backends.cortex_m.kernels.mve import with_symbol
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.places import Overlap
from tosaic.backends.cortex_m.program.rewriting import seq
from tosaic.backends.cortex_m.program.tree import Access, Buffer, Statement
from tosaic.backends.cortex_m.streams.calls import WAS, StreamCalls, StreamProgram
from tosaic.backends.cortex_m.streams.memory import STATE
from tosaic.backends.cortex_m.streams.pieces import Found, Numbers, Turns
from tosaic.backends.cortex_m.streams.steps import StepPart

_NUMBER = Buffer("number", "i32", (STATE,), "in")
"""The turn and the phase of a step, and how many rows are taken for it."""
_FEEDING = """\
#include <stdint.h>
void {begin}(const int8_t *, int8_t *);
void {take}(const int8_t *, const int32_t *, const int8_t *, int8_t *);
void {step}(const int32_t *, {types}const int8_t *, int8_t *);
static const uint16_t needed[] = {{ {needed} }};
void @SYMBOL@_begin(const int8_t *params, int8_t *scratch)
{{
  int32_t *const state = (int32_t *)(scratch + {at});
  state[0] = {turn}, state[1] = {phase}, state[2] = 0;
  {begin}(params, scratch);
}}
int32_t @SYMBOL@_feed(const int8_t *rows, int32_t count, {others}, const int8_t *params, int8_t *scratch)
{{
  int32_t *const state = (int32_t *)(scratch + {at});
  for (int32_t now; (now = state[0] * {phases} + state[1]) < {end};) {{
    for (; state[2] < needed[now]; state[2]++, rows += {row_bytes}) {{
      if (count-- == 0)
        return -1;
      {take}(rows, state, params, scratch);
    }}
    {step}(state, {given}params, scratch);
    state[2] = 0;
    if (++state[1] == {phases})
      state[1] = 0, state[0] += state[0] < {most};
    if (now >= {last})
      break;
  }}
  return count;
}}
void @SYMBOL@({tensors}, const int8_t *params, int8_t *scratch)
{{
  @SYMBOL@_begin(params, scratch);
  @SYMBOL@_feed({fed}, {height}, {passed}, params, scratch);
}}
"""


def fed_kernel(calls: StreamCalls) -> KernelSource:
    """The kernel of a stream that is fed, with its programs as parts."""
    return FedStream(calls).source()


class FedStream:
    """The programs of a stream that is fed.

    Where windows move on, the steps behind the last one are those of further windows.
    """

    def __init__(self, calls: StreamCalls) -> None:
        self._calls, self._stream, self._run = calls, calls.plan.stream, calls.run
        taken = [(site, found) for site, found in calls.sites if self._takes(site)]
        before = [each for each in calls.sites if self._is_before(each[0])]
        rest = [each for each in calls.sites if not self._takes(each[0]) and each not in before]
        self._taken, self._rest = _together(taken), [*rest, *self._before(before)]
        if self._stream.slides:
            self.turns = Turns(self._run.hops.stop, self._run.phases)
        else:
            self.turns = Turns.of(calls.plan.steps, [found for _, found in (*taken, *self._rest)])

    @property
    def fed(self) -> Fed:
        """What is fed."""
        name = self._stream.fed or ""
        (copy, argument), *_ = self._stream.readers(name)
        return Fed(self._stream.inputs.index(name), argument.step, self._calls.plan.units[copy] * self._stream.slides)

    @property
    def steps(self) -> range:
        """The numbers of the steps up to the first results."""
        return range(self._run.first, self._run.first + self._calls.plan.steps)

    def source(self) -> KernelSource:
        """What calls the programs."""
        calls, steps, fed, phases = self._calls, self.steps, self.fed, self.turns.phases
        programs = {"begin": self.begin, "take": self.take, "step": self.step}
        parts = {name: calls.source(f"stream_{name}", program) for name, program in programs.items()}
        names = {memory: [b.name for b in calls.arguments if b.memory == memory] for memory in ("in", "out")}
        declared = {name: f"const int8_t *{name}" for name in names["in"]}
        declared |= {name: f"int8_t *{name}" for name in names["out"]}
        own = names["in"].pop(fed.input)
        given = [b for b in programs["step"].unscheduled.arguments[1:] if b.memory != "const"]
        text = _FEEDING.format(
            **{name: part.symbol for name, part in parts.items()},
            turn=steps.start // phases,
            phase=steps.start % phases,
            phases=phases,
            last=steps.stop - 1,
            types="".join(f"{'const ' * (b.memory == 'in')}int8_t *, " for b in given),
            given="".join(f"{b.name.removeprefix(WAS)}, " for b in given),
            needed=", ".join(map(str, self.needed)),
            at=calls.memory.state,
            end=len(self.needed) if self._stream.slides else steps.stop,
            most=(len(self.needed) - 1) // phases if self._stream.slides else steps.stop,
            row_bytes=fed.row_bytes,
            tensors=", ".join(declared.values()),
            others=", ".join(text for name, text in declared.items() if name != own),
            fed=own,
            height=self._stream.readers(self._stream.fed or "")[0][1].height,
            passed=", ".join((*names["in"], *names["out"])),
        )
        symbol, text = with_symbol("stream", text)
        return KernelSource(symbol, "c", text, parts=tuple(parts.values()), fed=fed)

    @property
    def begin(self) -> StreamProgram:
        """Padding above, and params that stay in scratch memory."""
        return self._calls.program(self._known, seq(*self._calls.begun()))

    @property
    def take(self) -> StreamProgram:
        """A row that is fed, to where the step that is next reads it."""
        body = self._at_step(self._calls.done(self._taken, self.turns))
        row = Buffer("row", "i8", (self.fed.row_bytes,), "in")
        return self._calls.program([row, _NUMBER], body)

    @property
    def step(self) -> StreamProgram:
        """What is done when a step has its rows; where windows move on, results are inputs, too, as they move up."""
        calls = self._calls
        tensors = [b for b in calls.arguments if b.name != f"in{self.fed.input}"]
        read, made = ([b for b in tensors if b.memory == memory] for memory in ("in", "out"))
        moved = [replace(b, name=f"{WAS}{b.name}", memory="in") for b in made if self._stream.slides]
        over = [Overlap(1 + len(read) + number, number) for number in range(len(moved))]
        for each in calls.over:
            over.append(Overlap(1 + each.input - (each.input > self.fed.input), each.output, each.lead))
        arguments = [_NUMBER, *read, *moved, *made, *self._known]
        return calls.program(arguments, self._at_step(calls.done(self._rest, self.turns)), over)

    @property
    def _known(self) -> list[Buffer]:
        return [b for b in self._calls.arguments if b.memory == "const"]

    def _at_step(self, body: Statement) -> Statement:
        """What is done at the step that is next."""
        return self.turns.given(Access("number", (Affine(),)), Access("number", (Affine.of(1),)), body)

    @cached_property
    def needed(self) -> list[int]:
        """The rows that each step takes."""
        number = next(number for number in range(len(self._calls.plan.units)) if self._stream.takes(number))
        needed = [0] * self.turns.steps
        for site, found in self._taken:
            for step in found if site.window == number else ():
                needed[step] = site.rows
        return needed

    def _takes(self, site: StepPart) -> bool:
        return site.kind == "make" and self._stream.takes(site.window)

    def _is_before(self, site: StepPart) -> bool:
        """Whether something happens before a step takes rows."""
        return site.kind == "keep" and site.order < 0 and self._stream.takes(site.window)

    def _before(self, sites: Iterable[tuple[StepPart, Found]]) -> Iterator[tuple[StepPart, Found]]:
        """What happens before a step takes rows, at the end of the one before."""
        run, end = self._run, len(self._stream.stages) + 1
        for site, found in sites:
            moved = {step - 1: times for step, times in found.items()}
            if self._stream.slides:
                again = found.get(run.hops.stop - run.phases)
                moved |= {run.hops.stop - 1: again} if again else {}
            yield site._replace(stage=end), moved


def _together(sites: Iterable[tuple[StepPart, Found]]) -> list[tuple[StepPart, Found]]:
    """The rows that each step takes, as one site for all steps that take as many."""
    rows: dict[tuple[StepPart, int], int] = {}
    first: dict[tuple[StepPart, int], Numbers] = {}
    for site, found in sites:
        for step, times in found.items():
            key = site._replace(rows=0), step
            rows[key] = rows.get(key, 0) + site.rows * len(times)
            first[key] = min(first.get(key, times[0]), *times, key=lambda numbers: numbers[1])
    made: dict[StepPart, dict[int, list[Numbers]]] = {}
    for (site, step), count in rows.items():
        made.setdefault(site._replace(rows=count, kind="take"), {})[step] = [first[site, step][:2]]
    return list(made.items())
