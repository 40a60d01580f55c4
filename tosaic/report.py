"""Results as JSON objects and as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from rich.bar import Bar
from rich.table import Column, Table

from tosaic.accuracy import OutputAccuracy
from tosaic.backends.ethos_u.accelerators import find_accelerator
from tosaic.backends.ethos_u.sparsity import SPARSE
from tosaic.backends.simulators.memory_model import Traffic
from tosaic.backends.simulators.run import Costs
from tosaic.backends.simulators.stand_in import simulation_of
from tosaic.backends.target import Target
from tosaic.build import Build
from tosaic.console import print_facts, stderr, stdout
from tosaic.doctor import Finding
from tosaic.frontend import Cause
from tosaic.layers import LayerAccuracy, worst
from tosaic.manifest import Manifest, PlacedOp
from tosaic.npu_execution import DESCRIPTION
from tosaic.npu_measured import MeasuredRegion
from tosaic.profile import ModuleCost, compiled_modules, of_model, profile, run_modules
from tosaic.progress import UNITS
from tosaic.running import Run
from tosaic.sensitivity import Cost, Scanned, Sensitivity
from tosaic.streaming import Point
from tosaic.support.functions import Dropped
from tosaic.tuner.measurement import Measurement
from tosaic.tuner.tune import TuningResult

_NOTHING = "no output to judge"
_CAUSES_SHOWN = 24
_MANY_ZEROS = 0.4
_BAR = 24
"""Columns of a drawn bar."""
_COSTS = {"instructions": "instructions", "cycles": "cycles (model)", "cycles_with_memory": "cycles with memory"}


def compile_result(build: Build) -> dict:
    """What `compile --json` prints."""
    manifest = build.manifest
    return {
        "build": str(build.folder),
        "model": manifest.model,
        "target": manifest.target.name,
        "accelerator": manifest.target.accelerator,
        "dropped": dict(manifest.dropped._asdict()),
        "regions": {"npu": len(manifest.regions), "cpu": len(manifest.kernels)},
        "ops_per_processor": manifest.ops_per_processor,
        "ops": msgspec.to_builtins(manifest.ops),
        "kernels": msgspec.to_builtins(manifest.kernels),
        "npu_regions": msgspec.to_builtins(manifest.regions),
        "arena_bytes": manifest.firmware.arena_bytes,
        "memories": manifest.firmware.memories,
        "flash_bytes": manifest.firmware.flash_bytes,
        "stack_bytes": manifest.firmware.stack_bytes,
        "licenses": manifest.firmware.licenses,
        "npu_cycles": manifest.npu_cycles,
        "cpu_cost": manifest.cpu_cost,
        "milliseconds": manifest.milliseconds,
        "objective": manifest.objective,
        "modules": msgspec.to_builtins(compiled_modules(manifest)),
        "trials": manifest.trials.measured,
        "trials_reused": manifest.trials.reused,
        "trials_failed": manifest.trials.failed,
        "trials_of_other_environments": manifest.trials.of_other_environments,
        "tuning_interrupted": manifest.trials.interrupted,
        "accuracy": msgspec.to_builtins(manifest.accuracy),
        "layers": msgspec.to_builtins(manifest.layers),
        "warnings": msgspec.to_builtins(manifest.warnings),
        "seconds": manifest.seconds,
    }


def print_compile_report(build: Build) -> None:
    """Where each op runs and why, and what the build takes."""
    manifest = build.manifest
    table = Table("op", "shape", "runs on", "in", "from", title=manifest.model, box=None)
    table.add_column("NPU cycles", justify="right")
    table.add_column("why not on the NPU")
    for op in of_model(manifest.ops):
        cycles = "" if op.npu_cycles is None else f"{op.npu_cycles:,}"
        shape = "x".join(map(str, op.shape))
        table.add_row(op.op, shape, op.processor, op.function, op.where, cycles, op.reason)
    stdout.print(table)
    _print_zeros(manifest.ops)
    _print_modules(compiled_modules(manifest))
    print_facts(facts(build))
    for warning in manifest.warnings:
        stderr.print(f"warning: {warning}", highlight=False, soft_wrap=True)


def facts(build: Build) -> list[tuple[str, str]]:
    """What a build takes and how far it is from the float model, a name and a text each."""
    manifest = build.manifest
    target, trials = manifest.target, manifest.trials
    tuned = sum(kernel.trials > 1 for kernel in manifest.kernels)
    given = [kernel for kernel in manifest.kernels if kernel.given]
    return [
        ("target", f"{target.name} ({target.core.name}, {_npu(target)})"),
        *_simulated(target),
        ("regions", f"{len(manifest.regions)} NPU, {len(manifest.kernels)} CPU kernels, {tuned} of them tuned"),
        *([("by hand", f"{', '.join(kernel.name for kernel in given)} ({given[0].given})")] if given else []),
        *_dropped(manifest.dropped),
        ("arena", _bytes(manifest.firmware.arena_bytes)),
        ("flash", _bytes(manifest.firmware.flash_bytes)),
        ("stack", "no bound known" if (stack := manifest.firmware.stack_bytes) is None else f"at most {_bytes(stack)}"),
        ("links", ", ".join(f"{of} ({spdx})" for of, spdx in manifest.firmware.licenses.items()) or "no other code"),
        ("CPU cost", _trial_cost(manifest)),
        ("NPU cycles", f"{manifest.npu_cycles:,} (Vela's estimate)" if manifest.regions else "none"),
        *_time(manifest.milliseconds, target),
        (
            "trials",
            f"{trials.measured} measured, {trials.reused} from records"
            + (", then interrupted" if trials.interrupted else ""),
        ),
        ("SQNR", _accuracy(manifest.accuracy)),
        ("noisiest layers", _noisiest(manifest.layers)),
        ("roundings", _roundings(manifest.layers)),
        ("seconds", ", ".join(f"{name} {seconds:.1f}" for name, seconds in manifest.seconds.items())),
        ("build", str(build.folder)),
    ]


def _dropped(dropped: Dropped) -> list[tuple[str, str]]:
    """Dead channels, and what they would have cost."""
    if not dropped.channels:
        return []
    what = f"{dropped.channels:,} channels that are constant or unread, with {dropped.weights:,} weights"
    return [("left out", f"{what} and {dropped.macs:,} MACs")]


def _simulated(target: Target) -> list[tuple[str, str]]:
    """What stands in for a chip that QEMU does not have."""
    on = simulation_of(target)
    if not on.stands_in:
        return []
    return [("simulated on", f"{on.machine}: as large and as fast memories, at other addresses than the chip's")]


def _time(milliseconds: float | None, target: Target) -> list[tuple[str, str]]:
    """What an inference takes, where that is known."""
    if milliseconds is None:
        return []
    clocks = {"core": target.clock, "NPU": target.npu_clock if target.accelerator else None}
    at = ", ".join(f"{name} at {hertz / 1e6:g} MHz" for name, hertz in clocks.items() if hertz)
    rate = 1000 / milliseconds if milliseconds else 0.0
    each = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
    return [("time", f"{milliseconds:,.3f} ms an inference, {each} a second; {at}")]


def tuning_result(target: Target, result: TuningResult) -> dict:
    """What `tune --json` prints."""
    return {
        "trials": result.measured,
        "trials_reused": result.reused,
        "trials_failed": dict(result.failed),
        "trials_of_other_environments": result.ignored,
        "interrupted": result.interrupted,
        "seconds": round(result.seconds, 3),
        "best": [
            {"key": key, "schedule": str(record.schedule), "instructions": record.measurement.instructions,
             "cycles": record.measurement.cycles, "cycles_with_memory": record.measurement.cycles_with_memory,
             "milliseconds": _milliseconds(target, record.measurement)}
            for key, record in result.best.items()
        ],
    }  # fmt: skip


def measured_result(regions: Sequence[MeasuredRegion]) -> dict:
    """What `npu measured --json` prints."""
    return {"regions": [{**msgspec.to_builtins(region), "ratio": region.ratio} for region in regions]}


def print_measured(regions: Sequence[MeasuredRegion]) -> None:
    """Each region's cycles on the board and by Vela."""
    table = Table("region", "calls", "Vela's estimate", "on the board", "ratio", box=None)
    for region in regions:
        row = (f"{region.estimate:,}", f"{region.cycles:,.0f}", f"{region.ratio:.2f}")
        table.add_row(region.name, str(region.calls), *row)
    stdout.print(table)


