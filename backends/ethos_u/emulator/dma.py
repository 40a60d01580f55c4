"""NPU_OP_DMA_START: copies between regions and into the look-up table memory; on U85 strided and indexed."""

from __future__ import annotations

import numpy as np

from tosaic.backends.ethos_u.emulator.memory import LUT, RegionMemory
from tosaic.backends.ethos_u.emulator.registers import Registers, signed
from tosaic.backends.ethos_u.emulator.state import EmulatorState
from tosaic.backends.npu import EmulationError

_ROW, _PLANE = 1, 2  # stride modes: 2-D, 3-D
_INDEXED = 1 << 11


def copy(state: EmulatorState) -> None:
    """Run the transfer that the DMA0 registers describe."""
    registers = state.registers
    source, target = registers["DMA0_SRC_REGION"], registers["DMA0_DST_REGION"]
    mode = source >> 9 & 3
    if not state.large:
        if mode:
            raise EmulationError("a strided DMA on Ethos-U55 or U65 is not modeled: Vela emits none")
        _copy_rows(state.memory, registers, [(0, 0)])
        return
    indexed = bool((source | target) & _INDEXED)
    rows = registers["DMA0_SIZE0"] if mode or indexed else 1
    planes = registers["DMA0_SIZE1"] if mode == _PLANE else 1
    steps = {name: signed(registers.get(f"DMA0_{name}", 0), 32) for name in _STRIDES}
    offsets = []
    for plane in range(planes):
        index = _indices(state.memory, registers, plane if mode == _PLANE else 0, rows) if indexed else np.arange(rows)
        for row in range(rows):
            from_row = int(index[row]) if source & _INDEXED else row
            to_row = int(index[row]) if target & _INDEXED else row
            offsets.append(
                (
                    plane * steps["SRC_STRIDE1"] + from_row * steps["SRC_STRIDE0"],
                    plane * steps["DST_STRIDE1"] + to_row * steps["DST_STRIDE0"],
                )
            )
    _copy_rows(state.memory, registers, offsets)


_STRIDES = ("SRC_STRIDE0", "SRC_STRIDE1", "DST_STRIDE0", "DST_STRIDE1")


def _copy_rows(memory: RegionMemory, registers: Registers, offsets: list[tuple[int, int]]) -> None:
    """Copy DMA0_LEN bytes for each pair of a source and a target offset."""
    length = registers.address("DMA0_LEN")
    if length == 0:
        raise EmulationError("a DMA of no bytes")
    source, target = _region(registers["DMA0_SRC_REGION"]), _region(registers["DMA0_DST_REGION"])
    start, end = registers.address("DMA0_SRC"), registers.address("DMA0_DST")
    for from_offset, to_offset in offsets:
        memory.copy(source, start + from_offset, target, end + to_offset, length)


def _region(register: int) -> int:
    return LUT if register >> 8 & 1 else register & 7


def _indices(memory: RegionMemory, registers: Registers, plane: int, count: int) -> np.ndarray:
    """The row numbers of an indexed transfer, i32 in memory; all within 0..DMA0_IDX_MAX."""
    address = registers.address("DMA0_IDX") + plane * registers.get("DMA0_IDX_SKIP1", 0)
    found = memory.read(registers["DMA0_IDX_REGION"] & 7, address, (count,), (4,), "<i4")
    most = registers["DMA0_IDX_MAX"]
    if found.min() < 0 or found.max() > most:
        raise EmulationError(f"a DMA index outside 0..{most}: {int(found.min())}..{int(found.max())}")
    return found
