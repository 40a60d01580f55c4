"""What a model loses by quantization, on a user's data: layer by layer, as a task sees it, and what would cure it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from tosaic.builds.accuracy import LayerAccuracy, sqnr_db
from tosaic.builds.build import BuildFolder
from tosaic.compiler.compilation import compile_model
from tosaic.compiler.layers import worst
from tosaic.compiler.options import CompileOptions, QuantizationOptions
from tosaic.frontend import load_float, read_labels, read_samples
from tosaic.frontend.python_file import call
from tosaic.runs.running import Sample, float_outputs, reference_outputs, run_build
from tosaic.support.errors import Error

Kind = Literal["int16", "f32"]
Outputs = Sequence[Sequence[np.ndarray]]
_COMPARED = 16  # samples that each alternative is measured on
_NOTHING_DB = 0.1  # a gain below which a layer is not worth a cycle


@dataclass(frozen=True)
class Cost:
    """What a build gives and takes.

    Args:
        sqnr_db: of its worst output against the float model on the data; None where all outputs are equal to it.
        cycles: of one inference on CPU and NPU, modeled; instructions where the core has no cycle model.
        flash_bytes, arena_bytes: what it takes.
    """

    sqnr_db: float | None
    cycles: int
    flash_bytes: int
    arena_bytes: int

    @property
    def decibels(self) -> float:
        """The ratio as a number that compares."""
        return math.inf if self.sqnr_db is None else self.sqnr_db

    def price(self, before: Cost) -> float:
        """Cycles for a decibel more than `before`; infinite where there is none."""
        gain = self.decibels - before.decibels
        return max(1, self.cycles - before.cycles) / gain if gain >= _NOTHING_DB else math.inf


@dataclass(frozen=True)
class Alternative:
    """A build in which some ops are int16 or f32.

    Args:
        layer: the one that it raises; None where it is another choice for the whole model.
    """

    layer: LayerAccuracy | None
    kind: Kind
    quantization: QuantizationOptions
    cost: Cost


@dataclass(frozen=True)
class Score:
    """A task's metric by what computed it: PyTorch in float, the integer module, the simulated board."""

    name: str
    in_float: float
    integer: float
    board: float


@dataclass(frozen=True)
class Sensitivity:
    """What an analysis showed.

    Args:
        asked: the words of a compile command for this model, but for those that say what has which precision.
        cost: of the build as it was asked for.
        layers: worst first.
        advice: the cheapest choice that was found to meet what is asked; None where nothing was asked or found.
    """

    options: CompileOptions
    asked: Sequence[str]
    samples: int
    exact: bool
    cost: Cost
    layers: Sequence[LayerAccuracy]
    alternatives: Sequence[Alternative]
    scores: Sequence[Score]
    advice: Alternative | None

    @property
    def command(self) -> str:
        """The compile command of the advice."""
        if self.advice is None:
            return ""
        chosen = self.advice.quantization
        precision = ["--activations int16"] if chosen.activations == "int16" else []
        precision += [f"--int16 {name}" for name in chosen.int16] + [f"--exclude {name}" for name in chosen.exclude]
        return " ".join(["tosaic compile", self.options.model_name, *self.asked, *precision])


@dataclass(frozen=True)
class Data:
    """Samples as the float model takes them, and what is known of them.

    Args:
        labels: the right class of each, int64.
        metric: `file.py:function` of (outputs, labels), each output with the samples along its first axis.
    """

    samples: Sequence[Sample]
    labels: np.ndarray | None
    metric: str | None


