"""What goes wrong on hardware though the values of a sequential run are right: missing waits and overlapping blocks.

The NPU runs kernels and DMA transfers side by side. DMA_WAIT n and KERNEL_WAIT n hold the stream until at most n of
them are outstanding. Consecutive kernels overlap too. With BLOCKDEP n, the first n blocks of a kernel may start while
the last ones of the kernel before are unfinished. Block i may start together with the last n - i.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from tosaic.backends.ethos_u.accelerators import EthosU
from tosaic.backends.ethos_u.emulator.elementwise import broadcast_shape, scalar_operand
from tosaic.backends.ethos_u.emulator.feature_map import FeatureBlock, FeatureMap, input_map, output_map
from tosaic.backends.ethos_u.emulator.memory import ByteRange
from tosaic.backends.ethos_u.emulator.output import TRANSPOSES
from tosaic.backends.ethos_u.emulator.resize import input_span
from tosaic.backends.ethos_u.emulator.state import EmulatorState
from tosaic.backends.ethos_u.emulator.window import KernelShape, upscale
from tosaic.backends.npu import EmulationError

_OUTSTANDING_KERNELS = 2
_OUTSTANDING_TRANSFERS = {"u55": 1, "u65": 2, "u85": 4}
_MOST_BLOCKDEP = {"u55": 3, "u65": 3, "u85": 7}
_INPUT_BLOCK_DEPTH = 16  # channels that a kernel takes in at once; the smallest block that the hardware uses


@dataclass(frozen=True)
class Blocks:
    """Blocks of a feature map that a kernel handles, in an order that the user of them knows."""

    feature_map: FeatureMap
    boxes: tuple[FeatureBlock, ...]


class Hazards:
    """Follows which commands are outstanding, and refuses those that race with one."""

    def __init__(self, accelerator: EthosU) -> None:
        self._generation = accelerator.generation
        self._transfers: deque[list[ByteRange]] = deque(maxlen=_OUTSTANDING_TRANSFERS[self._generation])
        self._kernels: deque[list[ByteRange]] = deque(maxlen=_OUTSTANDING_KERNELS)
        self._last_written: Blocks | None = None

    def wait_for_transfers(self, outstanding: int) -> None:
        _keep_last(self._transfers, outstanding)

    def wait_for_kernels(self, outstanding: int) -> None:
        _keep_last(self._kernels, outstanding)

    def transfer(self, accesses: list[ByteRange]) -> None:
        """A DMA starts.

        Raises:
            EmulationError: it races with an outstanding kernel or transfer.
        """
        _require_apart(accesses, self._kernels, "KERNEL_WAIT", "a kernel")
        _require_apart(accesses, self._transfers, "DMA_WAIT", "a transfer")
        self._transfers.append(accesses)

    def kernel(self, state: EmulatorState, name: str, accesses: list[ByteRange]) -> None:
        """A kernel starts; `name` is its command without `NPU_OP_`.

        Raises:
            EmulationError: it races with an outstanding transfer, or its first blocks with the last blocks before.
        """
        _require_apart(accesses, self._transfers, "DMA_WAIT", "a transfer")
        self._kernels.append(accesses)
        depth = min(state.registers.get("BLOCKDEP", 0), _MOST_BLOCKDEP[self._generation])
        if depth and self._last_written is not None:
            for blocks in _first_inputs(state, name, accesses, depth):
                _require_blocks_apart(blocks, self._last_written, depth)
        if any(access.write and access.region >= 0 for access in accesses):
            self._last_written = _last_outputs(state, _MOST_BLOCKDEP[self._generation])


def _keep_last(queue: deque[list[ByteRange]], count: int) -> None:
    while len(queue) > count:
        queue.popleft()


def _require_apart(accesses: list[ByteRange], outstanding: deque[list[ByteRange]], wait: str, other: str) -> None:
    for earlier in outstanding:
        for before in earlier:
            for access in accesses:
                if access.conflicts(before):
                    verb = "writes" if access.write else "reads"
                    theirs = "writes" if before.write else "reads"
                    raise EmulationError(
                        f"{verb} {access.low:#x}..{access.high:#x} of region {access.region} while {other} that "
                        f"{theirs} {before.low:#x}..{before.high:#x} may be unfinished",
                        why=f"a {wait} is missing before it",
                    )


def _last_outputs(state: EmulatorState, count: int) -> Blocks:
    """The last blocks of the OFM as it stands in memory, the very last one first."""
    shape = state.output_shape()
    block = _block(state)
    boxes = (
        _as_written(
            state,
            FeatureBlock(
                y, min(y + block[0], shape[0]), x, min(x + block[1], shape[1]), c, min(c + block[2], shape[2])
            ),
        )
        for y in reversed(range(0, shape[0], block[0]))
        for x in reversed(range(0, shape[1], block[1]))
        for c in reversed(range(0, shape[2], block[2]))
    )
    return Blocks(output_map(state.registers), tuple(islice(boxes, count)))


def _as_written(state: EmulatorState, box: FeatureBlock) -> FeatureBlock:
    """Where a U85 puts a block that it reverses and transposes on the way to memory."""
    if not state.large:
        return box
    spans = [(box.y0, box.y1), (box.x0, box.x1), (box.c0, box.c1)]
    reverse = state.registers.bits("OFM_PRECISION", 9, 2)
    if reverse:
        size = state.output_shape()[reverse - 1]
        start, end = spans[reverse - 1]
        spans[reverse - 1] = size - end, size - start
    axes = TRANSPOSES[state.registers.bits("OFM_PRECISION", 11, 3)]
    return FeatureBlock(*(end for axis in axes for end in spans[axis]))


def _block(state: EmulatorState) -> tuple[int, int, int]:
    registers = state.registers
    return tuple(registers[f"OFM_BLK_{axis}_M1"] + 1 for axis in ("HEIGHT", "WIDTH", "DEPTH"))  # type: ignore[return-value]


def _first_inputs(state: EmulatorState, name: str, accesses: list[ByteRange], count: int) -> Iterator[Blocks]:
    """The blocks of each input in memory that a kernel's first `count` blocks of work read."""
    read = {access.region for access in accesses if not access.write}
    registers = state.registers
    for which in ("IFM", "IFM2") if name == "ELEMENTWISE" else ("IFM",):
        if f"{which}_REGION" not in registers.payload or registers[f"{which}_REGION"] & 7 not in read:
            continue
        if state.storage(which) != 0 or (name == "ELEMENTWISE" and scalar_operand(state, which) is not None):
            continue
        boxes = _elementwise_boxes(state, which) if name == "ELEMENTWISE" else _window_boxes(state, name)
        yield Blocks(input_map(registers, which), tuple(box for box in islice(boxes, count) if not box.empty))


