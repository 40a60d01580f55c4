"""Results as JSON objects and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rich.table import Table

from tosaic.build import Build
from tosaic.console import stdout
from tosaic.npu_execution import DESCRIPTION
from tosaic.running import RunReport
from tosaic.tuner.tune import TuningResult

_COMPILE_KEYS = (
    "model", "target", "accelerator", "regions", "ops_per_processor", "ops", "kernels", "npu_regions", "arena_bytes",
    "memories", "flash_bytes", "npu_cycles", "trials", "trials_reused", "trials_failed", "trials_of_other_environments",
    "tuning_interrupted", "seconds",
)  # fmt: skip


def compile_result(build: Build) -> dict:
    """What `compile --json` prints."""
    return {"build": str(build.folder), **{key: build.manifest[key] for key in _COMPILE_KEYS}}


def print_compile_report(build: Build) -> None:
    """Where each op runs and why, and what the build takes."""
    manifest = build.manifest
    table = Table("op", "shape", "runs on", "in", "from", "why not on the NPU", title=f"{manifest['model']}", box=None)
    for op in manifest["ops"]:
        shape = "x".join(map(str, op["shape"]))
        table.add_row(op["op"], shape, op["processor"], op["function"], op["where"], op["reason"])
    stdout.print(table)
    tuned = sum(kernel["trials"] > 1 for kernel in manifest["kernels"])
    facts = [
        ("target", f"{manifest['target']} ({manifest['core']}, {manifest['accelerator'] or 'no NPU'})"),
        (
            "regions",
            f"{manifest['regions']['npu']} NPU, {manifest['regions']['cpu']} CPU kernels, {tuned} of them tuned",
        ),
        ("arena", _bytes(manifest["arena_bytes"])),
        ("flash", _bytes(manifest["flash_bytes"])),
        ("NPU cycles", f"{manifest['npu_cycles']:,} (Vela's estimate)" if manifest["npu_regions"] else "none"),
        (
            "trials",
            f"{manifest['trials']} measured, {manifest['trials_reused']} from records"
            + (", then interrupted" if manifest["tuning_interrupted"] else ""),
        ),
        ("seconds", ", ".join(f"{name} {seconds:.1f}" for name, seconds in manifest["seconds"].items())),
        ("build", str(build.folder)),
    ]
    _print_facts(facts)


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
             "cycles": record.measurement.cycles}
            for key, record in result.best.items()
        ],
    }  # fmt: skip


def print_tuning_report(result: TuningResult) -> None:
    """The best schedule of each task."""
    table = Table("schedule", "instructions", "cycles (model)", box=None)
    for record in result.best.values():
        found = record.measurement
        table.add_row(str(record.schedule), f"{found.instructions:,}", f"{found.cycles:,}")
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
        "npu_cycles": report.npu_cycles,
        "npu": report.npu,
        "kernels": [asdict(call) for call in report.board.calls],
        "sqnr_db": list(report.sqnr_db),
        "outputs": [str(file) for file in report.files],
    }


def print_run_report(report: RunReport) -> None:
    """Cost per call, exactness and noise."""
    table = Table("call", "on", "from", box=None)
    for column in ("instructions", "cycles (model)"):
        table.add_column(column, justify="right")
    for call in report.board.calls:
        costs = ["-", "-"] if call.processor == "npu" else [f"{call.instructions:,}", f"{call.cycles:,}"]
        table.add_row(call.name, call.processor, call.where, *costs)
    stdout.print(table)
    noise = ", ".join("-" if value is None else f"{value:.1f}" for value in report.sqnr_db)
    _print_facts(
        [
            ("exact", f"yes, {len(report.samples)} samples" if report.exact else f"NO: {report.difference}"),
            ("CPU kernels", f"{report.board.instructions:,} instructions, {report.board.cycles:,} modeled cycles"),
            ("NPU", f"{report.npu_cycles:,} cycles (Vela's estimate); {DESCRIPTION[report.npu]}"),
            ("SQNR", f"{noise} dB against float, per output"),
            ("outputs", ", ".join(map(str, report.files))),
        ]
    )


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


def _bytes(count: int) -> str:
    return f"{count:,} B ({count / 1024:.1f} KiB)"
