"""Divide `main` between the processors."""

from __future__ import annotations

from collections.abc import Mapping

from tosaic.passes.place.graph import nodes_of
from tosaic.passes.place.kernels import anchor, cpu_kernels
from tosaic.passes.place.outline import Group, outline
from tosaic.passes.place.processors import Verdict, npu_regions, refusals
from tosaic.support.errors import PassError
from tosaic.support.mlir import bytecode, functions, ir, parse, walk
from tosaic.support.tosa_ops import is_constant

NO_REFUSALS: Mapping[int, str] = {}
HOP_COST = 4096


def everything_on_cpu(op: ir.Operation) -> str:
    """The verdict of a target without an NPU: no op goes there, and nothing needs a reason."""
    return ""


def place(
    module: ir.Module,
    verdict: Verdict = everything_on_cpu,
    refused: Mapping[int, str] = NO_REFUSALS,
    hop_cost: int = HOP_COST,
) -> ir.Module:
    """A copy of `module` in which `main` holds constants, reshapes and calls of NPU regions and CPU kernels.

    `module` stays as it is, so that a caller whose NPU compiler refuses an op calls again with that op in `refused`.

    Args:
        verdict: the target's verdict on an op of `main`: None when the NPU runs it, else the reason why not.
        refused: reasons by op number, as the attribute `tosaic.op` of the ops in NPU functions has it.
        hop_cost: the multiply-accumulates (or elements) below which an NPU region stays on the CPU.

    Raises:
        PassError: the result breaks the invariant.
    """
    with module.context, ir.Location.unknown():
        copy = parse(bytecode(module))
        nodes = nodes_of(copy)
        reasons = refusals(nodes, verdict, refused, hop_cost)
        regions = npu_regions(nodes, reasons)
        on_npu = {node for region in regions for node in region}
        kernels = cpu_kernels([node for node in nodes if node not in on_npu])
        named = [Group(f"npu_{index}", "npu", region) for index, region in enumerate(regions)]
        named += [Group(f"cpu_{index}_{anchor(group).name}", "cpu", group) for index, group in enumerate(kernels)]
        outline(copy, sorted(named, key=lambda group: group.nodes[-1].number), reasons)
    check_placed(copy)
    return copy


def check_placed(module: ir.Module) -> None:
    """`main` holds constants, reshapes and calls; every callee is private and knows its processor.

    Raises:
        PassError: names what breaks this.
    """
    known = functions(module)
    for name, function in known.items():
        if name == "main":
            continue
        if "tosaic.processor" not in function.attributes or "sym_visibility" not in function.attributes:
            raise PassError(f"function `{name}` is not private or has no processor")
    for op in walk(known["main"]):
        if not is_constant(op) and op.name not in ("tosa.reshape", "func.call", "func.return"):
            raise PassError(f"`{op.name}` is left in main after place", where=str(op.location))
    module.operation.verify()
