"""The text of a model's firmware: `NAME.h`, `NAME.c` with one call a line, static arenas, self-test, constants."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.firmware.linker_script import CONSTANTS_SECTION, arena_section
from tosaic.backends.firmware.memory_plan import ALIGNMENT, MemoryPlan, aligned, scratch_name
from tosaic.backends.firmware.program import (
    CONSTANTS_REGION,
    FAST_REGION,
    SCRATCH_REGION,
    Interface,
    KernelCall,
    NpuCall,
    Port,
    Program,
)
from tosaic.backends.target import Memory
from tosaic.support.errors import BackendError

_MAX_RANK = 6
_NPU_REGIONS = 8
_C_TYPES = {"bool": "uint8_t", "float32": "float", "float64": "double"}
"""What numpy calls otherwise than C, which adds `_t` to the rest."""


@dataclass
class Constants:
    """Constant blocks by name of their file; equal blocks are kept once.

    Args:
        prefix: of their symbols.
    """

    prefix: str
    blocks: dict[str, bytes] = field(default_factory=dict)
    _distances: dict[str, str] = field(default_factory=dict)
    _names: dict[tuple[bytes, str], str] = field(default_factory=dict)

    def add(self, name: str, data: bytes, to: str = "") -> str:
        """The symbol of `data`, called `name` unless an equal block is there already; `0` for nothing.

        Args:
            to: a symbol; a word follows the data then, the distance from it to there.
        """
        if not data and not to:
            return "0"
        if (data, to) not in self._names:
            self._names[data, to] = name
            self.blocks[name] = data
            self._distances[name] = to
        return self.prefix + self._names[data, to]

    def declarations(self) -> str:
        return "\n".join(f"extern const uint8_t {self.prefix}{name}[];" for name in self.blocks)

    def assembly(self) -> str:
        """Assembly that includes each block from the file `constants/<name>.bin`."""
        lines = []
        for name in self.blocks:
            symbol, to = self.prefix + name, self._distances[name]
            lines += [f'.section {CONSTANTS_SECTION}.{symbol}, "a"', ".balign 16", f".global {symbol}", f"{symbol}:"]
            lines.append(f'.incbin "constants/{name}.bin"')
            lines += [f".word {to} - ."] if to else []
        return "\n".join([*lines, ""])


def emit_header(program: Program, plan: MemoryPlan, name: str, *, tested: bool, stack_bytes: int | None = None) -> str:
    """`NAME.h`: what an application needs of a model.

    Args:
        tested: whether there is a self-test.
        stack_bytes: most bytes of stack that an inference takes; None where nobody knows yet.
    """
    macro = name.upper()
    described = [" * Inputs", *(_described(program, each) for each in program.inputs)]
    described += [" * Outputs", *(_described(program, each) for each in program.outputs)]
    if program.states:
        described += [" * Kept in the arena from call to call", *(_described(program, each) for each in program.states)]
    arenas = _used(plan)
    parameters = "".join(f", void *{arena_name(memory)}" for memory, _ in arenas)
    sizes = [f"#define {macro}_{arena_name(memory).upper()}_BYTES {used}" for memory, used in arenas]
    fields = [f"    uint8_t *{arena_name(memory)};" for memory, _ in arenas]
    stack = f"\n/* Most bytes of stack that {name}_invoke takes, interrupts not counted. */\n" \
            f"#define {macro}_STACK_BYTES {stack_bytes}\n" if stack_bytes is not None else ""  # fmt: skip
    selftest = f"""
/* Runs the model on an input that the archive brings along: TOSAIC_OK, or TOSAIC_WRONG where an output is not the
 * expected one to the bit. Images that do not call it do not hold its data. */
int {name}_selftest(const {name}_instance *self);
""" if tested else ""  # fmt: skip
    reset = f"""
/* Lets the model begin anew, as {name}_init does: what it keeps takes the values that it had in PyTorch. */
void {name}_reset(const {name}_instance *self);
""" if program.states else ""  # fmt: skip
    use, fed = f"write model.inputs[...], call {name}_invoke(&model), read model.outputs[...]", ""
    if program.fed_call:
        _, rows = program.fed_call
        further = f"""\
/* The window moves on: behind the first results, so many further rows each give results again. */
#define {macro}_HOP_ROWS {rows.hop}
""" if rows.hop else ""  # fmt: skip
        use = f"{name}_begin(&model), {name}_feed(&model, rows, count) until TOSAIC_OK, read model.outputs[...]"
        fed = f"""
/* The input as it comes, any number of its rows at a time, in order: TOSAIC_MORE until the results are there, then
 * TOSAIC_OK, or the status of the NPU call that failed. {name}_invoke feeds the tensor at inputs[0], which the
 * application has set. */
