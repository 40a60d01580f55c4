"""The text of a model's firmware: `NAME.c` with one call a line, static arenas, constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.firmware.emit_header import arena_name, as_lines, commas, identifier, used_memories
from tosaic.backends.firmware.linker_script import CONSTANTS_SECTION, arena_section
from tosaic.backends.firmware.memory_plan import MemoryPlan, scratch_name
from tosaic.backends.firmware.near import NEAR_CONSTANTS, constants_pointer, most_named, pointer, pointers
from tosaic.backends.firmware.placing import ALIGNMENT, aligned
from tosaic.backends.firmware.program import (
    CONSTANTS_REGION,
    FAST_REGION,
    SCRATCH_REGION,
    CallSequence,
    Copy,
    Interface,
    KernelCall,
    NpuCall,
    Port,
)
from tosaic.support.errors import BackendError

_MAX_RANK = 6
_NPU_REGIONS = 8
_SMALL, _WORD = 128, 4
"""Bytes of the largest params that lie in one block with others, and of a word."""


@dataclass
class Constants:
    """Constant blocks by name of their file; equal blocks are kept once.

    Args:
        prefix: of their symbols.
    """

    prefix: str
    blocks: dict[str, bytes] = field(default_factory=dict)
    _distances: dict[str, str] = field(default_factory=dict)
    _names: dict[tuple[bytes, str, bool], str] = field(default_factory=dict)
    _together: dict[str, int] = field(default_factory=dict)
    _end: int = 0

    @property
    def together(self) -> str:
        """The symbol of small params, which lie in one block."""
        return f"{self.prefix}constants"

    def add(self, name: str, data: bytes) -> str:
        """The symbol of `data`, called `name` unless an equal block is there already; `0` for nothing."""
        return self.prefix + self._named(name, data, "", False) if data else "0"

    def params(self, name: str, data: bytes, to: str = "") -> str:
        """Where the params of a kernel lie, in C: their symbol, or small ones at a distance from `together`.

        Args:
            to: a symbol; a word follows the data then, the distance from it to there.
        """
        size = len(data) + _WORD * bool(to)
        if not 0 < size <= _SMALL:
            return self.prefix + self._named(name, data, to, False) if size else "0"
        name = self._named(name, data, to, True)
        if name not in self._together:
            self._together[name] = start = -(-self._end // _alignment(size)) * _alignment(size)
            self._end = start + size
        return f"{self.together} + {self._together[name]:#x}"

    def _named(self, name: str, data: bytes, to: str, small: bool) -> str:
        known = self._names.setdefault((data, to, small), name)
        self.blocks[known], self._distances[known] = data, to
        return known

    @property
    def _apart(self) -> list[str]:
        return [name for name in self.blocks if name not in self._together]

    def declarations(self) -> str:
        symbols = [*[self.together] * bool(self._together), *(self.prefix + name for name in self._apart)]
        return "\n".join(f"extern const uint8_t {symbol}[];" for symbol in symbols)

    def assembly(self) -> str:
        """Assembly that includes each block from the file `constants/<name>.bin`."""
        lines = self._section(self.together) if self._together else []
        for name in self._together:
            size = len(self.blocks[name]) + _WORD * bool(self._distances[name])
            lines += [f".balign {_alignment(size)}", *self._included(name)]
        for name in self._apart:
            lines += [*self._section(self.prefix + name), *self._included(name)]
        return "\n".join([*lines, ""])

    @staticmethod
    def _section(symbol: str) -> list[str]:
        return [f'.section {CONSTANTS_SECTION}.{symbol}, "a"', ".balign 16", f".global {symbol}", f"{symbol}:"]

    def _included(self, name: str) -> list[str]:
        to = self._distances[name]
        return [f'.incbin "constants/{name}.bin"', *([f".word {to} - ."] if to else [])]


def _alignment(size: int) -> int:
    """Of a small block: that of a word, where it is less than a vector."""
    return ALIGNMENT if size >= ALIGNMENT else _WORD


def emit_source(
    program: CallSequence, plan: MemoryPlan, name: str, constants: Constants, states: Sequence[np.ndarray] = ()
) -> str:
    """`NAME.c`; the constants that it names are added to `constants`.

    Args:
        states: what each state of the program holds at first.
    """
    return _ModelSource(program, plan, name, constants, states).text()


def emit_static(plan: MemoryPlan, name: str) -> str:
    """`NAME_static.c`: arenas that take no room in the image."""
    lines = [
        f"static uint8_t {arena_name(memory)}[{used}] "
        f'__attribute__((section("{arena_section(memory)}"), aligned({ALIGNMENT})));'
        for memory, used in used_memories(plan)
    ]
    arguments = commas("self", *(arena_name(memory) for memory, _ in used_memories(plan)))
    return f"""\
