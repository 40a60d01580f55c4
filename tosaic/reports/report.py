"""Results as JSON objects and as tables."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.table import Column, Table

from tosaic.backends.npu import SPARSE
from tosaic.backends.npus import find_accelerator
from tosaic.backends.simulators.memory_model import Traffic
from tosaic.backends.simulators.run import Costs
from tosaic.backends.simulators.stand_in import simulation_of
from tosaic.backends.target import Target
from tosaic.builds.accuracy import LayerAccuracy, OutputAccuracy
from tosaic.builds.build import BuildFolder
from tosaic.builds.manifest import Manifest, PlacedOp
from tosaic.compiler.layers import worst
from tosaic.reports.methods import compiled_methods, generation_facts, method_facts, run_methods
from tosaic.reports.profile import ModuleCost, compiled_modules, of_model, profile, run_modules
from tosaic.runs.npu_execution import DESCRIPTION
from tosaic.runs.running import Run
from tosaic.support.functions import Dropped
from tosaic.support.quantization import CoarserWeights
from tosaic.terminal.console import print_facts, stderr, stdout
from tosaic.terminal.progress import UNITS

_NOTHING = "no output to judge"
_MANY_ZEROS = 0.4
_COSTS = {"instructions": "instructions", "cycles": "cycles (model)", "cycles_with_memory": "cycles with memory"}


def compile_result(build: BuildFolder) -> dict:
    """What `compile --json` prints."""
    manifest = build.manifest
    return {
        "build": str(build.folder),
        "model": manifest.model,
        "target": manifest.target.name,
        "accelerator": manifest.target.accelerator,
        "dropped": dict(manifest.dropped._asdict()),
        "weights": dict(manifest.weights._asdict()) if manifest.weights else None,
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
        "methods": msgspec.to_builtins(compiled_methods(build)),
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


def print_compile_report(build: BuildFolder) -> None:
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


def facts(build: BuildFolder) -> list[tuple[str, str]]:
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
        *_coarser(manifest.weights),
        ("arena", _bytes(manifest.firmware.arena_bytes)),
        ("flash", _bytes(manifest.firmware.flash_bytes)),
        ("stack", "no bound known" if (stack := manifest.firmware.stack_bytes) is None else f"at most {_bytes(stack)}"),
        ("links", ", ".join(f"{of} ({spdx})" for of, spdx in manifest.firmware.licenses.items()) or "no other code"),
        ("CPU cost", _trial_cost(manifest)),
        ("NPU cycles", f"{manifest.npu_cycles:,} (its compiler's estimate)" if manifest.regions else "none"),
        *_time(manifest.milliseconds, target),
        *method_facts(methods := compiled_methods(build)),
        *generation_facts(build, methods, manifest.milliseconds),
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


def _coarser(weights: CoarserWeights | None) -> list[tuple[str, str]]:
    """Layers whose weights have coarser steps, and what that saves and loses."""
    if weights is None:
        return []
    saved = 1 - weights.encoded_bytes / max(1, weights.finest_bytes)
    steps = f"coarser steps in {weights.layers} of {weights.of_layers} layers"
    size = f"{weights.encoded_bytes:,} of {weights.finest_bytes:,} encoded bytes ({saved:.1%} saved)"
    ratios = ["no noise" if db is None else f"{db:.1f} dB" for db in (weights.sqnr_db, weights.finest_db)]
    return [("weights", f"{steps}: {size}; {ratios[0]} of {ratios[1]}, on samples that they were not fitted to")]


def _simulated(target: Target) -> list[tuple[str, str]]:
    """What stands in for a chip or a core that QEMU does not have."""
    said = _stand_in(target)
    return [("simulated on", said)] if said else []


def _stand_in(target: Target) -> str:
    on = simulation_of(target)
    said = [f"its code on a {on.core}"] if on.core and on.core != target.core.name.partition("+")[0] else []
    said += ["as large and as fast memories, at other addresses than the chip's"] if on.stands_in else []
    return f"{on.machine}: {'; '.join(said)}" if said else ""


def _time(milliseconds: float | None, target: Target) -> list[tuple[str, str]]:
    """What an inference takes, where that is known."""
    if milliseconds is None:
        return []
    clocks = {"core": target.clock, "NPU": target.npu_clock if target.accelerator else None}
    at = ", ".join(f"{name} at {hertz / 1e6:g} MHz" for name, hertz in clocks.items() if hertz)
    rate = 1000 / milliseconds if milliseconds else 0.0
    each = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
    return [("time", f"{milliseconds:,.3f} ms an inference, {each} a second; {at}")]


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
        "methods": msgspec.to_builtins(run_methods(report)),
        "simulated_on": _stand_in(report.build.manifest.target),
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
            *_simulated(report.build.manifest.target),
            ("CPU kernels", _cpu_cost(report.board)),
            *([("further windows", _cpu_cost(report.board.further))] if report.board.further else []),
            ("memory", _memory_traffic(report)),
            ("NPU", f"{report.npu_cycles:,} cycles (its compiler's estimate); {DESCRIPTION[report.npu]}"),
            *_time(report.milliseconds, report.build.manifest.target),
            *method_facts(methods := run_methods(report)),
            *generation_facts(report.build, methods, report.milliseconds),
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
    """Layers with many zeros among their weights, and whether the NPU leaves their products out."""
    many = [op for op in ops if op.zeros is not None and op.zeros >= _MANY_ZEROS]
    if not many:
        return
    numbers = [Column(name, justify="right") for name in ("zeros", "encoded bits")]
    table = Table("weights of", "from", *numbers, "2:4 on the NPU", box=None)
    for op in many:
        bits = "" if op.weight_bits is None else f"{op.weight_bits:.2f}"
        table.add_row(op.op, op.where, f"{op.zeros:.0%}", bits, "yes" if op.sparsity == SPARSE else op.sparsity)
    stdout.print(table)


def _print_modules(costs: Sequence[ModuleCost]) -> None:
    """What each module costs on either processor, where there are several."""
    if len(costs) < 2:
        return
    table = Table("module or line", Column("CPU", justify="right"), Column("NPU cycles", justify="right"), box=None)
    for cost in costs:
        table.add_row(cost.module, *("" if number is None else f"{number:,}" for number in (cost.cpu, cost.npu)))
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
    return ", ".join(part for part in (target.accelerator, mode, system) if part)


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


def _bytes(count: int) -> str:
    return f"{count:,} B ({count / 1024:.1f} KiB)"
