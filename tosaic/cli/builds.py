"""Commands that take a build: run, generate, verify, report, export."""

from __future__ import annotations

from pathlib import Path

import click

from tosaic.cli.options import FILE, FOLDER, as_json
from tosaic.support.errors import Error
from tosaic.terminal import console


@click.command()
@click.argument("build", type=FOLDER)
@click.option(
    "--input",
    "inputs",
    type=FILE,
    multiple=True,
    help=".npy per model input, one sample or a batch of them; or one .npz. Floats are quantized.",
)
@click.option("--random", "random_samples", type=click.IntRange(min=1), help="Run on random samples instead.")
@click.option("--seed", default=0, show_default=True, help="Of the random samples.")
@click.option(
    "--npu",
    type=click.Choice(["emulator", "reference"]),
    default="emulator",
    show_default=True,
    help="What executes NPU regions where the runner has no NPU.",
)
@click.option("--runner", default="qemu", show_default=True, help="What runs the firmware: qemu, fvp, or an extension.")
@click.option("-o", "--output", type=FOLDER, help="Where outputs go; default: BUILD/run.")
@as_json
@console.reports_errors
def run(build: Path, inputs: tuple[Path, ...], random_samples: int | None, seed: int, npu: str, runner: str,
        output: Path | None, as_json: bool) -> None:  # fmt: skip
    """Run a build on the simulated board and compare it with the reference, to the bit.

    Without --input and --random it runs the calibration samples that the build carries.
    """
    from tosaic.api import Build
    from tosaic.reports.report import print_run_report, run_result
    from tosaic.runs.npu_execution import NpuChoice
    from tosaic.runs.running import random_advice, read_samples, run_build
    from tosaic.runs.running import random_samples as draw
    from tosaic.runs.verification import print_verification, verify_build

    loaded = Build.load(build)
    if inputs and random_samples:
        raise Error("--input and --random exclude each other", hint="leave out one, or both")
    if random_samples:
        samples = draw(loaded, random_samples, seed)
    else:
        samples = read_samples(loaded, inputs) if inputs else [list(sample.inputs) for sample in loaded.samples]
    chosen: NpuChoice = "reference" if npu == "reference" else "emulator"
    result = run_build(loaded, samples, npu=chosen, runner=runner, output=output or build / "run")
    judged = None if result.defined else verify_build(loaded, samples, runner)
    if as_json:
        console.print_json(run_result(result) | {"right": judged.right if judged else result.exact})
    else:
        print_run_report(result)
        if judged:
            print_verification(judged)
    if random_samples and (advice := random_advice(result)):
        console.stderr.print(f"warning: {advice}", highlight=False, soft_wrap=True)
    if not (judged.right if judged else result.exact):
        raise SystemExit(1)


@click.command()
@click.argument("build", type=FOLDER)
@click.option("--prompt", required=True, help="Numbers of tokens, 1,403,9; a text where there is a --tokenizer.")
@click.option("--tokens", type=click.IntRange(min=1), default=32, show_default=True, help="How many to draw.")
@click.option("--tokenizer", type=FILE, help="Hugging Face's tokenizer.json; needs tosaic[generate].")
@click.option(
    "--temperature",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="What scores are divided by; 0 takes the likeliest token.",
)
@click.option("--top-k", type=click.IntRange(min=0), default=0, help="Only the so many likeliest tokens; 0: all.")
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    help="Only the likeliest tokens that have so much of the probability together.",
)
@click.option("--seed", type=click.IntRange(1, 2**32 - 1), default=1, show_default=True, help="Of what is drawn.")
@click.option("--end", type=click.IntRange(min=0), help="The token that ends a text.")
@click.option(
    "--compare/--no-compare",
    default=True,
    show_default=True,
    help="Whether the integer module has to make the same on the host.",
)
@click.option("--runner", default="qemu", show_default=True, help="What runs the firmware: qemu, fvp, or an extension.")
@as_json
@console.reports_errors
def generate(build: Path, prompt: str, tokens: int, tokenizer: Path | None, temperature: float, top_k: int,
             top_p: float, seed: int, end: int | None, compare: bool, runner: str, as_json: bool) -> None:  # fmt: skip
    """Let a language model generate on the simulated board, and say how fast it is.

    The board runs the loop and the sampler of the build's kit. The model takes one token, perhaps its place, and gives
    a score for each token.
    """
    from tosaic.api import Build
    from tosaic.reports.generation_report import generation_result, print_generation
    from tosaic.runs.generation import generate as run_generation
    from tosaic.runs.sampling import Sampling
    from tosaic.runs.text import Text

    loaded, text = Build.load(build), Text(tokenizer)
    sampling = Sampling(temperature, top_k, top_p, seed)
    result = run_generation(
        loaded, text.encode(prompt), tokens, sampling=sampling, end=end, compare=compare, runner=runner
    )
    written = text.decode([*result.prompt, *result.tokens])
    console.show(
        result, as_json, lambda done: generation_result(done, written), lambda done: print_generation(done, written)
    )
    if result.difference:
        raise SystemExit(1)


@click.command()
@click.argument("build", type=FOLDER)
@click.option("--inputs", "count", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--seed", default=0, show_default=True)
@as_json
@console.reports_errors
def verify(build: Path, count: int, seed: int, as_json: bool) -> None:
    """Compare board, NPU emulator and reference on random inputs, and name the op where a difference begins."""
    from tosaic.api import Build
    from tosaic.runs.running import random_samples
    from tosaic.runs.verification import print_verification, verification_result, verify_build

    loaded = Build.load(build)
    result = verify_build(loaded, random_samples(loaded, count, seed))
    console.show(result, as_json, verification_result, print_verification)
    if not result.right:
        raise SystemExit(1)


@click.command()
@click.argument("build", type=FOLDER)
@click.option("-o", "--output", type=FILE, help="Default: BUILD/report.html.")
@click.option("--compare", "other", type=FOLDER, help="Another build, shown side by side.")
@click.option("--trace", type=FILE, help="Write the timeline, too, for Perfetto or chrome://tracing.")
@as_json
@console.reports_errors
def report(build: Path, output: Path | None, other: Path | None, trace: Path | None, as_json: bool) -> None:
    """Write all about BUILD as one HTML file: its ops, timeline, arena, flash, roofline, tuning and accuracy."""
    from tosaic.api import Build
    from tosaic.reports.timeline import write_trace

    loaded = Build.load(build)
    written = [loaded.report(output, Build.load(other) if other else None)]
    if trace:
        write_trace(loaded.measured, trace)
        written.append(trace)
    console.show(
        written, as_json, lambda files: {"files": list(map(str, files))}, lambda files: print(*files, sep="\n")
    )


@click.command()
@click.argument("build", type=FOLDER)
@click.option("--tosa", type=FILE, help="Write the integer module as a TOSA 1.0 flatbuffer.")
@click.option("--pte", type=FILE, help="Write an ExecuTorch program of the NPU regions.")
@as_json
@console.reports_errors
def export(build: Path, tosa: Path | None, pte: Path | None, as_json: bool) -> None:
    """Write what BUILD computes in a format of others."""
    from tosaic.api import Build
    from tosaic.backends.reference import serialize
    from tosaic.compiler.executorch_export import write_pte

    loaded = Build.load(build)
    if not tosa and not pte:
        raise Error("say what to write", hint="--tosa FILE or --pte FILE")
    if tosa:
        tosa.write_bytes(serialize(loaded.module))
    if pte:
        write_pte(loaded, pte)
    written = [str(file) for file in (tosa, pte) if file]
    console.show(written, as_json, lambda files: {"files": files}, lambda files: print(*files))
