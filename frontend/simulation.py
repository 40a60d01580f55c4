"""What PyTorch itself computes: the float reference, and what it was calibrated with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from tosaic.frontend.calls import columns_of
from tosaic.frontend.canonical import placeholders
from tosaic.frontend.capture import Capture
from tosaic.frontend.program_file import read_program
from tosaic.support.errors import ModelError
from tosaic.support.sequence import in_sequence


def run_float(model: Capture | ExportedProgram, inputs: Sequence[np.ndarray | torch.Tensor]) -> list[np.ndarray]:
    """Run a capture or a program in PyTorch; a quantized program computes its Q/DQ simulation in float32."""
    (outputs,) = run_float_on(model, [inputs])
    return outputs


def run_float_on(
    model: Capture | ExportedProgram,
    samples: Sequence[Sequence[np.ndarray | torch.Tensor]],
    states: Sequence[np.ndarray] = (),
) -> list[list[np.ndarray]]:
    """As `run_float`, on many samples.

    Args:
        states: the last inputs of the first call, of which the samples then hold none; each further call takes the last
            results of the one before it.
    """
    program = model.program if isinstance(model, Capture) else model
    # Firmware takes int64 as int32.
    module, types = program.module(), [node.meta["val"].dtype for node in placeholders(program)]

    def call(inputs: Sequence[np.ndarray | torch.Tensor]) -> list[np.ndarray | torch.Tensor]:
        given = (torch.as_tensor(one).to(dtype) for one, dtype in zip(inputs, types, strict=True))
        return [leaf for leaf in tree_leaves(module(*given)) if isinstance(leaf, torch.Tensor)]

    with torch.no_grad():
        results = [given for _, given in in_sequence(call, samples, states)]
    return [[np.asarray(tensor) for tensor in result] for result in results]


def save_float(capture: Capture, path: Path) -> None:
    """Keep a capture's program beside a build, for `load_float`."""
    torch.export.save(capture.program, path)


def load_float(path: Path) -> ExportedProgram:
    """The program that `save_float` kept.

    Raises:
        ModelError: the file is missing, as beside a build of TOSA, or damaged.
    """
    if not path.is_file():
        raise ModelError("there is no float model", hint="compile the PyTorch model that the TOSA comes from")
    return read_program(path)


def input_statistics(capture: Capture) -> list[dict[str, float]]:
    """Mean, standard deviation, min and max of each input over the calibration data, but of states."""
    count = len(capture.calibration[0]) - len(capture.states)
    columns = (torch.stack(list(column)).double() for column in columns_of(capture.calibration)[:count])
    return [
        {"mean": c.mean().item(), "deviation": c.std(correction=0).item(), "min": c.min().item(), "max": c.max().item()}
        for c in columns
    ]
