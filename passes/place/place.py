"""Divide `main` between the processors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.place.outline import Group, outline
from tosaic.passes.place.processors import npu_regions, refusals
from tosaic.passes.place.rounding import round_twice_on_cpu
from tosaic.passes.place.turning import turn_in_products_on_cpu
from tosaic.passes.place.verdicts import Verdict, verdict_of
from tosaic.passes.place.widening import repeat_in_readers, widen_in_readers, widen_in_regions
from tosaic.support.graph import Node, nodes_of
from tosaic.support.kernels import anchor, cpu_kernels
from tosaic.support.mlir import ir

HOP_COST = 4096


@register
@dataclass(frozen=True)
class Place(ModulePass):
    """Outline NPU regions and CPU kernels, so that `main` holds constants, reshapes and calls.

    `target` names a target or an accelerator, none means no NPU. An op that carries `tosaic.reason` stays on the CPU.
    `hop-cost` is the number of multiply-accumulates (or elements) below which an NPU region stays there too.
    """

    name: ClassVar[str] = "place"
    target: str = ""
    hop_cost: int = HOP_COST

    def run(self, module: ir.Module) -> None:
        divide(module, verdict_of(self.target), self.hop_cost)


def divide(module: ir.Module, verdict: Verdict, hop_cost: int = HOP_COST) -> None:
    """What `place` does by a target's verdict."""
    with module.context, ir.Location.unknown():
        nodes = nodes_of(module)
        reasons = refusals(nodes, verdict, hop_cost)
        regions = npu_regions(nodes, reasons)
        _mark(nodes, {node for region in regions for node in region}, reasons)
        ops_on_npu = widen_in_regions(regions)
        round_twice_on_cpu(module)
        turn_in_products_on_cpu(module)
        repeat_in_readers(module)
        placed = {node.op: node for node in nodes_of(module)}
        kernels = _on_cpu(placed.values())
        if widen_in_readers(kernels):
            placed = {node.op: node for node in nodes_of(module)}
            kernels = _on_cpu(placed.values())
        on_npu = [[placed[op] for op in ops] for ops in ops_on_npu]
        named = [Group(f"npu_{index}", "npu", region) for index, region in enumerate(on_npu)]
        named += [Group(f"cpu_{index}_{anchor(group).name}", "cpu", group) for index, group in enumerate(kernels)]
        outline(module, sorted(named, key=lambda group: group.nodes[-1].number))


def _on_cpu(nodes: Iterable[Node]) -> list[list[Node]]:
    """The kernels of the CPU."""
    return cpu_kernels([node for node in nodes if "tosaic.op" not in node.op.attributes])


def _mark(nodes: Iterable[Node], on_npu: Collection[Node], reasons: Mapping[Node, str]) -> None:
    """Give ops on the NPU their number, others the reason."""
    for node in nodes:
        if node in on_npu:
            node.op.attributes["tosaic.op"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), node.number)
        elif reasons.get(node):
            node.op.attributes["tosaic.reason"] = ir.StringAttr.get(reasons[node])


def refuse(module: ir.Module, reasons: Mapping[int, str]) -> None:
    """Keep ops of `main` on the CPU: the reason by op number, which `place` gives ops on the NPU as `tosaic.op`."""
    for node in nodes_of(module):
        if node.number in reasons:
            node.op.attributes["tosaic.reason"] = ir.StringAttr.get(reasons[node.number], module.context)
