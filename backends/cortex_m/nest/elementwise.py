"""Pointwise functions as nests: what a row, a channel or all elements need alone, then every element in lanes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernel import KernelSource, Overlap, weights_at
from tosaic.backends.cortex_m.kernels.mve import COPY, PRELUDE, VECTOR, round_up, with_symbol
from tosaic.backends.cortex_m.nest.lanes import CHANNEL, FLAT, ROW, Value, reachable
from tosaic.backends.cortex_m.nest.nest import Nest
from tosaic.backends.cortex_m.nest.turn import LoopMemory, LoopRow, Turn
from tosaic.backends.cortex_m.program.list_scheduler import cycles_of
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

LOOKUPS = ("table", "lookup")
_CYCLES_OF_A_COPIED_VECTOR = 5


@dataclass(frozen=True, eq=False)
class Elementwise:
    """What is computed: `result` for each channel of each row, elements of `size` bytes."""

    result: Value
    rows: int
    channels: int
    size: int

    @cached_property
    def values(self) -> list[Value]:
        """All values, operands first."""
        return reachable(self.result)

    @property
    def nest(self) -> Nest:
        """The unscheduled stages: `row` and `channel` hold what varies with those axes alone."""
        outer = {"y": self.rows, "x": self.channels} if self.by_rows else {"x": self.rows * self.channels}
        return Nest.of(once={"x": 1}, row={"x": self.rows}, channel={"x": self.channels}, out=outer)

    @cached_property
    def by_rows(self) -> bool:
        """Whether elements are counted in rows, not through all of them."""
        return any(value.level in (ROW, CHANNEL) for value in self.values)

    @property
    def narrowest(self) -> int:
        """Bits of the narrowest lanes that hold every element in memory."""
        inputs = [v for v in self.values if v.op == "input" and v.level in (CHANNEL, FLAT)]
        full = [v.bits for v in self.values if v.op == "array" and v.level == FLAT]
        return max([8 * self.size, *(8 * v.numbers[1] for v in inputs), *full])

    def staged(self, level: str) -> list[Value]:
        """What is computed for each position of `level`, and used beyond it."""
        wanted = {
            operand
            for value in self.values
            for operand in value.operands
            if value.level != operand.level == level and _is_computed(operand)
        }
        wanted |= {self.result} if self.result.level == level and _is_computed(self.result) else set()
        return [value for value in self.values if value in wanted]


def scheduled(
    what: Elementwise, lanes: int, unroll: int, beside: int, channel: str, params: str, pipeline: Pipeline | None
) -> ElementwiseKernel:
    """The kernel with `unroll` vectors of `lanes` bits a turn, printed once to see that the registers hold it.

    Args:
        beside: vectors of a turn whose instructions alternate.
        channel: whether what a channel needs alone is computed once, in `scratch`, or `inline`, for each element.
        params: whether they are read where they lie, `in_place`, or copied to `scratch` first.

    Raises:
        BackendError: they do not, or a row is shorter than a turn.
    """
    each = 8 * VECTOR // lanes
    length = what.channels if what.by_rows else what.rows * what.channels
    if unroll > 1 and each * unroll > length:
        raise BackendError(f"{unroll} vectors of {each} elements are more than {length}")
    nest = what.nest.apply("place", "channel", channel).apply("place", "params", params)
    if each * unroll <= length:
        nest = nest.apply("split", "out", "x", "xu", each * unroll).apply("split", "out", "xu", "xi", each)
        nest = nest.apply("lanes", "out", "xi").apply("unroll", "out", "xu").apply("turn", "out", "x")
    if beside > 1:
        nest = nest.apply("interleave", "out", beside)
    kernel = ElementwiseKernel(what, lanes, nest, pipeline)
    kernel.counts()
    return kernel


def _is_computed(value: Value) -> bool:
    return value.op not in ("input", "array") and value.number is None


@dataclass(frozen=True)
class ElementwiseKernel:
    """A scheduled pointwise function, ready to print.

    Args:
        what: the problem.
        lanes: bits of a lane.
        nest: operand `channel` is in `scratch`, computed once for all rows, or `inline`, for each element; `params` are
            read `in_place`, or copied to `scratch`.
        pipeline: timings of the core; None leaves instructions in the order of their meaning.
    """

    what: Elementwise
    lanes: int
    nest: Nest
    pipeline: Pipeline | None

    @property
    def unroll(self) -> int:
        """Vectors of a turn."""
        return next((loop.turns for loop in self.nest.stages["out"] if loop.how == "unroll"), 1)

    @cached_property
    def stages(self) -> dict[str, list[Value]]:
        """The values that lie in scratch memory, by level."""
        levels = ["once", ROW, *([CHANNEL] if self.nest.places["channel"] == "scratch" else [])]
        return {level: self.what.staged(level) for level in levels}

    @cached_property
    def layout(self) -> tuple[dict[Value, int], int]:
        """Where staged values lie in scratch memory, and its size."""
        places, end = {}, 0
        for level, values in self.stages.items():
            for value in values:
                places[value] = end
                end += round_up(4 * self.count(level), 4 * VECTOR)
        return places, end

    def count(self, level: str) -> int:
        return {"once": 1, ROW: self.what.rows, CHANNEL: self.what.channels}[level]

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch memory: staged values, and the params where they are copied."""
        return self.layout[1] + self._copied

    @property
    def _copied(self) -> int:
        return round_up(len(self._printed.memory.params), VECTOR) * (self.nest.places["params"] == "scratch")

    @cached_property
    def _printed(self) -> _Printed:
        return _Printed(self)

    def source(self, kind: str, arguments: int) -> KernelSource:
        """The kernel.

        Args:
            kind: prefix of its symbol.
            arguments: of the function.

        Raises:
            BackendError: the vectors or the general registers do not hold it.
        """
        printed, copy = self._printed, f"scratch + {self.layout[1]}"
        copying = [f"copy({copy}, params, {self._copied});", f"params = {copy};"] if self._copied else []
        weights = printed.memory.weights
        tables = [] if weights is None else [weights_at(weights)]
        inputs = "".join(f"const int8_t *in{i}, " for i in range(arguments))
        lines = [
            *(COPY.splitlines() if copying else []),
            f"void @SYMBOL@({inputs}int8_t *out, const int8_t *params, int8_t *scratch)",
            "{",
            *(f"  {line}" for line in copying),
            *tables,
            *(f"  {line}" for line in printed.lines),
            "}",
            "",
        ]
        symbol, text = with_symbol(kind, PRELUDE + "\n".join(lines))
        size = 8 * self.what.size
        in_place = tuple(
            Overlap(v.numbers[0], 0)
            for v in self.what.values
            if v.op == "input" and v.varies == {FLAT} and 8 * v.numbers[1] >= size
        )
        shared = None if copying else weights
        params = printed.memory.params
        return KernelSource(symbol, "c", text, params, self.scratch_bytes, in_place=in_place, weights=shared)

    def walks(self) -> Sequence[Walk]:
        """The loop over memory: vectors of all elements."""
        each = 8 * VECTOR // self.lanes
        elements = self.what.rows * self.what.channels
        accesses = [ArrayAccess("out", "output", each * self.what.size, (each * self.what.size,), writes=True)]
        for value in self.what.values:
            if value.op == "input":
                size = value.numbers[1]
                of, moves = f"in{value.numbers[0]}", value.level == FLAT
                accesses.append(
                    ArrayAccess(of, "input", (each if moves else self._positions(value)) * size, (each * size * moves,))
                )
        params, (read, _) = len(self._printed.memory.params), self._reads()
        if self._copied:
            accesses += [
                ArrayAccess("params", "params", params, ()),
                ArrayAccess("copy", "scratch", params, (), writes=True),
            ]
        elif params:
            accesses.append(ArrayAccess("params", "params", params, (0,), accessed=read))
        return [Walk((max(1.0, elements / each),), tuple(accesses))]

    def counts(self) -> dict[str, float]:
        """What the code executes, for the cost model: instructions of each pipe, loads, stores, gathers, statements."""
        read, lookups = (self._copied, 0) if self._copied else self._reads()
        found = {
            **self._printed.counts,
            "unroll": self.unroll,
            "lanes": self.lanes,
            "scratch": self.scratch_bytes,
            "inline": self.nest.places["channel"] == "inline",
            "constants_read": read,
            "lookups": lookups,
        }
        found["cycles"] = found.get("cycles", 0) + _CYCLES_OF_A_COPIED_VECTOR * self._copied // VECTOR
        return {name: float(value) for name, value in found.items()}

    def _reads(self) -> tuple[float, float]:
        """Bytes of params that are read where they lie, and elements that are looked up."""
        looked_up = sum(self._positions(value) for value in self.what.values if value.op in LOOKUPS)
        arrays = [value for value in self.what.values if value.op == "array"]
        again = {CHANNEL: self.what.rows} if self.nest.places["channel"] == "inline" else {}
        read = sum(self._positions(value) * value.bits // 8 * again.get(value.level, 1) for value in arrays)
        return read + looked_up, looked_up

    def _positions(self, value: Value) -> int:
        return self.what.rows * self.what.channels if value.level == FLAT else self.count(value.level)


class _Printed:
    """The C of a kernel, its params, and what it executes."""

    def __init__(self, kernel: ElementwiseKernel) -> None:
        self.kernel, self.what, self.memory = kernel, kernel.what, LoopMemory(kernel.layout[0])
        self.counts: Counter[str] = Counter()
        body = [line for level, values in kernel.stages.items() for v in values for line in self._stage(level, v)]
        body += self._out()
        self.lines = [*self.memory.head(), *body]

    def _stage(self, level: str, value: Value) -> list[str]:
        """C that computes a value for each position of its level."""
        row = self._row(level, self.kernel.lanes if level == CHANNEL else 32, "")
        return [
            "{",
            *self._over(row, value, 1, self.kernel.count(level), f"scratch + {self.memory.staged[value]}"),
            "}",
        ]

    def _out(self) -> list[str]:
        """C that computes all elements."""
        what, lanes, unroll = self.what, self.kernel.lanes, self.kernel.unroll
        if not what.by_rows:
            row = self._row(FLAT, lanes, "")
            return ["{", *self._over(row, what.result, unroll, what.rows * what.channels, "out"), "}"]
        row = self._row(FLAT, lanes, "y")
        lines = self._over(row, what.result, unroll, what.channels, f"out{row.offset(what.size)}", what.rows)
        return [f"for (int y = 0; y < {what.rows}; y++) {{", *lines, "}"]

    def _row(self, level: str, lanes: int, at: str) -> LoopRow:
        return LoopRow(self.memory, level, lanes, at, self.what.channels, self.what.values)

    def _over(self, row: LoopRow, value: Value, unroll: int, length: int, to: str, times: int = 1) -> list[str]:
        """C that computes a value at `length` positions, `unroll` vectors a turn, and stores it at `to`."""
        each = 8 * VECTOR // row.lanes
        whole, rest = divmod(length, each * unroll)
        parts = [(whole, unroll, 0), (int(rest >= each), rest // each, 0), (int(rest % each > 0), 1, rest % each)]
        lines = []
        for turns, vectors, left in parts:
            if turns:
                turn = Turn(row, left)
                for _ in range(vectors):
                    turn.element(value, to, self.what.size)
                beside = self.kernel.nest.interleaved.get("out", 1)
                code, statement = turn.statement(turns, self.kernel.pipeline, beside)
                lines += statement
                self._count(code, turns, times)
        return [f"  {line}" for line in [*row.declared, *lines]]

    def _count(self, code: Sequence[str], turns: int, times: int) -> None:
        self.counts["statements"] += times
        self.counts["code"] += len(code)
        self.counts["issued"] += len(code) * turns * times
        if (pipeline := self.kernel.pipeline) is not None:
            first, second = (cycles_of(code, pipeline, n) for n in (1, 2))
            self.counts["cycles"] += (first + (second - first) * (turns - 1)) * times
