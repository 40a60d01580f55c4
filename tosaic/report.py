"""Results as JSON objects and as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from rich.table import Table

from tosaic.accuracy import OutputAccuracy
from tosaic.backends.target import Target
from tosaic.build import Build
from tosaic.console import stderr, stdout
from tosaic.npu_execution import DESCRIPTION
from tosaic.running import RunReport
from tosaic.tuner.tune import TuningResult

_COSTS = {"instructions": "instructions", "cycles": "cycles (model)", "cycles_with_memory": "cycles with memory"}


def compile_result(build: Build) -> dict:
    """What `compile --json` prints."""
    manifest = build.manifest
    return {
        "build": str(build.folder),
        "model": manifest.model,
        "target": manifest.target.name,
        "accelerator": manifest.target.accelerator,
        "regions": {"npu": len(manifest.regions), "cpu": len(manifest.kernels)},
        "ops_per_processor": manifest.ops_per_processor,
        "ops": msgspec.to_builtins(manifest.ops),
        "kernels": msgspec.to_builtins(manifest.kernels),
        "npu_regions": msgspec.to_builtins(manifest.regions),
        "arena_bytes": manifest.firmware.arena_bytes,
        "memories": manifest.firmware.memories,
        "flash_bytes": manifest.firmware.flash_bytes,
        "npu_cycles": manifest.npu_cycles,
        "trials": manifest.trials.measured,
        "trials_reused": manifest.trials.reused,
        "trials_failed": manifest.trials.failed,
        "trials_of_other_environments": manifest.trials.of_other_environments,
        "tuning_interrupted": manifest.trials.interrupted,
        "accuracy": msgspec.to_builtins(manifest.accuracy),
        "warnings": msgspec.to_builtins(manifest.warnings),
        "seconds": manifest.seconds,
    }


def print_compile_report(build: Build) -> None:
    """Where each op runs and why, and what the build takes."""
    manifest = build.manifest
    table = Table("op", "shape", "runs on", "in", "from", "why not on the NPU", title=manifest.model, box=None)
    for op in manifest.ops:
        table.add_row(op.op, "x".join(map(str, op.shape)), op.processor, op.function, op.where, op.reason)
    stdout.print(table)
    target, trials = manifest.target, manifest.trials
    tuned = sum(kernel.trials > 1 for kernel in manifest.kernels)
    facts = [
        ("target", f"{target.name} ({target.core.name}, {target.accelerator or 'no NPU'})"),
        ("regions", f"{len(manifest.regions)} NPU, {len(manifest.kernels)} CPU kernels, {tuned} of them tuned"),
        ("arena", _bytes(manifest.firmware.arena_bytes)),
        ("flash", _bytes(manifest.firmware.flash_bytes)),
        ("NPU cycles", f"{manifest.npu_cycles:,} (Vela's estimate)" if manifest.regions else "none"),
        (
            "trials",
            f"{trials.measured} measured, {trials.reused} from records"
            + (", then interrupted" if trials.interrupted else ""),
        ),
        ("SQNR", _accuracy(manifest.accuracy)),
        ("seconds", ", ".join(f"{name} {seconds:.1f}" for name, seconds in manifest.seconds.items())),
        ("build", str(build.folder)),
    ]
    _print_facts(facts)
    for warning in manifest.warnings:
        stderr.print(f"warning: {warning}", markup=False, highlight=False, soft_wrap=True)


def tuning_result(result: TuningResult) -> dict:
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
             "cycles": record.measurement.cycles, "cycles_with_memory": record.measurement.cycles_with_memory}
            for key, record in result.best.items()
        ],
    }  # fmt: skip


def print_tuning_report(result: TuningResult) -> None:
    """The best schedule of each task."""
    table = Table("schedule", "instructions", "cycles (model)", "with memory", box=None)
    for record in result.best.values():
        found = record.measurement
        table.add_row(str(record.schedule), _count(found.instructions), _count(found.cycles),
                      _count(found.cycles_with_memory))  # fmt: skip
    stdout.print(table)
    failed = ", ".join(f"{count} {status}" for status, count in result.failed.items()) or "none failed"
    _print_facts([("trials", f"{result.measured} measured, {result.reused} from records, {failed}"),
                  ("seconds", f"{result.seconds:.1f}")])  # fmt: skip
    if result.interrupted:
        stdout.print("interrupted; what was measured is recorded, and the same command goes on from there")


def run_result(report: RunReport) -> dict:
    """What `run --json` prints."""
    return {
        "build": str(report.build.folder),
        "samples": len(report.samples),
        "exact": report.exact,
        "difference": report.difference,
        "instructions": report.board.instructions,
        "cycles": report.board.cycles,
        "cycles_with_memory": report.board.cycles_with_memory,
        "traffic": msgspec.to_builtins(report.board.traffic),
        "npu_cycles": report.npu_cycles,
        "npu": report.npu,
        "kernels": msgspec.to_builtins(report.board.calls),
        "sqnr_db": list(report.sqnr_db),
        "outputs": [str(file) for file in report.files],
    }


def print_run_report(report: RunReport) -> None:
    """Cost per call, exactness and noise."""
    table = Table("call", "on", "from", box=None)
    shown = [column for column in _COSTS if getattr(report.board, column) is not None]
    for column in shown:
        table.add_column(_COSTS[column], justify="right")
    for call in report.board.calls:
        costs = ["-" if call.processor == "npu" else _count(getattr(call, column)) for column in shown]
        table.add_row(call.name, call.processor, call.where, *costs)
    stdout.print(table)
    noise = ", ".join("-" if value is None else f"{value:.1f}" for value in report.sqnr_db)
    _print_facts(
        [
            ("exact", _exactness(report)),
            ("CPU kernels", _cpu_cost(report)),
            ("memory", _memory_traffic(report)),
            ("NPU", f"{report.npu_cycles:,} cycles (Vela's estimate); {DESCRIPTION[report.npu]}"),
            ("SQNR", f"{noise} dB against float, per output"),
            ("outputs", ", ".join(map(str, report.files))),
        ]
    )


def targets_result(targets: Iterable[Target]) -> dict:
    """What `targets --json` prints."""
    return {
        "targets": [
            {
                "name": target.name,
                "core": target.core.name,
                "isa": list(target.core.isa),
                "cycle_model": target.core.pipeline is not None,
                "accelerator": target.accelerator,
                "machine": target.board.machine,
                "layout": msgspec.to_builtins(target.layout),
            }
            for target in targets
        ]
    }


def print_targets(targets: Iterable[Target]) -> None:
    """Each target's core and NPU, and which memories hold what."""
    table = Table("target", "core", "NPU", "holds", "memory", "at", "size", "bytes/cycle", "latency", box=None)
    for target in targets:
        layout = target.layout
        uses = [("code", layout.code), ("stack", layout.stack), *(("arena", memory) for memory in layout.arena),
                ("constants", layout.constants)]  # fmt: skip
        names = [target.name, target.core.name, target.accelerator or "no NPU"]
        for use, memory in uses:
            speed = ["-" if number is None else f"{number:g}" for number in (memory.bytes_per_cycle, memory.latency)]
            table.add_row(*names, use, memory.name, f"{memory.base:#010x}", f"{memory.size // 1024:,} KiB", *speed)
            names = ["", "", ""]
    stdout.print(table)


