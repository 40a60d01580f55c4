"""Whether the integer module is the user's model: compared with the float one, and with PyTorch's simulation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.backends.reference import Executable, evaluate
from tosaic.builds.accuracy import Arrays, Computed, OutputAccuracy, agreement_db, channel_db, sqnr_db
from tosaic.support.errors import Error
from tosaic.support.functions import body_of, returned
from tosaic.support.mlir import element_type, functions, ir, numpy_dtype
from tosaic.support.quantization import Quantization


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
