"""Run a built firmware on a runner: outputs, and what each call costs."""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from pathlib import Path

import numpy as np

from tosaic.backends.firmware.records import CallRecord, Firmware, ModelTensor
from tosaic.backends.simulators.execution import Cost, Execution, Runner
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
class Costs:
    """What each call of an inference cost."""

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


@dataclass(frozen=True)
class RunResult(Costs):
    """What a run gave, and cost for the first sample.

    Args:
        outputs: the model's outputs for each sample.
        further: what the first sample cost that only moved a window on.
    """

    outputs: tuple[tuple[np.ndarray, ...], ...]
    further: Costs | None = None


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
        samples: the inputs of each inference, with the shapes and dtypes of the model's header. One that is the sample
            before it, moved on by a hop, costs its further rows only, where the firmware has windows that move on.
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
    check_samples(firmware.inputs, samples)
    fed = fed_rows(firmware, samples) if firmware.fed_rows else []
    data = encode_rows(fed) if fed else encode_inputs(samples)
    execution = runner.run(elf, {"inputs.bin": data}, npu=npu, timeout=timeout, memories=memories).check("the firmware")
    outputs = read_outputs(execution, firmware.outputs, len(samples))
    if not execution.costs:
        unknown = tuple(CallCost(call.name, call.processor, call.where, None, None, None) for call in firmware.calls)
        return RunResult(unknown, outputs)
    found = costs_of_samples(firmware, execution, [len(rows) for rows in fed] or [0] * len(samples))
    further = [costs for costs, rows in zip(found, fed, strict=False) if len(rows) < firmware.fed_rows]
    return RunResult(found[0].calls, outputs, further[0] if further else None)


def windows(firmware: Firmware, samples: Sequence[Sequence[np.ndarray]], count: int) -> list[list[np.ndarray]]:
    """The first windows of the samples one behind the other, at most `count`, each moved on from the last by a hop.

    Args:
        samples: of a firmware with windows that move on.
    """
    rows = np.concatenate([array.reshape(firmware.fed_rows, -1) for (array,) in samples])
    (shape,) = {array.shape for (array,) in samples}
    begins = range(0, len(rows) - firmware.fed_rows + 1, firmware.hop_rows)[:count]
    return [[rows[begin : begin + firmware.fed_rows].reshape(shape)] for begin in begins]


def fed_rows(firmware: Firmware, samples: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """The rows of each sample; of one that is the sample before it moved on by a hop, those that are new."""
    hop, found, before = firmware.hop_rows, list[np.ndarray](), np.empty((0, 0))
    for (array,) in samples:
        rows = array.reshape(firmware.fed_rows, -1)
        moved_on = hop and len(before) and np.array_equal(before[hop:], rows[:-hop])
        found.append(np.ascontiguousarray(rows[-hop:] if moved_on else rows))
        before = rows
    return found


def check_samples(tensors: Sequence[ModelTensor], samples: Sequence[Sequence[np.ndarray]]) -> None:
    """Compare samples with the inputs of a firmware.

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


def encode_inputs(samples: Sequence[Sequence[np.ndarray]]) -> bytes:
    """`inputs.bin` as a firmware reads it that takes its inputs whole."""
    data = [np.ascontiguousarray(array).tobytes() for sample in samples for array in sample]
    return struct.pack("<I", len(samples)) + b"".join(data)


def encode_rows(samples: Sequence[np.ndarray]) -> bytes:
    """`inputs.bin` as a firmware reads it that takes its input row by row: the `fed_rows` of each sample."""
    data = [struct.pack("<I", len(rows)) + rows.tobytes() for rows in samples]
    return struct.pack("<I", len(samples)) + b"".join(data)


def read_outputs(
    execution: Execution, tensors: Sequence[ModelTensor], samples: int
) -> tuple[tuple[np.ndarray, ...], ...]:
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


def costs_of_samples(firmware: Firmware, execution: Execution, rows: Sequence[int]) -> list[Costs]:
    """What each sample cost, of which so many rows were fed one by one."""
    others = len(firmware.calls) - 1
    begun = [len(execution.costs) // len(rows) - others] * len(rows)
    if firmware.hop_rows:
        begun = [fed + (fed == firmware.fed_rows) for fed in rows]
    if sum(begun) + others * len(rows) != len(execution.costs) or not 0 < begun[0] <= firmware.fed_rows + 1:
        raise SimulatorError(f"{len(execution.costs)} calls were counted, not {len(rows) * len(firmware.calls)}")
    found, costs = list[Costs](), iter(execution.costs)
    for number in begun:
        first = reduce(operator.add, islice(costs, number))
        found.append(Costs(tuple(map(_cost, firmware.calls, (first, *islice(costs, others))))))
    return found


def costs_of_methods(firmware: Firmware, execution: Execution, called: Sequence[str]) -> list[Costs]:
    """What each of the methods that were called, one behind the other, cost."""
    costs, calls = iter(execution.costs), [firmware.calls[firmware.calls_of(name)] for name in called]
    if sum(map(len, calls)) != len(execution.costs):
        raise SimulatorError(f"{len(execution.costs)} calls were counted, not {sum(map(len, calls))}")
    return [Costs(tuple(map(_cost, each, islice(costs, len(each))))) for each in calls]


def _cost(call: CallRecord, cost: Cost) -> CallCost:
    return CallCost(
        name=call.name,
        processor=call.processor,
        where=call.where,
        instructions=cost.instructions,
        cycles=cost.cycles,
        cycles_with_memory=None if cost.cycles is None else cost.cycles + cost.waits,
        traffic=cost.traffic,
    )
