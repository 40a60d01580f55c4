"""The weights of a convolution, from the compressed streams that its registers point at."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from tosaic.backends.ethos_u.emulator.memory import RegionMemory
from tosaic.backends.ethos_u.emulator.registers import Registers
from tosaic.backends.ethos_u.emulator.weight_codec import decode_fast, decode_stream
from tosaic.backends.ethos_u.emulator.weight_order import (
    Traversal,
    WeightLayout,
    large_input_micro,
    large_taps_at_once,
    stream_order,
)
from tosaic.backends.npu import EmulationError


def read_weights(registers: Registers, memory: RegionMemory, layout: WeightLayout, *, fast: bool) -> np.ndarray:
    """The weights as int64 of `layout.shape`.

    Raises:
        EmulationError: a stream is damaged, too short, or holds weights where the order has padding.
    """
    names = ["WEIGHT", *(f"WEIGHT{core}" for core in range(1, layout.cores))]
    streams = tuple(_stream(registers, memory, name) for name in (names[:1] if fast else names))
    return _arranged(streams, layout, fast)


def _stream(registers: Registers, memory: RegionMemory, name: str) -> bytes:
    if not registers.get(f"{name}_LENGTH", 0):
        return b""
    length = registers.address(f"{name}_LENGTH")
    region = registers["WEIGHT_REGION"] & 7
    return memory.read(region, registers.address(f"{name}_BASE"), (length,), (1,), "u1").tobytes()


@lru_cache(maxsize=128)
def _arranged(streams: tuple[bytes, ...], layout: WeightLayout, fast: bool) -> np.ndarray:
    decoded = [decode_fast(stream) if fast else decode_stream(stream) for stream in streams]
    size, found = math.prod(layout.shape), sum(map(len, decoded))
    if found < size:
        raise EmulationError(f"weights of shape {layout.shape} need {size} values, their streams hold {found}")
    weights = np.zeros(size, np.int64)
    if fast:
        _place(weights, decoded[0], _interleaved_order(layout), surplus=True)
    else:
        for core, values in enumerate(decoded):
            _place(weights, values, stream_order(layout, core), surplus=False)
    weights.flags.writeable = False
    return weights.reshape(layout.shape)


def _place(weights: np.ndarray, values: np.ndarray, order: np.ndarray, *, surplus: bool) -> None:
    if len(values) < len(order):
        raise EmulationError(f"a weight stream holds {len(values)} weights of {len(order)}")
    rest = values[len(order) :]
    values = values[: len(order)]
    used = order >= 0
    if values[~used].any() or (not surplus and rest.any()):
        raise EmulationError("a weight stream has weights where its order has padding")
    weights[order[used]] = values[used]


def _interleaved_order(layout: WeightLayout) -> np.ndarray:
    """The fast decoder has one stream, in which the cores' orders alternate by blocks."""
    orders = [stream_order(layout, core) for core in range(layout.cores)]
    if layout.cores == 1:
        return orders[0]
    micro = layout.macs // 8 // (layout.microblock[0] * layout.microblock[1])
    taps = large_taps_at_once(layout) if layout.traversal is Traversal.PART_KERNEL else 1
    block = micro * large_input_micro(layout) * taps // layout.cores
    count = max(-(-len(order) // block) for order in orders)
    return np.concatenate([order[n * block : (n + 1) * block] for n in range(count) for order in orders])
