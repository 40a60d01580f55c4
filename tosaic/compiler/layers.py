"""Layer by layer: the quantized program against the float model, and the integer module against that program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch.export import ExportedProgram

from tosaic.backends.reference import evaluate
from tosaic.builds.accuracy import NOISY_DB, LayerAccuracy, OutputAccuracy, agreement_db
from tosaic.frontend import import_program
from tosaic.frontend.layers import Layer, layers, run_layers
from tosaic.passes import run_phase
from tosaic.support.errors import Advice, Error
from tosaic.support.functions import body_of, returned, retype
from tosaic.support.mlir import element_type, functions, ir, numpy_dtype
from tosaic.support.values import is_argument

Pair: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Integers of the module, and of the quantized program."""


def measure_layers(
    program: ExportedProgram, exclude: Sequence[str], sample: Sequence[torch.Tensor]
) -> tuple[LayerAccuracy, ...]:
    """Each layer of a quantized program, in program order, on one sample.

    The program is lowered with every layer as a result of `main`; then what reads a layer takes PyTorch's integers
    instead of its own, so that no layer inherits the roundings of those before it.
    """
    known = layers(program)
    if not known:
        return ()
    module = import_program(program, exclude, [layer.node for layer in known])
    for phase in ("legalize", "quantize"):
        run_phase(module, phase)
    stored = run_layers(program, sample)
    given = _cut(module, [tensor.numpy() for tensor in sample], stored)
    computed = evaluate(module, given)[-len(known) :]
    pairs = list(zip(computed, stored, strict=True))
    steps = [layer.of_steps for layer in known]
    states = {found[0]: pair for found, pair in zip(steps, pairs, strict=True) if found and found[1] == 0}
    floats = list(map(_computes_in_float, returned(functions(module)["main"])[-len(known) :]))
    return tuple(
        _compare(layer, *(told(found[1], pair, None if in_float else states.get(found[0])) if found else pair))
        for layer, found, pair, in_float in zip(known, steps, pairs, floats, strict=True)
    )


def _computes_in_float(value: ir.Value) -> bool:
    """Whether floats are on the way from the arguments of `main` to a value."""
    waiting, seen = [value], set[ir.Value]()
    while waiting:
        one = waiting.pop()
        if str(element_type(one)) == "f32":
            return True
        if one not in seen and not is_argument(one):
            seen.add(one)
            waiting += [operand for operand in one.owner.operands if isinstance(operand.type, ir.RankedTensorType)]
    return False


def told(number: int, pair: Pair, states: Pair | None) -> Pair:
    """What can be told of a recurrent layer: the steps of each sequence up to the first that PyTorch rounds otherwise.

    Those behind it have other states to begin with, and a state's weights may be as large as they like. So may they be
    where the layer stays float: then a sum's roundings decide.

    Args:
        number: of the layer's result: the states after each step, [N, T, H], or what the last step remembers, [N, H].
        states: its first result; None where that is not known, or nothing can be told.
    """
    if states is None:
        return pair[0][:0], pair[1][:0]
    other = (states[0] != states[1]).any(2)
    known = np.logical_or.accumulate(np.pad(other, ((0, 0), (1, 0)))[:, :-1], axis=1)
    kept = ~known if number == 0 else ~known[:, -1]
    return pair[0][kept], pair[1][kept]


def _cut(module: ir.Module, sample: Sequence[np.ndarray], stored: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Make each layer's readers read a new argument; returns what `main` takes then."""
    main = functions(module)["main"]
    block = body_of(main)
    *_, end = (op.operation for op in block.operations)
    results = list(end.operands)[-len(stored) :]
    given: dict[ir.Value, np.ndarray] = dict(zip(block.arguments, sample, strict=True))
    for result, integers in zip(results, stored, strict=True):
        if is_argument(result):
            given[result] = integers
            continue
        argument = block.add_argument(result.type, end.location)
        for use in list(result.uses):
            if use.owner.operation != end:
                use.owner.operation.operands[use.operand_number] = argument
        given[argument] = integers
    for attributes in ("arg_attrs", "res_attrs"):
        if attributes in main.attributes:
            del main.attributes[attributes]
    retype(main)
    return [array.astype(numpy_dtype(element_type(value))) for value, array in given.items()]


def lost_at(measured: Sequence[LayerAccuracy], output: str) -> LayerAccuracy | None:
    """The first layer before an output that is noisier than a user would expect; None where none is."""
    noisy = (layer for layer in measured if layer.sqnr_db is not None and layer.sqnr_db < NOISY_DB)
    return next((layer for layer in noisy if output in layer.outputs), None)


def noisy_outputs(outputs: Sequence[OutputAccuracy], measured: Sequence[LayerAccuracy], model: str) -> Iterator[Advice]:
    """A warning for each output that lost more than a user would expect, with the layer where it is lost first."""
    for output in outputs:
        if not output.is_noisy:
            continue
        within = " within channels" if output.told_db != output.sqnr_db else ""
        what = f"`{output.name}` has only {output.told_db:.1f} dB{within} against the float model on calibration data"
        where, excluded = "", "a module"
        if layer := lost_at(measured, output.name):
            what += f"; it is lost first in `{layer.op}`, which has {layer.sqnr_db:.1f} dB"
            _, _, op = layer.op.partition(".")  # an input has its name for an op, and cannot be excluded
            where, excluded = f"{layer.where} {layer}", layer.module or op.partition(".")[0] or excluded
        hint = f"--exclude {excluded}, --activations int16, or what `tosaic accuracy {model}` advises"
        yield Advice(what, where, hint)


def worst(measured: Sequence[LayerAccuracy], count: int) -> list[LayerAccuracy]:
    """The noisiest layers, worst first."""
    known = [(layer.sqnr_db, layer) for layer in measured if layer.sqnr_db is not None]
    return [layer for _, layer in sorted(known, key=lambda pair: pair[0])[:count]]


def check_layers(measured: Sequence[LayerAccuracy]) -> None:
    """Refuse an integer module that is not the quantized program.

    Raises:
        Error: a layer differs by more than roundings; the message names the first.
    """
    for layer in measured:
        if layer.is_other_function:
            raise Error(
                f"the integer module computes something else than the quantized model in `{layer.op}`",
                where=f"{layer.where} {layer}",
                why=f"given the same integers, {layer.differing:.1%} of its result differ, by {layer.quanta} steps "
                f"at most and {layer.mean:+.2f} on average",
                hint="not the model but tosaic is at fault; --no-prove builds it all the same",
            )


def _compare(layer: Layer, ours: np.ndarray, theirs: np.ndarray) -> LayerAccuracy:
    theirs, ours = (stored.astype(np.int64) - layer.zero_point for stored in (theirs, ours))
    difference = ours - theirs
    origin = layer.origin
    return LayerAccuracy(
        op=origin.op,
        module=origin.module,
        where=f"{Path(origin.file).name}:{origin.line}" if origin.line else "",
        sqnr_db=layer.sqnr_db,
        quanta=int(np.abs(difference).max(initial=0)),
        differing=float((difference != 0).mean()) if difference.size else 0.0,
        mean=float(difference.mean()) if difference.size else 0.0,
        agreement_db=agreement_db([theirs], [ours]),
        elements=difference.size,
        weighted=layer.is_weighted_int8,
        outputs=tuple(f"output_{number}" for number in layer.outputs),
        names=layer.names,
    )