def _milliseconds(target: Target, measured: Measurement) -> float | None:
    """Of a board's own cycles, or of the model's with memory."""
    return target.milliseconds(measured.cycles_with_memory if measured.instructions else measured.cycles)


def print_tuning_report(target: Target, result: TuningResult) -> None:
    """The best schedule of each task."""
    simulated = any(record.measurement.instructions for record in result.best.values())
    columns = ("instructions", "cycles (model)", "with memory") if simulated else ("cycles (board)",)
    times = {key: _milliseconds(target, record.measurement) for key, record in result.best.items()}
    timed = any(time is not None for time in times.values())
    table = Table("schedule", *columns, *["ms"] * timed, box=None)
    for key, record in result.best.items():
        found = record.measurement
        costs = (found.instructions, found.cycles, found.cycles_with_memory) if simulated else (found.cycles,)
        table.add_row(str(record.schedule), *map(_count, costs), *[f"{times[key] or 0:,.3f}"] * timed)
    stdout.print(table)
    failed = ", ".join(f"{count} {status}" for status, count in result.failed.items()) or "none failed"
    print_facts([("trials", f"{result.measured} measured, {result.reused} from records, {failed}"),
                  ("seconds", f"{result.seconds:.1f}")])  # fmt: skip
    if result.interrupted:
        stdout.print("interrupted; what was measured is recorded, and the same command goes on from there")


