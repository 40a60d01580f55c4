"""What searches found, for people and as JSON: tuning, accuracy, memory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.bar import Bar
from rich.table import Table

from tosaic.backends.target import Target
from tosaic.compiler.fitting.fitter import Point
from tosaic.compiler.sensitivity import Cost, Sensitivity
from tosaic.terminal.console import print_facts, stdout
from tosaic.tuner.measurement import Measurement
from tosaic.tuner.tune import TuningResult

_BAR = 24
"""Columns of a drawn bar."""


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


def sensitivity_result(found: Sensitivity) -> dict:
    """What `accuracy --json` prints."""
    return {
        "samples": found.samples,
        "exact": found.exact,
        "cost": msgspec.to_builtins(found.cost),
        "layers": msgspec.to_builtins(found.layers),
        "alternatives": msgspec.to_builtins(found.alternatives),
        "scores": msgspec.to_builtins(found.scores),
        "advice": msgspec.to_builtins(found.advice),
        "command": found.command,
    }


def print_sensitivity(found: Sensitivity, least_db: float | None) -> None:
    """Each layer, worst first; what raising the worst would give and take; a task's metric; the advice."""
    table = Table("SQNR dB", "op", "module", "from", box=None)
    for layer in found.layers:
        table.add_row(f"{layer.sqnr_db:.1f}", layer.op, layer.module, layer.where)
    stdout.print(table)
    choices = Table("raised", "to", "SQNR dB", "cycles", "flash B", "arena B", box=None)
    choices.add_row("nothing", "", *_cost(found.cost))
    for one in found.alternatives:
        names = " ".join(one.layer.names) if one.layer else "everything"
        choices.add_row(names, one.kind, *_cost(one.cost, found.cost))
    stdout.print(choices)
    if found.scores:
        scores = Table("metric", "PyTorch, float", "integer module", "board", box=None)
        for score in found.scores:
            scores.add_row(score.name, *(f"{value:.4g}" for value in (score.in_float, score.integer, score.board)))
        stdout.print(scores)
    equal = "equals the integer module" if found.exact else "does NOT equal the integer module"
    print_facts([("samples", str(found.samples)), ("board", equal)])
    if found.advice:
        stdout.print(f"{least_db:g} dB: {found.command}", markup=False, highlight=False, soft_wrap=True)
    elif least_db is not None:
        stdout.print(f"{least_db:g} dB: nothing that was tried gives them; try more layers with --layers", markup=False)


def _cost(cost: Cost, base: Cost | None = None) -> list[str]:
    decibels = "exact" if cost.sqnr_db is None else f"{cost.sqnr_db:.1f}"
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


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"
