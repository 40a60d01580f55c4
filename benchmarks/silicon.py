"""Published cycles of silicon beside what tosaic predicts: `python benchmarks/silicon.py`.

`silicon.toml` names each figure, its source and the build that predicts it. Where the published kernels are CMSIS-NN's,
those are predicted; beside each stands what tosaic's own kernels would take. Prints Markdown, or with `--json` one
object a row: source, board, what, published, predicted, own.
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


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a row.")
@click.option("--only", default="", help="Builds whose name or options hold this text.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path("build/silicon"), show_default=True)
def main(as_json: bool, only: str, folder: Path) -> None:
    """Predict every published figure."""
    builds = tomllib.loads((HERE / "silicon.toml").read_text())["build"]
    rows = [
        row
        for build in builds
        if only in build["name"] or any(only in option for option in build["options"])
        for row in predicted(build, folder)
    ]
    for row in rows if as_json else ():
        click.echo(json.dumps(row))
    if not as_json:
        for line in table(rows):
            click.echo(line)


def predicted(build: dict, folder: Path) -> Iterator[dict]:
    """The rows of a build, which is compiled and run; none where it is refused, which is told."""
    try:
        theirs = ran(build, folder, "--kernels", "cmsis-nn") if build.get("cmsis_nn", True) else None
        own = ran(build, folder)
    except subprocess.CalledProcessError as error:
        click.echo(f"{build['name']}: {' '.join(build['options'])} is refused: {error.stdout.strip()}", err=True)
        return
    for row in build["rows"]:
        published = row["cycles"] if "cycles" in row else round(row["milliseconds"] * row["mhz"] * 1000)
        yield {
            "source": build["source"],
            "board": build["name"],
            "what": row["what"],
            "published": published,
            "predicted": theirs and cycles(theirs, row),
            "own": cycles(own, row),
            "causes": build["causes"],
        }


def ran(build: dict, folder: Path, *options: str) -> dict:
    """The run of a build; equal ones of a folder are made once."""
    given = [str(HERE.parent / each) if each.startswith("benchmarks/") else each for each in build["options"]]
    made = folder / "-".join(Path(each).stem.replace(":", "-") for each in (*given, *options))
    told = made.with_suffix(".json")
    if not told.exists():
        records = made.with_suffix(".db")
        tosaic("compile", *given, *options, "--no-prove", "--records", str(records), "-o", str(made))
        told.write_text(json.dumps(tosaic("run", str(made), "--random", "1")))
    return json.loads(told.read_text())


def cycles(run: dict, row: dict) -> int:
    """What a row of a build takes in a run, memory included."""
    layers = [kernel for kernel in run["kernels"] if "conv" in kernel["name"] or "cmsis" in kernel["name"]]
    return (layers[row["layer"]] if "layer" in row else run)["cycles_with_memory"]


def tosaic(*arguments: str) -> dict:
    """What a command prints with `--json`."""
    command = [str(Path(sys.executable).with_name("tosaic")), *arguments, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def table(rows: list[dict]) -> Iterator[str]:
    """Markdown of the rows, and the spread of those that are predicted."""
    yield "| Board | What | Published cycles | Predicted, CMSIS-NN | / published | tosaic's own | / published |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        published, own = row["published"], row["own"]
        theirs = f"{row['predicted']:,} | {row['predicted'] / published:.2f}" if row["predicted"] else "- | -"
        yield f"| {row['board']} | {row['what']} | {published:,} | {theirs} | {own:,} | {own / published:.2f} |"
    for boards in dict.fromkeys(row["board"].split(",")[1].split(" at ")[0].strip() for row in rows):
        ratios = [row["predicted"] / row["published"] for row in rows if boards in row["board"] and row["predicted"]]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            yield ""
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}, geometric mean {mean:.3f}"
            yield f"{len(ratios)} figures of a {boards}: {spread}."
    yield ""
    for board, causes in dict.fromkeys((row["board"], row["causes"]) for row in rows):
        if causes != "as above":
            yield f"- {board}: {causes}."


if __name__ == "__main__":
    main()