def run_result(report: Run) -> dict:
    """What `run --json` prints."""
    return {
        "build": str(report.build.folder),
        "samples": len(report.samples),
        "exact": report.exact,
        "difference": report.difference,
        **_counts(report.board),
        "traffic": msgspec.to_builtins(report.board.traffic),
        "further_window": _counts(report.board.further) if report.board.further else None,
        "npu_cycles": report.npu_cycles,
        "milliseconds": report.milliseconds,
        "npu": report.npu,
        "kernels": msgspec.to_builtins(report.board.calls),
        "ops": msgspec.to_builtins(profile(report)),
        "modules": msgspec.to_builtins(run_modules(profile(report))),
        "sqnr_db": list(report.sqnr_db),
        "outputs": [str(file) for file in report.files],
    }


def _counts(found: Costs) -> dict[str, int | None]:
    return {column: getattr(found, column) for column in _COSTS}


def print_run_report(report: Run) -> None:
    """Cost of each op, exactness and noise."""
    ops = [op for op in of_model(profile(report)) if op.cost is not None or op.processor == "cpu"]
    costs = {**_COSTS, "npu_cycles": "NPU cycles"}
    shown = [column for column in costs if any(getattr(op, column) is not None for op in ops)]
    table = Table("op", "shape", "on", "module", Column("from", no_wrap=True), box=None)
    for column in shown:
        table.add_column(costs[column], justify="right")
    table.add_column("bound by")
    for op in ops:
        texts = ["" if (cost := getattr(op, column)) is None else f"{cost:,}" for column in shown]
        table.add_row(op.op, "x".join(map(str, op.shape)), op.processor, op.module, op.where, *texts, op.bound)
    stdout.print(table)
    _print_modules(run_modules(profile(report)))
    noise = ", ".join("-" if value is None else f"{value:.1f}" for value in report.sqnr_db)
    print_facts(
        [
            ("exact", _exactness(report)),
            ("CPU kernels", _cpu_cost(report.board)),
            *([("further windows", _cpu_cost(report.board.further))] if report.board.further else []),
            ("memory", _memory_traffic(report)),
            ("NPU", f"{report.npu_cycles:,} cycles (Vela's estimate); {DESCRIPTION[report.npu]}"),
            *_time(report.milliseconds, report.build.manifest.target),
            ("SQNR", f"{noise} dB against float, per output"),
            ("noisiest layers", f"{_noisiest(report.build.manifest.layers)}, on calibration data"),
            *([("outputs", ", ".join(map(str, report.files)))] if report.files else []),
        ]
    )


