"""Run a build on a simulated board and compare its outputs with the reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tosaic.backends.firmware.records import ModelTensor
from tosaic.backends.reference import evaluate_in_turn, prepare
from tosaic.backends.simulators.execution import Runner
from tosaic.backends.simulators.run import RunResult, run_firmware, windows
from tosaic.backends.simulators.runners import find_runner
from tosaic.backends.simulators.stand_in import simulation_of
from tosaic.builds.accuracy import NOISY_DB, sqnr_db
from tosaic.builds.build import BuildFolder
from tosaic.builds.manifest import InputStatistics
from tosaic.passes import first_difference
from tosaic.passes.place.methods import method_alone
from tosaic.runs.npu_execution import NpuChoice, npu_for
from tosaic.support.errors import Advice, Error
from tosaic.support.functions import is_exact
from tosaic.support.named_arrays import in_order, read_arrays
from tosaic.support.random_arrays import random_array

if TYPE_CHECKING:
    from torch.export import ExportedProgram

Sample = list[np.ndarray]


@dataclass(frozen=True)
class Run:
    """What a run showed.

    Args:
        samples: the firmware's inputs of each inference.
        board: the outputs of each inference, and the cost of each call where the runner tells it.
        difference: where the outputs first differ from `tosa_reference_model`; empty where they are equal to the bit.
        defined: whether TOSA defines every result to the bit; else a difference may be rounding within its bounds.
        npu: what executed NPU regions: `none`, `reference`, `emulator` or `runner`.
        npu_cycles: Vela's estimate for one inference.
        sqnr_db: against the float model, per output over all samples; None where an output is not quantized, the float
            model takes no such input, or the two agree exactly.
        files: the outputs as .npy, one file an output, samples along the first axis.
    """

    build: BuildFolder
    samples: Sequence[Sample]
    board: RunResult
    difference: str
    defined: bool
    npu: str
    npu_cycles: int
    sqnr_db: Sequence[float | None]
    files: Sequence[Path]

    @property
    def exact(self) -> bool:
        return not self.difference

    @property
    def milliseconds(self) -> float | None:
        """What an inference takes, memory included; None where its cycles or the target's clocks are not known."""
        return self.build.manifest.target.milliseconds(self.board.cycles_with_memory, self.npu_cycles)

    @property
    def outputs(self) -> list[np.ndarray]:
        """One array for each of the model's outputs, in its units, with the samples along its first axis.

        The output's own first axis becomes that where it has size 1.
        """
        rows = [self.build.dequantize_outputs(list(row)) for row in self.board.outputs]
        columns = [[row[index] for row in rows] for index in range(len(rows[0]))]
        return [(np.concatenate if some[0].shape[:1] == (1,) else np.stack)(some) for some in columns]


def run_build(
    build: BuildFolder,
    samples: Sequence[Sample],
    *,
    npu: NpuChoice = "emulator",
    runner: str = "qemu",
    output: Path | None = None,
) -> Run:
    """Run a build on `samples` and compare every output with the reference model's.

    Args:
        samples: each a list of inputs; floats are quantized as the manifest says, integers pass.
        npu: what executes NPU regions where the runner has no NPU.
        runner: the name of what runs the firmware.
        output: folder for the outputs as .npy; none are written where None.

    Raises:
        Error: an input does not fit, or the run failed.
    """
    quantized = [build.quantize_inputs(sample) for sample in samples]
    on = find_runner(runner, build.manifest.target)
    memories = simulation_of(build.manifest.target).layout.memories
    board = run_firmware(build.elf, build.manifest.firmware, quantized, on, npu_for(build, npu), memories=memories)
    expected = reference_outputs(build, quantized)
    return Run(
        build=build,
        samples=quantized,
        board=board,
        difference=difference_of_samples(expected, board.outputs),
        defined=is_exact(build.module),
        npu=_executed_by(build, npu, on),
        npu_cycles=build.manifest.npu_cycles,
        sqnr_db=_against_float(build, samples, board.outputs),
        files=_write(build, board.outputs, output) if output else (),
    )


def _executed_by(build: BuildFolder, npu: str, runner: Runner) -> str:
    if not build.manifest.regions:
        return "none"
    return "runner" if runner.executes_npu else npu


def reference_outputs(build: BuildFolder, samples: Sequence[Sample]) -> list[list[np.ndarray]]:
    """What `tosa_reference_model` makes of the integer module, for each sample; floats are quantized first."""
    count, quantized = len(build.manifest.firmware.outputs), [build.quantize_inputs(sample) for sample in samples]
    arguments = [[array.view(np.int8) if array.dtype == np.uint8 else array for array in one] for one in quantized]
    return [given[:count] for _, given in evaluate_in_turn(build.module, arguments, build.states)]


def reference_calls(build: BuildFolder, calls: Sequence[tuple[str | None, Sample]]) -> list[list[np.ndarray]]:
    """What `tosa_reference_model` makes of methods of the integer module, called one behind the other.

    Args:
        calls: a method's name, None where the model has none, and its inputs as the firmware takes them.
    """
    names = [method.name for method in build.manifest.firmware.methods]
    if not names:
        return reference_outputs(build, [sample for _, sample in calls])
    known = {name: prepare(method_alone(build.module, number)) for number, name in enumerate(names)}
    states, found = build.states, list[list[np.ndarray]]()
    for name, sample in calls:
        ((_, given),) = evaluate_in_turn(known[name or ""], [sample], states)
        found.append(given[: len(given) - len(states)])
        states = given[len(given) - len(states) :]
    return found


