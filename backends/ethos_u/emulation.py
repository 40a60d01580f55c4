"""Run a compiled region on the emulator with numpy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tosaic.backends.ethos_u.emulator import ExecutionReport, execute
from tosaic.backends.ethos_u.emulator.memory import DMA_UNIT, Span
from tosaic.backends.npu import NpuPort, NpuRegion
from tosaic.support.errors import SimulatorError

_CONSTANTS, _SCRATCH, _FAST, _INPUTS, _OUTPUTS = range(5)
_UNWRITTEN = 0xA5  # what fills memory that nothing has written


@dataclass(frozen=True)
class Emulation:
    """The outputs of a run, shaped as the region's output ports, and what the NPU did."""

    outputs: list[np.ndarray]
    report: ExecutionReport


def emulate(region: NpuRegion, inputs: Sequence[np.ndarray]) -> Emulation:
    """Execute the region's command stream on fresh memory.

    Args:
        inputs: arrays of the shapes and dtypes of `region.inputs`.

    Raises:
        EmulationError: the command stream would misbehave.
        SimulatorError: the inputs do not fit the ports.
    """
    memory = {
        _CONSTANTS: np.frombuffer(region.constants, np.uint8).copy(),
        _SCRATCH: np.full(region.scratch_bytes, _UNWRITTEN, np.uint8),
        _FAST: np.full(region.fast_bytes, _UNWRITTEN, np.uint8),
        _INPUTS: np.full(_extent(region.inputs), _UNWRITTEN, np.uint8),
        _OUTPUTS: np.full(_extent(region.outputs), _UNWRITTEN, np.uint8),
    }
    if len(inputs) != len(region.inputs):
        raise SimulatorError(f"the region takes {len(region.inputs)} inputs, got {len(inputs)}")
    for index, (port, array) in enumerate(zip(region.inputs, inputs, strict=True)):
        if array.shape != port.shape or array.dtype != port.dtype:
            raise SimulatorError(f"input {index} is {port.dtype}{port.shape}, got {array.dtype}{array.shape}")
        memory[port.region][port.address : port.address + port.size] = np.frombuffer(array.tobytes(), np.uint8)
    report = execute(region.command_stream, memory, region.accelerator, written=written_before(region.inputs))
    outputs = []
    for port in region.outputs:
        octets = memory[port.region][port.address : port.address + port.size]
        outputs.append(_typed(octets, port.dtype).reshape(port.shape))
    return Emulation(outputs, report)


def written_before(inputs: Sequence[NpuPort]) -> Iterator[int | Span]:
    """What holds data before a run: the constants, and the inputs, as far as DMA reads."""
    yield _CONSTANTS
    for port in inputs:
        yield port.region, port.address, _whole(port.address + port.size)


def _extent(ports: Sequence[NpuPort]) -> int:
    """Bytes of a region of ports, in whole units of DMA, which reads that far beyond the end of a tensor."""
    return _whole(max((port.address + port.size for port in ports), default=0))


def _whole(end: int) -> int:
    return -(-end // DMA_UNIT) * DMA_UNIT


def _typed(octets: np.ndarray, dtype: str) -> np.ndarray:
    """The NPU's true is any byte other than 0."""
    return octets != 0 if dtype == "bool" else octets.copy().view(dtype)