def _trial_cost(manifest: Manifest) -> str:
    """What the core takes, by the trials of its kernels."""
    if not manifest.kernels:
        return "none"
    if manifest.cpu_cost is None:
        return "not known: no trial can tell right from wrong for a kernel"
    gain = f", {manifest.first_cpu_cost:,} untuned" if manifest.first_cpu_cost > manifest.cpu_cost else ""
    return f"{manifest.cpu_cost:,} {UNITS[manifest.objective]} in trials{gain}"


def _print_zeros(ops: Sequence[PlacedOp]) -> None:
    """Layers with many zeros among their weights, and whether an Ethos-U85 leaves their products out."""
    many = [op for op in ops if op.zeros is not None and op.zeros >= _MANY_ZEROS]
    if not many:
        return
    table = Table("weights of", "from", Column("zeros", justify="right"), "2:4 on Ethos-U85", box=None)
    for op in many:
        table.add_row(op.op, op.where, f"{op.zeros:.0%}", "yes" if op.sparsity == SPARSE else op.sparsity)
    stdout.print(table)


def _print_modules(costs: Sequence[ModuleCost]) -> None:
    """What each module costs on either processor, where there are several."""
    if len(costs) < 2:
        return
    table = Table("module or line", Column("CPU", justify="right"), Column("NPU cycles", justify="right"), box=None)
    for cost in costs:
        table.add_row(cost.module, *("" if number is None else f"{number:,}" for number in (cost.cpu, cost.npu)))
    stdout.print(table)


def sensitivity_result(found: Sensitivity) -> dict:
    """What `accuracy --json` prints."""
    return {
        "samples": found.samples,
        "exact": found.exact,
        "cost": msgspec.to_builtins(found.cost),
        "causes": [_cause(one) for one in found.scanned.causes],
        "simulated_db": found.scanned.simulated_db,
        "raised": [
            {"names": [*one.quantization.int16, *one.quantization.exclude], "simulated_db": _finite(one.simulated_db)}
            for one in found.scanned.steps
        ],
        "layers": msgspec.to_builtins(found.layers),
        "scores": msgspec.to_builtins(found.scores),
        "advice": msgspec.to_builtins(found.advice),
        "command": found.command,
    }


def _cause(one: Cause) -> dict:
    where = f"{Path(one.origin.file).name}:{one.origin.line}" if one.origin.line else ""
    return {"name": one.name, "kind": one.kind, "alone_db": _finite(one.alone_db), "where": where}


def _finite(ratio: float) -> float | None:
    return ratio if math.isfinite(ratio) else None


def print_scan(scanned: Scanned) -> None:
    """What each tensor alone leaves of the worst output, the noisiest first, and what raising them gives."""
    if not scanned.causes:
        return
    table = Table("alone dB", "tensor", "of", "from", box=None)
    shown = [one for one in map(_cause, scanned.causes) if one["alone_db"] is not None]
    for one in shown[:_CAUSES_SHOWN]:
        table.add_row(f"{one['alone_db']:.1f}", one["kind"], one["name"], one["where"])
    stdout.print(table)
    if len(shown) > _CAUSES_SHOWN:
        stdout.print(f"{len(shown) - _CAUSES_SHOWN} more that make less noise")
    choices = Table("raised, with those above", "to", "simulated dB", box=None)
    choices.add_row("nothing", "", _ratio(scanned.simulated_db))
    for step in scanned.steps:
        kind = "int16" if step.raised.kind == "activations" else "f32"
        choices.add_row(step.raised.name, kind, _ratio(_finite(step.simulated_db)))
    stdout.print(choices)


