"""`tosaic npu disasm`: the command streams of a build, op by op."""

from __future__ import annotations

from tosaic.backends.ethos_u.disassembler import disassemble
from tosaic.build import Build
from tosaic.support.errors import Error
from tosaic.support.functions import computing_ops, functions_on
from tosaic.support.locations import describe
from tosaic.support.mlir import ir

STREAMS = "npu"
"""The folder of a build that holds the command stream of each region, as Arm's core driver takes it."""


def disassemble_build(build: Build) -> dict[str, str]:
    """The command stream of each region of a build, op by op, with the user's line behind each.

    Raises:
        Error: the build has no NPU region, or its files are damaged.
    """
    if not build.manifest.regions:
        raise Error(f"`{build.folder}` has no NPU region", why=f"its target is {build.manifest.target.name}")
    functions = functions_on("npu", build.placed)
    accelerator = build.manifest.target.accelerator or ""
    listings = {}
    for record in build.manifest.regions:
        file = build.folder / STREAMS / f"{record.name}.cop1"
        try:
            stream = file.read_bytes()
        except OSError as error:
            raise Error(f"cannot read `{file}`", why=str(error), hint="compile again") from None
        listings[record.name] = disassemble(stream, accelerator, record.ops, source_lines(functions[record.name]))
    return listings


def source_lines(function: ir.Operation) -> list[str]:
    """The user's line behind each op of an NPU function, by the number that `NpuOp.index` has."""
    return [describe(op.location) for op in computing_ops(function)]
