"""Run a built firmware on a simulator: outputs, and what each call costs."""

from __future__ import annotations

import contextlib
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tosaic.backends.firmware.build import Firmware, Tensor
from tosaic.backends.simulators import qemu
from tosaic.backends.simulators.cycle_model import CycleModel
from tosaic.backends.simulators.npu_bridge import Execute, NpuBridge
from tosaic.backends.target import CORTEX_M55, Core
from tosaic.support.errors import SimulatorError


@dataclass(frozen=True)
class CallCost:
    """Instructions and modeled cycles of one call on the core; of an NPU call, those of handing it over."""

    name: str
    processor: str
    where: str
    instructions: int
    cycles: int


@dataclass(frozen=True)
class RunResult:
    """What a run gave.

    Args:
        outputs: the model's outputs for each sample.
        calls: what each call cost for the first sample.
    """

    outputs: tuple[tuple[np.ndarray, ...], ...]
    calls: tuple[CallCost, ...]

    @property
    def instructions(self) -> int:
        """Instructions of one inference on the core."""
        return sum(call.instructions for call in self.calls if call.processor == "cpu")

    @property
    def cycles(self) -> int:
        """Modelled cycles of one inference on the core."""
        return sum(call.cycles for call in self.calls if call.processor == "cpu")


def run_firmware(
    build: Path,
    samples: Sequence[Sequence[np.ndarray]],
    npu: Execute | None = None,
    *,
    core: Core = CORTEX_M55,
    timeout: float = 600.0,
) -> RunResult:
    """Run `model.elf` of a build folder under QEMU.

    Args:
        samples: the inputs of each inference, with the shapes and dtypes of `model.h`.
        npu: executes NPU calls on the host (see `npu_bridge`).
        timeout: seconds of wall time for the whole run.

    Raises:
        BackendError: the folder holds no firmware.
        SimulatorError: an input does not fit, there is no `npu` for an NPU call, or the run failed.
    """
    firmware = Firmware.load(build)
    if npu is None and any(call.processor == "npu" for call in firmware.calls):
        raise SimulatorError("this firmware calls the NPU, and QEMU has none", hint="pass a function that executes it")
    check_inputs(firmware.inputs, samples)
    elf = build / "model.elf"
    with tempfile.TemporaryDirectory(prefix="tosaic-") as name:
        folder = Path(name)
        write_inputs(folder, samples)
        with NpuBridge(folder, npu) if npu else contextlib.nullcontext():
            execution = qemu.execute(elf, core=core, folder=folder, timeout=timeout)
        if execution.failure or execution.exit_code:
            why = execution.failure or execution.console.strip()
            raise SimulatorError("the firmware did not run to its end", why=why)
        outputs = read_outputs(folder, firmware.outputs, len(samples))
    return RunResult(outputs, _costs(elf, firmware, execution, len(samples)))


def write_inputs(folder: Path, samples: Sequence[Sequence[np.ndarray]]) -> None:
    """`inputs.bin` as the firmware reads it."""
    data = [np.ascontiguousarray(array).tobytes() for sample in samples for array in sample]
    (folder / "inputs.bin").write_bytes(struct.pack("<I", len(samples)) + b"".join(data))


def read_outputs(folder: Path, tensors: Sequence[Tensor], samples: int) -> tuple[tuple[np.ndarray, ...], ...]:
    """The outputs in `outputs.bin`, for each sample.

    Raises:
        SimulatorError: the file is not of the expected size.
    """
    data = (folder / "outputs.bin").read_bytes()
    kinds = [(tensor, np.dtype(tensor.dtype)) for tensor in tensors]
    expected = samples * sum(int(np.prod(tensor.shape)) * dtype.itemsize for tensor, dtype in kinds)
    if len(data) != expected:
        raise SimulatorError(f"the firmware wrote {len(data)} bytes of outputs, not {expected}")
    outputs, offset = [], 0
    for _ in range(samples):
        row = []
        for tensor, dtype in kinds:
            count = int(np.prod(tensor.shape))
            row.append(np.frombuffer(data, dtype, count, offset).reshape(tensor.shape).copy())
            offset += count * dtype.itemsize
        outputs.append(tuple(row))
    return tuple(outputs)


def check_inputs(tensors: Sequence[Tensor], samples: Sequence[Sequence[np.ndarray]]) -> None:
    """Whether the inputs of every sample are those of the model.

    Raises:
        SimulatorError: a sample has another number of inputs, or one of another shape or dtype.
    """
    for number, sample in enumerate(samples):
        if len(sample) != len(tensors):
            raise SimulatorError(f"sample {number} has {len(sample)} inputs, and the model has {len(tensors)}")
        for tensor, array in zip(tensors, sample, strict=True):
            if array.shape != tensor.shape or array.dtype != np.dtype(tensor.dtype):
                raise SimulatorError(
                    f"input `{tensor.name}` of sample {number} is {array.dtype}{list(array.shape)}, "
                    f"and the model takes {tensor.dtype}{list(tensor.shape)}"
                )


def _costs(elf: Path, firmware: Firmware, execution: qemu.Execution, samples: int) -> tuple[CallCost, ...]:
    if len(execution.regions) != samples * len(firmware.calls):
        raise SimulatorError(f"{len(execution.regions)} calls were counted, not {samples * len(firmware.calls)}")
    model = CycleModel(elf, execution.blocks)
    return tuple(
        CallCost(call.name, call.processor, call.where, region.instructions, model.cycles(region))
        for call, region in zip(firmware.calls, execution.regions, strict=False)
    )