def analyze(
    options: CompileOptions,
    data: str,
    labels: str | None = None,
    metric: str | None = None,
    count: int = 256,
    layers: int = 4,
    least_db: float | None = None,
    asked: Sequence[str] = (),
) -> Sensitivity:
    """Compile a model, run it on data, and measure what its noisiest layers would gain by int16 or f32.

    Args:
        data: samples, as `tosaic.frontend.read_samples` reads them.
        labels: the right classes, as `read_labels` reads them.
        metric: `file.py:function` of the outputs, a list of float32 arrays [samples, ...], and the labels or None.
        count: samples that are used at most.
        layers: how many of the noisiest layers are tried.
        least_db: what the worst output shall have; the cheapest set of layers is sought that gives it.
        asked: see `Sensitivity`.

    Raises:
        Error: the model, the data or an option cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        build = compile_model(options, Path(folder, "build"))
        program = load_float(build.folder / "float.pt2")
        names = [tensor.name for tensor in build.manifest.firmware.inputs]
        examples = tuple(program.example_inputs[0])[: len(names)] if program.example_inputs else ()
        read = read_samples(data, names, examples)
        wanted = read_labels(labels, len(read)) if labels else None
        samples = [[tensor.numpy() for tensor in row] for row in read][:count]
        floats = float_outputs(build, program, samples)
        trial = _Trial(options, Path(folder), samples, floats)
        given = run_build(build, samples)
        scores = _scores(build, Data(samples, wanted, metric), floats, given.board.outputs)
        cost = trial.cost(build)
        rows = worst(build.manifest.layers, len(build.manifest.layers))
        tried = list(_alternatives(trial, rows, layers))
        advice = trial.cheapest(tried, cost, least_db) if least_db is not None else None
    return Sensitivity(
        options, asked, len(samples), given.exact or not given.defined, cost, rows, tried, scores, advice
    )


@dataclass(frozen=True)
class _Trial:
    """Builds a model otherwise and measures what that gives."""

    options: CompileOptions
    folder: Path
    samples: Sequence[Sample]
    floats: Outputs

    def measure(self, quantization: QuantizationOptions) -> Cost:
        tuning = replace(self.options.tuning, trials=0)
        options = replace(self.options, quantization=quantization, tuning=tuning, prove=False, min_sqnr=None)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            return self.cost(compile_model(options, Path(folder, "build")))

    def cost(self, build: BuildFolder) -> Cost:
        samples = self.samples[:_COMPARED]
        outputs = _real(build, reference_outputs(build, samples))
        board = run_build(build, samples[:1])
        return Cost(
            sqnr_db=_worst_db(build, self.floats[: len(samples)], outputs),
            cycles=(board.board.cycles or board.board.instructions or 0) + board.npu_cycles,
            flash_bytes=build.manifest.firmware.flash_bytes,
            arena_bytes=build.manifest.firmware.arena_bytes,
        )

    def cheapest(self, tried: Sequence[Alternative], now: Cost, least_db: float) -> Alternative | None:
        """Layers are raised one after another, least cycles for a decibel first, where that gains, until it does."""
        if now.decibels >= least_db:
            return Alternative(None, "int16", self.options.quantization, now)
        quantization, cost = self.options.quantization, now
        found = [one for one in tried if one.layer is None]
        for one in sorted((one for one in tried if one.layer), key=lambda one: one.cost.price(now)):
            if cost.decibels >= least_db or one.layer is None:
                break
            more = _raised(quantization, one.layer.names, one.kind)
            if (then := self.measure(more)).decibels >= cost.decibels + _NOTHING_DB:
                quantization, cost = more, then
                found.append(Alternative(None, one.kind, more, then))
        enough = [one for one in found if one.cost.decibels >= least_db]
        return min(enough, key=lambda one: one.cost.cycles, default=None)


def _alternatives(trial: _Trial, rows: Sequence[LayerAccuracy], count: int) -> Iterator[Alternative]:
    """The noisiest layers raised, each alone, and the whole model in int16."""
    asked = trial.options.quantization
    kinds: tuple[Kind, ...] = ("int16", "f32")
    noisiest: dict[tuple[str, ...], LayerAccuracy] = {}
    for row in rows:
        if row.names:
            noisiest.setdefault(row.names, row)
    for layer in list(noisiest.values())[:count]:
        for kind in kinds:
            raised = _raised(asked, layer.names, kind)
            yield Alternative(layer, kind, raised, trial.measure(raised))
    if asked.activations == "int8":
        whole = replace(asked, activations="int16", int16=())
        yield Alternative(None, "int16", whole, trial.measure(whole))


def _raised(quantization: QuantizationOptions, names: Sequence[str], kind: Kind) -> QuantizationOptions:
    if kind == "int16":
        return replace(quantization, int16=tuple(dict.fromkeys((*quantization.int16, *names))))
    return replace(quantization, exclude=tuple(dict.fromkeys((*quantization.exclude, *names))))


def _real(build: BuildFolder, outputs: Outputs) -> Outputs:
    return [build.dequantize_outputs(list(row)) for row in outputs]


def _worst_db(build: BuildFolder, floats: Outputs, outputs: Outputs) -> float | None:
    ratios = [
        sqnr_db([row[index] for row in floats], [row[index] for row in outputs])
        for index, tensor in enumerate(build.manifest.firmware.outputs)
        if tensor.quantization or tensor.dtype.startswith("float")
    ]
    return min((ratio for ratio in ratios if ratio is not None), default=None)


def _scores(build: BuildFolder, data: Data, floats: Outputs, board: Outputs) -> list[Score]:
    integer = _real(build, reference_outputs(build, data.samples))
    computed = [_stacked(outputs) for outputs in (floats, integer, _real(build, board))]
    labels = None if data.labels is None else data.labels[: len(data.samples)]
    metrics: dict[str, Callable[[list[np.ndarray]], float]] = {}
    if labels is not None:
        classes = computed[0][0].shape[-1]
        metrics |= {f"top-{k}": _top(k, labels) for k in (1, 5) if k < classes}
    if (named := data.metric) is not None:
        metrics[named] = lambda outputs: _number(named, call(named, outputs, labels))
    return [Score(name, *(metric(outputs) for outputs in computed)) for name, metric in metrics.items()]


def _stacked(outputs: Outputs) -> list[np.ndarray]:
    return [np.stack(column) for column in zip(*outputs, strict=True)]


def _top(count: int, labels: np.ndarray) -> Callable[[list[np.ndarray]], float]:
    """The share of samples whose right class is among the `count` largest of the first output's last axis."""

    def share(outputs: list[np.ndarray]) -> float:
        scores = outputs[0].reshape(len(labels), -1, outputs[0].shape[-1])[:, 0]
        best = np.argsort(-scores, axis=-1, kind="stable")[:, :count]
        return float((best == labels[:, None]).any(-1).mean())

    return share


def _number(name: str, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise Error(f"`{name}` must return a number", why=f"it returned {type(value).__name__}") from None
