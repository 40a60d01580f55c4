"""A loop that counts: its turn is divided into kernels like any function, and these are called turn by turn.

Rows that a turn gathers, and slices that lie as one piece, are read where they are; a row that it scatters is written
where it shall be, and read there by the next turn where that is carried. Anything else that is carried has two
buffers, of which a turn reads one and writes the other.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernel import ANYWHERE, FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels import dense
from tosaic.backends.cortex_m.kernels.mve import COPY, PORTABLE_COPY, PRELUDE, VECTOR, round_up, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import number
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.linalg import pack
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.target import Core
from tosaic.support.errors import PassError
from tosaic.support.functions import body_of, computing_ops, inputs_of, main_of, returned
from tosaic.support.graph import Node, graph_of
from tosaic.support.kernels import cpu_kernels
from tosaic.support.loops import LOOP, turn_of, turns_of
from tosaic.support.mlir import constant_value, element_type, functions, ir, numpy_dtype, parse, shape_of
from tosaic.support.tosa_ops import is_constant
from tosaic.support.values import byte_size, producer, users
from tosaic.tuner.space import Schedule, Variant

_WITH_VECTORS = f"{PRELUDE}{COPY}\n"


@FAMILIES.register
class Loop(KernelFamily):
    """A function of one loop, whose turn gathers and scatters nothing but the rows of its number.

    Knob `params`: whether the turns read the constants where they lie, or in scratch memory, where they are unpacked
    first.
    """

    name = "loop"
    rank = -1

    def match(self, function: ir.Operation) -> Workload | None:
        turn = _Turn.of(function)
        if turn is None:
            return None
        return Workload(self.name, f"{turn.count} turns", {"function": str(function), "turns": turn.count}, {})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        size = len(_generated(str(workload.attributes["function"]), False, core).params)
        places = (
            ("scratch", "memory") if self._copies(size, core) else ("memory", "scratch")[: 1 + (size <= dense.MOST)]
        )
        held = [place for place in places if self.site.holds(self._features(workload, place, core))]
        return (Variant("calls", {"params": tuple(held)}),) if held else ()

    def _copies(self, size: int, core: Core) -> bool:
        """Whether a copy of so many bytes of params, which are read in every turn, is the better guess."""
        again = Walk((2.0,), (ArrayAccess("params", "params", size, (0.0,)),))
        waits = self.site == ANYWHERE or self.site.waits([again], core.pipeline) > 0
        return waits and size <= _COPIED

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        return _generated(str(workload.attributes["function"]), schedule["params"] == "scratch", core)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        return self._features(workload, str(schedule["params"]), core)

    def _features(self, workload: Workload, place: str, core: Core) -> Mapping[str, float]:
        turns = number(workload, "turns")
        source = _generated(str(workload.attributes["function"]), place == "scratch", core)
        reads = 1 if place == "scratch" else turns
        return {
            "turns": float(turns),
            "calls": float(turns * len(source.parts)),
            "constants_read": float(reads * len(source.params)),
            "scratch": float(source.scratch_bytes),
        }


_COPIED = 2**16  # bytes of params that a guess copies to scratch memory


@lru_cache(maxsize=32)
def _generated(text: str, resident: bool, core: Core) -> KernelSource:
    module = parse(text)
    (function,) = functions(module).values()
    turn = _Turn.of(function)
    assert turn is not None
    return _Writer(turn, resident, core).source()


@dataclass(frozen=True)
class _Part:
    """A kernel of the turn: what it reads and what others read of it."""

    meaning: ir.Module
    inputs: Sequence[ir.Value]
    outputs: Sequence[ir.Value]


@dataclass(frozen=True)
class _Turn:
    """A loop, the only op of a function.

    Args:
        gathers, scatters: of the rows of the turn's number.
    """

    function: ir.Operation
    loop: ir.Operation
    count: int
    gathers: Sequence[ir.Operation]
    scatters: Sequence[ir.Operation]

    @staticmethod
    def of(function: ir.Operation) -> _Turn | None:
        """None where a function is something else, or its turns do more than read and write their rows."""
        ops = computing_ops(function)
        if [op.name for op in ops] != [LOOP] or any(value.owner.name != LOOP for value in returned(function)):
            return None
        (loop,) = ops
        try:
            count = turns_of(loop)
        except PassError:
            return None
        index = turn_of(loop).arguments[0]
        ops = [op.operation for op in turn_of(loop).operations]
        gathers, scatters = ([op for op in ops if op.name == name] for name in ("tosa.gather", "tosa.scatter"))
        if any(op.operands[1] != index or shape_of(op.operands[0])[0] != 1 for op in (*gathers, *scatters)):
            return None
        turn = _Turn(function, loop, count, gathers, scatters)
        return turn if turn._is_plain() else None

    def _is_plain(self) -> bool:
        """Whether gathers read what no turn writes, scatters write what only they read, and all else that is carried
        stays the same or is a kernel's whole result."""
        arguments = list(turn_of(self.loop).arguments)
        made = {value for part in self.parts() for value in part.outputs}
        written = [op.operands[0] for op in self.scatters]
        return (
            all(_root(op.operands[0])[0] not in arguments for op in self.gathers)
            and all(value in arguments and len(users(value)) == 1 for value in written)
            and all(self.given(op.operands[0]) == op.results[0] for op in self.scatters)
            and all(_root(op.operands[2])[0] in made for op in self.scatters)
            and all(self.given(one) == one or self._is_whole(self.given(one), made) for one in self.carried)
        )

    @staticmethod
    def _is_whole(value: ir.Value, made: Collection[ir.Value]) -> bool:
        root, _ = _root(value)
        return root in made and byte_size(root) == byte_size(value)

    def readers(self, value: ir.Value) -> list[ir.Value]:
        """What is carried to the next turn and begins with `value`."""
        return [one for one in self.carried if _root(self.given(one))[0] == value]

    @property
    def carried(self) -> Sequence[ir.Value]:
        """What a turn gets, but for its number and the rows that it writes."""
        written = [op.operands[0] for op in self.scatters]
        return [value for value in list(turn_of(self.loop).arguments)[1:] if value not in written]

    def given(self, value: ir.Value) -> ir.Value:
        """What the next turn gets for a carried value."""
        *_, end = turn_of(self.loop).operations
        return end.operands[ir.BlockArgument(value).arg_number]

    def first(self, value: ir.Value) -> ir.Value:
        """What the first turn gets for it."""
        return self.loop.operands[ir.BlockArgument(value).arg_number]

    def output(self, value: ir.Value) -> int | None:
        """The number of the function's result that is what the last turn gives for it."""
        result = self.loop.results[ir.BlockArgument(value).arg_number]
        return next((number for number, one in enumerate(returned(self.function)) if one == result), None)

    def parts(self) -> list[_Part]:
        """The kernels of a turn, each behind those that it reads."""
        *ops, end = (op.operation for op in turn_of(self.loop).operations)
        nodes = graph_of([op for op in ops if not is_constant(op)], list(end.operands)[1:])
        counter = producer(end.operands[0])
        passed = {*self.gathers, *self.scatters, counter}
        groups = [
            group for group in cpu_kernels(nodes) if not any(node.op in passed or _is_view(node.op) for node in group)
        ]
        return [_part(group) for group in _sorted(groups)]


