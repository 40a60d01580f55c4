"""What the NPU takes where tosaic's weights may be as coarse as ExecuTorch's accuracy allows.

`python benchmarks/equal_accuracy.py` quantizes each model of the zoo with half of its calibration samples, by tosaic
and by ExecuTorch, which has to be installed. On the other half it tells the noise that each leaves, against the
variance. What tosaic has more is the budget of `--weights`; then each target's build gives its cycles, with those of
the core.
"""

from __future__ import annotations

import math
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.accuracy import Network, executorch, in_float, tosaic
from tosaic.builds.manifest import Manifest
from tosaic.compiler.compilation import compile_model
from tosaic.compiler.options import CompileOptions, QuantizationOptions
from tosaic.frontend import WeightBudget
from tosaic.frontend.bias_correction import ratio_db
from tosaic.target_files.ready import find_target
from tosaic.zoo import NAMES, load

_LEAST = 0.1
"""Decibels that are worth coarser steps."""


def decibels(name: str) -> tuple[float, float]:
    """Of tosaic and of ExecuTorch, on samples that neither was calibrated with."""
    module, _, calibration = load(name)
    samples = [sample for (sample,) in calibration]
    network = Network(module, samples[::2], samples[1::2], None)
    exact = in_float(network)(network.fresh)
    ours, theirs = (build(network) for build in (tosaic, executorch))
    if ours is None or theirs is None:
        raise click.ClickException("executorch is not installed")
    ratios = [ratio_db(zip(exact, run(network.fresh), strict=True)) for run in (ours, theirs)]
    return ratios[0], ratios[1]


def cycles(name: str, target: str, budget: float) -> str:
    """Of a build that may lose so many decibels."""
    weights = WeightBudget(budget, in_db=True) if budget >= _LEAST else None
    options = CompileOptions(f"zoo:{name}", find_target(target), quantization=QuantizationOptions(weights=weights))
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        return cycles_of(compile_model(options, Path(folder, "build")).manifest)


def cycles_of(manifest: Manifest) -> str:
    """Vela's, those of the core, or both with a plus between."""
    return " + ".join(f"{cycles:,}" for cycles in (manifest.npu_cycles, manifest.cpu_cost) if cycles)


@click.command()
@click.argument("models", nargs=-1, type=click.Choice(NAMES))
@click.option("--targets", default="corstone-300,corstone-320", show_default=True)
def main(models: Sequence[str], targets: str) -> None:
    """Print the table of Markdown."""
    warnings.simplefilter("ignore")
    columns = targets.split(",")
    print(f"| model | tosaic | ExecuTorch | {' | '.join(columns)} |\n|---|---|---|{'---|' * len(columns)}")
    for name in models or NAMES:
        ours, theirs = decibels(name)
        budget = math.floor(10 * (ours - theirs)) / 10
        found = [cycles(name, target, budget) for target in columns]
        print(f"| {name} | {ours:.1f} dB | {theirs:.1f} dB | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
