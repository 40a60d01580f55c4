"""NPU_OP_CONV and NPU_OP_DEPTHWISE."""

from __future__ import annotations

import numpy as np

from tosaic.backends.ethos_u.emulator.output import Scaling, output_stage
from tosaic.backends.ethos_u.emulator.state import EmulatorState
from tosaic.backends.ethos_u.emulator.weight_order import Traversal, WeightLayout
from tosaic.backends.ethos_u.emulator.weights import read_weights
from tosaic.backends.ethos_u.emulator.window import KernelShape, PaddedInput, read_window
from tosaic.backends.npu import EmulationError

_MICROBLOCKS = ((1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 4))
_FAST, _SPARSE = 1 << 0, 1 << 4  # WEIGHT_FORMAT
_MOST_EXACT = 2.0**53


def convolve(state: EmulatorState, parameter: int) -> None:
    """A convolution; bit 0 of `parameter` takes the weights from IFM2 (U85)."""
    depth = state.registers["IFM_DEPTH_M1"] + 1
    window = read_window(state, depth)
    channels = state.output_shape()[2]
    if parameter & 1 and state.large:
        weights = _computed_weights(state, window.kernel, channels, depth)
    else:
        weights = _constant_weights(state, window.kernel, channels, depth, depthwise=False)
    output_stage(state, _products(window, weights), Scaling.CHANNEL)


def convolve_depthwise(state: EmulatorState) -> None:
    """A convolution of each channel with its own kernel."""
    channels = state.output_shape()[2]
    window = read_window(state, channels)
    weights = _constant_weights(state, window.kernel, channels, 1, depthwise=True)
    accumulators = np.zeros((*window.output, channels), np.int64)
    for ky, kx, tap in window.taps():
        accumulators += tap * weights[:, ky, kx, 0]
    output_stage(state, accumulators, Scaling.CHANNEL)


def _products(window: PaddedInput, weights: np.ndarray) -> np.ndarray:
    """Sums of products over taps and input channels. Doubles hold each sum exactly, which is checked."""
    channels, _, _, depth = weights.shape
    largest = int(abs(window.values).max(initial=0)) * int(abs(weights).max(initial=0)) * weights[0].size
    if largest >= _MOST_EXACT:
        raise EmulationError(f"an accumulator may reach {largest}, beyond 48 bits")
    total = np.zeros((window.output[0] * window.output[1], channels))
    values, kernel = window.values.astype(np.float64), weights.astype(np.float64)
    for ky, kx, tap in window.taps(values):
        total += tap.reshape(-1, depth) @ kernel[:, ky, kx, :].T
    return total.astype(np.int64).reshape(*window.output, channels)


def _computed_weights(state: EmulatorState, kernel: KernelShape, channels: int, depth: int) -> np.ndarray:
    if kernel.size != (1, 1):
        raise EmulationError(f"weights from IFM2 come with a kernel of 1x1, this one is {kernel.size}")
    return state.load("IFM2", 1, channels, depth).reshape(channels, 1, 1, depth)


def _constant_weights(
    state: EmulatorState, kernel: KernelShape, channels: int, depth: int, *, depthwise: bool
) -> np.ndarray:
    registers, accelerator = state.registers, state.accelerator
    if depthwise:
        traversal = Traversal.DEPTHWISE
    else:
        traversal = Traversal.PART_KERNEL if kernel.part_kernel_first else Traversal.DEPTH_FIRST
    form = registers.get("WEIGHT_FORMAT", 0)
    layout = WeightLayout(
        generation=accelerator.generation,
        macs=accelerator.macs,
        cores=accelerator.cores,
        shape=(channels, *kernel.size, depth),
        block_depth=registers["OFM_BLK_DEPTH_M1"] + 1,
        traversal=traversal,
        bits16=registers.bits("IFM_PRECISION", 2, 2) == 1,
        dilation=kernel.dilation,
        stride=kernel.stride,
        microblock=_microblock(state) if state.large else (1, 1),
        sparse=bool(form & _SPARSE),
    )
    return read_weights(registers, state.memory, layout, fast=bool(form & _FAST))


def _microblock(state: EmulatorState) -> tuple[int, int]:
    number = state.registers.bits("ACC_FORMAT", 8, 3)
    if number >= len(_MICROBLOCKS):
        raise EmulationError(f"ACC_FORMAT names micro-block {number}, which does not exist")
    return _MICROBLOCKS[number]
