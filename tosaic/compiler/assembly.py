"""From the placed module to the program that the firmware runs: every value a buffer, every call a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.sharing import with_shared_weights
from tosaic.backends.firmware.program import (
    Call,
    CalledMethod,
    CallSequence,
    Interface,
    KernelCall,
    NpuCall,
    Port,
    TensorBuffer,
)
from tosaic.backends.npu import NpuRegion
from tosaic.compiler.accuracy import interface_quantizations
from tosaic.compiler.state_places import with_states
from tosaic.support.errors import BackendError
from tosaic.support.functions import body_of, callee_of, number_of_states
from tosaic.support.locations import describe
from tosaic.support.methods import Entering, entering_of, method_of, methods_of
from tosaic.support.mlir import constant_value, element_type, functions, ir, numpy_dtype, shape_of


@dataclass
class _Assembly:
    buffers: dict[str, TensorBuffer] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    names: dict[ir.Value, str] = field(default_factory=dict)
    entered: dict[Entering, str] = field(default_factory=dict)
    owners: list[int] = field(default_factory=list)

    def define(self, value: ir.Value, name: str, constant: bool = False) -> None:
        array = constant_value(value) if constant else None
        self.buffers[name] = TensorBuffer(shape_of(value), numpy_dtype(element_type(value)), array)
        self.names[value] = name

    def view(self, op: ir.Operation, inputs: int) -> None:
        """A value under another shape; what a method finds in a state lies where that does, behind the `inputs`."""
        name, source = f"view_{len(self.buffers)}", self.names[op.operands[0]]
        self.define(op.results[0], name)
        if entering := entering_of(op):
            self.entered[entering] = source
            source = f"input_{inputs + entering.state}"
        self.aliases[name] = source

    def left(self, states: Sequence[Interface], methods: int) -> list[list[Interface]]:
        """What each method but the last leaves in each state: what the next one finds there."""
        return [
            [
                replace(state, buffer=self.entered.get(Entering(method, number), state.buffer))
                for number, state in enumerate(states)
            ]
            for method in range(1, methods)
        ]


def _methods(
    main: ir.Operation, owners: Sequence[int], inputs: Sequence[Interface], outputs: Sequence[Interface]
) -> tuple[CalledMethod, ...]:
    """The methods of a program; `owners` tells whose each call is."""
    found, end, taken, given = list[CalledMethod](), 0, iter(inputs), iter(outputs)
    for number, method in enumerate(methods_of(main)):
        first, end = end, end + owners.count(number)
        shares = tuple(islice(taken, method.inputs)), tuple(islice(given, method.results))
        found.append(CalledMethod(method.name, first, end, *shares))
    return tuple(found)


def assemble(
    placed: ir.Module,
    kernels: Mapping[str, KernelSource],
    regions: Mapping[str, NpuRegion],
    where: Mapping[str, str],
    input_names: Sequence[str],
    output_names: Sequence[str],
) -> CallSequence:
    """The program of a placed module.

    Args:
        placed: `main` holds constants, reshapes and calls (see the `place` phase).
        kernels: the kernel of each CPU function by function name.
        regions: the command stream of each NPU function by function name.
        where: the user's source line and op of each function, for reports.
        input_names, output_names: how they are called in the model's header and the manifest, states last.

    Raises:
        BackendError: `main` holds an op that is none of those.
    """
    known, kernels = functions(placed), with_shared_weights(kernels)
    main = known["main"]
    block, kept = body_of(main), number_of_states(main)
    assembly = _Assembly()
    for index, argument in enumerate(block.arguments):
        assembly.define(argument, f"input_{index}")
    returned: list[ir.Value] = []
    for op in block.operations:
        match op.operation.name:
            case "tosa.const":
                assembly.define(op.result, f"constant_{len(assembly.buffers)}", constant=True)
            case "tosa.const_shape":
                pass
            case "tosa.reshape":
                assembly.view(op.operation, len(block.arguments) - kept)
            case "func.call":
                _call(assembly, op.operation, kernels, regions, where)
                assembly.owners.append(method_of(known[callee_of(op.operation)]))
            case "func.return":
                returned = list(op.operands)
            case name:
                raise BackendError(f"`{name}` was not placed", where=describe(op.location))
    given = _interfaces(assembly, input_names, block.arguments, main, "arg_attrs")
    results = _interfaces(assembly, output_names, returned, main, "res_attrs")
    inputs, states = given[: len(given) - kept], given[len(given) - kept :]
    outputs, after = results[: len(results) - kept], results[len(results) - kept :]
    program = CallSequence(
        inputs=inputs,
        outputs=outputs,
        buffers=assembly.buffers,
        calls=tuple(assembly.calls),
        aliases=assembly.aliases,
        states=states,
        methods=_methods(main, assembly.owners, inputs, outputs),
    )
    program = with_states(program, [*assembly.left(states, len(program.methods)), after])
    program.check()
    return program


def _call(
    assembly: _Assembly,
    op: ir.Operation,
    kernels: Mapping[str, KernelSource],
    regions: Mapping[str, NpuRegion],
    where: Mapping[str, str],
) -> None:
    callee = callee_of(op)
    for index, result in enumerate(op.results):
        suffix = f"_{index}" if len(op.results) > 1 else ""
        assembly.define(result, f"{callee}{suffix}")
    inputs = tuple(assembly.names[operand] for operand in op.operands)
    outputs = tuple(assembly.names[result] for result in op.results)
    if callee in kernels:
        assembly.calls.append(KernelCall(kernels[callee], inputs, outputs, where.get(callee, "")))
        return
    region = regions[callee]
    assembly.calls.append(
        NpuCall(
            name=callee,
            command_stream=region.commands,
            constants=region.constants,
            scratch_bytes=region.scratch_bytes,
            fast_bytes=region.fast_bytes,
            inputs=tuple(Port(n, p.region, p.address) for n, p in zip(inputs, region.inputs, strict=True)),
            outputs=tuple(Port(n, p.region, p.address) for n, p in zip(outputs, region.outputs, strict=True)),
            where=where.get(callee, ""),
            header=region.header,
        )
    )


def _interfaces(
    assembly: _Assembly, names: Sequence[str], values: Sequence[ir.Value], main: ir.Operation, attributes: str
) -> tuple[Interface, ...]:
    kinds = interface_quantizations(main, attributes, values)
    return tuple(Interface(n, assembly.names[v], kind) for n, v, kind in zip(names, values, kinds, strict=True))
