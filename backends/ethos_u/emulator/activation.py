"""The activation stage: clamp, then a look-up table."""

from __future__ import annotations

import numpy as np

from tosaic.backends.ethos_u.emulator.memory import LUT
from tosaic.backends.ethos_u.emulator.registers import signed
from tosaic.backends.ethos_u.emulator.state import EmulatorState
from tosaic.backends.npu import EmulationError

SMALL_LUT_BYTES = 2048  # the last two banks of the shared buffer
LARGE_LUT_BYTES = 2048


def small_lut_base(macs_of_a_core: int) -> int:
    """Address of the tables in U55's and U65's shared buffer, whose size goes with the MACs."""
    banks = {32: 16, 64: 16, 128: 24, 256: 48}[macs_of_a_core]
    return (banks - 2) * 1024


def activate(state: EmulatorState, values: np.ndarray) -> np.ndarray:
    """Clamp and table look-up on values that already include the output zero point."""
    return _activate_large(state, values) if state.large else _activate_small(state, values)


def _activate_small(state: EmulatorState, values: np.ndarray) -> np.ndarray:
    registers = state.registers
    function, clip = registers.bits("ACTIVATION", 0, 5), registers.bits("ACTIVATION", 12, 3)
    is_signed, log_bytes = registers.bits("OFM_PRECISION", 0, 1), registers.bits("OFM_PRECISION", 1, 2)
    low, high = registers["ACTIVATION_MIN"], registers["ACTIVATION_MAX"]
    if clip in (3, 5) or (clip == 0 and is_signed):
        low, high = signed(low, 16), signed(high, 16)
    if clip != 0 or log_bytes < 2:  # a 32-bit output clipped to its own precision is not clipped
        values = values.clip(low, high)
    if function == 0:
        return values
    if function < 16:
        raise EmulationError(f"activation function {function} (TANH or SIGMOID) is not modeled")
    base = small_lut_base(state.accelerator.macs // state.accelerator.cores) + 256 * (function - 16)
    if log_bytes == 1:
        return _interpolate(_table(state, base, 512, "<u4"), values, 7)
    index = (values + (128 if is_signed or clip == 3 else 0)) & 255
    dtype = "<i4" if log_bytes == 2 else ("i1" if is_signed else "u1")
    return _table(state, base, 256, dtype)[index]


# U85's functions: number -> (bytes of a table, element type, whether the index is signed).
_LARGE_TABLES = {1: (256, "u1", False), 4: (256, "i1", True), 5: (512, "<i2", True), 7: (1024, "<i4", True)}
_LARGE_INTERPOLATED = {8: 7, 9: 0}  # number -> fraction bits dropped from the result
_SIGNED_INPUT = (4, 5, 7, 8, 9)


def _activate_large(state: EmulatorState, values: np.ndarray) -> np.ndarray:
    registers = state.registers
    function, table = registers.bits("ACTIVATION", 0, 5), registers.bits("ACTIVATION", 5, 3)
    if registers.bits("ACTIVATION", 12, 1) == 0:
        low, high = registers["ACTIVATION_MIN"], registers["ACTIVATION_MAX"]
        if registers.bits("OFM_PRECISION", 0, 1) or function in _SIGNED_INPUT:
            low, high = signed(low, 16), signed(high, 16)
        values = values.clip(low, high)
    if function == 0:
        return values
    if function in _LARGE_INTERPOLATED:
        return _interpolate(_table(state, 0, 512, "<u4"), values, _LARGE_INTERPOLATED[function])
    if function not in _LARGE_TABLES:
        raise EmulationError(f"activation function {function} is not modeled")
    size, dtype, is_signed = _LARGE_TABLES[function]
    index = (values + (128 if is_signed else 0)) & 255
    return _table(state, table * size, 256, dtype)[index]


def _table(state: EmulatorState, address: int, entries: int, dtype: str) -> np.ndarray:
    size = np.dtype(dtype).itemsize
    return state.memory.read(LUT, address, (entries,), (size,), dtype).astype(np.int64)


def _interpolate(table: np.ndarray, values: np.ndarray, dropped: int) -> np.ndarray:
    """512 entries of base (low half) and slope (high half); the low seven bits of an i16 value interpolate.

    The result keeps seven fraction bits (TOSA's TABLE on i16) unless `dropped` says to round them away.
    """
    entry = table[values + 32768 >> 7]
    base, slope = ((part ^ 0x8000) - 0x8000 for part in (entry & 0xFFFF, entry >> 16))
    fraction = values & 127
    if dropped:
        return base + (slope * fraction + 64 >> 7)
    return (base << 7) + slope * fraction
