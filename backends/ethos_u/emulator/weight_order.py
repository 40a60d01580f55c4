"""In which order the weights of a convolution stand in their streams, by generation.

The order follows the way the hardware walks a kernel: blocks of output channels, blocks of input channels, sub-kernels
of at most 8x8 taps, and micro-blocks whose sizes depend on the MAC array. Orders were taken from the way Vela lays the
weights out and hold the bit-exact comparison with the reference model.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np

_SUBKERNEL = 8  # taps along one axis
_SMALL_OUTPUT_DEPTH = {32: 4, 64: 8, 128: 8, 256: 8}  # channels of an output micro-block by MACs of one core
_SMALL_INPUT_DEPTH = 8


class Traversal(Enum):
    """How input channels and kernel taps nest."""

    DEPTH_FIRST = "depth first"
    PART_KERNEL = "part kernel"
    DEPTHWISE = "depthwise"


@dataclass(frozen=True)
class WeightLayout:
    """What the order depends on.

    Args:
        generation: `u55`, `u65` or `u85`.
        macs, cores: of the accelerator.
        shape: (output channels, kernel height, kernel width, input channels); one input channel where depthwise.
        block_depth: output channels of a block.
        bits16: i16 input data.
        dilation, stride: (y, x).
        microblock: (height, width) of U85's output micro-block.
        sparse: U85's 2:4 sparsity.
    """

    generation: str
    macs: int
    cores: int
    shape: tuple[int, int, int, int]
    block_depth: int
    traversal: Traversal
    bits16: bool
    dilation: tuple[int, int]
    stride: tuple[int, int]
    microblock: tuple[int, int] = (1, 1)
    sparse: bool = False


@lru_cache(maxsize=256)
def stream_order(layout: WeightLayout, core: int) -> np.ndarray:
    """For each weight of `core`'s stream its index in the C-ordered weights of `layout.shape`; -1 is padding."""
    return _large_order(layout, core) if layout.generation == "u85" else _small_order(layout, core)


class _WeightOrder:
    """Collects (output channel, row, column, input channel) by pieces."""

    def __init__(self, layout: WeightLayout) -> None:
        self.layout = layout
        self.pieces: list[np.ndarray] = []

    def add(self, o: np.ndarray, y: np.ndarray | int, x: np.ndarray | int, i: np.ndarray, ok: np.ndarray) -> None:
        _, kh, kw, ic = self.layout.shape
        self.pieces.append(np.where(ok, ((o * kh + y) * kw + x) * ic + i, -1).ravel())

    def pad(self, count: int) -> None:
        self.pieces.append(np.full(count, -1, np.int64))

    def array(self) -> np.ndarray:
        return np.concatenate(self.pieces) if self.pieces else np.zeros(0, np.int64)


