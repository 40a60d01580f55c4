"""Builds of ever fewer weight bytes on an NPU: what each loses on your data, and what it takes."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tosaic.builds.build import BuildFolder
from tosaic.compiler.compilation import compile_model
from tosaic.compiler.goals import BuildCost
from tosaic.compiler.options import CompileOptions
from tosaic.compiler.user_data import COMPARED, FloatRun, cost_of, integer_outputs, stacked
from tosaic.frontend.coarser_weights import WeightBudget
from tosaic.support.errors import Error
from tosaic.support.quantization import CoarserWeights
from tosaic.terminal.progress import Stations

_SAVED = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
"""Shares of the encoded bytes that builds save, at least."""
_HALVED = 3
"""Times, between the share of the last build that loses no more than allowed and that of the next."""


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

    def gives(self, loss: WeightBudget) -> float:
        """What a loss is told of: decibels, infinite where nothing differs from float, or the first metric."""
        if loss.in_db:
            return math.inf if self.cost.sqnr_db is None else self.cost.sqnr_db
        return next(iter(self.metrics.values()))


@dataclass(frozen=True)
class WeightFront:
    """Builds of ever fewer weight bytes, the first with the finest steps.

    Args:
        within: the place of the one of fewest bytes that loses no more than is allowed; None where nothing is said.
    """

    points: list[WeightPoint]
    within: int | None = None


def weight_front(
    options: CompileOptions,
    data: str,
    labels: str | None = None,
    metric: str | None = None,
    count: int = 256,
    loss: WeightBudget | None = None,
) -> WeightFront:
    """Builds of ever fewer weight bytes; what saves no more than one before is left out.

    Args:
        data: samples, as `tosaic.frontend.read_samples` reads them.
        labels: the right classes, as `read_labels` reads them.
        metric: `file.py:function` of the outputs, a list of float32 arrays [samples, ...], and the labels or None.
        count: samples that are used at most.
        loss: what a build may lose against the first: decibels, or a share of the first metric, which is best when
            greatest. Between the builds around it more are tried.

    Raises:
        Error: the model, the data or an option cannot be used; the target has no NPU; a share is allowed of no metric.
    """
    run = FloatRun.of(options, data, labels, metric, count, Stations())
    if loss is not None and not loss.in_db and not run.data.metrics(run.outputs):
        raise Error(f"{loss} is allowed of no metric", hint="give --labels or --metric, or decibels, such as 1dB")
    found = _fewer([_built(options, share, run) for share in _SAVED])
    if loss is None:
        return WeightFront(found)
    for _ in range(_HALVED):
        last = _last_within(found, loss)
        if last + 1 == len(found):
            break
        share = (found[last].budget.value + found[last + 1].budget.value) / 2
        found = _fewer([*found, _built(options, share, run)])
    return WeightFront(found, _last_within(found, loss))


def _fewer(points: Sequence[WeightPoint]) -> list[WeightPoint]:
    """Points in the order of their budgets, each of fewer bytes than the one before."""
    found = list[WeightPoint]()
    for point in sorted(points, key=lambda point: point.budget.value):
        if not found or point.weights.encoded_bytes < found[-1].weights.encoded_bytes:
            found.append(point)
    return found


def _last_within(points: Sequence[WeightPoint], loss: WeightBudget) -> int:
    first = points[0].gives(loss)
    return max([0, *(number for number, point in enumerate(points) if first - point.gives(loss) <= loss.value)])


def _built(options: CompileOptions, share: float, run: FloatRun) -> WeightPoint:
    budget = WeightBudget(share, in_db=False)
    quantization = replace(options.quantization, weights=budget)
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        return _point(compile_model(replace(options, quantization=quantization), Path(folder, "build")), budget, run)


def _point(build: BuildFolder, budget: WeightBudget, run: FloatRun) -> WeightPoint:
    assert build.manifest.weights is not None
    samples, metrics = run.data.samples, run.data.metrics(run.outputs)
    outputs = integer_outputs(build, samples if metrics else samples[:COMPARED])
    cost, columns = cost_of(build, samples, run.outputs, outputs), stacked(outputs)
    return WeightPoint(budget, build.manifest.weights, cost, {name: of(columns) for name, of in metrics.items()})