def print_supported_ops(rows: Sequence[Mapping[str, str]]) -> None:
    """The NPU's acceptance table: each op, its element types, and the conditions."""
    table = Table("op", "U55, U65", "U85", "conditions", box=None)
    for row in rows:
        table.add_row(row["op"], row["u55_u65"] or "no", row["u85"] or "no", row["conditions"])
    stdout.print(table)


def _print_facts(facts: list[tuple[str, str]]) -> None:
    table = Table(show_header=False, box=None)
    for name, value in facts:
        table.add_row(f"[bold]{name}[/]", value)
    stdout.print(table)


def _exactness(report: RunReport) -> str:
    if report.exact:
        return f"yes, {len(report.samples)} samples"
    if report.defined:
        return f"NO: {report.difference}"
    return f"not to the bit, which TOSA does not define for all of its float ops: {report.difference}"


def _accuracy(outputs: Sequence[OutputAccuracy]) -> str:
    known = ", ".join("exact" if output.sqnr_db is None else f"{output.sqnr_db:.1f}" for output in outputs)
    return f"{known} dB against float on calibration data, per output" if known else "no output to judge"


def _cpu_cost(report: RunReport) -> str:
    """Only what is known: a runner may count nothing, a core have no cycle model."""
    costs = [(getattr(report.board, column), heading) for column, heading in _COSTS.items()]
    return ", ".join(f"{count:,} {heading}" for count, heading in costs if count is not None) or "not counted"


def _memory_traffic(report: RunReport) -> str:
    used = [traffic for traffic in report.board.traffic if traffic.read or traffic.written]
    texts = (
        f"{each.memory}: {each.read:,} B read, {each.written:,} B written, {each.waits:,} cycles waited"
        for each in used
    )
    return "\n".join(texts) or "not counted"


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _bytes(count: int) -> str:
    return f"{count:,} B ({count / 1024:.1f} KiB)"
