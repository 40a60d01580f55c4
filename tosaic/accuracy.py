"""Whether the integer module is the user's model: held against the float one, and against PyTorch's simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tosaic.backends.reference import Executable, evaluate
from tosaic.support.errors import Error
from tosaic.support.functions import body_of, returned
from tosaic.support.mlir import element_type, functions, ir, numpy_dtype
from tosaic.support.quantization import Quantization

Arrays = Sequence[np.ndarray]

NOISY_DB = 20.0
"""A signal to noise ratio below which a user is warned."""
_NOISY_WITHIN_DB = 15.0  # channels, by the few samples that it is told from
LOST_DB = 10.0
"""What roundings that PyTorch does otherwise may cost: the zoo's models lose 3.9 dB at most, over ten outputs, and a
difference of two tensors that are rounded halfway 6.0 of 45 dB."""
_LEAST_VALUES = 4  # of a channel
_FAR_LESS_DB = 3.0
AGREED_DB = 48.0
"""From here on the integer module and PyTorch's simulation are the same but for what int16 loses by TABLEs of 512
chords; steps of int8 that are all off by one have less."""


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


def compute(meaning: ir.Module, prepared: Executable, sample: Arrays) -> Computed:
    """Quantize a sample of the float model, and execute the integer module on it.

    Args:
        meaning, prepared: the integer module, and what the reference model executes of it.
    """
    main = functions(meaning)["main"]
    taken = interface_quantizations(main, "arg_attrs", list(body_of(main).arguments))
    pairs = zip(sample, taken, body_of(main).arguments, strict=True)
    stored = [_stored(array, kind, element_type(value)) for array, kind, value in pairs]
    return Computed(stored, evaluate(prepared, stored))


def measure_accuracy(
    meaning: ir.Module, computed: Sequence[Computed], floats: Sequence[Arrays], simulated: Sequence[Arrays]
) -> tuple[OutputAccuracy, ...]:
    """Each output that is a quantized or a float tensor.

    Args:
        meaning: the integer module.
        computed: what it makes of each sample.
        floats, simulated: what the float model and the quantized program make of it in PyTorch.
    """
    given = interface_quantizations(functions(meaning)["main"], "res_attrs", returned(functions(meaning)["main"]))
    rows = [
        [array if kind is None else kind.dequantize(array) for array, kind in zip(each.outputs, given, strict=True)]
        for each in computed
    ]
    measured = []
    for index, kind in enumerate(given):
        ours, real, theirs = ([row[index] for row in column] for column in (rows, floats, simulated))
        if kind is None and not np.issubdtype(ours[0].dtype, np.floating):
            continue
        step = kind.scale if kind else 1.0
        quanta = max(float(np.abs(a - b).max(initial=0.0)) / step for a, b in zip(ours, theirs, strict=True))
        measured.append(
            OutputAccuracy(
                name=f"output_{index}",
                sqnr_db=sqnr_db(real, ours),
                simulated_db=sqnr_db(real, theirs),
                agreement_db=agreement_db(theirs, ours),
                quanta=round(quanta) if kind else 0,
                channel_db=channel_db(real, ours),
            )
        )
    return tuple(measured)


def check_accuracy(measured: Sequence[OutputAccuracy], least_db: float | None) -> None:
    """Refuse an integer module that is not the user's model.

    Args:
        least_db: what the user asks of every output.

    Raises:
        Error: an output of the module is another function than the quantized program's, or is noisier than asked.
    """
    for output in measured:
        if output.is_other_function:
            raise Error(
                f"the integer module computes something else than the quantized model in `{output.name}`",
                why=f"it has {output.sqnr_db:.1f} dB against float on the calibration data, PyTorch's simulation "
                f"{output.simulated_db:.1f} dB",
                hint="not the model but tosaic is at fault; --no-prove builds it all the same",
            )
        if least_db is not None and output.sqnr_db is not None and output.sqnr_db < least_db:
            raise Error(
                f"`{output.name}` has {output.sqnr_db:.1f} dB against the float model, {least_db:g} are asked",
                why="quantization lost them on the calibration data",
                hint="--activations int16, --exclude a module, or calibration data that is more like the real one",
            )


def interface_quantizations(
    main: ir.Operation, attributes: str, values: Sequence[ir.Value]
) -> list[Quantization | None]:
    """How each argument (`arg_attrs`) or result (`res_attrs`) of `main` is quantized; None where it is not."""
    rows = ir.ArrayAttr(main.attributes[attributes]) if attributes in main.attributes else [{}] * len(values)
    found: list[Quantization | None] = []
    for row, value in zip(rows, values, strict=True):
        if "tosaic.scale" not in row:
            found.append(None)
            continue
        scale, zero_point = ir.FloatAttr(row["tosaic.scale"]).value, ir.IntegerAttr(row["tosaic.zero_point"]).value
        storage = "ui8" if "tosaic.unsigned" in row else str(element_type(value))
        found.append(Quantization.per_tensor(storage, scale, zero_point))
    return found


def _stored(array: np.ndarray, kind: Quantization | None, element: ir.Type) -> np.ndarray:
    dtype = numpy_dtype(element)
    return array.astype(dtype) if kind is None else kind.quantize_as_torch(array).astype(dtype)


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
