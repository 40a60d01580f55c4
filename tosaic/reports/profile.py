"""What each op of a build costs, in the order of execution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tosaic.backends.simulators.run import CallCost
from tosaic.builds.manifest import Manifest, PlacedOp
from tosaic.runs.running import Run
from tosaic.support.errors import Error

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class OpProfile:
    """An op, where it runs and why, and what it costs there.

    What is computed within another op has no cost of its own: a kernel's stands at its first op, and Vela's at the op
    that it fuses others into. Costs are None, too, where the runner does not count or the core has no cycle model.

    Args:
        op, shape: TOSA's name, and the shape of its result.
        module, where: the path of its module, and the user's line.
        processor, function: what runs it, and in which kernel or region.
        reason: why it is not on the NPU.
        macs: its multiply-accumulates.
        instructions, cycles, cycles_with_memory: of the core.
        npu_cycles: of the NPU, Vela's estimate.
        bound: what most of its time goes to: a unit of the NPU, `core`, or what the core waits for, as in `waits`.
        waits: cycles that the core waits, by what for: `sram fills`, `sram write-backs`, `mram code`.
        traffic: bytes read and written, by memory.
        sqnr_db: of the layer that it belongs to, on calibration data; the worst where it is part of several.
    """

    op: str
    shape: tuple[int, ...]
    module: str
    where: str
    processor: str
    function: str
    reason: str
    macs: int
    instructions: int | None
    cycles: int | None
    cycles_with_memory: int | None
    npu_cycles: int | None
    bound: str
    waits: Mapping[str, int]
    traffic: Mapping[str, int]
    sqnr_db: float | None

    @property
    def cost(self) -> int | None:
        """Cycles of its processor, those that the core waits for memory included; instructions where none are known."""
        return self.npu_cycles or self.cycles_with_memory or self.instructions


RowT = TypeVar("RowT", PlacedOp, OpProfile)
_COSTS = ("instructions", "cycles", "cycles_with_memory", "npu_cycles")


def profile(run: Run) -> list[OpProfile]:
    """Each op of a run's build."""
    manifest = run.build.manifest
    costs = {
        name: cost for name, cost in zip(run.build.called, run.board.calls, strict=True) if cost.processor == "cpu"
    }
    number = {name: index for index, name in enumerate(run.build.called)}
    worst: dict[str, float] = {}
    for layer in manifest.layers:
        for name in (*layer.names, _name(layer.module, layer.op)):
            if layer.sqnr_db is not None:
                worst[name] = min(layer.sqnr_db, worst.get(name, layer.sqnr_db))
    ops = sorted(manifest.ops, key=lambda op: number[op.function])
    return [_row(op, costs.pop(op.function, None), worst.get(_name(op.module, op.where.split(" ")[-1]))) for op in ops]


def of_model(rows: Iterable[RowT]) -> list[RowT]:
    """Rows without those of RESCALEs, which are no ops of a model: their costs go to the op beside them that comes from
    the same line and runs in the same kernel or region."""
    joined: list[RowT] = []
    for row in rows:
        before = joined[-1] if joined else None
        together = before is not None and (before.where, before.function) == (row.where, row.function)
        if before is not None and together and "RESCALE" in (row.op, before.op):
            joined[-1] = _with_costs(before, row) if row.op == "RESCALE" else _with_costs(row, before)
        else:
            joined.append(row)
    return joined


def _with_costs(row: RowT, other: RowT) -> RowT:
    both = {name: (getattr(row, name), getattr(other, name)) for name in _COSTS if hasattr(row, name)}
    sums: dict[str, Any] = {name: _sum(*pair) for name, pair in both.items()}
    return replace(row, reason=row.reason or other.reason, **sums)


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)


@dataclass(frozen=True)
class ModuleCost:
    """What the ops of a module, or of a line outside of all modules, cost on either processor; None where not known."""

    module: str
    cpu: int | None
    npu: int | None


def modules(costs: Iterable[tuple[PlacedOp | OpProfile, int | None]]) -> list[ModuleCost]:
    """The cost of each module, in the order of execution.

    Args:
        costs: each op with what it costs the core.
    """
    cpu, npu = dict[str, int | None](), dict[str, int | None]()
    for op, cost in costs:
        name = op.module or op.where
        for sums, one in ((cpu, cost), (npu, op.npu_cycles)):
            sums[name] = _sum(sums.get(name), one)
    return [ModuleCost(name, cpu[name], npu[name]) for name in cpu]


def compiled_modules(manifest: Manifest) -> list[ModuleCost]:
    """The cost of each module as far as a build knows it without a run: of a kernel in the trial that won."""
    costs = {kernel.name: kernel.curve[-1][1] for kernel in manifest.kernels if kernel.curve}
    return modules((op, costs.pop(op.function, None)) for op in manifest.ops)


def run_modules(rows: Iterable[OpProfile]) -> list[ModuleCost]:
    """The cost of each module in a run."""
    return modules((row, row.cycles_with_memory or row.instructions) for row in rows)


def _name(module: str, aten: str) -> str:
    """What `LayerAccuracy.names` call the op `aten.conv2d.default` of a module: `features.0:conv2d`."""
    op = aten.split(".")[1] if aten.startswith("aten.") else aten
    return f"{module}:{op}" if module else op


def data_frame(run: Run) -> DataFrame:
    """`profile` as a table; `traffic` is the sum over all memories.

    Raises:
        Error: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise Error("a DataFrame needs pandas", hint="pip install tosaic[report]") from None
    rows = [asdict(row) | {"traffic": sum(row.traffic.values()) or None} for row in profile(run)]
    counts = ["macs", "instructions", "cycles", "cycles_with_memory", "npu_cycles", "traffic"]
    return pandas.DataFrame(rows).astype(dict.fromkeys(counts, "Int64"))


def _row(op: PlacedOp, cost: CallCost | None, sqnr_db: float | None) -> OpProfile:
    return OpProfile(
        op=op.op,
        shape=op.shape,
        module=op.module,
        where=op.where,
        processor=op.processor,
        function=op.function,
        reason=op.reason,
        macs=op.macs,
        instructions=cost.instructions if cost else None,
        cycles=cost.cycles if cost else None,
        cycles_with_memory=cost.cycles_with_memory if cost else None,
        npu_cycles=op.npu_cycles,
        bound=_bound(cost) if cost else op.npu_bound,
        waits=_waits(cost) if cost else {},
        traffic=_moved(cost) if cost else op.npu_traffic,
        sqnr_db=sqnr_db,
    )


def _bound(cost: CallCost) -> str:
    if cost.cycles is None:
        return ""
    spent = {"core": cost.cycles, **_waits(cost)}
    return max(spent, key=lambda name: spent[name])


def _waits(cost: CallCost) -> dict[str, int]:
    """The cycles that the core waits, by what for."""
    found: dict[str, int] = {}
    for each in cost.traffic:
        causes = {"fills": each.fill_waits, "write-backs": each.write_waits, "code": each.fetch_waits}
        found |= {f"{each.memory} {cause}": waits for cause, waits in causes.items() if waits}
    return found


def _moved(cost: CallCost) -> dict[str, int]:
    return {each.memory: moved for each in cost.traffic if (moved := each.read + each.written)}
