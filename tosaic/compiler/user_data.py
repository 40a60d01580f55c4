"""A user's samples, and what a model gives on them: metrics, decibels, cycles and bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tosaic.builds.accuracy import sqnr_db
from tosaic.builds.build import BuildFolder
from tosaic.compiler.goals import BuildCost
from tosaic.compiler.middle import capture_model
from tosaic.compiler.options import CompileOptions
from tosaic.frontend import Capture, check_sample, is_tosa_file, read_labels, read_samples, run_float_on
from tosaic.frontend.python_file import call
from tosaic.runs.running import Sample, reference_outputs, run_build
from tosaic.support.errors import Error
from tosaic.terminal.progress import Stations

Outputs = Sequence[Sequence[np.ndarray]]
Metric = Callable[[list[np.ndarray]], float]
COMPARED = 16
"""Samples that a build's decibels are told from."""


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

    @staticmethod
    def read(captured: Capture, source: str, labels: str | None, metric: str | None, count: int) -> Data:
        """At most so many samples for the inputs of a model.

        Raises:
            Error: they cannot be read, or do not fit.
        """
        inputs = len(captured.inputs) - len(captured.states)
        names, examples = captured.input_names[:inputs], captured.inputs[:inputs]
        rows = read_samples(source, names, examples)
        for row in rows:
            check_sample(row, examples, names, "data")
        wanted = read_labels(labels, len(rows))[:count] if labels else None
        return Data([[tensor.numpy() for tensor in row] for row in rows[:count]], wanted, metric)

    def metrics(self, outputs: Outputs) -> dict[str, Metric]:
        """The metrics of such outputs by name, the user's own first."""
        found: dict[str, Metric] = {}
        if (named := self.metric) is not None:
            found[named] = lambda columns: _number(named, call(named, columns, self.labels))
        if self.labels is not None:
            classes, labels = outputs[0][0].shape[-1], self.labels
            found |= {f"top-{k}": _top(k, labels) for k in (1, 5) if k < classes}
        return found


@dataclass(frozen=True)
class FloatRun:
    """A captured model, and what it gives on a user's samples in float.

    Args:
        outputs: of each sample, without states.
        states: what each holds before the first sample.
    """

    captured: Capture
    data: Data
    outputs: Outputs
    states: Sequence[np.ndarray]

    @staticmethod
    def of(
        options: CompileOptions, data: str, labels: str | None, metric: str | None, count: int, stations: Stations
    ) -> FloatRun:
        """Of at most `count` samples, as `Data.read` reads them.

        Raises:
            Error: the model or the data cannot be used.
        """
        if is_tosa_file(options.model):
            raise Error("there is no float model", hint="measure the PyTorch model that the TOSA comes from")
        with stations.live(), stations.station("capture"):
            captured = capture_model(options)
        read = Data.read(captured, data, labels, metric, count)
        states = [state.initial.numpy() for state in captured.states]
        outputs = [row[: len(row) - len(states)] for row in run_float_on(captured, read.samples, states)]
        return FloatRun(captured, read, outputs, states)


def cost_of(build: BuildFolder, samples: Sequence[Sample], floats: Outputs, outputs: Outputs) -> BuildCost:
    """What a build gives on a few samples, and takes.

    Args:
        floats: what the float model gives on the samples.
        outputs: what the integer module gives, of a few of them at least, as reals.
    """
    outputs = outputs[:COMPARED]
    board = run_build(build, samples[:1])
    return BuildCost(
        sqnr_db=worst_db(floats[: len(outputs)], outputs),
        cycles=(board.board.cycles or board.board.instructions or 0) + board.npu_cycles,
        flash_bytes=build.manifest.firmware.flash_bytes,
        arena_bytes=build.manifest.firmware.arena_bytes,
    )


def integer_outputs(build: BuildFolder, samples: Sequence[Sample]) -> Outputs:
    """What the integer module gives on samples, as reals."""
    return real_outputs(build, reference_outputs(build, samples))


def real_outputs(build: BuildFolder, outputs: Outputs) -> Outputs:
    return [build.dequantize_outputs(list(row)) for row in outputs]


def worst_db(floats: Outputs, outputs: Outputs) -> float | None:
    """Of outputs of reals; a plain integer says nothing of noise."""
    ratios = [
        sqnr_db([row[index] for row in floats], [row[index] for row in outputs])
        for index, example in enumerate(floats[0])
        if np.issubdtype(example.dtype, np.floating)
    ]
    return min((ratio for ratio in ratios if ratio is not None), default=None)


def stacked(outputs: Outputs) -> list[np.ndarray]:
    return [np.stack(column) for column in zip(*outputs, strict=True)]


def _top(count: int, labels: np.ndarray) -> Metric:
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
