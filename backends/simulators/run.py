"""Run a built firmware on a runner: outputs, and what each call costs."""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np

from tosaic.backends.firmware.build import Firmware, Tensor
from tosaic.backends.simulators.execution import Execution, Runner
from tosaic.backends.simulators.memory_model import Traffic
from tosaic.backends.simulators.npu_bridge import Execute
from tosaic.backends.target import Memory
from tosaic.support.errors import SimulatorError


@dataclass(frozen=True)
class CallCost:
    """What one call cost on the core; of an NPU call, handing it over. None where the runner does not tell.

    Args:
        cycles: with memory that answers at once.
        cycles_with_memory: and the cycles that the core waits for memory.
        traffic: of each memory.
    """

    name: str
    processor: str
    where: str
    instructions: int | None
    cycles: int | None
    cycles_with_memory: int | None
    traffic: tuple[Traffic, ...] = ()

    @property
    def cost(self) -> int | None:
        """Cycles, those that the core waits for memory included; instructions where none are known."""
        return self.cycles_with_memory or self.instructions


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
    def instructions(self) -> int | None:
        """Instructions of one inference on the core."""
        return _total([call.instructions for call in self.calls if call.processor == "cpu"])

    @property
    def cycles(self) -> int | None:
        """Modeled cycles of one inference on the core."""
        return _total([call.cycles for call in self.calls if call.processor == "cpu"])

    @property
    def cycles_with_memory(self) -> int | None:
        """Modeled cycles of one inference on the core, with those that it waits for memory."""
        return _total([call.cycles_with_memory for call in self.calls if call.processor == "cpu"])

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """Of one inference on the core, memory by memory."""
        calls = [call.traffic for call in self.calls if call.processor == "cpu"]
        return tuple(reduce(Traffic.__add__, each) for each in zip(*calls, strict=True))


def _total(costs: Sequence[int | None]) -> int | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def run_firmware(
    elf: Path,
    firmware: Firmware,
    samples: Sequence[Sequence[np.ndarray]],
    runner: Runner,
    npu: Execute | None = None,
    *,
    timeout: float = 600.0,
    memories: Sequence[Memory] = (),
) -> RunResult:
    """Run a firmware's ELF.

    Args:
        samples: the inputs of each inference, with the shapes and dtypes of the model's header.
        npu: executes NPU calls on the host (see `npu_bridge`).
        timeout: seconds of wall time for the whole run.
        memories: those whose traffic is counted.

    Raises:
        SimulatorError: an input does not fit, there is no `npu` for an NPU call, or the run failed.
    """
    if npu is None and not runner.executes_npu and firmware.has_npu:
        raise SimulatorError(
            f"this firmware calls the NPU, and {runner.name} has none", hint="pass a function that executes it"
        )
    files = {"inputs.bin": encode_inputs(firmware.inputs, samples)}
    execution = runner.run(elf, files, npu=npu, timeout=timeout, memories=memories).check("the firmware")
    outputs = read_outputs(execution, firmware.outputs, len(samples))
    return RunResult(outputs, _costs(firmware, execution, len(samples)))


def encode_inputs(tensors: Sequence[Tensor], samples: Sequence[Sequence[np.ndarray]]) -> bytes:
    """`inputs.bin` as the firmware reads it.

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
    data = [np.ascontiguousarray(array).tobytes() for sample in samples for array in sample]
    return struct.pack("<I", len(samples)) + b"".join(data)


def read_outputs(execution: Execution, tensors: Sequence[Tensor], samples: int) -> tuple[tuple[np.ndarray, ...], ...]:
    """The outputs in the execution's `outputs.bin`, for each sample.

    Raises:
        SimulatorError: the file is missing or not of the expected size.
    """
    data = execution.files.get("outputs.bin", b"")
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


def _costs(firmware: Firmware, execution: Execution, samples: int) -> tuple[CallCost, ...]:
    if not execution.costs:
        return tuple(CallCost(call.name, call.processor, call.where, None, None, None) for call in firmware.calls)
    counted, rest = divmod(len(execution.costs), samples)
    fed = counted - len(firmware.calls)
    if rest or not 0 <= fed <= firmware.fed_rows:
        raise SimulatorError(f"{len(execution.costs)} calls were counted, not {samples * len(firmware.calls)}")
    costs = list(execution.costs)
    costs[: fed + 1] = [reduce(operator.add, costs[: fed + 1])]
    return tuple(
        CallCost(
            name=call.name,
            processor=call.processor,
            where=call.where,
            instructions=cost.instructions,
            cycles=cost.cycles,
            cycles_with_memory=None if cost.cycles is None else cost.cycles + cost.waits,
            traffic=cost.traffic,
        )
        for call, cost in zip(firmware.calls, costs, strict=False)
    )