def print_sensitivity(found: Sensitivity) -> None:
    """What the build gives and takes, and what the one that meets the goal does; a task's metric; the command."""
    choices = Table("build", "SQNR dB", "cycles", "flash B", "arena B", box=None)
    choices.add_row("as asked", *_cost(found.cost))
    if found.advice:
        choices.add_row("for the goal", *_cost(found.advice.cost, found.cost))
    stdout.print(choices)
    if found.scores:
        scores = Table("metric", "PyTorch, float", "integer module", "board", box=None)
        for score in found.scores:
            scores.add_row(score.name, *(f"{value:.4g}" for value in (score.in_float, score.integer, score.board)))
        stdout.print(scores)
    equal = "equals the integer module" if found.exact else "does NOT equal the integer module"
    print_facts([("samples", str(found.samples)), ("board", equal)])
    if found.advice:
        kept = "" if found.advice.in_budget else ", more cycles than the budget"
        line = f"{found.goal}: {found.advice.value:.4g}{kept}: {found.command}"
        stdout.print(line, markup=False, highlight=False, soft_wrap=True)
    elif found.goal:
        stdout.print(f"{found.goal}: nothing that was tried gives it", markup=False)


def _ratio(ratio: float | None) -> str:
    return "exact" if ratio is None else f"{ratio:.1f}"


def _cost(cost: Cost, base: Cost | None = None) -> list[str]:
    decibels = _ratio(cost.sqnr_db)
    if base and cost.sqnr_db is not None and base.sqnr_db is not None:
        decibels += f" ({cost.sqnr_db - base.sqnr_db:+.1f})"
    cycles = f"{cost.cycles:,}" + (f" ({cost.cycles / base.cycles - 1:+.1%})" if base and base.cycles else "")
    return [decibels, cycles, f"{cost.flash_bytes:,}", f"{cost.arena_bytes:,}"]


def fit_result(points: Sequence[Point]) -> dict:
    """What `fit --json` prints."""
    return {"points": msgspec.to_builtins(list(points))}


def print_fit(points: Sequence[Point]) -> None:
    """Each way to run a model: what it takes, drawn too, and what runs strip by strip."""
    timed = any(point.milliseconds is not None for point in points)
    heads = ("way", "--arena-size", "", "flash", "cost", *(["ms"] * timed), "of the fastest", "", "MACs")
    table = Table(*heads, "calls in streams", box=None)
    largest, dearest = max(point.arena for point in points), max(point.cost for point in points)
    fastest, products = points[0].cost, min(point.products for point in points)
    for number, point in enumerate(points, 1):
        streams = ", ".join(f"{names[0]} .. {names[-1]}" for names in point.streams)
        table.add_row(
            str(number),
            f"{point.arena:,}",
            Bar(largest, 0, point.arena, width=_BAR),
            f"{point.flash:,}",
            f"{point.cost:,.0f}",
            *([f"{point.milliseconds or 0:,.3f}"] * timed),
            f"{point.cost / fastest if fastest else 1:.3f}",
            Bar(dearest, 0, point.cost, width=_BAR),
            f"{point.products / products if products else 1:.3f}x",
            streams,
        )
    stdout.print(table)


def doctor_result(findings: Sequence[Finding]) -> dict:
    """What `doctor --json` prints."""
    return {"findings": msgspec.to_builtins(list(findings))}


def print_findings(findings: Sequence[Finding]) -> None:
    """What was looked at, and what to do where something is wrong."""
    table = Table("", "", "found", box=None)
    for one in findings:
        table.add_row(one.name, one.state, one.found)
    stdout.print(table)
    for one in findings:
        if one.hint:
            stderr.print(f"{one.state}: {one.name} {one.found}\n  try: {one.hint}", highlight=False, soft_wrap=True)


