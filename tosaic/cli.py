"""The command line. Each command reads its options, calls one function of the driver, and shows what came back."""

from __future__ import annotations

import atexit
import gc
import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

import tosaic
from tosaic import console
from tosaic.options import CompileOptions, QuantizationOptions, Tuning
from tosaic.schedules import Schedules
from tosaic.support.errors import Error
from tosaic.targets import find_target

if TYPE_CHECKING:
    from tosaic.sensitivity import Goal

FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)


class _Shape(click.ParamType):
    """An input's name and its sizes."""

    name = "shape"

    def convert(self, value, param, ctx):
        name, _, sizes = value.partition("=")
        if not name or not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", sizes):
            self.fail("give a name and sizes, such as x=1,3,96,96", param, ctx)
        return name, tuple(map(int, sizes.split(",")))


class _Strategy(click.ParamType):
    """The name of a search strategy; other packages may add some."""

    name = "strategy"

    def convert(self, value, param, ctx):
        from tosaic.tuner.search.base import STRATEGIES

        try:
            return STRATEGIES.find(value).name
        except tosaic.Error as error:
            self.fail(str(error), param, ctx)

    def get_metavar(self, param, ctx=None):
        from tosaic.tuner.search.base import STRATEGIES

        return f"[{'|'.join(STRATEGIES.known())}]"


