"""Kernels that write the new value of a state where the old one lies: so their trials run, too."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from tosaic.backends.cortex_m.kernel import KernelSource, Overlap
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.firmware.program import CallSequence, KernelCall
from tosaic.compiler.assembly import assemble
from tosaic.support.functions import body_of, called, number_of_states, returned
from tosaic.support.mlir import functions, ir
from tosaic.support.values import byte_size


def with_states_written_over(tasks: Mapping[str, KernelTask], placed: ir.Module) -> dict[str, KernelTask]:
    """The tasks of a placed module, which know what all their calls write over.

    Raises:
        Error: the default kernel of a task cannot be generated.
    """
    main = functions(placed)["main"]
    states = body_of(main).arguments[len(body_of(main).arguments) - number_of_states(main) :]
    if not states:
        return dict(tasks)
    program = _program_of(tasks, placed, {byte_size(state) for state in states})
    found: dict[str, set[Overlap]] = {}
    for call in program.calls:
        assert isinstance(call, KernelCall)
        over = _written_over(program, call)
        found[call.kernel.symbol] = found.get(call.kernel.symbol, over) & over
    return {name: task.writing_over(found[name]) if found.get(name) else task for name, task in tasks.items()}


def _program_of(tasks: Mapping[str, KernelTask], placed: ir.Module, sizes: set[int]) -> CallSequence:
    """The calls of a placed module; of those alone whose results have these sizes it says what they may write over."""
    known = functions(placed)
    kernels = dict[str, KernelSource]()
    for name in called(placed):
        task = tasks.get(name)
        of_a_state = not sizes.isdisjoint(map(byte_size, returned(known[name])))
        in_place = task.generate(task.default()).in_place if task and of_a_state else ()
        kernels[name] = KernelSource(name, "c", "", in_place=in_place)
    values = {"input": body_of(known["main"]).arguments, "output": returned(known["main"])}
    names = [[f"{kind}_{i}" for i in range(len(some))] for kind, some in values.items()]
    return assemble(placed, kernels, {}, {}, *names)


def _written_over(program: CallSequence, call: KernelCall) -> set[Overlap]:
    reads, writes = ([program.storage(name) for name in names] for names in (call.inputs, call.outputs))
    return {Overlap(i, o) for (i, old), (o, new) in product(enumerate(reads), enumerate(writes)) if old == new}