def print_ops(rows: Sequence[Mapping[str, str]]) -> None:
    """The table of ATen ops: in what form each computes, and what of it each NPU takes."""
    table = Table(*rows[0], box=None)
    for row in rows:
        table.add_row(*row.values())
    stdout.print(table)


def print_supported_ops(rows: Sequence[Mapping[str, str]]) -> None:
    """The NPU's acceptance table: each op, its element types, the conditions, and where Vela is tried first."""
    table = Table("op", "U55, U65", "U85", "conditions", "tried where it is otherwise", box=None)
    for row in rows:
        table.add_row(row["op"], row["u55_u65"] or "no", row["u85"] or "no", row["conditions"], row["suspicions"])
    stdout.print(table)


def _exactness(report: Run) -> str:
    if report.exact:
        return f"yes, {len(report.samples)} samples"
    if report.defined:
        return f"NO: {report.difference}"
    return f"not to the bit, which TOSA does not define for all of its float ops: {report.difference}"


def _accuracy(outputs: Sequence[OutputAccuracy]) -> str:
    known = ", ".join("exact" if output.sqnr_db is None else _decibels(output) for output in outputs)
    return f"{known} dB against float on calibration data, per output, of its variance" if known else _NOTHING


def _decibels(output: OutputAccuracy) -> str:
    within = f" ({output.told_db:.1f} within channels)" if output.told_db != output.sqnr_db else ""
    return f"{output.sqnr_db:.1f}{within}"


def _noisiest(layers: Sequence[LayerAccuracy]) -> str:
    return ", ".join(f"{layer.sqnr_db:.1f} dB {layer.where} {layer}" for layer in worst(layers, 3)) or "not known"


def _roundings(layers: Sequence[LayerAccuracy]) -> str:
    """How the integer module differs from PyTorch's simulation, given the same integers."""
    other = sorted((layer for layer in layers if layer.quanta), key=lambda layer: -layer.quanta)
    if not layers:
        return "not known"
    if not other:
        return f"all {len(layers)} layers equal PyTorch's simulation"
    most = f"{other[0].quanta} at most, {other[0].where} {other[0]}"
    return f"{len(other)} of {len(layers)} layers differ from PyTorch's simulation in steps ({most})"


def _npu(target: Target) -> str:
    """The NPU, and the memories that Vela assumes."""
    if target.accelerator is None:
        return "no NPU"
    usual = find_accelerator(target.accelerator)
    mode, system = target.memory_mode or usual.memory_mode, target.system_config or usual.system_config
    return f"{target.accelerator}, {mode}, {system}"


def _cpu_cost(found: Costs) -> str:
    """Only what is known: a runner may count nothing, a core have no cycle model."""
    costs = [(getattr(found, column), heading) for column, heading in _COSTS.items()]
    return ", ".join(f"{count:,} {heading}" for count, heading in costs if count is not None) or "not counted"


def _memory_traffic(report: Run) -> str:
    used = [traffic for traffic in report.board.traffic if traffic.read or traffic.written]
    return "\n".join(map(_moved, used)) or "not counted"


def _moved(each: Traffic) -> str:
    """What a memory was asked for, and how long the core waits for it, by what for."""
    causes = {
        f"for {each.filled:,} fills": each.fill_waits,
        f"for {each.written_back:,} write-backs" if each.written_back else "to write": each.write_waits,
        f"for {each.fetched:,} fetches of code": each.fetch_waits,
    }
    waits = ", ".join(f"{waits:,} cycles {cause}" for cause, waits in causes.items() if waits)
    return f"{each.memory}: {each.read:,} B read, {each.written:,} B written; " + (waits or "no wait")


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _bytes(count: int) -> str:
    return f"{count:,} B ({count / 1024:.1f} KiB)"