#define {macro}_ROWS {program.fed_rows}
#define {macro}_ROW_BYTES {rows.row_bytes}
{further}\
void {name}_begin(const {name}_instance *self);
int {name}_feed(const {name}_instance *self, const void *rows, uint32_t count);
"""
    return f"""\
/* Generated by tosaic.
 *
{_lines(described)}
 *
 *     {name}_instance model;
 *     {name}_init(&model, ...);         each arena aligned to {ALIGNMENT} bytes; or {name}_init_static(&model)
 *     {use}
 *
 * Inputs do not survive the call. An instance has no state but its arenas: any number may be in use at a time.
 */
#ifndef TOSAIC_{macro}_H
#define TOSAIC_{macro}_H

#include "tosaic.h"

#ifdef __cplusplus
extern "C" {{
#endif

enum {{ {_commas(*(f"{macro}_INPUT_{identifier(each.name)}" for each in program.inputs), f"{macro}_INPUTS")} }};
enum {{ {_commas(*(f"{macro}_OUTPUT_{identifier(each.name)}" for each in program.outputs), f"{macro}_OUTPUTS")} }};

{_lines([_macros(program, each, name, "input") for each in program.inputs])}
{_lines([_macros(program, each, name, "output") for each in program.outputs])}
{_lines([f"#define {macro}_ARENA_ALIGNMENT {ALIGNMENT}", f"#define {macro}_ARENA_BYTES {plan.arena_bytes}", *sizes])}
{stack}
typedef struct {{
{_lines(fields)}
    void *inputs[{max(1, len(program.inputs))}];
    const void *outputs[{max(1, len(program.outputs))}];
}} {name}_instance;

extern const tosaic_tensor {name}_inputs[];
extern const tosaic_tensor {name}_outputs[];

/* An instance in memory of the caller: TOSAIC_OK or TOSAIC_BAD_ARENA. */
int {name}_init({name}_instance *self{parameters});

/* An instance in static memory, of which there is one. */
int {name}_init_static({name}_instance *self);

/* One inference: TOSAIC_OK, or the status of the NPU call that failed. */
int {name}_invoke(const {name}_instance *self);
{reset}{fed}{selftest}
#ifdef __cplusplus
}}
#endif

#endif
"""


def emit_source(
    program: Program, plan: MemoryPlan, name: str, constants: Constants, states: Sequence[np.ndarray] = ()
) -> str:
    """`NAME.c`; the constants that it names are added to `constants`.

    Args:
        states: what each state of the program holds at first.
    """
    return _Source(program, plan, name, constants, states).text()


def emit_static(plan: MemoryPlan, name: str) -> str:
    """`NAME_static.c`: arenas that take no room in the image."""
    lines = [
        f"static uint8_t {arena_name(memory)}[{used}] "
        f'__attribute__((section("{arena_section(memory)}"), aligned({ALIGNMENT})));'
        for memory, used in _used(plan)
    ]
    arguments = _commas("self", *(arena_name(memory) for memory, _ in _used(plan)))
    return f"""\
/* Generated by tosaic. */
#include "{name}.h"

{_lines(lines)}

int {name}_init_static({name}_instance *self)
{{
    return {name}_init({arguments});
}}
"""


def emit_selftest(program: Program, name: str, constants: Constants, given: str, expected: str) -> str:
    """`NAME_selftest.c`; `given` and `expected` are symbols of `constants`, which hold tensor after tensor."""

    def placed(interfaces: Sequence[Interface]) -> list[tuple[int, int, int]]:
        sizes = [program.buffers[each.buffer].size for each in interfaces]
        return [(number, sum(sizes[:number]), size) for number, size in enumerate(sizes)]

    copies = [
        f"    memcpy(self->inputs[{number}], {given} + {offset}, {size});"
        for number, offset, size in placed(program.inputs)
    ]
    run = f"{name}_invoke(self)"
    if program.states:
        copies.insert(0, f"    {name}_reset(self);")
    if program.fed:
        copies = [f"    {name}_begin(self);"]
        run = f"{name}_feed(self, {given}, {name.upper()}_ROWS)"
    comparisons = [
        f"    if (memcmp(self->outputs[{number}], {expected} + {offset}, {size}))\n        return TOSAIC_WRONG;"
        for number, offset, size in placed(program.outputs)
    ]
    return f"""\
/* Generated by tosaic. */
#include <string.h>

#include "{name}.h"

{constants.declarations()}