def _part(group: Sequence[Node]) -> _Part:
    ops = [node.op for node in group]
    inside = set(ops)
    outputs = [value for op in ops for value in op.results if any(user not in inside for user in users(value))]
    inputs = inputs_of(ops)
    return _Part(main_of(ops, inputs, outputs), inputs, outputs)


def _sorted(groups: Sequence[Sequence[Node]]) -> list[Sequence[Node]]:
    """Each group behind those that it reads, through views too."""
    group_of = {node.op: number for number, group in enumerate(groups) for node in group}
    found: dict[int, None] = {}

    def visit(place: int) -> None:
        for value in inputs_of([node.op for node in groups[place]]):
            maker = group_of.get(producer(_root(value)[0]))
            if maker is not None and maker not in found:
                visit(maker)
        found[place] = None

    for place in range(len(groups)):
        if place not in found:
            visit(place)
    return [groups[place] for place in found]


def _root(value: ir.Value) -> tuple[ir.Value, int]:
    """The tensor that a value is a piece of, and where it begins there in bytes."""
    offset = 0
    while (op := producer(value)) is not None and _is_view(op):
        offset += _begin(op) or 0
        value = op.operands[0]
    return value, offset


def _is_view(op: ir.Operation) -> bool:
    return op.name == "tosa.reshape" or (op.name == "tosa.slice" and _begin(op) is not None)


