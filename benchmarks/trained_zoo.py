"""What trained weights are to the figures: `python benchmarks/trained_zoo.py`.

Of each network that the zoo has trained, a row for its seeded weights and one for its trained ones: what the task's
metric is in float and in int8 on fresh data, the bits that Vela's encoding of a weight takes, and the cycles on each
target.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import click
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.equal_accuracy import cycles_of
from tosaic.backends.npus import family_of
from tosaic.builds.build import BuildFolder
from tosaic.compiler.compilation import compile_model
from tosaic.compiler.options import CompileOptions
from tosaic.frontend import capture, quantize, run_float_on
from tosaic.support.mlir import constant_value, walk
from tosaic.support.values import multiplications
from tosaic.target_files.ready import find_target
from tosaic.zoo.trained import TASKS, calls, fresh, score

_FRESH = 400


def metric(name: str) -> str:
    """In float and in the integer module's simulation; top-1, or the area under the curve."""
    samples, classes = fresh(name, _FRESH)
    captured = capture(f"zoo:{name}:trained")
    inputs, found = [[one] for one in calls(samples).split(1)], []
    for program in (captured.program, quantize(captured)):
        outputs = torch.cat([torch.from_numpy(row[0]) for row in run_float_on(program, inputs)])
        found.append(f"{100 * score(samples, classes, outputs):.2f} %")
    return " / ".join(found)


def weight_bits(build: BuildFolder, accelerator: str) -> float:
    """Bits of a weight as the NPU's compiler encodes it, over all layers."""
    encoded_bytes = family_of(accelerator).encoded_bytes
    layers = [constant_value(op.operands[1]) for op in walk(build.module) if multiplications(op)]
    weights = [one for one in layers if one is not None]
    return 8 * sum(map(encoded_bytes, weights)) / sum(one.size for one in weights)


def compiled(model: str, target: str) -> tuple[str, str]:
    """The cycles of a build, and on an NPU the bits of its weights, else nothing."""
    options = CompileOptions(f"zoo:{model}", find_target(target))
    accelerator = options.target.accelerator
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        build = compile_model(options, Path(folder, "build"))
        return cycles_of(build.manifest), f"{weight_bits(build, accelerator):.2f}" if accelerator else ""


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(TASKS)))
@click.option("--targets", default="corstone-300,corstone-320,cortex-m55", show_default=True)
def main(names: Sequence[str], targets: str) -> None:
    """Print the table of Markdown; the bits are those of the first target."""
    warnings.simplefilter("ignore")
    columns = targets.split(",")
    print(f"| model | float / int8 | bits | {' | '.join(columns)} |\n|---|---|---|{'---|' * len(columns)}")
    for name in names or TASKS:
        for model, found in ((name, ""), (f"{name}:trained", metric(name))):
            rows = [compiled(model, target) for target in columns]
            print(f"| {model} | {found} | {rows[0][1]} | {' | '.join(row[0] for row in rows)} |", flush=True)


if __name__ == "__main__":
    main()