/* Generated by tosaic. */
#include "{name}.h"

{as_lines(lines)}

int {name}_init_static({name}_instance *self)
{{
    return {name}_init({arguments});
}}
"""


class _ModelSource:
    def __init__(
        self, program: CallSequence, plan: MemoryPlan, name: str, constants: Constants, states: Sequence[np.ndarray]
    ) -> None:
        self._program, self._plan, self._name, self._constants = program, plan, name, constants
        self._states = states
        self._near: dict[int, int] = {}
        """Of the function whose calls are written, as of `near.most_named`."""

    def text(self) -> str:
        program, name = self._program, self._name
        on_npu = [self._npu_function(n, call) for n, call in enumerate(program.calls) if isinstance(call, NpuCall)]
        arenas = [arena_name(memory) for memory, _ in used_memories(self._plan)]
        inputs = [self._tensor(interface) for interface in program.inputs]
        outputs = [self._tensor(interface) for interface in program.outputs]
        parts = [
            f'/* Generated by tosaic. */\n#include <string.h>\n\n#include "{name}.h"\n#include "markers.h"\n',
            self._constants.declarations(),
            as_lines(self._prototypes()),
            *on_npu,
            *self._keeping(),
            _function(
                f"int {name}_init({name}_instance *self{''.join(f', void *{arena}' for arena in arenas)})",
                [
                    *(
                        f"    if (!{a} || (uintptr_t){a} % {ALIGNMENT})\n        return TOSAIC_BAD_ARENA;"
                        for a in arenas
                    ),
                    *(f"    self->{arena} = {arena};" for arena in arenas),
                    *self._pointers("inputs", program.inputs),
                    *self._pointers("outputs", program.outputs),
                    *[f"    {name}_reset(self);"] * bool(program.states),
                    "    return TOSAIC_OK;",
                ],
            ),
            *(self._methods() or self._invocation(self._body(0, len(program.calls), "keep"))),
            _table(f"{name}_inputs", inputs),
            _table(f"{name}_outputs", outputs),
        ]
        return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)

    def _body(self, first: int, end: int, keep: str) -> list[str]:
        """The text of calls, but of a first one that is fed; the function `keep` ends them."""
        program = self._program
        self._near = most_named(program, self._plan, first, end)
        keeps, lines = bool(program.copies_before(end)), ["    (void)self;", *pointers(self._plan, self._near)]
        for number, call in enumerate(program.calls[first:end], first):
            if program.fed_call and not number:
                continue
            if call.where:
                where = " ".join(call.where.split()).replace("*/", "* /")  # no line ends, before which \\ joins lines
                lines.append(f"    /* {where} */")
            copies = f"; {keep}(self)" if keeps and number == end - 1 else ""
            if isinstance(call, KernelCall):
                lines.append(f"    TOSAIC_CALL({number}, {self._kernel_call(number, call)}{copies});")
            else:
                copies = copies.replace(keep, f"if (!status) {keep}")
                lines.append(f"    TOSAIC_CALL({number}, status = npu_{number}(self){copies});")
                lines.append("    if (status)\n        return status;")
        if keeps and first == end:
            lines.append(f"    {keep}(self);")
        if any(f"{NEAR_CONSTANTS} + " in line for line in lines):
            lines = [*constants_pointer(self._constants.together), *lines]
        self._near = {}
        on_npu = any(isinstance(call, NpuCall) for call in program.calls[first:end])
        return [*["    int status;"] * on_npu, *lines, "    return TOSAIC_OK;"]

    def _methods(self) -> list[str]:
        """A function for each method, and one that calls them in turn; nothing where the model is one."""
        instance, found = f"const {self._name}_instance *self", list[str]()
        names = [method.name for method in self._program.methods]
        for method in self._program.methods:
            body = self._body(method.first, method.end, f"keep_{method.name}")
            found.append(_function(f"int {self._name}_{method.name}({instance})", body))
        if not names:
            return []
        steps = [f"    if (!status)\n        status = {self._name}_{name}(self);" for name in names]
        turns = ["    int status = TOSAIC_OK;", *steps, "    return status;"]
        return [*found, _function(f"int {self._name}_invoke({instance})", turns)]

    def _keeping(self) -> list[str]:
        """The functions that end an inference, or a method, and begin anew."""
        instance, found = f"const {self._name}_instance *self", list[str]()
        ends = {method.end: f"keep_{method.name}" for method in self._program.methods}
        for end, name in (ends or {len(self._program.calls): "keep"}).items():
            if copies := self._program.copies_before(end):
                found.append(_function(f"static void {name}({instance})", self._copies(copies)))
        if self._program.states:
            firsts = [np.ascontiguousarray(array).tobytes() for array in self._states]
            lines = []
            for number, (state, first) in enumerate(zip(self._program.states, firsts, strict=True)):
                target = self._pointer(state.buffer)
                if len(set(first)) == 1:
                    lines.append(f"    memset({target}, {first[0]:#x}, {len(first)});")
                else:
                    lines.append(
                        f"    memcpy({target}, {self._constants.add(f'state_{number}', first)}, {len(first)});"
                    )
            found.append(_function(f"void {self._name}_reset({instance})", lines))
            found += self._access_to_states(instance)
        return found

    def _access_to_states(self, instance: str) -> list[str]:
        """Where each state lies, and the functions that copy all of them out and in."""
        name, offset = self._name, 0
        cases, saved, restored = list[str](), list[str](), list[str]()
        for number, state in enumerate(self._program.states):
            place, size = self._pointer(state.buffer), self._program.buffers[state.buffer].size
            cases.append(f"    case {number}:\n        return {place};")
            saved.append(f"    memcpy((uint8_t *)to + {offset}, {place}, {size});")
            restored.append(f"    memcpy({place}, (const uint8_t *)from + {offset}, {size});")
            offset += size
        switch = ["    switch (number) {", *cases, "    }", "    return 0;"]
        return [
            _function(f"void *{name}_state({instance}, uint32_t number)", switch),
            _function(f"void {name}_save({instance}, void *to)", saved),
            _function(f"void {name}_restore({instance}, const void *from)", restored),
            _table(f"{name}_states", [self._tensor(state) for state in self._program.states]),
        ]

    def _copies(self, copies: Sequence[Copy]) -> list[str]:
        """All at a time: nothing is written that is still to be read, and what goes round goes byte by byte."""
        storage = self._program.storage
        left = {copy.target: storage(copy.source) for copy in copies}
        lines = []
        while left:
            target = next((target for target in left if target not in left.values()), None)
            if target is not None:
                size = self._program.buffers[target].size
                lines.append(f"    memcpy({self._pointer(target)}, {self._pointer(left.pop(target))}, {size});")
                continue
            ring, name = list[str](), next(iter(left))
            while name in left:
                ring.append(name)
                name = left.pop(name)
            lines.append(self._turned(list(map(self._pointer, ring)), self._program.buffers[name].size))
        return lines

    @staticmethod
    def _turned(ring: Sequence[str], size: int) -> str:
        """Each of a ring takes what the next one holds, the last what the first one held."""
        cells = [f"({place})[i]" for place in ring]
        moves = [f"        {cell} = {following};" for cell, following in zip(cells, [*cells[1:], "first"], strict=True)]
        head = [f"    for (uint32_t i = 0; i < {size}; i++) {{", f"        const uint8_t first = {cells[0]};"]
        return as_lines([*head, *moves, "    }"])

    def _invocation(self, body: Sequence[str]) -> list[str]:
        """The functions that run the calls; `body` runs all but a first one that is fed, and goes on behind it."""
        name, instance = self._name, f"const {self._name}_instance *self"
        invoke = f"int {name}_invoke({instance})"
        if self._program.fed_call is None:
            return [_function(invoke, body)]
        call, fed = self._program.fed_call
        arguments, kernel = self._arguments(0, call), f"{self._name}_{call.kernel.symbol}"
        others = [argument for number, argument in enumerate(arguments) if number != fed.input]
        begin = f"    TOSAIC_CALL(0, {kernel}_begin({', '.join(arguments[-2:])}));"
        feed = f"    TOSAIC_CALL(0, left = {kernel}_feed(rows, (int32_t)count, {', '.join(others)}));"
        whole = f"    TOSAIC_CALL(0, {self._kernel_call(0, call)});"
        fed_on = ["    int32_t left;", feed, "    return left < 0 ? TOSAIC_MORE : rest(self);"]
        if fed.hop:
            fed_on = [
                "    int status = TOSAIC_MORE;",
                "    while (count) {",
                "        int32_t left;",
                f"    {feed}",
                "        if (left < 0)",
                "            break;",
                f"        rows = (const uint8_t *)rows + (count - (uint32_t)left) * {fed.row_bytes};",
                "        count = (uint32_t)left;",
                "        status = rest(self);",
                "        if (status)",
                "            break;",
                "    }",
                "    return status;",
            ]
        return [
            _function(f"static int rest({instance})", body),
            _function(f"void {name}_begin({instance})", [begin]),
            _function(f"int {name}_feed({instance}, const void *rows, uint32_t count)", fed_on),
            _function(invoke, [whole, "    return rest(self);"]),
        ]

    def _pointers(self, kind: str, interfaces: Sequence[Interface]) -> list[str]:
        fed = self._program.fed
        pointers = ["0" if each.buffer == fed else self._pointer(each.buffer) for each in interfaces]
        return [f"    self->{kind}[{number}] = {pointer};" for number, pointer in enumerate(pointers)]

    def _prototypes(self) -> list[str]:
        prototypes, working = {}, ["const void *params", "void *scratch"]
        for call in self._program.calls:
            if isinstance(call, KernelCall):
                tensors = ["const void *"] * len(call.inputs) + ["void *"] * len(call.outputs)
                symbol = f"{self._name}_{call.kernel.symbol}"
                prototypes[symbol] = f"void {symbol}({', '.join([*tensors, *working])});"
                if call.kernel.fed:
                    fed = ", ".join(["const void *rows", "int32_t count", *tensors[1:], *working])
                    prototypes[f"{symbol}_begin"] = f"void {symbol}_begin({', '.join(working)});"
                    prototypes[f"{symbol}_feed"] = f"int32_t {symbol}_feed({fed});"
        return list(prototypes.values())

    def _kernel_call(self, number: int, call: KernelCall) -> str:
        return f"{self._name}_{call.kernel.symbol}({', '.join(self._arguments(number, call))})"

    def _arguments(self, number: int, call: KernelCall) -> list[str]:
        weights = self._constants.add(f"weights_{number}", call.kernel.shared) if call.kernel.shared else ""
        params = self._constants.params(f"params_{number}", call.kernel.params, weights)
        params = params.replace(self._constants.together, NEAR_CONSTANTS) if self._near else params
        scratch = self._planned(scratch_name(number)) if call.kernel.scratch_bytes else "0"
        return [*map(self._pointer, call.inputs), *map(self._pointer, call.outputs), params, scratch]

    def _npu_function(self, number: int, call: NpuCall) -> str:
        """Copies and the call. Its regions are whole blocks: DMA reads 16 bytes at a time, beyond a tensor's end."""
        payload = self._constants.add(f"stream_{number}", call.header + call.command_stream)
        regions = {CONSTANTS_REGION: (self._constants.add(f"weights_{number}", call.constants), len(call.constants))}
        working = {SCRATCH_REGION: call.scratch_bytes, FAST_REGION: call.fast_bytes, **self._program.port_regions(call)}
        for region, size in working.items():
            if size:
                regions[region] = (self._planned(scratch_name(number, region)), aligned(size))
        for port in (*call.inputs, *call.outputs):
            if call.is_bound(port):
                regions[port.region] = (self._pointer(port.buffer), aligned(self._program.buffers[port.buffer].size))
            elif port.region not in regions or port.region >= _NPU_REGIONS:
                raise BackendError(f"`{call.name}` has a port in region {port.region}, which it does not have")
        rows = [
            f"            [{region}] = {{(void *)({pointer}), {size}}},"
            for region, (pointer, size) in sorted(regions.items())
        ]
        copied = {port for port in (*call.inputs, *call.outputs) if self._program.is_copied(number, port)}
        return _function(
            f"static int npu_{number}(const {self._name}_instance *self)",
            [
                "    (void)self;",
                "    const tosaic_npu_call call = {",
                f"        .number = {number},",
                f"        .payload = {payload},",
                f"        .payload_bytes = {len(call.header) + len(call.command_stream)},",
                f"        .command_stream = {payload} + {len(call.header)},",
                f"        .command_stream_bytes = {len(call.command_stream)},",
                "        .regions = {",
                *rows,
                "        },",
                "    };",
                *(self._copy(number, port, into=True) for port in call.inputs if port in copied),
                "    const int status = tosaic_npu_invoke(&call);",
                *(self._copy(number, port, into=False) for port in call.outputs if port in copied),
                "    return status;",
            ],
        )

    def _copy(self, number: int, port: Port, *, into: bool) -> str:
        tensor = self._pointer(port.buffer)
        inside = f"{self._planned(scratch_name(number, port.region))} + {port.address:#x}"
        target, source = (inside, tensor) if into else (tensor, inside)
        return f"    memcpy({target}, {source}, {self._program.buffers[port.buffer].size});"

    def _pointer(self, name: str) -> str:
        storage = self._program.storage(name)
        if storage == self._program.fed:
            return "self->inputs[0]"
        value = self._program.buffers[storage].value
        if value is None:
            return self._planned(storage)
        return self._constants.add(f"constant_{identifier(storage)}", np.ascontiguousarray(value).tobytes())

    def _planned(self, name: str) -> str:
        return pointer(self._plan, self._plan.placements[name], self._near)

    def _tensor(self, interface: Interface) -> str:
        buffer = self._program.buffers[interface.buffer]
        if len(buffer.shape) > _MAX_RANK:
            raise BackendError(
                f"`{interface.name}` has rank {len(buffer.shape)}; the firmware takes {_MAX_RANK} at most"
            )
        shape = ", ".join(map(str, buffer.shape)) or "0"
        kind = interface.quantization
        scale, zero_point = (kind.scale, kind.zero_point) if kind else (0.0, 0)
        return (
            f'{{"{interface.name}", {buffer.size}, "{interface.dtype(buffer.dtype)}", '
            f"{len(buffer.shape)}, {{{shape}}}, {scale!r}f, {zero_point}}}"
        )


def _function(signature: str, lines: Sequence[str]) -> str:
    return f"{signature}\n{{\n{as_lines(lines)}\n}}\n"


def _table(name: str, rows: list[str]) -> str:
    body = "\n".join(f"    {row}," for row in rows) or "    {0},"
    return f"const tosaic_tensor {name}[] = {{\n{body}\n}};\n"