int {name}_selftest(const {name}_instance *self)
{{
{_lines(copies)}
    const int status = {run};
    if (status)
        return status;
{_lines(comparisons)}
    return TOSAIC_OK;
}}
"""


def identifier(name: str) -> str:
    """`name` as part of a C identifier."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def _described(program: Program, interface: Interface) -> str:
    buffer, kind = program.buffers[interface.buffer], interface.quantization
    real = f", real = (q - {kind.zero_point}) * {kind.scale!r}" if kind else ""
    return f" *   {interface.name}: {interface.dtype(buffer.dtype)} {list(buffer.shape)}{real}"


def _macros(program: Program, interface: Interface, name: str, kind: str) -> str:
    """The type of an input's or output's elements, and its numbers as macros."""
    buffer, label = program.buffers[interface.buffer], identifier(interface.name)
    dtype = interface.dtype(buffer.dtype)
    numbers = {
        "BYTES": buffer.size,
        "ELEMENTS": buffer.size // buffer.dtype.itemsize,
        "RANK": len(buffer.shape),
        "SHAPE": f"{{{_commas(*map(str, buffer.shape))}}}",
    }
    if quantization := interface.quantization:
        numbers |= {"SCALE": f"{quantization.scale!r}f", "ZERO_POINT": f"({quantization.zero_point})"}
    typedef = f"typedef {_C_TYPES.get(dtype, f'{dtype}_t')} {name}_{kind}_{label};"
    prefix = f"#define {name.upper()}_{kind.upper()}_{label}"
    return _lines([typedef, *(f"{prefix}_{key} {value}" for key, value in numbers.items())])


def _used(plan: MemoryPlan) -> list[tuple[Memory, int]]:
    return [(memory, used) for memory, used in zip(plan.memories, plan.used, strict=True) if used]


def arena_name(memory: Memory) -> str:
    """What the arena's share in a memory is called."""
    return f"arena_{identifier(memory.name)}"


def _commas(*parts: str) -> str:
    return ", ".join(parts)


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(lines)


class _Source:
    def __init__(
        self, program: Program, plan: MemoryPlan, name: str, constants: Constants, states: Sequence[np.ndarray]
    ) -> None:
        self._program, self._plan, self._name, self._constants = program, plan, name, constants
        self._states = states

    def text(self) -> str:
        program, name = self._program, self._name
        lines, functions = [], []
        for number, call in enumerate(program.calls):
            if program.fed_call and not number:
                continue
            if call.where:
                where = " ".join(call.where.split()).replace("*/", "* /")  # no line ends, before which \\ joins lines
                lines.append(f"    /* {where} */")
            copies = "; keep(self)" if program.copies and number == len(program.calls) - 1 else ""
            if isinstance(call, KernelCall):
                lines.append(f"    TOSAIC_CALL({number}, {self._kernel_call(number, call)}{copies});")
            else:
                functions.append(self._npu_function(number, call))
                copies = copies.replace("keep", "if (!status) keep")
                lines.append(f"    TOSAIC_CALL({number}, status = npu_{number}(self){copies});")
                lines.append("    if (status)\n        return status;")
        if program.copies and not program.calls:
            lines.append("    keep(self);")
        arenas = [arena_name(memory) for memory, _ in _used(self._plan)]
        inputs = [self._tensor(interface) for interface in program.inputs]
        outputs = [self._tensor(interface) for interface in program.outputs]
        parts = [
            f'/* Generated by tosaic. */\n#include <string.h>\n\n#include "{name}.h"\n#include "markers.h"\n',
            self._constants.declarations(),
            _lines(self._prototypes()),
            *functions,
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
            *self._invocation(
                ["    int status;"] * bool(functions) + ["    (void)self;", *lines, "    return TOSAIC_OK;"]
            ),
            _table(f"{name}_inputs", inputs),
            _table(f"{name}_outputs", outputs),
        ]
        return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)

    def _keeping(self) -> list[str]:
        """The functions that end an inference and begin anew."""
        instance, found = f"const {self._name}_instance *self", list[str]()
        if self._program.copies:
            found.append(_function(f"static void keep({instance})", self._copies()))
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
        return found

    def _copies(self) -> list[str]:
        """All at a time: nothing is written that is still to be read, and what goes round goes byte by byte."""
        storage = self._program.storage
        left = {copy.target: storage(copy.source) for copy in self._program.copies}
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
        return _lines([*head, *moves, "    }"])

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
        params = self._constants.add(f"params_{number}", call.kernel.params, weights)
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
        place = self._plan.placements[name]
        return f"self->{arena_name(self._plan.memories[place.memory])} + {place.offset:#x}"

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
    return f"{signature}\n{{\n{_lines(lines)}\n}}\n"


def _table(name: str, rows: list[str]) -> str:
    body = "\n".join(f"    {row}," for row in rows) or "    {0},"
    return f"const tosaic_tensor {name}[] = {{\n{body}\n}};\n"
