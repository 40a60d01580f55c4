"""The main job on a real model and real data: compile, tune, run held-back scans on simulated boards, report.

`make run`, or `python examples/digits/run.py --target cortex-m55`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import tosaic
from tosaic.terminal.console import quiet_libraries

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from model import HELD_BACK, SEGMENTS, digits, scans  # noqa: E402


@click.command()
@click.option("--target", "targets", multiple=True, default=("corstone-300", "cortex-m55"), show_default=True)
@click.option("--trials", default=200, show_default=True, help="Tuning trials over all CPU kernels.")
@click.option("--images", default=200, show_default=True, help=f"Held-back scans to run, at most {HELD_BACK}.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("build/digits"), show_default=True)
def main(targets: Sequence[str], trials: int, images: int, output: Path) -> None:
    """Compile the digit reader for each target, run it on the simulated board, and print what happened."""
    with quiet_libraries():
        exact = compare(targets, trials, images, output)
    if not exact:
        raise SystemExit(1)


def compare(targets: Sequence[str], trials: int, images: int, output: Path) -> bool:
    """Whether every board's outputs equal the reference's, after printing all reports."""
    pixels, labels = (tensor[-HELD_BACK:][:images].numpy() for tensor in scans())
    table = Table("computed by", title=f"{len(labels)} held-back scans", title_justify="left", box=None)
    for column in (
        "digits right",
        "displays right",
        "instructions",
        "cycles (model)",
        "NPU cycles",
        "arena B",
        "flash B",
    ):
        table.add_column(column, justify="right")
    table.add_row("PyTorch, float", f"{_accuracy(_float_logits(pixels), labels):.2%}")

    exact = True
    for target in targets:
        build = tosaic.compile(
            f"{HERE / 'model.py'}:digits",
            target=target,
            tuning=tosaic.Tuning(trials=trials, records=output / "records.db"),
            output=output / target,
        )
        tosaic.print_compile_report(build)
        report = build.run(pixels)
        tosaic.print_run_report(report)
        exact = exact and report.exact
        figures = (report.board.instructions, report.board.cycles, report.npu_cycles)
        sizes = (build.manifest.firmware.arena_bytes, build.manifest.firmware.flash_bytes)
        logits, segments = report.outputs
        right = _right(logits, segments, labels)
        table.add_row(f"{target}, simulated board", *right, *(f"{figure:,}" for figure in (*figures, *sizes)))

    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table)
    console.print(f"boards and reference: {'equal to the bit' if exact else 'DIFFERENT'}")
    return exact


def _float_logits(pixels: np.ndarray) -> np.ndarray:
    module, _, _ = digits()
    with torch.no_grad():
        return module(torch.tensor(pixels))[0].numpy()


def _accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    return float((logits.argmax(1) == labels).mean())


def _right(logits: np.ndarray, segments: np.ndarray, labels: np.ndarray) -> tuple[str, str]:
    """The share of digits read right, and of seven-segment displays lit right."""
    wanted = np.array([[int(lit) for lit in SEGMENTS[label]] for label in labels])
    return f"{_accuracy(logits, labels):.2%}", f"{(np.rint(segments) == wanted).all(1).mean():.2%}"


if __name__ == "__main__":
    main()
