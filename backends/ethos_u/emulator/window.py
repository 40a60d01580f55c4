"""The window that kernels slide over: the IFM with upscaling and padding, and its taps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tosaic.backends.ethos_u.emulator.registers import Registers
from tosaic.backends.ethos_u.emulator.state import EmulatorState, require_plausible
from tosaic.backends.npu import EmulationError

_NEAREST, _ZEROS = 1, 2  # IFM_UPSCALE


@dataclass(frozen=True)
class KernelShape:
    """A kernel's taps, stride, dilation (each y, x), and padding (top, left, bottom, right)."""

    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]
    part_kernel_first: bool

    @classmethod
    def of(cls, registers: Registers) -> KernelShape:
        bits = registers["KERNEL_STRIDE"]
        dilation = ((bits >> 4 & 1) + 1, (bits >> 3 & 1) + 1)
        return cls(
            size=(
                registers["KERNEL_HEIGHT_M1"] // dilation[0] + 1,
                registers["KERNEL_WIDTH_M1"] // dilation[1] + 1,
            ),
            stride=((bits >> 1 & 1 | bits >> 9 << 1 & 2) + 1, (bits & 1 | bits >> 6 << 1 & 2) + 1),
            dilation=dilation,
            padding=tuple(registers[f"IFM_PAD_{side}"] for side in ("TOP", "LEFT", "BOTTOM", "RIGHT")),  # type: ignore[arg-type]
            part_kernel_first=bool(bits >> 2 & 1),
        )

    @property
    def extent(self) -> tuple[int, int]:
        """Height and width of the kernel with its dilation."""
        (kh, kw), (dy, dx) = self.size, self.dilation
        return (kh - 1) * dy + 1, (kw - 1) * dx + 1

    def input_size(self, output: tuple[int, int]) -> tuple[int, int]:
        """Height and width, without padding, of the (upscaled) input of so large an output.

        Raises:
            EmulationError: all of it is padding.
        """
        height, width = ((n - 1) * s + e for n, s, e in zip(output, self.stride, self.extent, strict=True))
        top, left, bottom, right = self.padding
        if height - top - bottom < 1 or width - left - right < 1:
            raise EmulationError(f"padding {self.padding} leaves no input in a window of {height}x{width}")
        return height - top - bottom, width - left - right


@dataclass(frozen=True)
class PaddedInput:
    """The padded input: int64 (height, width, depth), and where it holds input rather than padding."""

    values: np.ndarray
    valid: np.ndarray
    kernel: KernelShape
    output: tuple[int, int]

    def taps(self, array: np.ndarray | None = None) -> Iterator[tuple[int, int, np.ndarray]]:
        """(ky, kx, view of shape (output height, output width, ...)) of `array`, by default the values."""
        array = self.values if array is None else array
        (kh, kw), (sy, sx), (dy, dx) = self.kernel.size, self.kernel.stride, self.kernel.dilation
        oh, ow = self.output
        for ky in range(kh):
            for kx in range(kw):
                y, x = ky * dy, kx * dx
                yield ky, kx, array[y : y + (oh - 1) * sy + 1 : sy, x : x + (ow - 1) * sx + 1 : sx]


def upscale(registers: Registers) -> int:
    """How often each input element stands along each axis."""
    return 2 if registers["IFM_UPSCALE"] & 3 else 1


def read_window(state: EmulatorState, depth: int) -> PaddedInput:
    """The window for the OFM's height and width over `depth` channels of the IFM."""
    kernel = KernelShape.of(state.registers)
    oh, ow, _ = state.output_shape()
    ih, iw = kernel.input_size((oh, ow))
    top, left, bottom, right = kernel.padding
    height, width = top + ih + bottom, left + iw + right
    require_plausible((height, width, depth))
    factor = upscale(state.registers)
    values = state.load("IFM", -(-ih // factor), -(-iw // factor), depth)
    mode = state.registers["IFM_UPSCALE"] & 3
    if mode == _NEAREST:
        values = values.repeat(2, 0).repeat(2, 1)[:ih, :iw]
    elif mode == _ZEROS:
        spread = np.zeros((2 * values.shape[0], 2 * values.shape[1], depth), np.int64)
        spread[::2, ::2] = values
        values = spread[:ih, :iw]
    padded = np.zeros((height, width, depth), np.int64)
    padded[top : top + ih, left : left + iw] = values
    valid = np.zeros((height, width), bool)
    valid[top : top + ih, left : left + iw] = True
    return PaddedInput(padded, valid, kernel, (oh, ow))
