"""A program through the front half, compared with PyTorch on the reference model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from benchmarks.campaigns.trials import Outcome
from tosaic.backends.reference import evaluate, prepare
from tosaic.compiler.accuracy import compute, interface_quantizations, measure_accuracy
from tosaic.frontend import Capture, import_program, quantize, run_float
from tosaic.frontend.builder import compiled_dtype
from tosaic.frontend.canonical import is_quantized
from tosaic.frontend.interface import Batch
from tosaic.passes import run_phases
from tosaic.support.errors import Error, ModelError, OutOfMemoryError, PassError
from tosaic.support.functions import returned
from tosaic.support.mlir import functions, ir, walk

_RELATIVE, _ABSOLUTE = 1e-3, 1e-4


@dataclass(frozen=True)
class Lowering:
    """What became of a program: `ok`, `refused`, `wrong` or `raises`.

    Args:
        real, int8: as float and as integers; where float fails, the integers are not tried.
        floats: the f32 ops that are left in the int8 module.
    """

    real: Outcome
    int8: Outcome
    floats: int = 0


def lowering(capture: Capture, wanted: Sequence[np.ndarray], given: Batch | None = None) -> Lowering:
    """Lower a program, in float and quantized to int8, and execute both modules.

    The float module must compute what is wanted, the integer module what PyTorch's simulation of it computes. A program
    that came in quantized is integers alone, which must be those wanted.

    Args:
        wanted: the results on the inputs given; the example inputs where there are none.
    """
    try:
        lowered = import_program(capture.program)
        if is_quantized(capture.program):
            run_phases(lowered, ["legalize", "quantize"])
            found = _of_integers(lowered, given or capture.inputs, wanted)
            return Lowering(found, found)
        run_phases(lowered, ["legalize"])
        real = difference(evaluate(lowered, list(map(_stored, given or capture.inputs))), wanted)
    except Exception as error:
        return Lowering(failure(error), failure(error))
    inputs = list(map(_stored, capture.inputs))
    if not all(np.isfinite(one).all() for one in wanted):
        return Lowering(real, Outcome("ok"))
    try:
        quantized = quantize(capture)
        integers = import_program(quantized)
        run_phases(integers, ["legalize", "quantize"])
        floats = sum(any("f32" in str(result.type) for result in op.results) for op in walk(integers))
        computed = [compute(integers, prepare(integers), inputs)]
        simulated = [run_float(quantized, capture.inputs)]
        for output in measure_accuracy(integers, computed, [run_float(capture, capture.inputs)], simulated):
            if output.is_other_function:
                return Lowering(real, _wrong(f"{output.quanta} quanta from PyTorch's simulation"), floats)
    except Exception as error:
        return Lowering(real, failure(error))
    return Lowering(real, Outcome("ok"), floats)


def _of_integers(module: ir.Module, inputs: Batch, wanted: Sequence[np.ndarray]) -> Outcome:
    """Whether an integer module gives the results wanted, or the integers that stand for them, but for ties."""
    main = functions(module)["main"]
    computed = compute(module, prepare(module), list(map(_stored, inputs)))
    kinds = interface_quantizations(main, "res_attrs", returned(main))
    for index, (array, kind, theirs) in enumerate(zip(computed.outputs, kinds, wanted, strict=True)):
        ours, most = array.astype(np.float64), 1.0
        if theirs.dtype == np.uint8:
            ours += 128
        elif kind and theirs.dtype.kind == "f":
            ours, most = kind.dequantize(array), kind.scale
        if ours.shape != theirs.shape or np.abs(ours - theirs).max(initial=0) > most * (1 + _RELATIVE):
            return _wrong(f"result {index} differs")
    return Outcome("ok")


def failure(error: Exception) -> Outcome:
    """What an exception says in one line: `refused` where it is tosaic's word to the user."""
    what = f"{error.what} ({error.why})" if isinstance(error, Error) and error.why else str(error)
    text = " ".join((what if isinstance(error, Error) else f"{type(error).__name__}: {what}").split())[:160]
    refused = isinstance(error, ModelError | PassError | OutOfMemoryError)
    return Outcome("refused" if refused else "raises", text, fault=not refused)


def difference(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> Outcome:
    """`ok` where the finite results are close to those wanted."""
    if len(got) != len(wanted):
        return _wrong(f"{len(got)} results, not {len(wanted)}")
    for index, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
        relative = 2.0**-8 if theirs.dtype.name == "bfloat16" else _RELATIVE  # ours is the same in float32
        wanted_ones = theirs.astype(np.float64)
        finite = np.isfinite(wanted_ones)
        if ours.shape != theirs.shape or not np.allclose(ours[finite], wanted_ones[finite], relative, _ABSOLUTE):
            return _wrong(f"result {index} differs")
    return Outcome("ok")


def _wrong(detail: str) -> Outcome:
    return Outcome("wrong", f"wrong: {detail}", fault=True)


def _stored(x: Tensor) -> np.ndarray:
    array = x.detach().numpy()
    return array.astype(compiled_dtype(x.dtype)) if array.dtype in (np.int64, np.float64) else array
