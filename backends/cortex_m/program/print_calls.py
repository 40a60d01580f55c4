"""Calls of kernels and of functions of libraries, in C."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tosaic.backends.cortex_m.program.structs import Element, Struct
from tosaic.backends.cortex_m.program.tree import Buffer, Callee, Invoke

TYPES = {"i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "f32": "float"}
"""What C calls the types of elements."""


def given_to(call: Invoke, buffers: Mapping[str, Buffer]) -> Iterable[str]:
    """What is called with what: of a kernel tensors, params and working memory."""
    where = {
        window.name: f"{start.buffer} + {buffers[start.buffer].address(start.index)}" for window, start in call.windows
    }
    if call.callee.takes:
        return [where[each] if isinstance(each, str) else f"&{struct_of(each, where)}" for each in call.callee.takes]
    given = {"const": "params", "scratch": "scratch"}
    given |= {window.memory: where[window.name] for window, _ in call.windows if window.memory in given}
    tensors = (where[window.name] for window, _ in call.windows if window.memory not in given)
    return (*tensors, *given.values())


def struct_of(struct: Struct, where: Mapping[str, str]) -> str:
    """A struct, given the pointers to windows."""
    fields = []
    for name, value in struct.fields:
        match value:
            case Element():
                text = f"{value.factor} * ({where[value.window]})[{value.number}]"
            case Struct():
                text = struct_of(value, where)
            case str():
                text = f"(void *)({where[value]})"
            case _:
                text = str(value)
        fields.append(f".{name} = {text}")
    return f"(const {struct.type}){{{', '.join(fields)}}}"


def prototype(callee: Callee) -> str:
    """What declares it; `extern` at the start keeps the kernel in a translation unit where nothing is inlined."""
    if callee.header:
        return f'#include "{callee.header}"'
    tensors = (b for b in callee.arguments if b.memory in ("in", "out"))
    given = [f"{'const ' * (b.memory == 'in')}{TYPES[b.dtype]} *" for b in tensors]
    return f"extern void {callee.name}({', '.join(given)}, const int8_t *, int8_t *);"
