"""Published cycles of silicon beside what tosaic predicts for the same kernels: `python benchmarks/silicon.py`.

`silicon.toml` names each figure, its source and the build that predicts it. Every build has CMSIS-NN's kernels, as the
published ones have. Where the core has no cycle model, instructions stand in the place of cycles. Prints Markdown, or
with `--json` one object a row: source, board, what, published, predicted, unit.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click

HERE = Path(__file__).parent
CLOSE = ("Alif",)
"""Boards whose core and memory are those of a target's model."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a row.")
@click.option("--only", default="", help="Builds whose name or options hold this text.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path("build/silicon"), show_default=True)
def main(as_json: bool, only: str, folder: Path) -> None:
    """Predict every published figure."""
    builds = tomllib.loads((HERE / "silicon.toml").read_text())["build"]
    rows = [
        row
        for number, build in enumerate(builds)
        if only in build["name"] or any(only in option for option in build["options"])
        for row in predicted(build, folder / str(number))
    ]
    for row in rows if as_json else ():
        click.echo(json.dumps(row))
    if not as_json:
        for line in table(rows):
            click.echo(line)


def predicted(build: dict, folder: Path) -> Iterator[dict]:
    """The rows of a build, which is compiled and run; none where it is refused, which is told."""
    options = [str(HERE.parent / each) if each.startswith("benchmarks/") else each for each in build["options"]]
    records = folder.with_suffix(".db")
    try:
        tosaic("compile", *options, "--kernels", "cmsis-nn", "--no-prove", "--records", str(records), "-o", str(folder))
    except subprocess.CalledProcessError as error:
        click.echo(f"{build['name']}: {' '.join(options)} is refused: {error.stdout.strip()}", err=True)
        return
    run = tosaic("run", str(folder), "--random", "1")
    layers = [kernel for kernel in run["kernels"] if "conv" in kernel["name"] or "cmsis" in kernel["name"]]
    for row in build["rows"]:
        cost = layers[row["layer"]] if "layer" in row else run
        counted = cost["cycles_with_memory"]
        published = row["cycles"] if "cycles" in row else round(row["milliseconds"] * row["mhz"] * 1000)
        yield {
            "source": build["source"],
            "board": build["name"],
            "what": row["what"],
            "published": published,
            "core": cost["cycles"],
            "predicted": counted or cost["instructions"],
            "unit": "cycles with memory" if counted else "instructions",
            "causes": build["causes"],
        }


def tosaic(*arguments: str) -> dict:
    """What a command prints with `--json`."""
    command = [str(Path(sys.executable).with_name("tosaic")), *arguments, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def table(rows: list[dict]) -> Iterator[str]:
    """Markdown of the rows, and the spread of those whose board a target stands for."""
    yield "| Board | What | Published cycles | Predicted | Unit | Predicted / published |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        ratio = row["predicted"] / row["published"]
        numbers = f"{row['published']:,} | {row['predicted']:,} | {row['unit']} | {ratio:.2f}"
        yield f"| {row['board']} | {row['what']} | {numbers} |"
    close = [row["predicted"] / row["published"] for row in rows if row["board"].startswith(CLOSE)]
    if close:
        mean = math.exp(sum(map(math.log, close)) / len(close))
        yield ""
        spread = f"{min(close):.2f} to {max(close):.2f}, geometric mean {mean:.3f}"
        yield f"{len(close)} figures of modeled boards: {spread}."
    yield ""
    for board, causes in dict.fromkeys((row["board"], row["causes"]) for row in rows):
        if causes != "as above":
            yield f"- {board}: {causes}."


if __name__ == "__main__":
    main()
