"""What a tree means: its outputs, exactly, before there is any C; and what the host makes of constants."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tosaic.backends.cortex_m.program.check import SLACK
from tosaic.backends.cortex_m.program.derived import DERIVED
from tosaic.backends.cortex_m.program.host import Pack
from tosaic.backends.cortex_m.program.memory import constant_offsets
from tosaic.backends.cortex_m.program.ops import LOOKUP, OPS
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.touches import meaning_of
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    NUMPY,
    Access,
    Alloc,
    Assign,
    Callee,
    For,
    If,
    Instr,
    Invoke,
    Let,
    Op,
    Reduce,
    RefusedError,
    Seq,
    Statement,
    Value,
)


def host_constants(program: Program, constants: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The constants as the program reads them, by name, made of those that its algorithm names.

    Raises:
        RefusedError: an identity does not hold for them.
    """
    found = dict(constants)
    for step in program.host:
        if isinstance(step, Pack):
            found[step.name] = packed(step, found[step.source])
            continue
        sources = [found[name].reshape(was).astype(np.int64) for name, was in zip(step.sources, step.was, strict=True)]
        values = DERIVED[step.rule](*sources, *step.numbers)
        if values is None:
            raise RefusedError(f"`{step.rule}` does not hold for all of {', '.join(step.sources)}")
        found[step.name] = values
    return found


def packed(step: Pack, source: np.ndarray) -> np.ndarray:
    """What the host makes of a constant: a view of it, with zeros around where elements lie outside."""
    axes, around, start = [f"v{axis}" for axis in range(len(step.shape))], [], []
    for where, extent in zip(step.where, step.was, strict=True):
        reach = [where[name] * (count - 1) for name, count in zip(axes, step.shape, strict=True)]
        before = max(0, -where.const - sum(min(0, far) for far in reach))
        around.append((before, max(0, where.const + sum(max(0, far) for far in reach) - extent + 1)))
        start.append(slice(where.const + before, None))
    values = np.pad(source.reshape(step.was), around) if around else source.reshape(step.was)
    strides = [sum(where[name] * stride for where, stride in zip(step.where, values.strides, strict=True))
               for name in axes]  # fmt: skip
    return as_strided(values[tuple(start)], step.shape, strides).copy()


Meaning = Callable[..., Sequence[np.ndarray]]
"""What is called, as a function: it takes what that reads, in order, and gives what it writes."""


def meaning_of_kernel(program: Program) -> Meaning:
    """What a kernel means that is a program itself."""

    def meaning(*given: np.ndarray) -> Sequence[np.ndarray]:
        arrays = {b.name: array.reshape(b.shape) for b, array in zip(program.inputs, given, strict=False)}
        for name, offset in constant_offsets(program).items():
            b = program.buffers[name]
            arrays[name] = np.frombuffer(given[-1].tobytes(), NUMPY[b.dtype], b.size, offset).reshape(b.shape)
        made = interpreted(program, arrays)
        return [made[b.name] for b in program.outputs]

    return meaning


def interpreted(
    program: Program,
    arrays: Mapping[str, np.ndarray],
    meanings: Mapping[str, Meaning] = MappingProxyType({}),
    working: list[int | None] | None = None,
) -> dict[str, np.ndarray]:
    """The outputs, given inputs and constants as the program reads them, what outputs held, and what is called by name.

    Args:
        working: the bytes of working memory where buffers lie whose places are told, which a program before may have
            left, and which hold what this one leaves.

    Raises:
        ValueError: a number does not fit its buffer, or one is put out that nobody wrote.
    """
    scope: dict[str, Any] = {
        "OPS": {name: _of_known(op.compute) for name, op in OPS.items()},
        "mul": _product,
        "add": _of_known(operator.add),
        "read": _of_known(_read),
        "fits": _fits,
        "single": _single,
        "call": {s.callee.name: _calling(s.callee, meanings) for s in program.statements if isinstance(s, Invoke)},
    }
    exec(compile(_Source(program).text, "<program>", "exec"), scope)
    run: Callable[..., dict[str, list[int]]] = scope["run"]
    try:
        got = run({name: array.ravel().tolist() for name, array in arrays.items()}, [] if working is None else working)
    except (TypeError, IndexError) as error:
        raise ValueError(f"a number is used that nobody wrote: {error}") from error
    for b in program.outputs:
        if None in got[b.name][: b.size]:
            raise ValueError(f"nobody wrote all of {b.name}")
    return {b.name: np.array(got[b.name][: b.size], NUMPY[b.dtype]).reshape(b.shape) for b in program.outputs}