class _Frequency(click.ParamType):
    """A frequency in Hz, with or without a unit; or, where `named`, the name of one."""

    name = "frequency"

    def __init__(self, named: bool = False) -> None:
        self._named = named

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if self._named and re.fullmatch(r"[A-Za-z][\w-]*", str(value)):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([kMG]?)Hz)?", str(value))
        if found is None or not float(found[1]):
            self.fail(f"{value!r} is no frequency; write 480MHz", param, ctx)
        return round(float(found[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[found[2] or ""])


class _Goal(click.ParamType):
    """Decibels, or what a metric shall reach."""

    name = "goal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Goal:
        from tosaic.sensitivity import Goal

        try:
            return Goal.parse(str(value))
        except ValueError:
            self.fail(f"{value!r} is no goal; write 30dB, 84.5% or 0.845", param, ctx)


class _Times(click.ParamType):
    """A factor of 1 or more."""

    name = "factor"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)x?", str(value))
        if found is None or float(found[1]) < 1:
            self.fail(f"{value!r} is no factor of 1 or more; write 2x", param, ctx)
        return float(found[1])


def _together(*decorators: Callable) -> Callable:
    def apply(command: Callable) -> Callable:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return apply


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
compiling = _together(
    click.argument("model"),
    click.option("--target", default="cortex-m55", show_default=True,
                 help="A name that `tosaic targets` lists, or a TOML file."),
    click.option("--name", default="model", show_default=True,
                 help="What the firmware's symbols, header and archive are called after."),
    click.option("--accelerator", help="Another NPU: one of the target's by name, or e.g. ethos-u55-256."),
    click.option("--arena-size", type=click.IntRange(min=1), help="Bytes the activation arena may take."),
    click.option("--arena", metavar="MEMORY", multiple=True,
                 help="Which of the target's memories the activation arena may take; repeatable, the fastest first."),
    click.option("--clock", type=_Frequency(named=True),
                 help="Of the core, for milliseconds: 480MHz, or one of the target's clocks by name."),
    click.option("--npu-clock", type=_Frequency(), help="The same of the NPU."),
    click.option("--flash-size", type=click.IntRange(min=1), help="Bytes that code, constants and data may take."),
    click.option("--memory-mode", help="What Vela assumes of the NPU's memories, e.g. Sram_Only."),
    click.option("--system-config", help="The same of their speeds, e.g. Ethos_U55_Deep_Embedded."),
    click.option("--constants", metavar="MEMORY", help="Which of the target's memories holds the weights."),
    click.option("--calibration", help="Inputs to calibrate with: .npz, .npy, a folder of them, or file.py:function."),
    click.option("--shape", "shapes", type=_Shape(), multiple=True, metavar="NAME=1,3,...",
                 help="The shape of an input of a model that takes several; repeatable."),
    click.option("--rounding", type=click.Choice(["single", "tflite"]), default="single", show_default=True,
                 help="tflite: a .tflite rounds twice where TensorFlow Lite's kernels do, and equals them to the bit."),
    click.option("--input-layout", type=click.Choice(["model", "nhwc"]), default="model", show_default=True,
                 help="nhwc: the firmware takes images with their channels last, as a camera gives them."),
    click.option("--output-layout", type=click.Choice(["model", "nhwc"]), default="model", show_default=True,
                 help="nhwc: the firmware gives results of four axes with their channels last, a mask of pixels say."),
    click.option("--stream-input", is_flag=True,
                 help="The firmware takes the input row by row as it comes; it never lies in memory as a whole."),
    click.option("--sliding", is_flag=True,
                 help="And further rows move the window on: each of its results costs only what is new."),
    click.option("--activations", type=click.Choice(["int8", "int16"]), default="int8", show_default=True),
    click.option("--exclude", multiple=True, help="Module, op (softmax) or MODULE:OP that stays f32; repeatable."),
    click.option("--int16", multiple=True, help="The same, or an input, whose result is int16; repeatable."),
    click.option("--kernels", type=click.Choice(["all", "cmsis-nn", "generic"]), default="all", show_default=True,
                 help="Which CPU kernels compete."),
    click.option("--schedule", type=FILE,
                 help="Schedules by hand for kernels by name; a build's own are in its schedules.txt."),
    click.option("--cmsis-nn", type=FOLDER, help="A checkout of CMSIS-NN; else the registry's subset."),
    click.option("--tune-trials", "trials", type=click.IntRange(min=0), default=0, show_default=True,
                 help="Measured candidates over all kernels; what the records hold counts."),
    click.option("--search", type=_Strategy(), default="evolutionary", show_default=True),
    click.option("--objective", type=click.Choice(["cycles", "core-cycles", "instructions"]),
                 help="What tuning minimizes; default: cycles, which count memory, where the core has a cycle model."),
    click.option("--seed", default=0, show_default=True),
    click.option("--measure", metavar="WHERE", default="local", show_default=True,
                 help="Where trials run: local, dask://HOST:PORT, a Dask scheduler file, serial:PORT[?baud=N]."),
    click.option("--workers", type=click.IntRange(min=1), help="Batches measured at once; default: processors."),
    click.option("--records", type=FILE, help="SQLite file of trials; default: the user's own."),
    click.option("--save-ir", type=FOLDER, help="Write the module after every pass."),
    click.option("--verify-each", is_flag=True, help="Check every exact pass on random inputs, to the bit."),
    click.option("--min-sqnr", type=float, metavar="DB", help="Least SQNR of every output against the float model."),
    click.option("--no-prove", "prove", flag_value=False, default=True,
                 help="Skip the last run of the firmware against the integer module."),
)  # fmt: skip


def _options(target: str, **given: Any) -> CompileOptions:
    """The options of `compiling`, which are called as the fields that they fill."""

    def taken(*names: str) -> dict[str, Any]:
        return {name: given.pop(name) for name in names}

    schedule = given.pop("schedule")
    changes = ("accelerator", "arena", "arena_size", "constants", "memory_mode", "system_config", "flash_size")
    return CompileOptions(
        target=find_target(target, **taken(*changes, "clock", "npu_clock")),
        quantization=QuantizationOptions(**taken("activations", "exclude", "int16")),
        tuning=Tuning(**taken("trials", "search", "objective", "seed", "records", "measure", "workers")),
        shapes=dict(given.pop("shapes")),
        schedules=Schedules.read(schedule) if schedule else Schedules(),
        **given,
    )


_PRECISION = ("activations", "exclude", "int16")


def _asked(context: click.Context) -> list[str]:
    """The words of a command that `compile` takes, too, but the model and what has which precision."""
    taken = {parameter.name for parameter in compile_command.params if isinstance(parameter, click.Option)}
    words = []
    for option in context.command.params:
        name = option.name or ""
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE or name not in taken:
            continue
        given = context.params[name]
        if isinstance(option, click.Option) and name not in (*_PRECISION, "as_json", "debug"):
            values = [""] if option.is_flag else map(_written, given if option.multiple else [given])
            words += [f"{option.opts[0]} {value}".rstrip() for value in values]
    return words


def _written(value: object) -> str:
    """What an option was given, as a shell takes it."""
    if isinstance(value, tuple):
        name, sizes = value
        value = f"{name}={','.join(map(str, sizes))}"
    return shlex.quote(str(value))


def _show_versions(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from tosaic.versions import versions

    for name, version in versions().items():
        click.echo(f"{name:18} {version}")
    context.exit()


@click.group(cls=console.Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_versions,
              help="Show the version of every part and exit.")  # fmt: skip
def main() -> None:
    """Compile PyTorch models for Arm microcontrollers, exact to the bit.

    MODEL is a .pt2, .onnx, .tosa, .mlir or .tflite file, a file.py:factory, or zoo:NAME.
    """
    # torch's modules and graphs are millions of objects that stay: to look for garbage among them, while they grow and
    # once more at the end, takes a quarter of a small compilation, and finds next to none.
    gc.set_threshold(200_000)
    atexit.register(gc.freeze)


@main.command("compile")
@compiling
@click.option("-o", "--output", type=FOLDER, default=Path("build/model"), show_default=True)
@as_json
@console.reports_errors
def compile_command(output: Path, as_json: bool, **arguments) -> None:
    """Compile MODEL into a build folder; with --tune-trials, tune it first."""
    options = _options(**arguments)
    from tosaic.compilation import compile_model
    from tosaic.report import compile_result, print_compile_report

    build = compile_model(options, output)
    console.show(build, as_json, compile_result, print_compile_report)
    if build.manifest.trials.interrupted:
        sys.exit(console.INTERRUPTED)


@main.command()
@compiling
@as_json
@console.reports_errors
def tune(as_json: bool, **arguments) -> None:
    """Tune the CPU kernels of MODEL and keep the records; build nothing."""
    options = _options(**arguments)
    from tosaic.compilation import tune_model
    from tosaic.report import print_tuning_report, tuning_result

    result = tune_model(options)
    target = options.target
    console.show(result, as_json, partial(tuning_result, target), partial(print_tuning_report, target))
    if result.interrupted:
        sys.exit(console.INTERRUPTED)


@main.command()
@compiling
@click.option("--point", type=click.IntRange(min=1), help="Build this way, by its number in the list, into --output.")
@click.option("-o", "--output", type=FOLDER, default=Path("build/model"), show_default=True)
@as_json
@console.reports_errors
def fit(point: int | None, output: Path, as_json: bool, **arguments) -> None:
    """List ways to run MODEL in ever less memory, the fastest first; --point builds one."""
    options = _options(**arguments)
    from tosaic.compilation import compile_model, fit_model
    from tosaic.report import fit_result, print_fit

    points = fit_model(options)
    if point is not None and point > len(points):
        raise Error(f"there is no way number {point}", why=f"the list has {len(points)}")
    console.show(points, as_json, fit_result, print_fit)
    if point is not None:
        compile_model(_options(**{**arguments, "arena_size": points[point - 1].arena}), output)


@main.command()
@compiling
@click.option("--data", required=True, help="Samples: .npz, .npy, a folder of them, or file.py:function.")
@click.option("--labels", help="Right classes, for top-1 and top-5: .npy, or file.py:function.")
@click.option("--metric", help="file.py:function of (outputs, labels) that returns a number.")
@click.option("--samples", "count", type=click.IntRange(min=1), default=256, show_default=True, help="Used at most.")
@click.option(
    "--layers",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    help="How many of the tensors that make most noise are raised, one more at a time, in simulation.",
)
@click.option(
    "--goal",
    type=_Goal(),
    help="Find what to raise for 30dB of every output, or 84.5% of the metric or top-1; build it; print the command.",
)
@click.option("--budget", type=_Times(), help="The cycles that the goal may take, in those of the build as asked: 2x.")
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
    options = _options(**arguments)
    from tosaic.report import print_scan, print_sensitivity, sensitivity_result
    from tosaic.sensitivity import analyze

    asked = _asked(click.get_current_context())
    found = analyze(
        options, data, labels, metric, count, layers, goal, budget, asked, output,
        tell=(lambda scanned: None) if as_json else print_scan,
    )  # fmt: skip
    if as_json:
        console.print_json(sensitivity_result(found))
    else:
        print_sensitivity(found)
    if not found.exact:
        raise SystemExit(1)


@main.command()
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
    from tosaic.build import Build
    from tosaic.npu_execution import NpuChoice
    from tosaic.report import print_run_report, run_result
    from tosaic.running import random_advice, read_samples, run_build
    from tosaic.running import random_samples as draw
    from tosaic.verification import print_verification, verify_build

    loaded = Build.load(build)
    if inputs and random_samples:
        raise tosaic.Error("--input and --random exclude each other", hint="leave out one, or both")
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


@main.command()
@click.argument("build", type=FOLDER)
@click.option("--inputs", "count", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--seed", default=0, show_default=True)
@as_json
@console.reports_errors
def verify(build: Path, count: int, seed: int, as_json: bool) -> None:
    """Compare board, NPU emulator and reference on random inputs, and name the op where a difference begins."""
    from tosaic.build import Build
    from tosaic.running import random_samples
    from tosaic.verification import print_verification, verification_result, verify_build

    loaded = Build.load(build)
    result = verify_build(loaded, random_samples(loaded, count, seed))
    console.show(result, as_json, verification_result, print_verification)
    if not result.right:
        raise SystemExit(1)


@main.command()
@click.argument("build", type=FOLDER)
@click.option("-o", "--output", type=FILE, help="Default: BUILD/report.html.")
@click.option("--compare", "other", type=FOLDER, help="Another build, shown side by side.")
@click.option("--trace", type=FILE, help="Write the timeline, too, for Perfetto or chrome://tracing.")
@as_json
@console.reports_errors
def report(build: Path, output: Path | None, other: Path | None, trace: Path | None, as_json: bool) -> None:
    """Write all about BUILD as one HTML file: its ops, timeline, arena, flash, roofline, tuning and accuracy."""
    from tosaic.build import Build
    from tosaic.timeline import write_trace

    loaded = Build.load(build)
    written = [loaded.report(output, Build.load(other) if other else None)]
    if trace:
        write_trace(loaded.measured, trace)
        written.append(trace)
    console.show(
        written, as_json, lambda files: {"files": list(map(str, files))}, lambda files: print(*files, sep="\n")
    )


@main.command()
@click.argument("build", type=FOLDER)
@click.option("--tosa", type=FILE, help="Write the integer module as a TOSA 1.0 flatbuffer.")
@click.option("--pte", type=FILE, help="Write an ExecuTorch program of the NPU regions.")
@as_json
@console.reports_errors
def export(build: Path, tosa: Path | None, pte: Path | None, as_json: bool) -> None:
    """Write what BUILD computes in a format of others."""
    from tosaic.backends.reference import serialize
    from tosaic.build import Build
    from tosaic.executorch_export import write_pte

    loaded = Build.load(build)
    if not tosa and not pte:
        raise tosaic.Error("say what to write", hint="--tosa FILE or --pte FILE")
    if tosa:
        tosa.write_bytes(serialize(loaded.module))
    if pte:
        write_pte(loaded, pte)
    written = [str(file) for file in (tosa, pte) if file]
    console.show(written, as_json, lambda files: {"files": files}, lambda files: print(*files))


@main.command("opt")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True), required=False)
@click.option("--pass-pipeline", default="", help="E.g. `fuse-clamp{max-rank=4},layout,mlir(cse)`.")
@click.option("--list-passes", is_flag=True, help="What passes and phases there are.")
@click.option("--print-ir-before", multiple=True, metavar="PASS", help="Print the IR before PASS; `*` names all.")
@click.option("--print-ir-after", multiple=True, metavar="PASS", help="Print the IR after PASS; `*` names all.")
@click.option("--time-passes", is_flag=True, help="Print the seconds each pass took.")
@click.option("--verify-each", is_flag=True, help="Compare outputs on random inputs around every pass, to the bit.")
@click.option("--save-ir", type=FOLDER, help="Write the module after every pass.")
@click.option("-o", "--output", type=FILE, help="Where the module goes; stdout when not given.")
@as_json
@console.reports_errors
def opt(file: Path | None, as_json: bool, list_passes: bool, **arguments) -> None:
    """Run passes on FILE (MLIR text or bytecode; - reads stdin)."""
    from tosaic import optimizer

    if list_passes:
        optimizer.show_passes(as_json)
        return
    if file is None:
        raise tosaic.Error("no FILE to work on", hint="tosaic opt module.mlir --pass-pipeline=PASSES")
    optimizer.optimize(file, **arguments)


@main.group("targets", cls=console.Commands, invoke_without_command=True)
@as_json
@click.pass_context
@console.reports_errors
def targets(context: click.Context, as_json: bool) -> None:
    """List the targets by vendor; show one, or check a file of your own."""
    if context.invoked_subcommand is not None:
        return
    from tosaic.target_report import print_targets, targets_result
    from tosaic.targets import declarations

    console.show(list(declarations().values()), as_json, targets_result, print_targets)


@targets.command("show")
@click.argument("name", metavar="NAME|FILE")
@as_json
@console.reports_errors
def show_target(name: str, as_json: bool) -> None:
    """Show a target's core, NPUs and memories, and where its numbers come from."""
    from tosaic.target_report import print_target, target_result
    from tosaic.targets import find_declaration

    console.show(find_declaration(name), as_json, target_result, print_target)


@targets.command("check")
@click.argument("file", type=FILE)
@as_json
@console.reports_errors
def check_target(file: Path, as_json: bool) -> None:
    """Tell all that is wrong with a target file, a line each."""
    from tosaic.target_files.declaration import examine
    from tosaic.target_report import check_result, print_check

    checked = examine(file)
    console.show(checked, as_json, check_result, print_check)
    if checked[1]:
        raise SystemExit(1)


@targets.command("schema")
@console.reports_errors
def target_schema() -> None:
    """Print the JSON schema of target files, for editors."""
    from tosaic.target_files.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=1))


