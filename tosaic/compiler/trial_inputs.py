"""What CPU kernels really read. On random data some ops have no defined result: a shift by 40, a sum that wraps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tosaic.backends.reference import evaluate
from tosaic.compiler.accuracy import interface_quantizations
from tosaic.passes import random_inputs
from tosaic.support.functions import body_of, callee_of, functions_on, return_instead
from tosaic.support.mlir import constant_value, copy_of, element_type, functions, ir, walk
from tosaic.support.quantization import Quantization

_NARROW = ("i1", "i8", "f16", "f32")


def model_inputs(module: ir.Module, sample: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """Random arguments for `main`; plain integers, which may index something, are those of `sample`."""
    chosen = random_inputs(module, seed)
    for index, (array, kind) in enumerate(zip(chosen, _quantizations(module), strict=True)):
        if np.issubdtype(array.dtype, np.integer) and kind is None:
            chosen[index] = np.asarray(sample[index]).astype(array.dtype)
    return chosen


class Samples(NamedTuple):
    """Arguments for `main`: calibration data, random ones, and the ends of every range."""

    calibration: list[np.ndarray]
    drawn: list[np.ndarray]
    ends: list[np.ndarray]


def model_samples(module: ir.Module, sample: Sequence[np.ndarray], seed: int) -> Samples:
    """Samples of the floats of a `sample`; plain integers, which may index something, are its own throughout."""
    rng = np.random.default_rng(seed)
    drawn, kinds = model_inputs(module, sample, seed), _quantizations(module)
    calibration = [
        (array if kind is None else kind.quantize_as_torch(array)).astype(other.dtype)
        for array, kind, other in zip(sample, kinds, drawn, strict=True)
    ]
    ends = [
        array if kind is None else rng.choice(np.array([kind.low, kind.high]).astype(array.dtype), array.shape)
        for array, kind in zip(drawn, kinds, strict=True)
    ]
    return Samples(calibration, drawn, ends)


def _quantizations(module: ir.Module) -> list[Quantization | None]:
    main = functions(module)["main"]
    return interface_quantizations(main, "arg_attrs", list(body_of(main).arguments))


def wide_kernel_inputs(placed: ir.Module, inputs: Sequence[np.ndarray]) -> dict[str, tuple[np.ndarray, ...]]:
    """The arguments of each CPU function that takes integers wider than 8 bits, or scales few of them, by name.

    They are what the reference model computes on the way from `inputs` of the whole model.
    """
    wide = [name for name, function in functions_on("cpu", placed).items() if _reads_wide(function)]
    return call_inputs(placed, wide, inputs)


def call_inputs(
    placed: ir.Module, names: Sequence[str], inputs: Sequence[np.ndarray]
) -> dict[str, tuple[np.ndarray, ...]]:
    """What the calls of functions `names` read, when `main` is given `inputs`."""
    copy = copy_of(placed)
    main = functions(copy)["main"]
    calls = {callee_of(op): list(op.operands) for op in walk(main) if op.name == "func.call"}
    wanted = {name: calls[name] for name in names}
    if not any(wanted.values()):
        return {}
    _return_instead(main, [value for operands in wanted.values() for value in operands])
    values = iter(evaluate(copy, inputs))
    return {name: tuple(next(values) for _ in operands) for name, operands in wanted.items()}


def _reads_wide(function: ir.Operation) -> bool:
    wide = any(str(element_type(value)) not in _NARROW for value in body_of(function).arguments)
    return wide or any(op.name == "tosa.rescale" and _is_bounded(op) for op in walk(function))


def _is_bounded(rescale: ir.Operation) -> bool:
    """Whether eight bits less a zero point may be more than a shift allows: TOSA's `apply_scale_32` takes values below
    half of its power of two."""
    shifts = constant_value(rescale.operands[2])
    return shifts is None or (
        str(element_type(rescale.operands[0])) == "i8" and bool((2.0 ** (shifts - 1.0) < 256).any())
    )


def _return_instead(main: ir.Operation, values: list[ir.Value]) -> None:
    """Make `main` return `values`; an argument or a repeated value goes through an identity, as TOSA demands."""
    *_, old = body_of(main).operations
    with main.context, old.location, ir.InsertionPoint(old):
        copies = [ir.Operation.create("tosa.identity", [v.type], [v]).result for v in values]
    return_instead(main, copies)
    if "res_attrs" in main.attributes:
        del main.attributes["res_attrs"]
