"""NPU_OP_POOL: maximum, minimum, average, sum, sum over channels, position of the maximum."""

from __future__ import annotations

import functools

import numpy as np

from tosaic.backends.ethos_u.emulator.feature_map import output_map
from tosaic.backends.ethos_u.emulator.output import Scaling, has_global_scale, output_stage
from tosaic.backends.ethos_u.emulator.state import EmulatorState
from tosaic.backends.ethos_u.emulator.window import PaddedInput, read_window
from tosaic.backends.npu import EmulationError

_MAX, _AVERAGE, _REDUCE_SUM, _SUM, _NONE, _MIN, _ARGMAX_X, _ARGMAX_Y = range(8)
_LOWEST = -(1 << 50)  # stands for padding under a maximum


def pool(state: EmulatorState, parameter: int) -> None:
    """A pooling op; the low three bits of `parameter` name it."""
    mode = parameter & 7
    shape = state.output_shape()
    if mode > _REDUCE_SUM and not state.large:
        raise EmulationError(f"pooling mode {mode} exists on Ethos-U85 only")
    if mode == _NONE:  # the accumulators come from elsewhere
        output_stage(state, np.zeros(shape, np.int64), Scaling.GLOBAL)
        return
    window = read_window(state, state.registers["IFM_DEPTH_M1"] + 1 if mode == _REDUCE_SUM else shape[2])
    if mode in (_MAX, _MIN):
        output_stage(state, _extreme(window, 1 if mode == _MAX else -1), Scaling.GLOBAL)
    elif mode == _REDUCE_SUM:
        total = _sum(window).sum(-1, keepdims=True)
        output_stage(state, np.broadcast_to(total, shape), Scaling.GLOBAL)
    elif mode in (_ARGMAX_X, _ARGMAX_Y):
        _store_positions(state, window)
    elif mode == _AVERAGE and (state.large or any(window.kernel.padding)):
        output_stage(state, _average(window), Scaling.GLOBAL)
    else:
        output_stage(state, _sum(window), Scaling.GLOBAL if has_global_scale(state) else Scaling.CHANNEL)


def _sum(window: PaddedInput) -> np.ndarray:
    return functools.reduce(np.add, (tap for _, _, tap in window.taps()))


def _extreme(window: PaddedInput, sign: int) -> np.ndarray:
    values = np.where(window.valid[..., None], window.values * sign, _LOWEST)
    return sign * functools.reduce(np.maximum, (tap for _, _, tap in window.taps(values)))


def _average(window: PaddedInput) -> np.ndarray:
    """The sum over the valid inputs divided by their number, with the 30-bit reciprocal of TOSA's AVG_POOL2D."""
    valid = window.valid.astype(np.int64)
    count = functools.reduce(np.add, (tap for _, _, tap in window.taps(valid)))[..., None]
    if (count == 0).any():
        raise EmulationError("an average over padding only")
    bits = np.ceil(np.log2(count)).astype(np.int64)
    reciprocal = ((1 << 30) + 1 << bits) // count
    return _sum(window) * reciprocal + (1 << 29 + bits) >> 30 + bits


def _store_positions(state: EmulatorState, window: PaddedInput) -> None:
    """The index of the first maximum along the kernel.

    The hardware packs value and index into one accumulator and OFM_SCALE brings the index down; this stores the index.
    """
    taps = np.stack([tap for _, _, tap in window.taps()])
    target = output_map(state.registers)
    target.write(state.memory, taps.argmax(0) + target.zero_point)
