"""What searches found, for people and as JSON: tuning, accuracy, memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.bar import Bar
from rich.table import Table

from tosaic.backends.target import Target
from tosaic.compiler.fitting.fitter import Point
from tosaic.compiler.goals import BuildCost, Scanned, Sensitivity
from tosaic.compiler.weight_front import WeightFront
from tosaic.frontend import Cause
from tosaic.terminal.console import print_facts, stdout
from tosaic.tuner.measurement import Measurement
from tosaic.tuner.tune import TuningResult

_CAUSES_SHOWN = 24
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


def _ratio(ratio: float | None) -> str:
    return "exact" if ratio is None else f"{ratio:.1f}"


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


def _cost(cost: BuildCost, base: BuildCost | None = None) -> list[str]:
    decibels = _ratio(cost.sqnr_db)
    if base and cost.sqnr_db is not None and base.sqnr_db is not None:
        decibels += f" ({cost.sqnr_db - base.sqnr_db:+.1f})"
    cycles = f"{cost.cycles:,}" + (f" ({cost.cycles / base.cycles - 1:+.1%})" if base and base.cycles else "")
    return [decibels, cycles, f"{cost.flash_bytes:,}", f"{cost.arena_bytes:,}"]


def weights_result(front: WeightFront) -> dict:
    """What `weights --json` prints."""
    return {
        "points": [
            {
                "budget": str(point.budget),
                "weights": point.weights._asdict(),
                "cost": msgspec.to_builtins(point.cost),
                "metrics": point.metrics,
            }
            for point in front.points
        ],
        "within": None if front.within is None else front.within + 1,
    }


def print_weights(front: WeightFront) -> None:
    """Each build: the bytes of its weights as the NPU reads them, what it gives, and what it takes."""
    metrics, finest = list(front.points[0].metrics), front.points[0]
    heads = ("build", "--weights", "encoded B", "saved", *metrics, "SQNR dB", "cycles", "flash B", "arena B")
    table = Table(*heads, box=None)
    for number, point in enumerate(front.points, 1):
        saved = 1 - point.weights.encoded_bytes / max(1, finest.weights.encoded_bytes)
        table.add_row(
            str(number),
            str(point.budget),
            f"{point.weights.encoded_bytes:,}",
            f"{saved:.1%}",
            *(f"{point.metrics[name]:.4g}" for name in metrics),
            *_cost(point.cost, finest.cost if point is not finest else None),
        )
    stdout.print(table)
    if front.within is not None:
        stdout.print(f"build {front.within + 1} has the fewest bytes of those that lose no more than is allowed")


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
