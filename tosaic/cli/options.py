"""What commands are given: types of options, and the options of every command that compiles."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tosaic.compiler.options import CompileOptions, QuantizationOptions, Tuning
from tosaic.compiler.schedules import Schedules
from tosaic.support.errors import Error
from tosaic.target_files.ready import find_target

if TYPE_CHECKING:
    from tosaic.compiler.goals import Goal
    from tosaic.frontend.coarser_weights import WeightBudget

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
        except Error as error:
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


class Goals(click.ParamType):
    """Decibels, or what a metric shall reach."""

    name = "goal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Goal:
        from tosaic.compiler.goals import Goal

        try:
            return Goal.parse(str(value))
        except ValueError:
            self.fail(f"{value!r} is no goal; write 30dB, 84.5% or 0.845", param, ctx)


class Budget(click.ParamType):
    """Decibels, or a share.

    Args:
        of: what it is spent on, for messages.
        example: one, for messages.
    """

    name = "budget"

    def __init__(self, of: str, example: str) -> None:
        self.of, self.example = of, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> WeightBudget:
        from tosaic.frontend.coarser_weights import WeightBudget

        try:
            return WeightBudget.parse(str(value))
        except ValueError:
            self.fail(f"{value!r} is no {self.of}; write 1dB or {self.example}", param, ctx)


class Times(click.ParamType):
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
on_data = _together(
    click.option("--data", required=True, help="Samples: .npz, .npy, a folder of them, or file.py:function."),
    click.option("--labels", help="Right classes, for top-1 and top-5: .npy, or file.py:function."),
    click.option("--metric", help="file.py:function of (outputs, labels) that returns a number."),
    click.option(
        "--samples", "count", type=click.IntRange(min=1), default=256, show_default=True, help="Used at most."
    ),
)
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
    click.option("--int4", multiple=True, metavar="NAME",
                 help="Module or op (linear) whose weights have four bits; repeatable."),
    click.option("--group-size", type=click.Choice(["32", "64", "128"]), default="32", show_default=True,
                 help="Of such weights, how many inputs of a layer share a scale."),
    click.option("--weights", type=Budget("budget of weights", "20%"),
                 help="Coarser steps of weights on an NPU: 1dB for what they may lose, 20% for bytes that they save."),
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


def options_of(target: str, **given: Any) -> CompileOptions:
    """The options of `compiling`, which are called as the fields that they fill."""

    def taken(*names: str) -> dict[str, Any]:
        return {name: given.pop(name) for name in names}

    schedule, group_size = given.pop("schedule"), int(given.pop("group_size"))
    changes = ("accelerator", "arena", "arena_size", "constants", "memory_mode", "system_config", "flash_size")
    return CompileOptions(
        target=find_target(target, **taken(*changes, "clock", "npu_clock")),
        quantization=QuantizationOptions(
            **taken("activations", "exclude", "int16", "int4", "weights"), group_size=group_size
        ),
        tuning=Tuning(**taken("trials", "search", "objective", "seed", "records", "measure", "workers")),
        shapes=dict(given.pop("shapes")),
        schedules=Schedules.read(schedule) if schedule else Schedules(),
        **given,
    )


_PRECISION = ("activations", "exclude", "int16")


def asked(context: click.Context, command: click.Command) -> list[str]:
    """The words that a command was given and `command` takes, too, but the model and what has which precision."""
    taken = {parameter.name for parameter in command.params if isinstance(parameter, click.Option)}
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