def _begin(op: ir.Operation) -> int | None:
    """Where the result of a reshape or slice lies in its operand, in bytes; None where it is no aligned piece of it."""
    if op.name == "tosa.reshape":
        return 0
    start, size = constant_value(op.operands[1]), shape_of(op.results[0])
    whole = shape_of(op.operands[0])
    outer = next((axis for axis, extent in enumerate(size) if extent > 1), len(size))
    if start is None or size[outer + 1 :] != whole[outer + 1 :]:
        return None
    strides = [math.prod(whole[axis + 1 :]) for axis in range(len(whole))]
    begin = sum(int(at) * stride for at, stride in zip(start, strides, strict=True))
    begin *= numpy_dtype(element_type(op.results[0])).itemsize
    return None if begin % VECTOR else begin


class _Writer:
    """Places what a loop reads and makes, and writes the calls.

    Args:
        resident: whether the params are copied to scratch memory first.
    """

    def __init__(self, turn: _Turn, resident: bool, core: Core) -> None:
        self._turn, self._resident, self._core, self._parts = turn, resident, core, turn.parts()
        tasks = [KernelTask.of(functions(part.meaning)["main"], core) for part in self._parts]
        self._sources = [task.generate(task.default()) for task in tasks]
        self._params, self._end = Params(), 0
        self._place = {value: f"in{number}" for number, value in enumerate(body_of(turn.function).arguments)}
        self._place |= {value: f"now{_number(value)}" for value in turn.carried}
        self._place |= {op.results[0]: self._row(op.operands[0], op.results[0]) for op in turn.gathers if _aligned(op)}
        self._buffered: list[ir.Value] = []  # what the next turn reads in one of two buffers
        made = [value for part in self._parts for value in part.outputs]
        self._place |= {value: place for value in made if (place := self._lasting(value))}
        self._place |= self._passing([op.results[0] for op in turn.gathers] + made)
        self._inner = self._reserve(max((source.scratch_bytes for source in self._sources), default=0))

    def source(self) -> KernelSource:
        """The kernel, with those of its turn as parts."""
        parts = {source.symbol: source for source in self._sources}
        before, each, after = self._before(), self._each(), self._after()
        params = bytes(self._params)
        if self._resident:
            unpacked = f"scratch + {self._reserve(len(params))}"
            params, runs = dense.dense(params)
            before = [f"unpack({unpacked}, params, {runs});", f"params = {unpacked};", *before]
        inputs = [f"const int8_t *in{i}" for i in range(len(body_of(self._turn.function).arguments))]
        outputs = [f"int8_t *out{i}" for i in range(len(returned(self._turn.function)))]
        lines = [
            *(f"void {symbol}({', '.join(self._prototype(symbol))});" for symbol in parts),
            f"void @SYMBOL@({', '.join([*inputs, *outputs, 'const int8_t *params', 'int8_t *scratch'])})",
            "{",
            *(f"  {line}" for line in before),
            f"  for (int32_t t = 0; t < {self._turn.count}; t++) {{",
            *(f"    {line}" for line in each),
            "  }",
            *(f"  {line}" for line in after),
            "}",
        ]
        prelude = _WITH_VECTORS if self._core.mve else PORTABLE_COPY
        unpack = f"{dense.WITH_VECTORS if self._core.mve else dense.WITHOUT_VECTORS}{dense.UNPACK}"
        symbol, text = with_symbol("loop", prelude + unpack * self._resident + "\n".join(lines) + "\n")
        libraries = dict.fromkeys(library for source in self._sources for library in source.libraries)
        return KernelSource(
            symbol, "c", text, params, self._end, libraries=tuple(libraries), parts=tuple(parts.values())
        )

    def _reserve(self, size: int) -> int:
        offset = self._end
        self._end = round_up(offset + size, VECTOR)
        return offset

    def _row(self, tensor: ir.Value, row: ir.Value) -> str:
        """Where the turn's row of a tensor begins."""
        return f"{self._at(tensor)} + t * {byte_size(row)}"

    def _at(self, value: ir.Value) -> str:
        root, offset = _root(value)
        return f"{self._place[root]} + {offset}" if offset else self._place[root]

    def _lasting(self, value: ir.Value) -> str:
        """Where a value lies that the next turn reads, or that is scattered; empty for any other."""
        for op in self._turn.scatters:
            output = self._turn.output(op.operands[0])
            if _root(op.operands[2])[0] == value and output is not None and byte_size(value) % VECTOR == 0:
                return f"out{output} + t * {byte_size(value)}"
        if not self._turn.readers(value):
            return ""
        self._buffered.append(value)
        return f"next{len(self._buffered) - 1}"

    def _passing(self, values: Sequence[ir.Value]) -> dict[ir.Value, str]:
        """Where the values lie that have no place yet: those that never live together share one."""
        passing = [value for value in values if value not in self._place]
        lives = [self._life(value) for value in passing]
        sizes = [byte_size(value) for value in passing]
        offsets = pack(lives, sizes)
        start = self._reserve(max((at + size for at, size in zip(offsets, sizes, strict=True)), default=0))
        return {value: f"scratch + {start + at}" for value, at in zip(passing, offsets, strict=True)}

    def _life(self, value: ir.Value) -> tuple[int, int]:
        """The first and the last kernel of a turn between which a value is kept."""
        first = next((number for number, part in enumerate(self._parts) if value in part.outputs), 0)
        readers = [
            number
            for number, part in enumerate(self._parts)
            if any(_root(operand)[0] == value for operand in part.inputs)
        ]
        return first, max([first, *readers])

    def _before(self) -> list[str]:
        """Pointers to what a turn gets, which begin at what the first one gets, and to buffers."""
        lines = []
        for value in self._turn.carried:
            first = self._turn.first(value)
            known = constant_value(first)
            where = self._at(first) if known is None else f"params + {self._params.add(known)}"
            lines.append(f"const int8_t *{self._place[value]} = {where};")
        for index, value in enumerate(self._buffered):
            size = byte_size(value)
            one, other = self._reserve(size), self._reserve(size)
            lines.append(f"int8_t *next{index} = scratch + {one}, *other{index} = scratch + {other};")
        return lines

    def _each(self) -> list[str]:
        """A turn: unaligned rows are copied, the kernels called, and the pointers moved on."""
        lines = [
            f"copy({self._at(op.results[0])}, {self._row(op.operands[0], op.results[0])}, {byte_size(op.results[0])});"
            for op in self._turn.gathers
            if not _aligned(op)
        ]
        blocks = dict.fromkeys(source.params for source in self._sources if source.params)
        at = {block: self._params.add(np.frombuffer(block, np.uint8)) for block in blocks}
        for part, source in zip(self._parts, self._sources, strict=True):
            tensors = [self._at(value) for value in (*part.inputs, *part.outputs)]
            working = [f"params + {at.get(source.params, 0)}", f"scratch + {self._inner}"]
            lines.append(f"{source.symbol}({', '.join([*tensors, *working])});")
        for op in self._turn.scatters:
            output, row = self._turn.output(op.operands[0]), op.operands[2]
            if output is not None and not self._at(row).startswith(f"out{output} "):
                lines.append(f"copy(out{output} + t * {byte_size(row)}, {self._at(row)}, {byte_size(row)});")
        for value in self._turn.carried:
            given = self._turn.given(value)
            if given != value:
                lines.append(f"{self._place[value]} = {self._at(given)};")
        for index in range(len(self._buffered)):
            lines.append(f"int8_t *const made{index} = next{index};")
            lines.append(f"next{index} = other{index}, other{index} = made{index};")
        return lines

    def _after(self) -> list[str]:
        """What the last turn gives becomes a result."""
        return [
            f"copy(out{output}, {self._place[value]}, {byte_size(value)});"
            for value in self._turn.carried
            if (output := self._turn.output(value)) is not None
        ]

    def _prototype(self, symbol: str) -> list[str]:
        number = next(number for number, source in enumerate(self._sources) if source.symbol == symbol)
        part = self._parts[number]
        read, written = ["const int8_t *"] * len(part.inputs), ["int8_t *"] * len(part.outputs)
        return [*read, *written, "const int8_t *params", "int8_t *scratch"]


def _aligned(op: ir.Operation) -> bool:
    return byte_size(op.results[0]) % VECTOR == 0


def _number(value: ir.Value) -> int:
    return ir.BlockArgument(value).arg_number
