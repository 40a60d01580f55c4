"""A loop that counts as a program: its iterations call the kernels of the body."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.kernels import dense
from tosaic.backends.cortex_m.kernels.loop_body import LoopBody, LoopPart, root_of
from tosaic.backends.cortex_m.kernels.mve import VECTOR, round_up
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.linalg_memory import pack
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.calls import call_of, kernel
from tosaic.backends.cortex_m.program.kernel import scheduled
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import nested, seq
from tosaic.backends.cortex_m.program.schedule import parse_steps
from tosaic.backends.cortex_m.program.sketches.copies import copied_elements
from tosaic.backends.cortex_m.program.tree import Access, Alloc, Assign, Buffer, If, Let, Op, Statement
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.target import Core
from tosaic.support.functions import body_of, returned
from tosaic.support.mlir import constant_value, functions, ir
from tosaic.support.values import byte_size

_T, _TURN = Affine.of("t"), Affine.of("p")
"""The number of an iteration, and which of two buffers it writes."""
_WRITTEN = Access("written")
"""Where that lies."""


class LoopCalls:
    """Places what a loop reads and makes, all of it bytes, and calls the kernels of its body.

    Constants and params of kernels are one block, `known`. What iterations pass on to the next one, and do not leave in
    a row of a result, lies in two buffers that take turns.

    Attributes:
        sources: the kernels of an iteration.
    """

    def __init__(self, iteration: LoopBody, core: Core) -> None:
        self._iteration, self._core, self._parts = iteration, core, iteration.parts()
        tasks = [KernelTask.of(functions(part.meaning)["main"], core) for part in self._parts]
        self.sources = [task.generate(task.default()) for task in tasks]
        self._params, self._copies = Params(), list[tuple[str, str, int]]()
        self._scratch = {"own": max((source.scratch_bytes for source in self.sources), default=0)}
        self._turning = list[str]()
        arguments = body_of(iteration.function).arguments
        self._place = {value: Access(f"in{number}", (Affine(),)) for number, value in enumerate(arguments)}
        self._place |= {op.results[0]: self._row(op) for op in iteration.gathers if _aligned(op)}
        made = [value for part in self._parts for value in part.outputs]
        self._place |= {value: place for value in made if (place := self._lasting(value)) is not None}
        self._place |= self._passing([op.results[0] for op in iteration.gathers] + made)
        self._first = {value: self._given_first(value) for value in iteration.carried}
        blocks = dict.fromkeys(source.params for source in self.sources if source.params)
        self._blocks = {block: self._params.add(np.frombuffer(block, np.uint8)) for block in blocks}

    def source(self, cached: bool) -> KernelSource:
        """The kernel, with those of its iteration as parts.

        Args:
            cached: whether the params are copied to scratch memory first.
        """
        program, known = self.program(), self.known
        parts, constants = {source.symbol: source for source in self.sources}, {"known": known}
        if cached and known:
            unpacking = dense.unpacking(known, self._core)
            program, constants["stored"] = unpacked(program, unpacking), unpacking.params
            parts[unpacking.symbol] = unpacking
        steps = [f"place({_WRITTEN.buffer}, r)"] if self._turning else []
        steps += [step for copy in self._copies for step in copied_elements(*copy, 1, self._core)]
        built = scheduled(program, parse_steps("\n".join(steps)), self._core)
        source = built.source("loop", {name: np.frombuffer(data, np.int8) for name, data in constants.items()})
        libraries = dict.fromkeys(library for each in self.sources for library in each.libraries)
        return replace(source, libraries=tuple(libraries), parts=tuple(parts.values()))

    @property
    def known(self) -> bytes:
        """Constants, and params of kernels."""
        return bytes(self._params)

    def program(self) -> Program:
        """The calls, with constants as they are."""
        function, count = self._iteration.function, self._iteration.count
        body = seq(*self._each())
        if self._turning:
            turned = Assign(_WRITTEN, Op("sub", (1, _WRITTEN)))
            body = seq(Let("p", _WRITTEN, 2, body), turned)
        body = seq(nested(body, t=count), *self._after())
        if self._turning:
            body = Alloc(Buffer(_WRITTEN.buffer, "i32", (), "scratch"), seq(Assign(_WRITTEN, 0), body))
        for name, size in reversed(self._scratch.items()):
            body = Alloc(Buffer(name, "i8", (size,), "scratch"), body) if size else body
        tensors = {"in": body_of(function).arguments, "out": returned(function)}
        arguments = [
            Buffer(f"{memory}{number}", "i8", (byte_size(value),), memory)
            for memory, values in tensors.items()
            for number, value in enumerate(values)
        ]
        known = [Buffer("known", "i8", (len(self._params),), "const")] if len(self._params) else []
        return Program((*arguments, *known), body)

    def _row(self, op: ir.Operation) -> Access:
        """The iteration's row of a tensor that is gathered from."""
        return _further(self._at(op.operands[0]), _T * byte_size(op.results[0]))

    def _at(self, value: ir.Value) -> Access:
        root, offset = root_of(value)
        return _further(self._place[root], offset)

    def _lasting(self, value: ir.Value) -> Access | None:
        """Where a value lies that the next iteration reads, or that is scattered; None for any other."""
        for op in self._iteration.scatters:
            output = self._iteration.output(op.operands[0])
            if root_of(op.operands[2])[0] == value and output is not None and byte_size(value) % VECTOR == 0:
                return Access(f"out{output}", (_T * byte_size(value),))
        if not self._iteration.readers(value):
            return None
        name, size = f"state{len(self._turning)}", round_up(byte_size(value), VECTOR)
        self._turning.append(name)
        self._scratch[name] = 2 * size
        return Access(name, (_TURN * size,))

    def _passing(self, values: Sequence[ir.Value]) -> dict[ir.Value, Access]:
        """Where the values lie that have no place yet: those that never live together share one."""
        passing = [value for value in values if value not in self._place]
        sizes = [byte_size(value) for value in passing]
        offsets = pack([self._life(value) for value in passing], sizes)
        self._scratch["passing"] = max((at + size for at, size in zip(offsets, sizes, strict=True)), default=0)
        return {value: Access("passing", (Affine.of(at),)) for value, at in zip(passing, offsets, strict=True)}

    def _life(self, value: ir.Value) -> tuple[int, int]:
        """The first and the last kernel of an iteration between which a value is kept."""
        first = next((number for number, part in enumerate(self._parts) if value in part.outputs), 0)
        readers = [
            number
            for number, part in enumerate(self._parts)
            if any(root_of(operand)[0] == value for operand in part.inputs)
        ]
        return first, max([first, *readers])

    def _given_first(self, value: ir.Value) -> Access:
        """What the first iteration gets for a carried value."""
        first = self._iteration.first(value)
        known = constant_value(first)
        return self._at(first) if known is None else Access("known", (Affine.of(self._params.add(known)),))

    def _read(self, value: ir.Value, later: bool) -> Access:
        """Where an iteration reads a value, the first one or a `later` one."""
        root, offset = root_of(value)
        if root not in self._first:
            return self._at(value)
        given = self._iteration.given(root)
        if not later or given == root:
            return _further(self._first[root], offset)
        before = self._at(given).index[0].at({"t": _T - 1, "p": _TURN * -1 + 1})
        return Access(self._at(given).buffer, (before + offset,))

    def _each(self) -> Iterator[Statement]:
        """An iteration: unaligned rows are copied, and the kernels called."""
        for op in self._iteration.gathers:
            if not _aligned(op):
                yield self._copied(self._at(op.results[0]), self._row(op), byte_size(op.results[0]))
        for part, source in zip(self._parts, self.sources, strict=True):
            yield self._called(part, source)
        for op in self._iteration.scatters:
            output, row = self._iteration.output(op.operands[0]), op.operands[2]
            if output is not None and self._at(row).buffer != f"out{output}":
                size = byte_size(row)
                yield self._copied(Access(f"out{output}", (_T * size,)), self._at(row), size)

    def _called(self, part: LoopPart, source: KernelSource) -> Statement:
        read = [Buffer(f"a{i}", "i8", (byte_size(value),), "in") for i, value in enumerate(part.inputs)]
        made = [Buffer(f"b{i}", "i8", (byte_size(value),), "out") for i, value in enumerate(part.outputs)]
        called = kernel(source.symbol, (*read, *made), len(source.params), source.scratch_bytes)
        outputs, params = list(map(self._at, part.outputs)), Affine.of(self._blocks.get(source.params, 0))
        first, later = (
            call_of(
                called,
                [*(self._read(value, later) for value in part.inputs), *outputs],
                Access("known", (params,)),
                "own",
            )
            for later in (False, True)
        )
        return first if first == later else If((_T - 1,), later, first)

    def _after(self) -> Iterator[Statement]:
        """What the last iteration gives becomes a result."""
        last = self._iteration.count - 1
        for value in self._iteration.carried:
            if (output := self._iteration.output(value)) is not None:
                given = self._iteration.given(value)
                place = self._first[value] if given == value else self._at(given)
                place = Access(place.buffer, (place.index[0].at({"t": last, "p": last % 2}),))
                yield self._copied(Access(f"out{output}", (Affine(),)), place, byte_size(value))

    def _copied(self, to: Access, source: Access, size: int) -> Statement:
        """A loop that copies bytes, and has a name of its own."""
        loop = f"c{chr(ord('a') + len(self._copies))}"
        self._copies.append((source.buffer, loop, size))
        byte = Affine.of(loop)
        return nested(Assign(_further(to, byte), _further(source, byte)), **{loop: size})


def unpacked(program: Program, unpacking: KernelSource) -> Program:
    """A program whose constants are unpacked to working memory first."""
    *tensors, known = program.arguments
    stored = Buffer("stored", "i8", (len(unpacking.params),), "const")
    unpack = kernel(unpacking.symbol, [replace(known, memory="out")], stored.size, 0)
    call = call_of(unpack, [Access("known", (Affine(),))], Access("stored", (Affine(),)), "")
    return Program((*tensors, stored), Alloc(replace(known, memory="scratch"), seq(call, program.body)))


def _further(place: Access, offset: Affine | int) -> Access:
    return Access(place.buffer, (place.index[0] + offset,))


def _aligned(op: ir.Operation) -> bool:
    return byte_size(op.results[0]) % VECTOR == 0
