"""What a model loses by quantization on your data: where noise is made, what a task sees, and what would cure it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tosaic.builds.build import BuildFolder
from tosaic.compiler.compilation import compile_model
from tosaic.compiler.goals import BuildCost, Goal, RaisedGroup, Recommendation, Scanned, Score, Sensitivity
from tosaic.compiler.layers import worst
from tosaic.compiler.middle import quantized
from tosaic.compiler.options import CompileOptions, QuantizationOptions
from tosaic.compiler.user_data import (
    COMPARED,
    Data,
    FloatRun,
    Metric,
    Outputs,
    cost_of,
    integer_outputs,
    real_outputs,
    stacked,
    worst_db,
)
from tosaic.frontend import (
    Capture,
    Cause,
    Scan,
    prepare,
    run_float_on,
)
from tosaic.frontend.canonical import is_quantized
from tosaic.runs.running import Run, Sample, reference_outputs, run_build
from tosaic.support.errors import Error
from tosaic.support.threads import one_thread
from tosaic.terminal.progress import Stations

_NOTHING_DB = 0.1  # a gain below which a tensor is not worth a cycle
_FLOAT_DB = 1.0  # the same of weights in f32, which a Cortex-M computes alone
_STEPS = 16  # sets of tensors that a goal is sought in
_SHORT = 2  # further sets, where the integer module falls short of what was simulated


def analyze(
    options: CompileOptions,
    data: str,
    labels: str | None = None,
    metric: str | None = None,
    count: int = 256,
    layers: int = 4,
    goal: Goal | None = None,
    budget: float | None = None,
    asked: Sequence[str] = (),
    output: Path | None = None,
    tell: Callable[[Scanned], None] = lambda scanned: None,
) -> Sensitivity:
    """Find which tensors make a model's noise, compile it, run it on data, and find what to raise for a goal.

    Args:
        data: samples, as `tosaic.frontend.read_samples` reads them.
        labels: the right classes, as `read_labels` reads them.
        metric: `file.py:function` of the outputs, a list of float32 arrays [samples, ...], and the labels or None.
        count: samples that are used at most.
        layers: how many of the tensors that make most noise are raised, one more at a time.
        goal: what is sought; of a metric the user's own, else top-1.
        budget: the cycles that it may take, in those of the build as asked.
        asked: see `Sensitivity`.
        output: where to keep the build that meets the goal.
        tell: is given what the scan shows, before anything is compiled.

    Raises:
        Error: the model, the data or an option cannot be used.
    """
    stations = Stations()
    run = FloatRun.of(options, data, labels, metric, count, stations)
    read, floats = run.data, run.outputs
    metrics = read.metrics(floats)
    if goal and not goal.in_db and not metrics:
        raise Error(f"{goal} needs a metric", hint="give --labels or --metric, or a goal in dB, such as 30dB")
    in_float = [measure(stacked(floats)) for measure in metrics.values()]
    with stations.live(), stations.station("scan"):
        scanned = _scan(options, run.captured, max(layers, _STEPS if goal else 0))
    shown = replace(scanned, steps=scanned.steps[:layers])
    tell(shown)
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        build = compile_model(options, Path(folder, "build"))
        given = run_build(build, read.samples)
        scores = _scores(build, read, given, metrics, in_float)
        trial = _Trial(options, run, next(iter(metrics.values()), None), output)
        cost = cost_of(build, read.samples, floats, integer_outputs(build, read.samples[:COMPARED]))
        advice = trial.best(scanned.steps, goal, cost, budget) if goal else None
    exact, noisiest = given.exact or not given.defined, worst(build.manifest.layers, len(build.manifest.layers))
    return Sensitivity(options, asked, len(read.samples), exact, cost, shown, noisiest, scores, goal, advice)


def _scores(
    build: BuildFolder, data: Data, given: Run, metrics: Mapping[str, Metric], in_float: Sequence[float]
) -> list[Score]:
    """Each metric in float, of the integer module, and on the board."""
    board = given.board.outputs
    both = board if given.exact else reference_outputs(build, data.samples), board
    computed = [stacked(real_outputs(build, rows)) for rows in both]
    pairs = zip(metrics.items(), in_float, strict=True)
    return [Score(name, value, *map(measure, computed)) for (name, measure), value in pairs]


@one_thread()
def _scan(options: CompileOptions, captured: Capture, count: int) -> Scanned:
    if is_quantized(captured.program):
        return Scanned((), (), None)
    asked = options.quantization
    npu = options.target.accelerator is not None
    prepared = prepare(captured, asked.activations, asked.exclude, asked.int16, asked.int4, asked.group_size, npu)
    scan = Scan(prepared, captured.calibration)
    causes, now = scan.causes(), scan.raised_db([])
    return Scanned(causes, list(_steps(scan, causes, asked, count, now)), now if math.isfinite(now) else None)


def _steps(
    scan: Scan, causes: Sequence[Cause], asked: QuantizationOptions, count: int, now: float
) -> Iterator[RaisedGroup]:
    """Causes raised one after another where each gains: activations to int16, then weights to f32."""
    raised: list[Cause] = []
    for kind, least in (("activations", _NOTHING_DB), ("weights", _FLOAT_DB)):
        for cause in (one for one in causes if one.kind == kind and math.isfinite(one.alone_db)):
            if len(raised) == count:
                return
            if (then := scan.raised_db([*raised, cause])) >= now + least:
                raised, now = [*raised, cause], then
                yield RaisedGroup(cause, _raised(asked, raised), then)


def _raised(quantization: QuantizationOptions, causes: Sequence[Cause]) -> QuantizationOptions:
    def names(kind: str, given: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*given, *(one.name for one in causes if one.kind == kind))))

    int16, exclude = names("activations", quantization.int16), names("weights", quantization.exclude)
    return replace(quantization, int16=int16, exclude=exclude)


@dataclass(frozen=True)
class _Trial:
    """Quantizes a model otherwise, in PyTorch's simulation, and builds what is best."""

    options: CompileOptions
    run: FloatRun
    metric: Metric | None
    output: Path | None
    _known: dict[QuantizationOptions, float] = field(default_factory=dict)

    def best(
        self, steps: Sequence[RaisedGroup], goal: Goal, now: BuildCost, budget: float | None
    ) -> Recommendation | None:
        """The first of the sets that grow which reaches the goal, int16 everywhere the last, built."""
        asked = self.options.quantization
        sets = [asked, *(step.quantization for step in steps)]
        if asked.activations == "int8":
            sets.append(replace(asked, activations="int16", int16=()))
        low, high = 0, len(sets) - 1
        while low < high:
            middle = (low + high) // 2
            reached = self._simulated(sets[middle], goal) >= goal.value
            low, high = (low, middle) if reached else (middle + 1, high)
        for quantization in sets[low : low + 1 + _SHORT]:
            try:
                found = self._built(quantization, goal, now, budget)
            except Error:  # it does not fit the target, or a TABLE is too coarse for what is simulated
                continue
            if found.value >= goal.value:
                return found
        return None

    def _simulated(self, quantization: QuantizationOptions, goal: Goal) -> float:
        if quantization not in self._known:
            program, _ = quantized(replace(self.options, quantization=quantization), self.run.captured)
            rows = run_float_on(program, self._samples(goal), self.run.states)
            self._known[quantization] = self._value([row[: len(self.run.outputs[0])] for row in rows], goal)
        return self._known[quantization]

    def _samples(self, goal: Goal) -> Sequence[Sample]:
        """Those that say whether a goal is reached."""
        return self.run.data.samples[:COMPARED] if goal.in_db else self.run.data.samples

    def _value(self, outputs: Outputs, goal: Goal) -> float:
        if goal.in_db:
            ratio = worst_db(self.run.outputs[: len(outputs)], outputs)
            return math.inf if ratio is None else ratio
        assert self.metric is not None
        return self.metric(stacked(outputs))

    def _built(
        self, quantization: QuantizationOptions, goal: Goal, now: BuildCost, budget: float | None
    ) -> Recommendation:
        options = replace(self.options, quantization=quantization)
        with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
            build = compile_model(options, self.output or Path(folder, "build"))
            outputs = integer_outputs(build, self._samples(goal))
            cost, value = cost_of(build, self.run.data.samples, self.run.outputs, outputs), self._value(outputs, goal)
        return Recommendation(quantization, cost, value, budget is None or cost.cycles <= budget * now.cycles)