@main.command()
@as_json
@console.reports_errors
def doctor(as_json: bool) -> None:
    """Look at what this machine has of the packages and programs that compilations need."""
    from tosaic.doctor import examine
    from tosaic.report import doctor_result, print_findings

    found = examine()
    console.show(found, as_json, doctor_result, print_findings)
    if any(one.state == "missing" for one in found):
        raise SystemExit(1)


@main.command("ops")
@as_json
@console.reports_errors
def aten_ops(as_json: bool) -> None:
    """List the ATen ops that have been lowered, and where each runs."""
    from tosaic.frontend.ops import ops
    from tosaic.report import print_ops

    console.show(ops(), as_json, lambda rows: {"ops": rows}, print_ops)


@main.group(cls=console.Commands)
def npu() -> None:
    """What the NPU takes, and what it was given."""


@npu.command()
@click.argument("build", type=FOLDER)
@as_json
@console.reports_errors
def disasm(build: Path, as_json: bool) -> None:
    """Print the command streams of a build, op by op."""
    from tosaic.build import Build
    from tosaic.disassembly import disassemble_build

    listings = disassemble_build(Build.load(build))
    text = "\n\n".join(f"; {name}\n{listing}" for name, listing in listings.items())
    console.show(text, as_json, lambda _: {"regions": listings}, click.echo)


