"""The output stage: bias and scale, output zero point, activation, and the store (on U85 reversed and transposed)."""

from __future__ import annotations

from enum import Enum

import numpy as np

from tosaic.backends.ethos_u.emulator.activation import activate
from tosaic.backends.ethos_u.emulator.feature_map import output_map, output_type, zero_point
from tosaic.backends.ethos_u.emulator.registers import Registers
from tosaic.backends.ethos_u.emulator.scaling import (
    LARGE_ROUNDING,
    SMALL_ROUNDING,
    Rounding,
    Scale,
    large_channel_scales,
    scale_register,
    small_channel_scales,
)
from tosaic.backends.ethos_u.emulator.state import CHAINED, EmulatorState

# OFM_PRECISION's transpose field -> numpy axes of (height, width, depth).
TRANSPOSES = {0: (0, 1, 2), 1: (1, 0, 2), 2: (0, 2, 1), 3: (1, 2, 0), 6: (2, 0, 1), 7: (2, 1, 0)}
_KEEP_ACCUMULATORS, _ADD_KEPT, _ADD_IFM2 = 1 << 6, 1, 2


class Scaling(Enum):
    """Which scale the output takes; on U85 a bit of OFM_PRECISION tells OFM_SCALE from that of each channel."""

    CHANNEL = "bias and scale of each channel"
    GLOBAL = "OFM_SCALE"
    SHIFT = "the shift of OFM_SCALE"
    NONE = "none"


def output_stage(state: EmulatorState, accumulators: np.ndarray, scaling: Scaling) -> None:
    """Take int64 accumulators (height, width, depth) of the OFM through the output stage into memory."""
    if state.large:
        _output_stage_large(state, accumulators, scaling)
    else:
        _output_stage_small(state, accumulators, scaling)


def has_global_scale(state: EmulatorState) -> bool:
    return bool(state.registers.bits("OFM_PRECISION", 8, 1))


def output_rounding(state: EmulatorState) -> Rounding:
    if state.large:
        return LARGE_ROUNDING[min(state.registers.parameter["OFM_SCALE"] >> 13, 5)]
    return SMALL_ROUNDING[min(state.registers.bits("OFM_PRECISION", 14, 2), 2)]


def _output_stage_small(state: EmulatorState, values: np.ndarray, scaling: Scaling) -> None:
    registers = state.registers
    if scaling is Scaling.CHANNEL:
        cores = state.accelerator.cores
        bias, scale = small_channel_scales(registers, state.memory, values.shape[2], cores)
        values = values + bias
        values = (scale_register(registers, "OFM_SCALE") if has_global_scale(state) else scale).apply(
            values, output_rounding(state)
        )
    elif scaling is not Scaling.NONE:
        values = _global_scale(registers, scaling).apply(values, output_rounding(state))
    target = output_map(registers)
    target.write(state.memory, activate(state, values + target.zero_point))


def _global_scale(registers: Registers, scaling: Scaling) -> Scale:
    scale = scale_register(registers, "OFM_SCALE")
    return Scale(1, scale.shift) if scaling is Scaling.SHIFT else scale


def _output_stage_large(state: EmulatorState, values: np.ndarray, scaling: Scaling) -> None:
    registers = state.registers
    form = registers["ACC_FORMAT"]
    if form >> 4 & 3 == _ADD_KEPT and state.accumulators is not None:
        values = values + state.accumulators
    elif form >> 4 & 3 == _ADD_IFM2:
        values = values + state.load("IFM2", *state.output_shape())
    if form & _KEEP_ACCUMULATORS:
        state.accumulators = values
        return
    state.accumulators = None
    rounding = output_rounding(state)
    if has_global_scale(state):
        values = _global_scale(registers, scaling).apply(values, rounding)
    else:
        bias, scale = large_channel_scales(registers, state.memory, values.shape[2])
        values = scale.apply(values + bias, rounding)
    values = activate(state, values + zero_point(registers, "OFM"))
    reverse = registers.bits("OFM_PRECISION", 9, 2)
    if reverse:
        values = np.flip(values, reverse - 1)
    values = values.transpose(TRANSPOSES[registers.bits("OFM_PRECISION", 11, 3)])
    if state.storage("OFM") == CHAINED:
        state.chain[registers["OFM_REGION"] & 7] = values.astype(output_type(registers)).astype(np.int64)
    else:
        output_map(registers).write(state.memory, values)