def _calling(callee: Callee, meanings: Mapping[str, Meaning]) -> Callable[..., None]:
    """A call on places in lists, one for each argument; what it leaves in working memory is nobody's."""

    def call(*places: tuple[list[Any], int]) -> None:
        given = zip(callee.arguments, places, strict=True)
        windows = [(b, data, slice(start, start + b.size)) for b, (data, start) in given]
        read = [(b, data[where]) for b, data, where in windows if b.memory in ("in", "const")]
        if any(None in values or len(values) < b.size for b, values in read):
            raise ValueError(f"{callee.name} reads a number that nobody wrote")
        made = iter(meanings[callee.name](*(np.array(v, NUMPY[b.dtype]).reshape(b.shape) for b, v in read)))
        for b, data, where in windows:
            if b.memory == "out":
                data[where] = next(made).ravel().tolist()
            elif b.memory == "scratch":
                data[where] = [None] * b.size

    return call


def _product(a: float | None, b: float | None) -> float | None:
    """What nobody wrote may be anything, and is nothing times 0."""
    if a is None or b is None:
        return 0 if 0 in (a, b) else None
    return a * b


def _of_known(compute: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that gives nothing where nobody wrote a number that it takes."""
    return lambda *numbers: None if None in numbers else compute(*numbers)


def _read(place: int, table: list[int | None]) -> int | None:
    return table[place]


def _fits(value: int | None, bits: int, where: str) -> int | None:
    if value is not None and not -1 << (bits - 1) <= value < 1 << (bits - 1):
        raise ValueError(f"{value} does not fit {where}")
    return value


def _single(value: float | None) -> float | None:
    """The f32 next to a number."""
    return None if value is None else float(np.float32(value))


class _Source:
    """Python that runs a program on lists of numbers, each with slack behind it that nobody wrote.

    There an index below 0 ends up as well, which means the end of a list in Python.
    """

    def __init__(self, program: Program) -> None:
        self.buffers, self.count = program.buffers, 0
        self.lines = ["def run(arrays, working):"]
        for b in program.arguments:
            source = f"arrays.get('{b.name}', [None] * {b.size})" if b.memory == "out" else f"arrays['{b.name}']"
            self.lines.append(f" {b.name} = {source} + [None] * {SLACK}")
        self.lines.append(f" working += [None] * ({self._told} - len(working))")
        self._emit(program.body, 1)
        self.lines.append(f" return {{{', '.join(f'{b.name!r}: {b.name}' for b in program.outputs)}}}")

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def _told(self) -> int:
        """The end of all buffers whose places are told: they are parts of one list."""
        return max((b.at + b.size for b in self.buffers.values() if b.at is not None), default=0)

    def _emit(self, s: Statement, depth: int) -> None:
        pad = " " * depth
        match s:
            case Seq():
                self.lines += [f"{pad}pass"] if not s.body else []
                for part in s.body:
                    self._emit(part, depth)
            case Alloc():
                own = f"[None] * {s.buffer.size + SLACK}" if s.buffer.at is None else "working"
                self.lines.append(f"{pad}{s.buffer.name} = {own}")
                self._emit(s.body, depth)
            case For():
                self.lines.append(f"{pad}for {s.var} in {s.positions}:")
                self._emit(s.body, depth + 1)
            case If():
                self.lines.append(f"{pad}if {' and '.join(f'{condition} >= 0' for condition in s.conditions)}:")
                self._emit(s.then, depth + 1)
                self.lines.append(f"{pad}else:")
                self._emit(s.otherwise, depth + 1)
            case Let():
                self.lines.append(f"{pad}{s.var} = {self._value(s.value)}")
                self.lines.append(f"{pad}if 0 <= {s.var} < {s.extent}:")
                self._emit(s.body, depth + 1)
            case Instr():
                self.count += 1
                self._emit(meaning_of(s, f"lane{self.count}"), depth)
            case Invoke():
                places = (f"({a.buffer}, {self._where(a)})" for a in s.operands)
                self.lines.append(f"{pad}call[{s.callee.name!r}]({', '.join(places)})")
            case Assign() | Reduce():
                b, target = self.buffers[s.target.buffer], self._value(s.target)
                value = f"add({target}, {self._value(s.value)})" if isinstance(s, Reduce) else self._value(s.value)
                kept = f"single({value})" if b.dtype == "f32" else f"fits({value}, {8 * BYTES[b.dtype]}, {b.name!r})"
                self.lines.append(f"{pad}{target} = {kept}")

    def _value(self, v: Value) -> str:
        match v:
            case Access():
                return f"{v.buffer}[{self._where(v)}]"
            case Op(name="mul"):
                return f"mul({', '.join(map(self._value, v.args))})"
            case Op(name=name, args=(Access() as table, value)) if name == LOOKUP:
                return f"read(add({self._where(table)}, {self._value(value)}), {table.buffer})"
            case Op():
                return f"OPS['{v.name}']({', '.join(map(self._value, v.args))})"
        return str(v)

    def _where(self, access: Access) -> str:
        b = self.buffers[access.buffer]
        return str(b.address(access.index) + (b.at or 0))
