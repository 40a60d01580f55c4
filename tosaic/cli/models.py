"""Commands that take a model: compile, tune, fit, accuracy, weights."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tosaic.cli.options import FOLDER, Budget, Goals, Times, as_json, asked, compiling, on_data, options_of
from tosaic.support.errors import Error
from tosaic.terminal import console

if TYPE_CHECKING:
    from tosaic.compiler.goals import Goal
    from tosaic.frontend.coarser_weights import WeightBudget


@click.command("compile")
@compiling
@click.option("-o", "--output", type=FOLDER, default=Path("build/model"), show_default=True)
@as_json
@console.reports_errors
def compile_command(output: Path, as_json: bool, **arguments) -> None:
    """Compile MODEL into a build folder; with --tune-trials, tune it first."""
    options = options_of(**arguments)
    from tosaic.compiler.compilation import compile_model
    from tosaic.reports.report import compile_result, print_compile_report

    build = compile_model(options, output)
    console.show(build, as_json, compile_result, print_compile_report)
    if build.manifest.trials.interrupted:
        sys.exit(console.INTERRUPTED)


@click.command()
@compiling
@as_json
@console.reports_errors
def tune(as_json: bool, **arguments) -> None:
    """Tune the CPU kernels of MODEL and keep the records; build nothing."""
    options = options_of(**arguments)
    from tosaic.compiler.compilation import tune_model
    from tosaic.reports.search_report import print_tuning_report, tuning_result

    result = tune_model(options)
    target = options.target
    console.show(result, as_json, partial(tuning_result, target), partial(print_tuning_report, target))
    if result.interrupted:
        sys.exit(console.INTERRUPTED)


@click.command()
@compiling
@click.option("--point", type=click.IntRange(min=1), help="Build this way, by its number in the list, into --output.")
@click.option("-o", "--output", type=FOLDER, default=Path("build/model"), show_default=True)
@as_json
@console.reports_errors
def fit(point: int | None, output: Path, as_json: bool, **arguments) -> None:
    """List ways to run MODEL in ever less memory, the fastest first; --point builds one."""
    options = options_of(**arguments)
    from tosaic.compiler.compilation import compile_model, fit_model
    from tosaic.reports.search_report import fit_result, print_fit

    points = fit_model(options)
    if point is not None and point > len(points):
        raise Error(f"there is no way number {point}", why=f"the list has {len(points)}")
    console.show(points, as_json, fit_result, print_fit)
    if point is not None:
        compile_model(options_of(**{**arguments, "arena_size": points[point - 1].arena}), output)


@click.command()
@compiling
@on_data
@click.option(
    "--layers",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    help="How many of the tensors that make most noise are raised, one more at a time, in simulation.",
)
@click.option(
    "--goal",
    type=Goals(),
    help="Find what to raise for 30dB of every output, or 84.5% of the metric or top-1; build it; print the command.",
)
@click.option("--budget", type=Times(), help="The cycles that the goal may take, in those of the build as asked: 2x.")
@click.option("-o", "--output", type=FOLDER, help="Keep the build that meets the goal there.")
@as_json
@console.reports_errors
def accuracy(
    data: str,
    labels: str | None,
    metric: str | None,
    count: int,
    layers: int,
    goal: Goal | None,
    budget: float | None,
    output: Path | None,
    as_json: bool,
    **arguments,
) -> None:
    """Measure on your data what MODEL loses by quantization, which tensors make the noise, and what int16 would buy."""
    options = options_of(**arguments)
    from tosaic.compiler.sensitivity import analyze
    from tosaic.reports.search_report import print_scan, print_sensitivity, sensitivity_result

    words = asked(click.get_current_context(), compile_command)
    found = analyze(
        options, data, labels, metric, count, layers, goal, budget, words, output,
        tell=(lambda scanned: None) if as_json else print_scan,
    )  # fmt: skip
    if as_json:
        console.print_json(sensitivity_result(found))
    else:
        print_sensitivity(found)
    if not found.exact:
        raise SystemExit(1)


@click.command()
@compiling
@on_data
@click.option(
    "--loss",
    type=Budget("loss", "0.5%"),
    help="Build the one of fewest bytes that loses no more, 1dB or 0.5% of the metric, into --output.",
)
@click.option("--point", type=click.IntRange(min=1), help="Build this one, by its number in the list, into --output.")
@click.option("-o", "--output", type=FOLDER, default=Path("build/model"), show_default=True)
@as_json
@console.reports_errors
def weights(
    data: str,
    labels: str | None,
    metric: str | None,
    count: int,
    loss: WeightBudget | None,
    point: int | None,
    output: Path,
    as_json: bool,
    **arguments,
) -> None:
    """List builds of MODEL with ever fewer weight bytes on an NPU, and what each loses.

    --loss or --point builds one.
    """
    if arguments["weights"] is not None:
        raise Error("--weights is what this command tries", hint="leave it out")
    if loss is not None and point is not None:
        raise Error("--loss and --point each choose a build", hint="give one of them")
    options = options_of(**arguments)
    from tosaic.compiler.compilation import compile_model
    from tosaic.compiler.weight_front import weight_front
    from tosaic.reports.search_report import print_weights, weights_result

    front = weight_front(options, data, labels, metric, count, loss)
    if point is not None and point > len(front.points):
        raise Error(f"there is no build number {point}", why=f"the list has {len(front.points)}")
    console.show(front, as_json, weights_result, print_weights)
    chosen = front.within if point is None else point - 1
    if chosen is not None:
        compile_model(options_of(**{**arguments, "weights": front.points[chosen].budget}), output)
