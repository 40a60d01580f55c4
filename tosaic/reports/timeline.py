"""When each processor works during one inference, and what lies in the arena meanwhile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tosaic.backends.firmware.memory_plan import scratch_name
from tosaic.backends.npu import NpuTensor
from tosaic.builds.manifest import PlacedOp, RegionRecord
from tosaic.runs.running import Run


@dataclass(frozen=True)
class Slice:
    """What a processor does from `start` on, in cycles. Both processors' are counted alike, whatever their clocks are.

    Args:
        processor: `cpu` or `npu`; one waits while the other works.
        busy: of the NPU, the cycles of each of its parts, see `NpuOp`.
    """

    name: str
    processor: str
    where: str
    start: int
    cycles: int
    busy: Mapping[str, int] = field(default_factory=dict)


def slices(run: Run) -> list[Slice]:
    """One inference: a slice for each kernel, and for each op of an NPU region as Vela estimates it.

    A core without a cycle model counts instructions instead.
    """
    found: list[Slice] = []
    now = 0
    for name, cost in zip(run.build.called, run.board.calls, strict=True):
        if cost.processor == "npu":
            region = run.build.manifest.region(name)
            steps = [(_named(run, region, op.index), op.cycles, op.busy) for op in region.ops]
        else:
            kernel = next(kernel for kernel in run.build.manifest.kernels if kernel.name == name)
            steps = [((kernel.task, cost.where), cost.cost or 0, {})]
        for (title, where), cycles, busy in steps:
            found.append(Slice(title, cost.processor, where, now, cycles, busy))
            now += cycles
    return found


@dataclass(frozen=True)
class Lying:
    """Bytes that are in use from step `first` to before step `end`. A step is a kernel, or an op of an NPU region.

    Args:
        kind: `tensor`, `scratch`, `weights`, or `region`, which holds the tensors and weights of an NPU region.
    """

    name: str
    kind: str
    where: str
    memory: str
    offset: int
    size: int
    first: float
    end: float


def arena(run: Run) -> list[Lying]:
    """Everything that the memory plan places, and what Vela placed within the working memory of its regions."""
    manifest = run.build.manifest
    names = run.build.called
    regions = {number: manifest.region(name) for number, name in enumerate(names) if _is_region(run, name)}
    starts = [0.0]
    for number in range(len(names)):
        starts.append(starts[-1] + (_steps(regions[number]) if number in regions else 1))
    within = {scratch_name(number, region): (number, region) for number in regions for region in (1, 2)}
    found = []
    for block in manifest.firmware.plan:
        first = starts[block.first] if block.first >= 0 else -1.0
        end = starts[block.last + 1] if block.last < len(names) else starts[-1] + 1
        lies = Lying(block.name, "tensor", "", block.memory, block.offset, block.size, first, end)
        if block.name in within:
            number, region = within[block.name]
            inside = [tensor for tensor in regions[number].tensors if tensor.region == region]
            found.append(replace(lies, name=names[number], kind="region" if inside else "scratch"))
            found += [_lying(run, regions[number], tensor, lies) for tensor in inside]
        elif block.name.startswith("call "):
            found.append(replace(lies, name=names[block.first], kind="scratch"))
        else:
            found.append(lies)
    return found


def live_at_peak(lying: Sequence[Lying]) -> tuple[float, list[Lying]]:
    """The moment at which most bytes are in use, and what these are, the largest first."""
    leaves = [each for each in lying if each.kind != "region"]

    def used(moment: float) -> int:
        spans = sorted((each.memory, each.offset, each.offset + each.size) for each in leaves if _lives(each, moment))
        total, memory, reached = 0, "", 0
        for name, begin, end in spans:
            reached = reached if name == memory else 0
            total, memory, reached = total + max(0, end - max(begin, reached)), name, max(end, reached)
        return total

    moment = max({each.first for each in leaves}, key=lambda moment: (used(moment), -moment), default=0.0)
    return moment, sorted((each for each in leaves if _lives(each, moment)), key=lambda each: -each.size)


def write_trace(run: Run, file: Path) -> None:
    """Write the timeline as Chrome and Perfetto read it (Trace Event Format); a microsecond there is a cycle."""
    threads = {"cpu": 1, "npu": 2}
    target = run.build.manifest.target
    names = {"cpu": target.core.name, "npu": target.accelerator or "no NPU"}
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": run.build.manifest.model}},
        *({"ph": "M", "name": "thread_name", "pid": 1, "tid": threads[processor], "args": {"name": name}}
          for processor, name in names.items()),
        *({"ph": "X", "name": each.name, "cat": each.processor, "pid": 1, "tid": threads[each.processor],
           "ts": each.start, "dur": each.cycles, "args": {"from": each.where, **each.busy}} for each in slices(run)),
    ]  # fmt: skip
    file.write_text(json.dumps({"traceEvents": events}))


def _lying(run: Run, region: RegionRecord, tensor: NpuTensor, lies: Lying) -> Lying:
    """What lies in the working memory of a region."""
    name, where = _named(run, region, tensor.index)
    return Lying(
        name=name,
        kind="weights" if tensor.weights else "tensor",
        where=where,
        memory=lies.memory,
        offset=lies.offset + tensor.address,
        size=tensor.size,
        first=lies.first + tensor.first / 2,
        end=lies.first + (tensor.last + 1) / 2,
    )


def _lives(each: Lying, moment: float) -> bool:
    return each.first <= moment < each.end


def _is_region(run: Run, name: str) -> bool:
    return any(region.name == name for region in run.build.manifest.regions)


def _steps(region: RegionRecord) -> float:
    """Vela's clock counts two for each op: its weights come in at the odd moments."""
    return max((op.time for op in region.ops), default=0) / 2 + 1


def _named(run: Run, region: RegionRecord, index: int) -> tuple[str, str]:
    """What an op of a region is called, and its line."""
    if index < 0:
        return f"Vela's own in {region.name}", ""
    op = _ops(run, region.name)[index]
    return f"{op.op} {'x'.join(map(str, op.shape))}", f"{op.where} {op.module}".strip()


def _ops(run: Run, function: str) -> list[PlacedOp]:
    return [op for op in run.build.manifest.ops if op.function == function]
