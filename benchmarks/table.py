"""The zoo's table: `make bench`, or `python benchmarks/table.py --models dscnn,resnet8 --targets cortex-m55`.

Compiles and runs each model through the command line, as a user would, and prints one Markdown row a build. Where the
whole model runs on the CPU, untuned stands beside tuned, and CMSIS-NN alone beside free choice; `TOSAIC_CMSIS_NN` names
the checkout to compare with. Untuned means a cold database: no trial, and nothing learned from another model. A row is
kept beside its build as JSON until the sources change.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import click

MODELS = "resnet8,dscnn,mobilenet_v1,autoencoder,mobilenet_v2,mobilenet_v3_small,transformer"
TARGETS = "cortex-m55,corstone-300,corstone-320"
ROOMS = ("tosaic", "frontend", "passes", "backends", "tuner", "support", "benchmarks/zoo")
CHOICES = {
    "untuned": ("--kernels", "all"),
    "cmsis-nn": ("--kernels", "cmsis-nn"),
    "tuned": ("--kernels", "all"),
}
COLUMNS = (
    ("model", "{model}"),
    ("target", "{target}"),
    ("kernels", "{choice}"),
    ("instructions", "{instructions:,}"),
    ("cycles (model)", "{cycles:,}"),
    ("cycles with memory", "{cycles_with_memory:,}"),
    ("NPU cycles (Vela)", "{npu_cycles:,}"),
    ("arena B", "{arena_bytes:,}"),
    ("flash B", "{flash_bytes:,}"),
    ("NPU regions", "{npu_regions}"),
    ("SQNR dB", "{sqnr_db}"),
    ("exact", "{exact}"),
    ("compile s", "{compile_seconds:.1f}"),
    ("trials", "{trials}"),
)


@click.command()
@click.option("--models", default=MODELS, show_default=True, help="Names, separated by commas.")
@click.option("--targets", default=TARGETS, show_default=True, help="Names, separated by commas.")
@click.option("--choices", default="untuned,tuned,cmsis-nn", show_default=True, help="Which kernels to choose from.")
@click.option("--trials", default=1000, show_default=True, help="Trials of a tuned build.")
@click.option("--inputs", default=3, show_default=True, help="Random inputs of a run.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path("build/bench"), show_default=True)
def main(models: str, targets: str, choices: str, trials: int, inputs: int, folder: Path) -> None:
    """Compile and run the zoo; print a Markdown table."""
    rows = folder / sources_digest()
    rows.mkdir(parents=True, exist_ok=True)
    click.echo("| " + " | ".join(name for name, _ in COLUMNS) + " |")
    click.echo("|" + "---|" * len(COLUMNS))
    for model in models.split(","):
        for target in targets.split(","):
            for choice in choices.split(",") if target == "cortex-m55" else ("tuned",):
                kept = rows / f"{model}-{target}-{choice}.json"
                if not kept.exists():
                    records = kept.with_suffix(".db") if choice == "untuned" else folder / "records.db"
                    kept.write_text(json.dumps(measure(model, target, choice, trials, inputs, rows, records)))
                row = json.loads(kept.read_text())
                click.echo("| " + " | ".join(text.format(**row) for _, text in COLUMNS) + " |")


def sources_digest() -> str:
    """What the figures depend on: a digest of tosaic's sources and of the zoo."""
    root = Path(__file__).parents[1]
    sources = sorted(path for room in ROOMS for path in (root / room).rglob("*") if path.suffix in (".py", ".c", ".h"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]


def measure(model: str, target: str, choice: str, trials: int, inputs: int, rows: Path, records: Path) -> dict:
    """Compile `zoo:model` and run it on random inputs; the figures of one row."""
    build = rows / f"{model}-{target}-{choice}"
    tuning = ("--tune-trials", str(trials)) if choice == "tuned" else ()
    compiled = tosaic("compile", f"zoo:{model}", "--target", target, *CHOICES[choice], *tuning,
                      "--records", str(records), "-o", str(build))  # fmt: skip
    ran = tosaic("run", str(build), "--random", "1" if model == "mobilenet_v2" else str(inputs))
    sqnr = min((value for value in ran["sqnr_db"] if value is not None), default=None)
    return {
        "model": model,
        "target": target,
        "choice": choice,
        "instructions": ran["instructions"],
        "cycles": ran["cycles"],
        "cycles_with_memory": ran["cycles_with_memory"],
        "npu_cycles": compiled["npu_cycles"],
        "arena_bytes": compiled["arena_bytes"],
        "flash_bytes": compiled["flash_bytes"],
        "npu_regions": compiled["regions"]["npu"],
        "sqnr_db": sqnr if sqnr is None else f"{sqnr:.1f}",
        "exact": ran["exact"],
        "compile_seconds": sum(compiled["seconds"].values()),
        "trials": compiled["trials"],
    }


def tosaic(*arguments: str) -> dict:
    """The object that `tosaic ... --json` prints."""
    program = Path(sys.executable).with_name("tosaic")
    done = subprocess.run([program, *arguments, "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise click.ClickException(f"`tosaic {' '.join(arguments)}` failed")
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
