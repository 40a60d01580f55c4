"""NPU_OP_RESIZE of Ethos-U85: nearest neighbor, bilinear and replication, as TOSA's RESIZE."""

from __future__ import annotations

import numpy as np

from tosaic.backends.ethos_u.emulator.output import Scaling, output_stage
from tosaic.backends.ethos_u.emulator.registers import signed
from tosaic.backends.ethos_u.emulator.state import EmulatorState

_BILINEAR, _REPLICATE, _NEAREST = range(3)
_FRACTION = 16  # the results stand this many bits higher than TOSA's; OFM_SCALE brings them down


def resize(state: EmulatorState, parameter: int) -> None:
    """A resize of an input of KERNEL_HEIGHT by KERNEL_WIDTH; the low two bits of `parameter` name the mode."""
    registers = state.registers
    oh, ow, depth = state.output_shape()
    height, width = registers["KERNEL_HEIGHT_M1"] + 1, registers["KERNEL_WIDTH_M1"] + 1
    values = state.load("IFM", height, width, depth)
    top, bottom, y, scale_y = _positions(state, "Y", oh, height)
    left, right, x, scale_x = _positions(state, "X", ow, width)
    mode = parameter & 3
    if mode == _BILINEAR:
        y, x = y[:, None, None], x[None, :, None]
        upper = values[top][:, left] * (scale_x - x) + values[top][:, right] * x
        lower = values[bottom][:, left] * (scale_x - x) + values[bottom][:, right] * x
        found = upper * (scale_y - y) + lower * y
    elif mode == _NEAREST:
        rows, columns = np.where(2 * y >= scale_y, bottom, top), np.where(2 * x >= scale_x, right, left)
        found = values[rows][:, columns]
    else:
        found = values[top][:, left]
    output_stage(state, found << _FRACTION, Scaling.GLOBAL)


def input_span(state: EmulatorState, axis: str, start: int, end: int) -> tuple[int, int]:
    """The input positions (end exclusive) that decide the output positions `start` to `end` (exclusive) of Y or X."""
    size = state.registers["KERNEL_HEIGHT_M1" if axis == "Y" else "KERNEL_WIDTH_M1"] + 1
    low, high, remainder, _ = _positions(state, axis, end, size)
    last = high if remainder[end - 1] else low
    return int(low[start]), int(last[end - 1]) + 1


def _positions(
    state: EmulatorState, axis: str, count: int, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """For each output position the two input positions around it, the remainder, and the scale's numerator."""
    registers = state.registers
    numerator = registers[f"RESIZE_{axis}_SCALE_N_M1"] + 1
    name = f"RESIZE_{axis}_STEP"
    step = (registers.parameter[name] & 15) * numerator + (registers[name] & 0x7FF)
    position = np.arange(count) * step + signed(registers[f"RESIZE_{axis}_OFFSET"], 12)
    whole = position // numerator
    return whole.clip(0, size - 1), (whole + 1).clip(0, size - 1), position - whole * numerator, numerator
