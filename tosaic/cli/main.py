"""The group of all commands."""

from __future__ import annotations

import atexit
import gc

import click

from tosaic.cli import builds, models, tools
from tosaic.support.garbage import collect_rarely
from tosaic.terminal import console


def _show_versions(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from tosaic.reports.versions import versions

    for name, version in versions().items():
        click.echo(f"{name:18} {version}")
    context.exit()


@click.group(cls=console.Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_versions,
              help="Show the version of every part and exit.")  # fmt: skip
def main() -> None:
    """Compile PyTorch models for Arm microcontrollers, exact to the bit.

    MODEL is a .pt2, .onnx, .tosa, .mlir or .tflite file, a file.py:factory, or zoo:NAME. Several factories,
    file.py:prefill,decode, are methods of one model.
    """
    collect_rarely()
    atexit.register(gc.freeze)  # nor does it look through them once more at the end


for command in (
    models.compile_command,
    models.tune,
    models.fit,
    models.accuracy,
    models.weights,
    builds.run,
    builds.generate,
    builds.verify,
    builds.report,
    builds.export,
    tools.opt,
    tools.targets,
    tools.doctor,
    tools.aten_ops,
    tools.npu,
    tools.worker,
    tools.monitor,
    tools.tokenizer,
    tools.records,
):
    main.add_command(command)
