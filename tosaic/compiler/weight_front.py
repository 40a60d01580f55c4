"""Builds of ever fewer weight bytes on an NPU: what each loses on your data, and what it takes."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from tosaic.builds.build import BuildFolder
from tosaic.compiler.compilation import compile_model
from tosaic.compiler.goals import BuildCost
from tosaic.compiler.options import CompileOptions
from tosaic.compiler.user_data import COMPARED, FloatRun, cost_of, integer_outputs, stacked
from tosaic.frontend.coarser_weights import WeightBudget
from tosaic.support.quantization import CoarserWeights
from tosaic.terminal.progress import Stations

_SAVED = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
"""Shares of the encoded bytes that builds save, at least."""


@dataclass(frozen=True)
class WeightPoint:
    """A build whose weights take so many bytes.

    Args:
        budget: the `--weights` that makes it.
        weights: what coarser steps of weights gave.
        cost: what the build gives on the user's samples, and takes.
        metrics: of its integer module on these, by name.
    """

    budget: WeightBudget
    weights: CoarserWeights
    cost: BuildCost
    metrics: dict[str, float]


def weight_front(
    options: CompileOptions, data: str, labels: str | None = None, metric: str | None = None, count: int = 256
) -> list[WeightPoint]:
    """Builds of ever fewer weight bytes, the first with the finest steps; what saves no more than one before is left
    out.

    Args:
        data: samples, as `tosaic.frontend.read_samples` reads them.
        labels: the right classes, as `read_labels` reads them.
        metric: `file.py:function` of the outputs, a list of float32 arrays [samples, ...], and the labels or None.
        count: samples that are used at most.

    Raises:
        Error: the model, the data or an option cannot be used; the target has no NPU.
    """
    run, found = FloatRun.of(options, data, labels, metric, count, Stations()), list[WeightPoint]()
    for share in _SAVED:
        budget = WeightBudget(share, in_db=False)
        quantization = replace(options.quantization, weights=budget)
        with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
            build = compile_model(replace(options, quantization=quantization), Path(folder, "build"))
            point = _point(build, budget, run)
        if not found or point.weights.encoded_bytes < found[-1].weights.encoded_bytes:
            found.append(point)
    return found


def _point(build: BuildFolder, budget: WeightBudget, run: FloatRun) -> WeightPoint:
    assert build.manifest.weights is not None
    samples, metrics = run.data.samples, run.data.metrics(run.outputs)
    outputs = integer_outputs(build, samples if metrics else samples[:COMPARED])
    cost, columns = cost_of(build, samples, run.outputs, outputs), stacked(outputs)
    return WeightPoint(budget, build.manifest.weights, cost, {name: of(columns) for name, of in metrics.items()})