def difference_of_samples(expected: Sequence[Sequence[np.ndarray]], outputs: Sequence[Sequence[np.ndarray]]) -> str:
    """The first element that differs, and in which sample; empty where all are equal to the bit."""
    for number, (wanted, got) in enumerate(zip(expected, outputs, strict=True)):
        if found := first_difference(list(wanted), list(got)):
            return f"sample {number}: {found}"
    return ""


def read_samples(build: BuildFolder, files: Sequence[Path]) -> list[Sample]:
    """The samples in `.npy` files (one per model input) or one `.npz` by input name; a leading axis counts samples.

    Raises:
        Error: a file does not read, or its shape is neither a sample nor a batch of samples.
    """
    names = [tensor.name for tensor in build.manifest.firmware.inputs]
    return split_samples(build, [array for file in files for array in _read(file, names)])


def split_samples(build: BuildFolder, arrays: Sequence[np.ndarray]) -> list[Sample]:
    """The samples in one array for each of the model's inputs: one, or several along a leading axis.

    Raises:
        Error: another number of arrays, one of a shape that is neither, or other numbers of samples.
    """
    tensors = build.manifest.firmware.inputs
    if len(arrays) != len(tensors):
        raise Error(f"the model takes {len(tensors)} inputs, got {len(arrays)}", hint="one for each input of the model")
    split = [_split(array, tensor.name, list(tensor.shape)) for array, tensor in zip(arrays, tensors, strict=True)]
    if len({len(samples) for samples in split}) != 1:
        raise Error("the inputs hold different numbers of samples", why=", ".join(str(len(s)) for s in split))
    return [list(sample) for sample in zip(*split, strict=True)]


def random_advice(run: Run) -> Advice | None:
    """That random samples are at fault for a low ratio, where that is likely."""
    states = [state.name for state in run.build.manifest.firmware.states]
    if all(value is None or value >= NOISY_DB for value in run.sqnr_db):
        return None
    kept = f", and `{states[0]}` goes on from call to call as no real sequence does" if states else ""
    what = "random samples say little of the accuracy: each is drawn by itself within the range of the calibration data"
    return Advice(what + kept, "", "run on real data, --input, or on the build's own samples, without --random")


def random_samples(build: BuildFolder, count: int, seed: int) -> list[Sample]:
    """`count` samples: floats normal with the calibration data's mean and deviation, integers evenly, both within the
    range that these data have; where windows move on, each the one before it moved on by a hop."""
    rng, firmware = np.random.default_rng(seed), build.manifest.firmware
    inputs = list(zip(firmware.inputs, build.manifest.calibration, strict=True))
    samples = [[_random(rng, tensor, seen) for tensor, seen in inputs] for _ in range(count)]
    return windows(firmware, samples, count) if firmware.hop_rows else samples


def _random(rng: np.random.Generator, tensor: ModelTensor, seen: InputStatistics) -> np.ndarray:
    dtype = np.dtype(tensor.dtype)
    if dtype == np.bool_:
        return random_array(rng, tensor.shape, dtype)
    if tensor.quantization is None and np.issubdtype(dtype, np.integer):
        return rng.integers(int(seen.min), int(seen.max), tensor.shape, dtype, endpoint=True)
    return rng.normal(seen.mean, seen.deviation, tensor.shape).clip(seen.min, seen.max).astype(np.float32)


def _read(file: Path, names: list[str]) -> list[np.ndarray]:
    """The array of an .npy, or those of an .npz as `in_order` has them."""
    try:
        loaded = read_arrays(file)
    except ValueError as error:
        raise Error(f"cannot read `{file}`", why=str(error)) from None
    return in_order(loaded, names) if isinstance(loaded, dict) else [loaded]


def _split(array: np.ndarray, name: str, shape: list[int]) -> list[np.ndarray]:
    if list(array.shape) == shape:
        return [array]
    if array.size and math.prod(array.shape[1:]) == math.prod(shape) and list(array.shape[-len(shape) :]) == shape:
        return [sample.reshape(shape) for sample in array]
    if shape[:1] == [1] and list(array.shape[1:]) == shape[1:]:
        return [sample[None] for sample in array]
    raise Error(f"`{name}` has the shape {shape}, got {list(array.shape)}")


def _against_float(
    build: BuildFolder, samples: Sequence[Sample], outputs: Sequence[Sequence[np.ndarray]]
) -> list[float | None]:
    from tosaic.frontend import load_float

    if not (build.folder / "float.pt2").exists():
        return [None] * len(build.manifest.firmware.outputs)
    program = load_float(build.folder / "float.pt2")
    references = float_outputs(build, program, [build.dequantize_inputs(sample) for sample in samples])
    results = [build.dequantize_outputs(list(row)) for row in outputs]
    return [
        sqnr_db([row[index] for row in references], [row[index] for row in results])
        if tensor.quantization or tensor.dtype.startswith("float")
        else None
        for index, tensor in enumerate(build.manifest.firmware.outputs)
    ]


def float_outputs(build: BuildFolder, program: ExportedProgram, samples: Sequence[Sample]) -> list[list[np.ndarray]]:
    """What the float model makes of each sample, the first one behind a reset.

    Args:
        program: of `load_float`.
    """
    from tosaic.frontend import run_float_on

    count = len(build.manifest.firmware.outputs)
    return [given[:count] for given in run_float_on(program, samples, build.float_states)]


def _write(build: BuildFolder, outputs: Sequence[Sequence[np.ndarray]], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for index, tensor in enumerate(build.manifest.firmware.outputs):
        file = folder / f"{tensor.name}.npy"
        np.save(file, np.stack([row[index] for row in outputs]))
        files.append(file)
    return files