def _elementwise_boxes(state: EmulatorState, which: str) -> Iterator[FeatureBlock]:
    shape = state.output_shape()
    fixed = broadcast_shape(shape, state.registers.get(f"{which}_BROADCAST", 0))
    bh, bw, bd = _block(state)
    for y in range(0, shape[0], bh):
        for x in range(0, shape[1], bw):
            for c in range(0, shape[2], bd):
                low, high = (y, x, c), (y + bh, x + bw, c + bd)
                spans = [
                    (0, 1) if size == 1 else (a, min(b, size)) for a, b, size in zip(low, high, fixed, strict=True)
                ]
                yield FeatureBlock(*(end for span in spans for end in span))


def _window_boxes(state: EmulatorState, name: str) -> Iterator[FeatureBlock]:
    """The input in blocks: as many rows and columns as a block of the OFM reads, by blocks of channels.

    This is Vela's own model of the order of work. It lets the input blocks of a strided kernel advance by all that they
    read, which is further than the kernel's stride; whether hardware needs more care there is not known.
    """
    registers = state.registers
    height, width, depth = state.output_shape()
    bh, bw, _ = _block(state)
    if name == "RESIZE":
        for y in range(0, height, bh):
            for x in range(0, width, bw):
                y_span = input_span(state, "Y", y, min(y + bh, height))
                x_span = input_span(state, "X", x, min(x + bw, width))
                for c in range(0, depth, _INPUT_BLOCK_DEPTH):
                    yield FeatureBlock(*y_span, *x_span, c, min(c + _INPUT_BLOCK_DEPTH, depth))
        return
    kernel = KernelShape.of(registers)
    crosses_channels = name == "CONV" or (name == "POOL" and registers["IFM_DEPTH_M1"] + 1 != depth)
    if crosses_channels:
        depth = registers["IFM_DEPTH_M1"] + 1
    factor = upscale(registers)
    ih = -(-((height - 1) * kernel.stride[0] + kernel.extent[0] - kernel.padding[0] - kernel.padding[2]) // factor)
    iw = -(-((width - 1) * kernel.stride[1] + kernel.extent[1] - kernel.padding[1] - kernel.padding[3]) // factor)
    rows, columns = (
        (size - 1) * stride + extent
        for size, stride, extent in zip((bh, bw), kernel.stride, kernel.extent, strict=True)
    )
    for y in range(0, ih, rows):
        for x in range(0, iw, columns):
            for c in range(0, depth, _INPUT_BLOCK_DEPTH):
                yield FeatureBlock(y, min(y + rows, ih), x, min(x + columns, iw), c, min(c + _INPUT_BLOCK_DEPTH, depth))


def _require_blocks_apart(current: Blocks, previous: Blocks, depth: int) -> None:
    if current.feature_map.region != previous.feature_map.region:
        return
    for i, read in enumerate(current.boxes):
        for j, written in enumerate(previous.boxes[: max(0, depth - i)]):
            if _overlap(current.feature_map, read, previous.feature_map, written):
                raise EmulationError(
                    f"block {i} reads what block {j} from the end of the kernel before may not have written",
                    why=f"BLOCKDEP is {depth}",
                )


def _overlap(first: FeatureMap, box: FeatureBlock, second: FeatureMap, other: FeatureBlock) -> bool:
    (low, high), (other_low, other_high) = first.span(box), second.span(other)
    if high <= other_low or other_high <= low:
        return False
    base = min(low, other_low)
    painted = np.zeros(max(high, other_high) - base, bool)
    for address, shape, strides in second.byte_runs(other):
        np.lib.stride_tricks.as_strided(painted[address - base :], shape, strides)[...] = True
    return any(
        np.lib.stride_tricks.as_strided(painted[address - base :], shape, strides).any()
        for address, shape, strides in first.byte_runs(box)
    )
