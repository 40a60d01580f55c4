"""What an analysis of accuracy is asked for, and what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tosaic.builds.accuracy import LayerAccuracy
from tosaic.compiler.options import CompileOptions, QuantizationOptions
from tosaic.frontend import Cause


@dataclass(frozen=True)
class Goal:
    """What the model shall reach: decibels of its worst output, or a task's metric, of which more is better."""

    value: float
    in_db: bool

    @staticmethod
    def parse(text: str) -> Goal:
        """`30dB`, `84.5%` or `0.845`.

        Raises:
            ValueError: it is none of these.
        """
        for unit, part, in_db in (("dB", 1.0, True), ("%", 0.01, False), ("", 1.0, False)):
            if text.endswith(unit):
                return Goal(float(text.removesuffix(unit)) * part, in_db)
        raise ValueError(text)

    def __str__(self) -> str:
        return f"{self.value:g} dB" if self.in_db else f"a metric of {self.value:g}"


@dataclass(frozen=True)
class BuildCost:
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


@dataclass(frozen=True)
class RaisedGroup:
    """The tensors that make most noise, raised together.

    Args:
        raised: the last of them, which the step before does not raise.
        simulated_db: what they leave of the worst output on calibration data, int16 taken for exact.
    """

    raised: Cause
    quantization: QuantizationOptions
    simulated_db: float


@dataclass(frozen=True)
class Scanned:
    """Where noise is made, the worst first, and what raising it gives; empty of a model that is quantized already.

    Args:
        simulated_db: what quantization as asked leaves of the worst output on calibration data.
    """

    causes: Sequence[Cause]
    steps: Sequence[RaisedGroup]
    simulated_db: float | None


@dataclass(frozen=True)
class Score:
    """A task's metric by what computed it: PyTorch in float, the integer module, the simulated board."""

    name: str
    in_float: float
    integer: float
    board: float


@dataclass(frozen=True)
class Recommendation:
    """A build that reaches the goal.

    Args:
        value: what its integer module reaches, in the goal's unit.
        in_budget: whether it keeps to the budget of cycles.
    """

    quantization: QuantizationOptions
    cost: BuildCost
    value: float
    in_budget: bool


@dataclass(frozen=True)
class Sensitivity:
    """What an analysis showed.

    Args:
        asked: the words of a compile command for this model, but for those that say what has which precision.
        cost: of the build as it was asked for.
        layers: by what noise arrives there, worst first.
        advice: the fewest tensors to raise for the goal; None without a goal, or where nothing that was tried meets it.
    """

    options: CompileOptions
    asked: Sequence[str]
    samples: int
    exact: bool
    cost: BuildCost
    scanned: Scanned
    layers: Sequence[LayerAccuracy]
    scores: Sequence[Score]
    goal: Goal | None
    advice: Recommendation | None

    @property
    def command(self) -> str:
        """The compile command of the advice."""
        if self.advice is None:
            return ""
        chosen = self.advice.quantization
        precision = ["--activations int16"] if chosen.activations == "int16" else []
        precision += [f"--int16 {name}" for name in chosen.int16] + [f"--exclude {name}" for name in chosen.exclude]
        return " ".join(["tosaic compile", self.options.model_name, *self.asked, *precision])