@npu.command()
@click.argument("build", type=FOLDER)
@click.argument("log")
@as_json
@console.reports_errors
def measured(build: Path, log: str, as_json: bool) -> None:
    """Hold what a board's NPU counted against Vela's estimates.

    LOG is a file with lines `npu call 0: 12345 cycles`, - for stdin, or
    serial:PORT[?baud=N].
    """
    from tosaic.build import Build
    from tosaic.npu_measured import measured_regions
    from tosaic.report import measured_result, print_measured

    console.show(measured_regions(Build.load(build), log), as_json, measured_result, print_measured)


@npu.command()
@as_json
@console.reports_errors
def ops(as_json: bool) -> None:
    """List the ops that Ethos-U takes, and on what conditions."""
    from tosaic.backends.ethos_u.acceptance import supported_ops
    from tosaic.report import print_supported_ops

    if as_json:
        console.print_json({"ops": supported_ops()})
        return
    print_supported_ops(supported_ops())


@main.command()
@click.argument("scheduler", metavar="tcp://HOST:PORT|FILE.json")
@click.option("--slots", type=click.IntRange(min=1), help="Batches measured at once; default: processors.")
@console.reports_errors
def worker(scheduler: str, slots: int | None) -> None:
    """Measure trials for a Dask scheduler, until it goes: what `--measure dask://HOST:PORT` runs on."""
    from tosaic.measuring import run_worker

    run_worker(scheduler, slots or os.cpu_count() or 1)


