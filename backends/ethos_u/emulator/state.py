"""What a running NPU holds between commands."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.ethos_u.accelerators import EthosU
from tosaic.backends.ethos_u.emulator.feature_map import input_map, whole, zero_point
from tosaic.backends.ethos_u.emulator.memory import RegionMemory
from tosaic.backends.ethos_u.emulator.registers import Registers
from tosaic.backends.npu import EmulationError

CHAINED, SCALAR = 2, 3  # storage modes of a U85 feature map
_MOST_ELEMENTS = 1 << 26


@dataclass
class EmulatorState:
    """Registers, memory, and on U85 the chain buffers and the accumulators that an op left for the next one."""

    accelerator: EthosU
    memory: RegionMemory
    registers: Registers = field(default_factory=Registers)
    chain: dict[int, np.ndarray] = field(default_factory=dict)
    accumulators: np.ndarray | None = None

    @property
    def large(self) -> bool:
        return self.accelerator.generation == "u85"

    def output_shape(self) -> tuple[int, int, int]:
        """(height, width, depth) of the OFM."""
        registers = self.registers
        shape = registers["OFM_HEIGHT_M1"] + 1, registers["OFM_WIDTH_M1"] + 1, registers["OFM_DEPTH_M1"] + 1
        require_plausible(shape)
        return shape

    def storage(self, name: str) -> int:
        """Where a U85 feature map lies: 0 in memory, 2 in a chain buffer, 3 (inputs) in OP_SCALAR."""
        return self.registers.bits(f"{name}_PRECISION", 14, 2) if self.large else 0

    def load(self, name: str, height: int, width: int, depth: int) -> np.ndarray:
        """IFM or IFM2 as int64 (height, width, depth), less its zero point."""
        require_plausible((height, width, depth))
        if self.storage(name) == CHAINED:
            return self._chained(name, (height, width, depth)) - zero_point(self.registers, name)
        return input_map(self.registers, name).read(self.memory, whole(height, width, depth))

    def _chained(self, name: str, shape: tuple[int, int, int]) -> np.ndarray:
        number = self.registers[f"{name}_REGION"] & 7
        found = self.chain.get(number)
        if found is None or found.shape != shape:
            there = "nothing" if found is None else f"shape {found.shape}"
            raise EmulationError(f"{name} takes shape {shape} from chain buffer {number}, which holds {there}")
        return found


def require_plausible(shape: tuple[int, ...]) -> None:
    """Refuse a shape that no real network has, before an array of it is made."""
    if math.prod(shape) > _MOST_ELEMENTS:
        raise EmulationError(f"a feature map of shape {shape} is larger than this emulator takes")
