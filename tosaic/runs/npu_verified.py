"""`tosaic npu verify`: a file that was compiled for an NPU and another runtime, beside the file that it was made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tosaic.backends.npu import CompiledFile, FileValue
from tosaic.backends.npus import emulate, families
from tosaic.runs.litert import Arrays, LiteRt
from tosaic.runs.tosa_files import tosa_outputs
from tosaic.support.errors import Error

_CoreStep = Callable[[int, Sequence[np.ndarray]], Arrays]


@dataclass(frozen=True)
class VerifiedOutput:
    """An output over all samples.

    Args:
        name: of the tensor.
        elements: how many were compared.
        different: how many differ.
        most: the greatest difference, in steps of the output.
    """

    name: str
    elements: int
    different: int
    most: float


@dataclass(frozen=True)
class VerifiedFile:
    """What a compiled file gives beside what the plain one gives.

    Args:
        accelerators: what its regions are compiled for.
        regions: how many it has.
        core_ops: the ops that are left to the core, which LiteRT executes.
        samples: how many were run.
    """

    accelerators: list[str]
    regions: int
    core_ops: list[str]
    samples: int
    outputs: list[VerifiedOutput]

    @property
    def equal(self) -> bool:
        """Whether no element differs."""
        return not any(output.different for output in self.outputs)


def verify_file(path: Path, against: Sequence[Path], count: int, seed: int) -> VerifiedFile:
    """Run random inputs through a compiled file and through what it was made of.

    Regions run on the NPU's emulator. Ops of LiteRT's run on its reference kernels, TOSA on its reference model.

    Args:
        path: a `.tflite` that Vela has compiled, or a `.pte` with an Ethos-U delegate.
        against: the `.tflite` before Vela, or a TOSA flatbuffer for each region of the `.pte`, in its order.
        count: of samples.

    Raises:
        Error: LiteRT is not installed; a file cannot be read; their inputs or outputs are not the same.
        EmulationError: a command stream would misbehave.
    """
    file = read_compiled(path)
    regions = [step.region for step in file.steps if step.region]
    core: _CoreStep = _no_op_of_the_core
    if file.made_of == "tosa":
        made = tosa_outputs(regions, against)
    elif len(against) == 1:
        made, core = LiteRt(against[0]).outputs, LiteRt(path).step
    else:
        raise Error(f"`{path}` was made of one file", why=f"{len(against)} are given")
    draw, got, wanted = np.random.default_rng(seed), list[Arrays](), list[Arrays]()
    for _ in range(count):
        inputs = [_random(draw, file.values[value]) for value in file.inputs]
        got.append(run_compiled(file, inputs, core))
        wanted.append(made(inputs))
    return VerifiedFile(
        sorted({region.accelerator for region in regions}),
        len(regions),
        [step.op for step in file.steps if step.region is None],
        count,
        [_compared(file.values[value].name, *pair) for value, *pair in _by_output(file, got, wanted)],
    )


def read_compiled(path: Path) -> CompiledFile:
    """The compiled file at `path`.

    Raises:
        Error: there is none, or no NPU's compiler made it.
    """
    try:
        found = next((file for family in families() if (file := family.read(path))), None)
    except OSError as error:
        raise Error(f"cannot read `{path}`", why=str(error.strerror)) from error
    if found is None:
        raise Error(
            f"`{path}` has no NPU region",
            hint="a .tflite file that Vela has compiled, or a .pte file with an Ethos-U delegate",
        )
    return found


def run_compiled(file: CompiledFile, inputs: Sequence[np.ndarray], core: _CoreStep) -> Arrays:
    """The outputs of a compiled file.

    Args:
        core: executes the op of a number, with its operands that are no constants and no variables.

    Raises:
        Error: a region reads what nothing makes.
    """
    known = dict(zip(file.inputs, inputs, strict=True))
    for step in file.steps:
        if missing := [file.values[value].name for value in step.inputs if value not in known]:
            raise Error(f"nothing makes the tensor `{missing[0]}`", why=f"op {step.number}, {step.op}, reads it")
        operands = [known[value] for value in step.inputs]
        results = emulate(step.region, operands) if step.region else core(step.number, operands)
        known |= zip(step.outputs, results, strict=True)
    return [known[value] for value in file.outputs]


def _no_op_of_the_core(number: int, _: Sequence[np.ndarray]) -> Arrays:
    raise Error(f"op {number} is none of the NPU's")


def _random(draw: np.random.Generator, value: FileValue) -> np.ndarray:
    if value.dtype == "float32":
        return draw.standard_normal(value.shape, np.float32)
    if value.dtype == "bool":
        return draw.integers(0, 2, value.shape).astype(bool)
    limits = np.iinfo(value.dtype)
    return draw.integers(limits.min, limits.max, value.shape, endpoint=True).astype(value.dtype)


def _by_output(file: CompiledFile, got: list[Arrays], wanted: list[Arrays]) -> list[tuple[int, np.ndarray, np.ndarray]]:
    if len(wanted[0]) != len(file.outputs):
        raise Error("the files have different outputs", why=f"{len(file.outputs)} and {len(wanted[0])}")
    columns = zip(zip(*got, strict=True), zip(*wanted, strict=True), strict=True)
    return [(value, np.stack(a), np.stack(b)) for value, (a, b) in zip(file.outputs, columns, strict=True)]


def _compared(name: str, got: np.ndarray, wanted: np.ndarray) -> VerifiedOutput:
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        why = f"{got.dtype}{got.shape[1:]} and {wanted.dtype}{wanted.shape[1:]}"
        raise Error(f"the output `{name}` of the files is not the same", why=why)
    distance = abs(got.astype(np.float64) - wanted.astype(np.float64))
    return VerifiedOutput(name, got.size, int((got != wanted).sum()), float(distance.max(initial=0)))
