"""Whether two trees are one kernel: the same C and the same params, whatever names and dimensions are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.host import Pack
from tosaic.backends.cortex_m.program.interpret import packed
from tosaic.backends.cortex_m.program.memory import constant_offsets, constants_of, scratch_offsets
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.cortex_m.program.tree import (
    BLOCKS,
    BYTES,
    Access,
    Alloc,
    Assign,
    Buffer,
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


def same_kernel(one: Program, other: Program) -> bool:
    """Whether two trees from one algorithm print the same text and read the same params."""
    return canonical(one) == canonical(other) and _params_like(one, other)


def guard_change(before: Program, after: Program, step: Step) -> None:
    """Guard of the last step of a schedule.

    Raises:
        RefusedError: it changes nothing of the kernel.
    """
    if same_kernel(before, after):
        raise RefusedError(f"`{step}` changes nothing of the kernel", why="it names, or prepares, what no step uses")


def canonical(program: Program) -> str:
    """The statements with loops of one iteration gone, elements by address, names by first appearance."""
    return "\n".join(_Canonical(program).lines)


@dataclass
class _Canonical:
    program: Program
    names: dict[str, str] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        tensors = [b for b in self.program.arguments if b.memory != "const"]
        arguments = [*tensors, *constants_of(self.program)]
        return [*(self._declared(b) for b in arguments), *self._listed(self.program.body)]

    @cached_property
    def offsets(self) -> dict[str, int]:
        return scratch_offsets(self.program)

    @cached_property
    def with_zeros(self) -> dict[str, int]:
        return _with_zeros(self.program)

    def _declared(self, b: Buffer) -> str:
        self.buffers[b.name] = b
        where = self.offsets[b.name] if b.memory == "scratch" else self.with_zeros.get(b.name, b.size)
        return f"{self._name(b.name)} {b.dtype} {where} {b.memory}"

    def _name(self, name: str) -> str:
        return self.names.setdefault(name, f"x{len(self.names)}")

    def _listed(self, s: Statement) -> Iterator[str]:
        match s:
            case Seq():
                for part in s.body:
                    yield from self._listed(part)
            case Alloc():
                yield self._declared(s.buffer)
                yield from self._listed(s.body)
                yield "end"
            case If():
                yield f"if {[self._affine(condition) for condition in s.conditions]}"
                yield from self._listed(s.then)
                yield "else"
                yield from self._listed(s.otherwise)
                yield "end"
            case For() if s.iterations == 1 and s.kind not in BLOCKS:
                self.values[s.var] = 0
                yield from self._listed(s.body)
            case For():
                yield f"{s.kind} {self._name(s.var)} {s.extent} {s.step} {s.early} {self._ahead(s)}"
                yield from self._listed(s.body)
                yield "end"
            case Let():
                yield f"let {self._name(s.var)} {s.extent} {self._value(s.value)}"
                yield from self._listed(s.body)
                yield "end"
            case Instr():
                yield f"{s.row.name} {s.lanes} {s.stride} {s.inner} {[self._value(operand) for operand in s.operands]}"
            case Invoke():
                yield f"{s.callee.name} {[self._value(operand) for operand in s.operands]}"
            case Assign() | Reduce():
                yield f"{type(s).__name__} {self._value(s.target)} {self._value(s.value)}"

    def _ahead(self, loop: For) -> str:
        return self._name(loop.ahead) if isinstance(loop.ahead, str) else str(loop.ahead)

    def _value(self, v: Value) -> str:
        match v:
            case Access():
                return f"{self._name(v.buffer)}[{self._affine(self.buffers[v.buffer].address(v.index))}]"
            case Op():
                return f"{v.name}({', '.join(map(self._value, v.args))})"
        return str(v)

    def _affine(self, a: Affine) -> str:
        a = a.at(self.values)
        return f"{sorted((self._name(name), factor) for name, factor in a.terms)} {a.const}"


def _params_like(one: Program, other: Program) -> bool:
    """Whether the host makes the same of constants whose elements are all different."""
    if one.host == other.host:
        return True
    first, second = _numbered(one), _numbered(other)
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def _numbered(program: Program) -> list[np.ndarray]:
    found = dict[str, np.ndarray]()
    for step in program.host:
        if isinstance(step, Pack):
            source = found.get(step.source, np.arange(1, math.prod(step.was) + 1))
            found[step.name] = packed(step, source)
        elif step.sources[0] in found:
            found[step.name] = found[step.sources[0]]
    constants, sizes = constants_of(program), _with_zeros(program)
    arrays = [found[b.name].ravel() if b.name in found else np.arange(1, b.size + 1) for b in constants]
    return [np.pad(array, (0, sizes[b.name] - b.size)) for array, b in zip(arrays, constants, strict=True)]


def _with_zeros(program: Program) -> dict[str, int]:
    """The elements of constants, with the zeros behind each, up to where the next one lies."""
    constants, offsets = constants_of(program), constant_offsets(program)
    ends = [*(offsets[b.name] for b in constants[1:]), *(offsets[b.name] + b.bytes for b in constants[-1:])]
    return {b.name: (end - offsets[b.name]) // BYTES[b.dtype] for b, end in zip(constants, ends, strict=True)}