def _small_order(layout: WeightLayout, core: int) -> np.ndarray:
    """U55 and U65: core c has the output channels c, c + cores, ..."""
    oc, kh, kw, ic = layout.shape
    cores = layout.cores
    depth = _SMALL_OUTPUT_DEPTH[layout.macs // cores]
    channels = -(-(oc - core) // cores)
    block = (layout.block_depth + cores - 1 - core) // cores
    depthwise, part = layout.traversal is Traversal.DEPTHWISE, layout.traversal is Traversal.PART_KERNEL
    input_block = 16 if part or layout.bits16 else 32
    taps_at_once = 4 if depthwise else ((2 if layout.bits16 else 4) if part else 1)
    none = np.zeros(1, np.int64)
    order = _WeightOrder(layout)
    for o0 in range(0, channels, block):
        here = min(block, channels - o0)
        for i0 in range(0, 1 if depthwise else ic, input_block):
            wide = _SMALL_INPUT_DEPTH if depthwise else (min(input_block, ic - i0) if part else input_block)
            steps = np.arange(0, wide, _SMALL_INPUT_DEPTH)
            for y0, x0, sub_h, sub_w in _subkernels(kh, kw, layout.dilation, rows_first=True):
                taps = -(-sub_h * sub_w // taps_at_once) * taps_at_once
                outer, o1, tap, inner, o2, i2 = np.ix_(
                    steps if part else none, np.arange(0, here, depth), np.arange(taps), none if part else steps,
                    np.arange(depth), np.arange(1 if depthwise else _SMALL_INPUT_DEPTH),
                )  # fmt: skip
                o, i, row = o0 + o1 + o2, i0 + outer + inner + i2, tap // sub_w
                ok = (i < ic) & (o < channels) & (row < sub_h)
                order.add(o * cores + core, y0 + row, x0 + tap % sub_w, i, ok)
    return order.array()


def _subkernels(kh: int, kw: int, dilation: tuple[int, int], *, rows_first: bool) -> list[tuple[int, int, int, int]]:
    dy, dx = _SUBKERNEL // dilation[0], _SUBKERNEL // dilation[1]
    ys = [(y, min(kh - y, dy)) for y in range(0, kh, dy)]
    xs = [(x, min(kw - x, dx)) for x in range(0, kw, dx)]
    if rows_first:
        return [(y, x, h, w) for y, h in ys for x, w in xs]
    return [(y, x, h, w) for x, w in xs for y, h in ys]


def _large_order(layout: WeightLayout, core: int) -> np.ndarray:
    """U85: input blocks back and forth, columns back and forth, four output channels to a core in turn."""
    oc, kh, kw, ic = layout.shape
    depthwise, part = layout.traversal is Traversal.DEPTHWISE, layout.traversal is Traversal.PART_KERNEL
    micro = layout.macs // 8 // (layout.microblock[0] * layout.microblock[1])
    input_block = large_input_block(layout)
    stride = layout.stride if part or depthwise else (1, 1)
    at_once = large_taps_at_once(layout)
    input_micro = 1 if depthwise else large_input_micro(layout)
    trailing = large_depthwise_padding(layout) if depthwise else 0
    step = 1 if depthwise else (16 if layout.sparse else 8)
    i1, o1, o2, i2 = np.ix_(
        np.arange(0, input_micro, step), np.arange(core * 4, micro, 4 * layout.cores), np.arange(4), np.arange(step)
    )
    o_in, i_in = o1 + o2 + 0 * i1 + 0 * i2, i1 + i2 + 0 * o1 + 0 * o2
    order = _WeightOrder(layout)
    blocks = [0] if depthwise else list(range(0, ic, input_block))
    for number, o0 in enumerate(range(0, oc, layout.block_depth)):
        here = min(layout.block_depth, oc - o0)
        for i0 in blocks if number % 2 == 0 else blocks[::-1]:
            for y0, x0, sub_h, sub_w in _subkernels(kh, kw, layout.dilation, rows_first=False):
                for ia in range(0, 1 if depthwise else min(input_block, ic - i0), input_micro):
                    for oa in range(0, here, micro):
                        left = -(-sub_h * sub_w // at_once) * at_once
                        o, i = o0 + oa + o_in, i0 + ia + i_in
                        ok = (o < oc) & (i < ic)
                        for y, x in _strided_taps(sub_h, sub_w, stride):
                            left -= 1
                            order.add(o, y0 + y, x0 + x, i, ok)
                            if trailing and left % at_once == 0:
                                order.pad(trailing * micro // layout.cores)
                        if left > 0:
                            order.pad((left + trailing) * input_micro * micro // layout.cores)
    return order.array()


def _strided_taps(height: int, width: int, stride: tuple[int, int]) -> list[tuple[int, int]]:
    """Taps by stride phase, columns in alternating direction."""
    taps = []
    for phase_y in range(stride[0]):
        for phase_x in range(stride[1]):
            columns = list(range(phase_x, width, stride[1]))
            for number, y in enumerate(range(phase_y, height, stride[0])):
                taps += [(y, x) for x in (columns if number % 2 == 0 else columns[::-1])]
    return taps


def large_input_block(layout: WeightLayout) -> int:
    """Input channels of a block on U85."""
    if layout.traversal is Traversal.PART_KERNEL:
        return 16
    micro = layout.macs // 8 // (layout.microblock[0] * layout.microblock[1])
    if layout.sparse and not layout.bits16:
        return 128
    return 32 if layout.macs <= 256 and micro == 16 and not layout.sparse else 64


def large_input_micro(layout: WeightLayout) -> int:
    """Input channels of a micro-block on U85."""
    if layout.traversal is Traversal.PART_KERNEL and layout.bits16 and not layout.sparse:
        return 8
    return large_input_block(layout)


def large_taps_at_once(layout: WeightLayout) -> int:
    """Kernel taps that a U85 takes in one go; the taps of a sub-kernel are padded to a multiple."""
    if layout.traversal is Traversal.PART_KERNEL:
        return 10 if layout.bits16 or layout.sparse else 5
    return 10 if layout.traversal is Traversal.DEPTHWISE else 1


def large_depthwise_padding(layout: WeightLayout) -> int:
    """Zero taps behind every ten of a depthwise kernel on U85."""
    if not layout.bits16 and layout.macs <= 256:
        return 0
    return 2 if layout.macs <= 512 else 6
