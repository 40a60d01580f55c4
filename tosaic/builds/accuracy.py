"""What a build says of its accuracy: each output's, each layer's, and the ratios that tell it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Arrays = Sequence[np.ndarray]

NOISY_DB = 20.0
"""A signal to noise ratio below which a user is warned."""
_NOISY_WITHIN_DB = 15.0  # channels, by the few samples that it is told from
LOST_DB = 10.0
"""What roundings that PyTorch does otherwise may cost.

The zoo's models lose 3.9 dB at most, over ten outputs. A difference of two tensors that are rounded halfway loses 6.0
of 45 dB.
"""
_LEAST_VALUES = 4  # of a channel
_FAR_LESS_DB = 3.0
AGREED_DB = 48.0
"""From here on the integer module and PyTorch's simulation are the same but for what int16 loses by TABLEs of 512
chords; steps of int8 that are all off by one have less."""
_ASIDE = 0.75  # steps on average: half of one where all lie halfway, as the bytes of x / 255 - 0.5
_FEW = 16  # elements, of which roundings may well all fall to one side
_FLIPPED, _SHARE = 2, 0.25  # elements of int8 convolutions that may differ; 1 in 10,000 does


@dataclass(frozen=True)
class OutputAccuracy:
    """One output over calibration samples; each ratio is None where it has no finite value.

    Args:
        sqnr_db: the integer module against the float model: noise against the variance.
        simulated_db: PyTorch's simulation of the quantized program against the float model.
        agreement_db: the integer module against that simulation.
        quanta: their largest difference, in steps of the output's scale.
        channel_db: as `sqnr_db`, against the variance within the channels.
    """

    name: str
    sqnr_db: float | None
    simulated_db: float | None
    agreement_db: float | None
    quanta: int
    channel_db: float | None = None

    @property
    def told_db(self) -> float | None:
        """What the user should know: the ratio within the channels where that is far less."""
        if self.sqnr_db is None or self.channel_db is None or self.channel_db > self.sqnr_db - _FAR_LESS_DB:
            return self.sqnr_db
        return self.channel_db

    @property
    def is_noisy(self) -> bool:
        """Whether a user would expect more."""
        within = self.told_db is not None and self.told_db != self.sqnr_db and self.told_db < _NOISY_WITHIN_DB
        return within or (self.sqnr_db is not None and self.sqnr_db < NOISY_DB)

    @property
    def is_other_function(self) -> bool:
        """Whether the integer module computes something else than the quantized program."""
        if self.sqnr_db is None or self.simulated_db is None or self.agreement_db is None or self.quanta <= 1:
            return False
        return self.agreement_db < AGREED_DB and self.sqnr_db < self.simulated_db - LOST_DB


class Computed(NamedTuple):
    """A sample as the firmware takes it, and what the integer module makes of it."""

    inputs: list[np.ndarray]
    outputs: list[np.ndarray]


@dataclass(frozen=True)
class LayerAccuracy:
    """A tensor that is rounded to integers, by the op that makes it.

    Args:
        op, module, where: the ATen op, the path of its module and the user's line; of an input, its name.
        sqnr_db: the quantized program against the float model in dB, what comes before it quantized too; None where
            there is no float model, or no noise.
        quanta: the largest difference between the integer module and the quantized program in steps, both given
            the same integers; 0 where all are equal.
        differing: the share of elements that differ.
        mean: the mean difference in steps.
        agreement_db: the integer module against the quantized program; None where they are equal.
        elements: how many there are.
        weighted: whether it is int8 of a convolution or a matrix product with weights.
        outputs: the names of the outputs that depend on it.
        names: what `--exclude` and `--int16` call its ops.
    """

    op: str
    module: str
    where: str
    sqnr_db: float | None
    quanta: int
    differing: float
    mean: float
    agreement_db: float | None
    elements: int
    weighted: bool
    outputs: tuple[str, ...]
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.op}{f' in module `{self.module}`' if self.module else ''}"

    @property
    def is_other_function(self) -> bool:
        """Whether the integer module computes here something else than the quantized program: more than roundings."""
        if self.weighted and self.differing * self.elements > _FLIPPED + _SHARE * self.elements:
            return True
        if self.agreement_db is None or self.agreement_db >= AGREED_DB:
            return False
        return self.quanta > 1 or (abs(self.mean) > _ASIDE and self.elements >= _FEW)


def sqnr_db(reference: Arrays, outputs: Arrays) -> float | None:
    """Signal to quantization noise over all samples of one output, 10 log10(sum (f - mean)^2 / sum (f - q)^2).

    A mean is no signal: a softmax of 1,000 classes that never tells them apart has one. None where the ratio has no
    finite value: the outputs agree exactly, or the reference has one value throughout.
    """
    floats = [f.astype("float64") for f in reference]
    mean = sum(f.sum() for f in floats) / max(1, sum(f.size for f in floats))
    return _decibels([f - mean for f in floats], _noise(floats, outputs))


def channel_db(reference: Arrays, outputs: Arrays) -> float | None:
    """The same with the mean of each channel (axis 1 of several) left out, which says the same of every input.

    None, too, where a channel has too few values to know its mean by.
    """
    floats = [f.astype("float64") for f in reference]
    if not floats or floats[0].ndim < 2 or sum(f.size for f in floats) < _LEAST_VALUES * floats[0].shape[1]:
        return None
    axes = (0, *range(2, floats[0].ndim))
    count = sum(f.size for f in floats) // floats[0].shape[1]
    mean = sum(f.sum(axes, keepdims=True) for f in floats) / count
    unbiased = math.sqrt(count / (count - 1))  # the mean of few values lies too near to them
    return _decibels([(f - mean) * unbiased for f in floats], _noise(floats, outputs))


def agreement_db(reference: Arrays, outputs: Arrays) -> float | None:
    """How near two quantized outputs are, by the power of the first; None where they are equal, or it is all zero."""
    floats = [f.astype("float64") for f in reference]
    return _decibels(floats, _noise(floats, outputs))


def _noise(floats: Arrays, outputs: Arrays) -> float:
    return sum(float(((f - q) ** 2).sum()) for f, q in zip(floats, outputs, strict=True))


def _decibels(signal: Arrays, noise: float) -> float | None:
    power = sum(float((s**2).sum()) for s in signal)
    return 10 * math.log10(power / noise) if power and noise else None