@main.command()
@click.option("--target", required=True, help="A name that `tosaic targets` lists, or a TOML file.")
@click.option("--uart", type=FILE, help="A C file that drives the board's serial port; default: the target's own.")
@click.option("--baud", type=click.IntRange(min=1), default=115_200, show_default=True, help="Bits a second.")
@click.option("-o", "--output", type=FOLDER, default=Path("build/monitor"), show_default=True)
@as_json
@console.reports_errors
def monitor(target: str, uart: Path | None, baud: int, output: Path, as_json: bool) -> None:
    """Build the monitor to flash on a board: what `--measure serial:PORT` runs trials under."""
    from tosaic.backends.bench.monitor import build_monitor

    elf = build_monitor(find_target(target), output, baud, uart)
    console.show(
        elf, as_json, lambda elf: {"elf": str(elf)}, lambda elf: console.stderr.print(f"{elf} and .bin written")
    )


@main.group(cls=console.Commands)
def records() -> None:
    """Move tuning records between machines."""


def _records(count: int) -> dict:
    return {"records": count}


@records.command("export")
@click.argument("file", type=FILE)
@click.option("--records", "database", type=FILE, help="Default: the user's own.")
@as_json
@console.reports_errors
def export_records(file: Path, database: Path | None, as_json: bool) -> None:
    """Write all records to FILE as JSON lines."""
    from tosaic.tuning import open_records

    with open_records(database) as opened:
        count = opened.export_lines(file)
    console.show(count, as_json, _records, lambda count: console.stderr.print(f"{count} records written to {file}"))


@records.command("import")
@click.argument("file", type=FILE)
@click.option("--records", "database", type=FILE, help="Default: the user's own.")
@as_json
@console.reports_errors
def import_records(file: Path, database: Path | None, as_json: bool) -> None:
    """Add the records of FILE; those that are there stay."""
    from tosaic.tuning import open_records

    with open_records(database) as opened:
        count = opened.import_lines(file)
    console.show(count, as_json, _records, lambda count: console.stderr.print(f"{count} new records from {file}"))
