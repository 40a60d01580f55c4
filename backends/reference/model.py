"""Execute a TOSA module with Arm's reference model."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tosaic.backends.reference.executable import Executable, ReferenceStage, prepare
from tosaic.backends.reference.flatbuffer import serialize
from tosaic.support.child import in_child
from tosaic.support.errors import BackendError
from tosaic.support.mlir import ir
from tosaic.support.sequence import in_sequence
from tosaic.support.tosa_tools import tosa_tool

_LEFT_OPEN = "TOSA_UNPREDICTABLE"

Executed: TypeAlias = "ir.Module | str | bytes | Executable"
"""A module, or what `serialize` or `prepare` made of it."""


def evaluate(module: Executed, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Execute `main` of a TOSA module on `inputs`, shapes and dtypes as `main` has them.

    Raises:
        BackendError: as `evaluate_each`.
    """
    return evaluate_each(module, [inputs])[0]


def evaluate_each(module: Executed, samples: Iterable[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """Execute `main` as `evaluate` does, once for the inputs of each sample.

    The model runs in another process: on an invalid graph it aborts, which must not take the compiler with it.

    Raises:
        BackendError: the module does not serialize, is not valid TOSA, the model refused it, or TOSA leaves open what
            it computes of these inputs.
    """
    prepared = module if isinstance(module, bytes | Executable) else prepare(module)
    try:
        return in_child(_execute_each, prepared, [list(inputs) for inputs in samples])
    except Exception as error:
        if _LEFT_OPEN in str(error):
            raise BackendError(
                "a number does not fit its type on these inputs, and TOSA leaves the result open",
                why=str(error),
                hint="a layer's weights or inputs may be many times what its results hold",
            ) from None
        raise BackendError("tosa_reference_model did not accept the module", why=str(error)) from None


def evaluate_in_turn(
    module: Executed, samples: Sequence[Sequence[np.ndarray]], states: Sequence[np.ndarray]
) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    """Execute `main` once for each sample, one call behind the other: what each takes and gives, states included.

    Args:
        samples: all arguments but the states, which are the last ones.
        states: before the first call; each call finds the last results of the one before it.

    Raises:
        BackendError: as `evaluate_each`.
    """
    if not states:
        return list(zip(map(list, samples), evaluate_each(module, samples), strict=True))
    prepared = module if isinstance(module, bytes | Executable) else prepare(module)
    return list(in_sequence(lambda taken: evaluate(prepared, taken), samples, states))


def evaluate_precisely(module: ir.Module, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The one float result of `main`, computed in f64, and its bounds: of a sum of products a b, the sum of |a b|.

    Raises:
        BackendError: the module does not serialize, is not valid TOSA, or the model refused it.
    """
    (result,), (bound,) = _run_program(serialize(module), inputs, 1, precisely=True)
    return result, bound


def _execute_each(module: bytes | Executable, samples: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
    if isinstance(module, bytes):
        return [_execute(module, inputs) for inputs in samples]
    return [_execute_stages(module, inputs) for inputs in samples]


def _execute_stages(module: Executable, inputs: list[np.ndarray]) -> list[np.ndarray]:
    if len(inputs) != module.arguments:
        raise ValueError("Invalid inputs.")
    tensors = {**module.known, **dict(enumerate(inputs))}
    for stage in module.stages:
        given = [tensors[number] for number in stage.reads]
        if stage.iterations is None:
            tensors.update(zip(stage.writes, _execute_stage(stage, given), strict=True))
            continue
        carried, outside = given[: len(stage.gives)], given[len(stage.gives) :]
        for iteration in range(stage.iterations):
            made = _execute_stage(stage, [np.full((1, 1), iteration, np.int32), *carried, *outside])
            carried = [old if new is None else made[new] for old, new in zip(carried, stage.gives, strict=True)]
        tensors.update(zip(stage.writes, carried, strict=True))
    return [tensors[number] for number in module.results]


def _execute_stage(stage: ReferenceStage, inputs: list[np.ndarray]) -> list[np.ndarray]:
    if not stage.odd:
        return _execute(stage.flatbuffer, inputs)
    results = len({given for given in stage.gives if given is not None}) if stage.iterations else len(stage.writes)
    return _run_program(stage.flatbuffer, inputs, results)[0]


def _execute(flatbuffer: bytes, inputs: list[np.ndarray]) -> list[np.ndarray]:
    import tosa_reference_model

    outputs, status = tosa_reference_model.run(flatbuffer, inputs)
    if status != tosa_reference_model.GraphStatus.TOSA_VALID:
        raise ValueError(str(status))
    return [np.array(output) for output in outputs]


def _run_program(
    flatbuffer: bytes, inputs: Sequence[np.ndarray], count: int, *, precisely: bool = False
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What the model as a program makes of `main`, with `count` results, and, `precisely`, its error bounds.

    Raises:
        BackendError: it refuses the module.
    """
    with tempfile.TemporaryDirectory(prefix="tosaic-") as name:
        folder = Path(name)
        (folder / "main.tosa").write_bytes(flatbuffer)
        taken, given = (
            [f"{end}_{i}" for i in range(n)] for end, n in (("TosaInput", len(inputs)), ("TosaOutput", count))
        )
        for tensor, array in zip(taken, inputs, strict=True):
            np.save(folder / f"{tensor}.npy", array)
        description = {
            "tosa_file": "main.tosa",
            "ifm_name": taken,
            "ifm_file": [f"{tensor}.npy" for tensor in taken],
            "ofm_name": given,
            "ofm_file": [f"{tensor}.npy" for tensor in given],
            "test_requirements": {"bounds_file_required": precisely},
        }
        (folder / "desc.json").write_text(json.dumps(description))
        done = subprocess.run(
            [
                tosa_tool("tosa_reference_model"),
                f"--test_desc={folder / 'desc.json'}",
                f"--precise_mode={int(precisely)}",
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise BackendError("tosa_reference_model did not accept the module", why=done.stderr.strip()[:2000])
        results = [np.load(folder / f"{tensor}.npy") for tensor in given]
        bounds = [np.load(folder / f"bounds_{tensor}.npy") for tensor in given] if precisely else []
        return results, bounds
