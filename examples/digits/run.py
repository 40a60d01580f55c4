"""The main job on a real model and real data: compile, tune, run held-back scans on the board, report.

`make run`, or `python examples/digits/run.py --target cortex-m55`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import tosaic

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from model import HELD_BACK, SEGMENTS, digits, scans  # noqa: E402


@click.command()
@click.option("--target", default="corstone-300", show_default=True)
@click.option("--trials", default=200, show_default=True, help="Tuning trials over all CPU kernels.")
@click.option("--images", default=HELD_BACK, show_default=True, help="Held-back scans to run on the board.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("build/digits"), show_default=True)
def main(target: str, trials: int, images: int, output: Path) -> None:
    """Compile the digit reader, run it on the simulated board, and print what happened."""
    options = tosaic.CompileOptions(
        model=f"{HERE / 'model.py'}:digits",
        target=tosaic.find_target(target),
        tuning=tosaic.Tuning(trials=trials, records=output.parent / "digits-records.db"),
    )
    build = tosaic.compile_model(options, output)
    tosaic.print_compile_report(build)

    pixels, labels = (tensor[-HELD_BACK:][:images].numpy() for tensor in scans())
    samples = [[image[None]] for image in pixels]
    report = tosaic.run_build(build, samples, output=output / "run")
    tosaic.print_run_report(report)

    reference = tosaic.reference_outputs(build, samples)
    module, _, _ = digits()
    with torch.no_grad():
        float_logits = module(torch.tensor(pixels))[0].numpy()
    console = Console()
    table = Table(title=f"{len(labels)} held-back scans", title_justify="left", box=None)
    table.add_column("computed by")
    table.add_column("digits read right", justify="right")
    table.add_column("displays lit right", justify="right")
    for name, logits, segments in (
        ("PyTorch, float", float_logits, None),
        ("reference model, int8", *_columns(build, reference)),
        (f"{target}, simulated", *_columns(build, report.outputs)),
    ):
        table.add_row(name, f"{_accuracy(logits, labels):.2%}", "" if segments is None else _lit(segments, labels))
    console.print(table)
    console.print(f"board and reference: {'equal to the bit' if report.exact else report.difference}")
    if not report.exact:
        raise SystemExit(1)


def _columns(build: tosaic.Build, outputs: list) -> tuple[np.ndarray, np.ndarray]:
    """Logits [N, 10] and segments [N, 7] of all samples, in float."""
    rows = [build.dequantise_outputs(list(row)) for row in outputs]
    return np.concatenate([row[0] for row in rows]), np.concatenate([row[1] for row in rows])


def _accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    return float((logits.argmax(1) == labels).mean())


def _lit(segments: np.ndarray, labels: np.ndarray) -> str:
    wanted = np.array([[int(s) for s in SEGMENTS[label]] for label in labels])
    return f"{(np.rint(segments) == wanted).all(1).mean():.2%}"


if __name__ == "__main__":
    main()
