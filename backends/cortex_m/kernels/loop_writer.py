"""The C of a loop that counts: it calls the kernels of its body iteration by iteration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.kernels import dense
from tosaic.backends.cortex_m.kernels.loop_body import LoopBody, root_of
from tosaic.backends.cortex_m.kernels.mve import COPY, PORTABLE_COPY, PRELUDE, VECTOR, round_up, with_symbol
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.linalg import pack
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.target import Core
from tosaic.support.functions import body_of, returned
from tosaic.support.mlir import constant_value, functions, ir
from tosaic.support.values import byte_size

_WITH_VECTORS = f"{PRELUDE}{COPY}\n"


class LoopWriter:
    """Places what a loop reads and makes, and writes the calls.

    Args:
        cached: whether the params are copied to scratch memory first.
    """

    def __init__(self, iteration: LoopBody, cached: bool, core: Core) -> None:
        self._iteration, self._cached, self._core, self._parts = iteration, cached, core, iteration.parts()
        tasks = [KernelTask.of(functions(part.meaning)["main"], core) for part in self._parts]
        self._sources = [task.generate(task.default()) for task in tasks]
        self._params, self._end = Params(), 0
        self._place = {value: f"in{number}" for number, value in enumerate(body_of(iteration.function).arguments)}
        self._place |= {value: f"now{_number(value)}" for value in iteration.carried}
        self._place |= {
            op.results[0]: self._row(op.operands[0], op.results[0]) for op in iteration.gathers if _aligned(op)
        }
        self._buffered: list[ir.Value] = []  # what the next iteration reads in one of two buffers
        made = [value for part in self._parts for value in part.outputs]
        self._place |= {value: place for value in made if (place := self._lasting(value))}
        self._place |= self._passing([op.results[0] for op in iteration.gathers] + made)
        self._inner = self._reserve(max((source.scratch_bytes for source in self._sources), default=0))

    def source(self) -> KernelSource:
        """The kernel, with those of its iteration as parts."""
        parts = {source.symbol: source for source in self._sources}
        before, each, after = self._before(), self._each(), self._after()
        params = bytes(self._params)
        if self._cached:
            unpacked = f"scratch + {self._reserve(len(params))}"
            params, runs = dense.dense(params)
            before = [f"unpack({unpacked}, params, {runs});", f"params = {unpacked};", *before]
        inputs = [f"const int8_t *in{i}" for i in range(len(body_of(self._iteration.function).arguments))]
        outputs = [f"int8_t *out{i}" for i in range(len(returned(self._iteration.function)))]
        lines = [
            *(f"void {symbol}({', '.join(self._prototype(symbol))});" for symbol in parts),
            f"void @SYMBOL@({', '.join([*inputs, *outputs, 'const int8_t *params', 'int8_t *scratch'])})",
            "{",
            *(f"  {line}" for line in before),
            f"  for (int32_t t = 0; t < {self._iteration.count}; t++) {{",
            *(f"    {line}" for line in each),
            "  }",
            *(f"  {line}" for line in after),
            "}",
        ]
        prelude = _WITH_VECTORS if self._core.mve else PORTABLE_COPY
        unpack = f"{dense.WITH_VECTORS if self._core.mve else dense.WITHOUT_VECTORS}{dense.UNPACK}"
        symbol, text = with_symbol("loop", prelude + unpack * self._cached + "\n".join(lines) + "\n")
        libraries = dict.fromkeys(library for source in self._sources for library in source.libraries)
        return KernelSource(
            symbol, "c", text, params, self._end, libraries=tuple(libraries), parts=tuple(parts.values())
        )

    def _reserve(self, size: int) -> int:
        offset = self._end
        self._end = round_up(offset + size, VECTOR)
        return offset

    def _row(self, tensor: ir.Value, row: ir.Value) -> str:
        """Where the iteration's row of a tensor begins."""
        return f"{self._at(tensor)} + t * {byte_size(row)}"

    def _at(self, value: ir.Value) -> str:
        root, offset = root_of(value)
        return f"{self._place[root]} + {offset}" if offset else self._place[root]

    def _lasting(self, value: ir.Value) -> str:
        """Where a value lies that the next iteration reads, or that is scattered; empty for any other."""
        for op in self._iteration.scatters:
            output = self._iteration.output(op.operands[0])
            if root_of(op.operands[2])[0] == value and output is not None and byte_size(value) % VECTOR == 0:
                return f"out{output} + t * {byte_size(value)}"
        if not self._iteration.readers(value):
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
        """The first and the last kernel of an iteration between which a value is kept."""
        first = next((number for number, part in enumerate(self._parts) if value in part.outputs), 0)
        readers = [
            number
            for number, part in enumerate(self._parts)
            if any(root_of(operand)[0] == value for operand in part.inputs)
        ]
        return first, max([first, *readers])

    def _before(self) -> list[str]:
        """Pointers to what an iteration gets, which begin at what the first one gets, and to buffers."""
        lines = []
        for value in self._iteration.carried:
            first = self._iteration.first(value)
            known = constant_value(first)
            where = self._at(first) if known is None else f"params + {self._params.add(known)}"
            lines.append(f"const int8_t *{self._place[value]} = {where};")
        for index, value in enumerate(self._buffered):
            size = byte_size(value)
            one, other = self._reserve(size), self._reserve(size)
            lines.append(f"int8_t *next{index} = scratch + {one}, *other{index} = scratch + {other};")
        return lines

    def _each(self) -> list[str]:
        """An iteration: unaligned rows are copied, the kernels called, and the pointers moved on."""
        lines = [
            f"copy({self._at(op.results[0])}, {self._row(op.operands[0], op.results[0])}, {byte_size(op.results[0])});"
            for op in self._iteration.gathers
            if not _aligned(op)
        ]
        blocks = dict.fromkeys(source.params for source in self._sources if source.params)
        at = {block: self._params.add(np.frombuffer(block, np.uint8)) for block in blocks}
        for part, source in zip(self._parts, self._sources, strict=True):
            tensors = [self._at(value) for value in (*part.inputs, *part.outputs)]
            working = [f"params + {at.get(source.params, 0)}", f"scratch + {self._inner}"]
            lines.append(f"{source.symbol}({', '.join([*tensors, *working])});")
        for op in self._iteration.scatters:
            output, row = self._iteration.output(op.operands[0]), op.operands[2]
            if output is not None and not self._at(row).startswith(f"out{output} "):
                lines.append(f"copy(out{output} + t * {byte_size(row)}, {self._at(row)}, {byte_size(row)});")
        for value in self._iteration.carried:
            given = self._iteration.given(value)
            if given != value:
                lines.append(f"{self._place[value]} = {self._at(given)};")
        for index in range(len(self._buffered)):
            lines.append(f"int8_t *const made{index} = next{index};")
            lines.append(f"next{index} = other{index}, other{index} = made{index};")
        return lines

    def _after(self) -> list[str]:
        """What the last iteration gives becomes a result."""
        return [
            f"copy(out{output}, {self._place[value]}, {byte_size(value)});"
            for value in self._iteration.carried
            if (output := self._iteration.output(value)) is not None
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
