"""The NPU's share of a program: place, compile with Vela, take back what Vela refuses, and list what it made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tosaic import verdicts  # noqa: F401  (`place` knows them then)
from tosaic.backends.ethos_u.disassembler import disassemble
from tosaic.backends.ethos_u.emulation import emulate
from tosaic.backends.ethos_u.vela import NpuOp, NpuRegion, VelaRefusal, compile_region
from tosaic.backends.reference import evaluate, serialize
from tosaic.backends.target import Target
from tosaic.build import Build
from tosaic.kernel_inputs import call_inputs
from tosaic.npu_bisection import first_wrong_op
from tosaic.passes import Callback, first_difference, place_phase, run_phase
from tosaic.passes.place.place import refuse
from tosaic.support.errors import Error, SimulatorError
from tosaic.support.functions import computing_ops, inputs_of, main_of, standalone
from tosaic.support.locations import describe
from tosaic.support.mlir import copy_of, functions, ir, walk


@dataclass(frozen=True)
class Placement:
    """A module divided between the processors.

    Args:
        module: `main` calls one function per NPU region and CPU kernel.
        regions: the compiled command stream of each NPU function.
    """

    module: ir.Module
    regions: Mapping[str, NpuRegion] = field(default_factory=dict)


def place_on(
    target: Target, module: ir.Module, inputs: Sequence[np.ndarray], callbacks: Sequence[Callback] = ()
) -> Placement:
    """Divide a copy of `module` between the target's processors; `callbacks` see each attempt.

    Ops that Vela refuses move to the CPU, its reason with them; so do ops whose command stream the emulator finds to
    compute something else than the reference model, on what the region reads when the model is given `inputs`.

    Raises:
        PassError: placement broke its invariant.
    """
    fused = copy_of(module)
    while True:
        placed = copy_of(fused)
        run_phase(placed, place_phase(target.accelerator or ""), callbacks)
        if target.accelerator is None:
            return Placement(placed)
        regions = {}
        news: dict[int, str] = {}
        for name, function in npu_functions(placed).items():
            try:
                regions[name] = compile_region(serialize(standalone(function)), target.accelerator)
            except VelaRefusal as refusal:
                news |= _culprits(function, refusal, target.accelerator)
        news = news or _miscompiled(placed, regions, inputs)
        if not news:
            return Placement(placed, regions)
        refuse(fused, news)


def _miscompiled(placed: ir.Module, regions: Mapping[str, NpuRegion], inputs: Sequence[np.ndarray]) -> dict[int, str]:
    """The ops with which a region begins to differ from its meaning, by number, and how; empty where all are right."""
    read = call_inputs(placed, list(regions), inputs)
    found: dict[int, str] = {}
    for name, region in regions.items():
        function, arguments = npu_functions(placed)[name], read.get(name, ())
        difference = _difference(function, region, arguments)
        if difference:
            wrong = first_wrong_op(function, arguments, region.accelerator)
            ops = [wrong[0]] if wrong else [op for op in walk(function) if "tosaic.op" in op.attributes]
            reason = f"Vela's command stream computes it wrongly: {wrong[1] if wrong else difference}"
            found |= {ir.IntegerAttr(op.attributes["tosaic.op"]).value: reason for op in ops}
    return found


def _difference(function: ir.Operation, region: NpuRegion, arguments: Sequence[np.ndarray]) -> str:
    try:
        return first_difference(evaluate(standalone(function), arguments), emulate(region, arguments).outputs)
    except SimulatorError as error:
        return str(error)


def npu_functions(placed: ir.Module) -> dict[str, ir.Operation]:
    """The NPU functions of a placed module by name."""
    return _functions_of(placed, "npu")


def cpu_functions(placed: ir.Module) -> dict[str, ir.Operation]:
    """The CPU kernel functions of a placed module by name."""
    return _functions_of(placed, "cpu")


def _functions_of(placed: ir.Module, processor: str) -> dict[str, ir.Operation]:
    return {
        name: function
        for name, function in functions(placed).items()
        if name != "main" and ir.StringAttr(function.attributes["tosaic.processor"]).value == processor
    }


def _culprits(function: ir.Operation, refusal: VelaRefusal, accelerator: str) -> dict[int, str]:
    """The ops that Vela refused, by number: those it also refuses alone, else all of the kind that it named."""
    ops = [op for op in walk(function) if "tosaic.op" in op.attributes]
    named = [op for op in ops if op.name.removeprefix("tosa.").upper() == refusal.op] or ops
    alone = [op for op in named if len(named) > 1 and _refused_alone(op, accelerator)]
    reason = f"Vela refused it: {refusal.why}"
    return {ir.IntegerAttr(op.attributes["tosaic.op"]).value: reason for op in alone or named}


def _refused_alone(op: ir.Operation, accelerator: str) -> bool:
    try:
        compile_region(serialize(_single(op)), accelerator)
    except VelaRefusal:
        return True
    return False


def _single(op: ir.Operation) -> ir.Module:
    """A module whose `main` is `op` alone: computed operands are arguments, constants stay."""
    return main_of([op], inputs_of([op]), list(op.results))


def save_regions(placement: Placement, folder: Path) -> None:
    """Write the command stream of each region, as Arm's core driver takes it, to `folder/npu/<name>.cop1`."""
    streams = folder / "npu"
    streams.mkdir()
    for name, region in placement.regions.items():
        (streams / f"{name}.cop1").write_bytes(region.command_stream)


def disassemble_build(build: Build) -> str:
    """The command streams of a build, op by op, with the user's line behind each.

    Raises:
        Error: the build has no NPU region, or its files are damaged.
    """
    if not build.manifest["npu_regions"]:
        raise Error(f"`{build.folder}` has no NPU region", why=f"its target is {build.manifest['target']}")
    functions_by_name = npu_functions(build.placed)
    parts = []
    for entry in build.manifest["npu_regions"]:
        region = _region(build, entry)
        where = source_lines(functions_by_name[entry["name"]])
        parts.append(f"; {entry['name']}\n{disassemble(region, where)}")
    return "\n\n".join(parts)


def source_lines(function: ir.Operation) -> list[str]:
    """The user's line behind each op of an NPU function, by the number that `NpuOp.index` has."""
    return [describe(op.location) for op in computing_ops(function)]


def scheduled_ops(entry: Mapping[str, Any]) -> tuple[NpuOp, ...]:
    """The schedule of a region, from its entry in the manifest."""
    return tuple(NpuOp(**{**op, "offsets": tuple(op["offsets"])}) for op in entry["ops"])


def _region(build: Build, entry: dict) -> NpuRegion:
    file = build.folder / "npu" / f"{entry['name']}.cop1"
    try:
        stream = file.read_bytes()
    except OSError as error:
        raise Error(f"cannot read `{file}`", why=str(error), hint="compile again") from None
    return NpuRegion(
        accelerator=build.manifest["accelerator"],
        command_stream=stream,
        constants=b"",
        scratch_bytes=entry["scratch_bytes"],
        fast_bytes=entry["fast_bytes"],
        inputs=(),
        outputs=(),
        cycles=entry["cycles"],
        ops=scheduled_ops(entry),
        memory=entry["memory"],
    )
