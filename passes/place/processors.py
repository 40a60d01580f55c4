"""Which processor runs each op, and which NPU ops go together."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tosaic.passes.place.verdicts import Verdict
from tosaic.support.attributes import ints_of, text_of
from tosaic.support.graph import Node
from tosaic.support.mlir import ir, shape_of
from tosaic.support.tosa_ops import CONSTANT, CONVERTING, MOVING
from tosaic.support.values import bit_width, producer, tensor_operands


def refusals(nodes: list[Node], verdict: Verdict, hop_cost: int) -> dict[Node, str]:
    """Why each op stays on the CPU; ops that the NPU runs are missing.

    An op stays when it carries a reason, or when the target says so. It stays, too, when it only widens or narrows what
    the CPU reads or makes, or when its region is worth less than a hop between the processors.
    """
    reasons: dict[Node, str] = {}
    for node in nodes:
        known = "tosaic.reason" in node.op.attributes
        reason = text_of(node.op, "tosaic.reason") if known else verdict(node.op)
        if reason is not None:
            reasons[node] = reason
    while True:
        found = _converters_of_the_cpu(nodes, reasons) or _regions_not_worth_a_hop(nodes, reasons, hop_cost)
        if not found:
            return reasons
        reasons.update(found)


def stages(nodes: list[Node], reasons: Mapping[Node, str]) -> dict[Node, int]:
    """The stage of each node when NPU stages (even) and CPU stages (odd) alternate.

    Stages never fall along a path, so that all NPU ops of a stage form one convex region. A node takes the earliest
    stage, with two exceptions. An NPU op that only widens waits for its first reader. Where all NPU ops of a stage can
    wait they do, so that there is one stage, and one hop, less. Each method has stages of its own.
    """
    found: dict[Node, int] = {}
    for method in sorted({node.method for node in nodes}):
        first = max(found.values(), default=-2) // 2 * 2 + 2
        own = _stages_of_method([node for node in nodes if node.method == method], reasons)
        found.update({node: first + level for node, level in own.items()})
    return found


def _stages_of_method(nodes: list[Node], reasons: Mapping[Node, str]) -> dict[Node, int]:
    floor: dict[Node, int] = {}
    stage = _settled(nodes, reasons, floor)
    for level in range(0, max(stage.values(), default=0), 2):
        latest = latest_stages(nodes, reasons, stage)
        members = [node for node in nodes if stage[node] == level]
        if all(latest[node] > level for node in members):
            floor.update(dict.fromkeys(members, level + 2))
            stage = _settled(nodes, reasons, floor)
    return stage


def latest_stages(nodes: list[Node], reasons: Mapping[Node, str], stage: Mapping[Node, int]) -> dict[Node, int]:
    """The stage to which each node could wait without a stage more in all."""
    last: dict[int, int] = {}
    for node in nodes:
        last[node.method] = max(last.get(node.method, 0), stage[node])
    latest: dict[Node, int] = {}
    for node in reversed(nodes):
        bound = min((latest[user] for user in node.users), default=last[node.method])
        latest[node] = bound if bound % 2 == (node in reasons) else bound - 1
    return latest


def _settled(nodes: list[Node], reasons: Mapping[Node, str], floor: Mapping[Node, int]) -> dict[Node, int]:
    stage: dict[Node, int] = {}
    for node in nodes:
        on_cpu = node in reasons
        earliest = max((stage[producer] for producer in node.inputs), default=int(on_cpu))
        earliest = max(earliest, floor.get(node, 0))
        stage[node] = earliest if earliest % 2 == on_cpu else earliest + 1
    for node in reversed(nodes):
        if node not in reasons and node.users and not node.returned and _widens(node):
            first_reader = min(stage[user] for user in node.users)
            stage[node] = max(stage[node], first_reader - first_reader % 2)
    return stage


def npu_regions(nodes: list[Node], reasons: Mapping[Node, str]) -> list[list[Node]]:
    """The NPU's regions in order: one for each stage, without the reshapes at its edge, which are free in `main`."""
    stage = stages(nodes, reasons)
    regions: dict[int, list[Node]] = {}
    for node in nodes:
        if node not in reasons:
            regions.setdefault(stage[node], []).append(node)
    trimmed = [_without_outer_reshapes(regions[key]) for key in sorted(regions)]
    return [region for region in trimmed if region]


def work(node: Node) -> int:
    """Multiply-accumulates, or elements where an op has none; what a hop is weighed against."""
    elements = prod(shape_of(node.op.results[0]))
    if node.op.name in MOVING:
        return 0
    if node.name in ("conv2d", "conv3d", "transpose_conv2d"):
        return elements * prod(shape_of(node.op.operands[1])[1:])
    if node.name == "depthwise_conv2d":
        return elements * prod(shape_of(node.op.operands[1])[:2])
    if node.name == "matmul":
        return elements * shape_of(node.op.operands[0])[-1]
    if node.name in ("avg_pool2d", "max_pool2d"):
        return elements * prod(ints_of(node.op, "kernel"))
    return max(elements, *(prod(shape_of(operand)) for operand in tensor_operands(node.op)))


def _converters_of_the_cpu(nodes: list[Node], reasons: Mapping[Node, str]) -> dict[Node, str]:
    found: dict[Node, str] = {}
    for node in nodes:
        if node in reasons or node.op.name not in CONVERTING:
            continue
        change = _tensor_bits(node.op.results[0]) - _tensor_bits(node.op.operands[0])
        if change > 0 and node.users and not node.returned and all(user in reasons for user in node.users):
            found[node] = "it only widens what the CPU reads"
        elif change < 0 and node.inputs and all(producer in reasons for producer in node.inputs):
            found[node] = "it only narrows what the CPU makes"
    return found


def _regions_not_worth_a_hop(nodes: list[Node], reasons: Mapping[Node, str], hop_cost: int) -> dict[Node, str]:
    """The ops for which alone the least useful region stands, if they are worth less than a hop.

    Ops that could wait for a later region are no reason for this one.
    """
    stage = stages(nodes, reasons)
    latest = latest_stages(nodes, reasons, stage)
    bound: dict[int, list[Node]] = {}
    for node in nodes:
        if node not in reasons and stage[node] == latest[node]:
            bound.setdefault(stage[node], []).append(node)
    totals = {level: sum(work(node) for node in members) for level, members in bound.items()}
    least = min(totals, key=totals.__getitem__, default=None)
    if least is None or totals[least] >= hop_cost:
        return {}
    reason = f"its region is not worth a hop to the NPU ({totals[least]} operations, a hop costs {hop_cost})"
    return dict.fromkeys(bound[least], reason)


def _without_outer_reshapes(region: list[Node]) -> list[Node]:
    inside = set(region)
    while True:
        outer = {
            node
            for node in inside
            if node.name == "reshape"
            and (not any(p in inside for p in node.inputs) or not any(user in inside for user in node.users))
        }
        if not outer:
            return [node for node in region if node in inside]
        inside -= outer


def _widens(node: Node) -> bool:
    computed = [operand for operand in tensor_operands(node.op) if producer(operand, *CONSTANT) is None]
    return _tensor_bits(node.op.results[0]) > sum(map(_tensor_bits, computed))


def _tensor_bits(value: ir.Value) -> int:
    return prod(shape_of(value)) * bit_width(value)
