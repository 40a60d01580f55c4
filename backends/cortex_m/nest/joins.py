"""How the elements of a window are joined, channels in the lanes of vectors, and what becomes of the result.

A `Join` writes the code of a tile of outputs on names; `windows` says where loads and stores find what they name.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tosaic.backends.cortex_m.kernels.mve import VECTOR, shift_factors
from tosaic.backends.cortex_m.nest.block import BlockInstruction
from tosaic.backends.cortex_m.nest.finish import update
from tosaic.backends.cortex_m.nest.rows import F32

_LETTER = {1: "b", 2: "h", 4: "w"}
_WORD_REACH = 508


class LaneAccess(NamedTuple):
    """A load or a store of a vector.

    Args:
        register: what is loaded or stored.
        pointer: what points there; it moves on from turn to turn.
        offset: bytes from where it stands when a turn begins.
        reach: of an immediate offset, to either side.
    """

    mnemonic: str
    register: str
    pointer: str
    offset: int
    reach: int

    def at(self, base: int) -> BlockInstruction:
        """The instruction while the pointer stands at `base`."""
        return BlockInstruction(
            self.mnemonic, f"{{{self.register}}}, [{{{self.pointer}}}, #{self.offset - base}]", self._own
        )

    def moving(self, distance: int) -> BlockInstruction:
        """The instruction while the pointer stands at the offset; it moves the pointer on."""
        operands = f"{{{self.register}}}, [{{{self.pointer}}}], #{distance}"
        return BlockInstruction(self.mnemonic, operands, (*self._own, self.pointer), (self.pointer,))

    @property
    def _own(self) -> tuple[str, ...]:
        return () if "vst" in self.mnemonic else (self.register,)


Code = list[BlockInstruction | LaneAccess]


@dataclass(frozen=True)
class ReductionTile:
    """Outputs that are computed together, a vector or several of channels each.

    Args:
        rows, columns: for each row (column) of outputs, the rows (columns) of its window that lie inside of the image.
        kernel, stride, dilation: of the window.
        pitch: bytes of a pixel of the image and of the output.
        by_weights: whether each weight is read once, for all outputs; else each input is.
        masked: whether only some lanes of the vector exist.
        row_bytes: from a row of the image to the next where one pointer serves all; 0 where each row has its own.
    """

    rows: tuple[tuple[int, ...], ...]
    columns: tuple[tuple[int, ...], ...]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pitch: tuple[int, int]
    by_weights: bool = True
    masked: bool = False
    row_bytes: int = 0

    @property
    def outputs(self) -> list[tuple[int, int]]:
        """(row, column) of the outputs."""
        return list(itertools.product(range(len(self.rows)), range(len(self.columns))))

    @property
    def products(self) -> list[tuple[int, tuple[int, int], int]]:
        """The number of the tap, the place of the input and the number of the output of every product, in an order that
        reads each weight, or each input, once."""
        found = []
        for number, output in enumerate(self.outputs):
            for tap in itertools.product(self.rows[output[0]], self.columns[output[1]]):
                y, x = (o * s + k * d for o, s, k, d in zip(output, self.stride, tap, self.dilation, strict=True))
                found.append((tap[0] * self.kernel[1] + tap[1], (y, x), number))
        return sorted(found) if self.by_weights else sorted(found, key=lambda each: each[1:])

    @property
    def held_weights(self) -> int:
        """Vectors of weights that are read at a time."""
        if self.by_weights:
            return 1
        lines = zip((self.rows, self.columns), self.kernel, self.stride, strict=True)
        return math.prod(min(len(positions), -(-taps // step)) for positions, taps, step in lines)

    def access(
        self, stem: str, bits: tuple[int, int], register: str, at: tuple[int, int], vector: int = 0
    ) -> LaneAccess:
        """A load (`vldr`) or store (`vstr`) of a pixel's channels, elements of so many bits of memory and of a lane."""
        (memory, lane), loads = bits, stem == "vldr"
        pitch = self.pitch[0 if loads else 1]
        each = memory // 8 * 8 * VECTOR // lane
        offset, kind = at[1] * pitch + vector * each, f"s{lane}" if memory < lane else f"u{lane}"
        reach = 127 * memory // 8
        if loads and memory == lane and pitch % 4 == 0 and not self.masked:
            memory, kind, reach = 32, "u32", _WORD_REACH
        name = f"{stem}{_LETTER[memory // 8]}"
        mnemonic = f"vpst\\n{name}t" if self.masked else name
        pointer = f"{'p' if loads else 'o'}{at[0]}"
        if loads and self.row_bytes:
            pointer, offset = "p0", offset + at[0] * self.row_bytes
        return LaneAccess(f"{mnemonic}.{kind if loads else lane}", register, pointer, offset, reach)


@dataclass(frozen=True)
class Join(ABC):
    """How windows become results.

    Args:
        element, result: bytes of an element of the image and of the output.
    """

    element: int
    result: int

    @property
    @abstractmethod
    def bits(self) -> int:
        """Bits of a lane while elements are joined."""

    @property
    def lanes(self) -> int:
        """Channels of a vector."""
        return 8 * VECTOR // self.bits

    @property
    def scalars(self) -> Mapping[str, str]:
        """C of the numbers that the code names; `range` is int32, the head of the params."""
        return {}

    @property
    def predicates(self) -> bool:
        """Whether the code changes P0."""
        return False

    def constant_bytes(self, taps: int) -> int:
        """Bytes of the constants of a vector of channels."""
        return 0

    @abstractmethod
    def code(self, tile: ReductionTile) -> Code:
        """A tile of outputs. Rows of the image are at `p<row>`, rows of the output at `o<row>`, constants at `w`."""

    def vectors(self, tile: ReductionTile) -> int:
        """Vector registers that a tile needs at least."""
        return 1

    def products(
        self, tile: ReductionTile, code: Code, weights: Callable[[int], LaneAccess]
    ) -> Iterator[tuple[str, str, int]]:
        """The names of input and weight of every product, and the number of its output; `code` loads them before.

        Args:
            weights: the load of the weights of a tap.
        """
        known = set[str]()
        for tap, at, output in tile.products:
            x = f"x{output}" if tile.by_weights else f"x{at[0]}_{at[1]}"
            weight, input_ = weights(tap), tile.access("vldr", (8 * self.element, self.bits), x, at)
            code += [load for load in (weight, input_) if load.register not in known]
            known |= {weight.register} if tile.by_weights else {weight.register, x}
            yield x, weight.register, output


@dataclass(frozen=True)
class Average:
    """A sum times a scale, rounded once (TOSA 1.0, apply_scale_32).

    Args:
        offset: what is taken from the sum first.
        multiplier, left, right: as `shift_factors` gives them; `multiplier` 0 stands for a power of two, which `right`
            holds as well.
        zero_point: is added in the end.
    """

    offset: int
    multiplier: int
    left: int
    right: int
    zero_point: int

    @staticmethod
    def of(multiplier: np.ndarray, shift: np.ndarray, offset: np.ndarray, zero_point: np.ndarray) -> Average:
        """The average that a RESCALE makes of sums, each argument of one element."""
        factor, right, left = (int(each.item()) for each in shift_factors(multiplier, shift))
        if factor.bit_count() == 1:
            factor, right, left = 0, factor.bit_length() - 1 - int(shift.item()), 0
        return Average(int(offset.item()), factor, left, -right, int(zero_point.item()))


@dataclass(frozen=True)
class BlendFinish:
    """What becomes of sums in lanes of 16 bits.

    Args:
        average: the scale of a sum; its offset is 0.
    """

    average: Average

    def finish(self, tile: ReductionTile, value: str, vector: int) -> Code:
        """From eight sums to results in memory."""
        even = f"{value}b"
        code: Code = [
            BlockInstruction("vmovlb.s16", f"{{{even}}}, {{{value}}}", (even,)),
            _in_place("vmovlt.s16", value),
            *self.narrowed(even, value),
        ]
        return [*code, tile.access("vstr", (8, 16), even, (0, 0), vector)]

    def narrowed(self, even: str, odd: str) -> Code:
        """Sums of even and odd lanes, scaled, and as results in the lanes of `even`."""
        code = [each for half in (even, odd) for each in self._rounded(half)]
        code.append(_in_place("vqmovnb.s32", even))
        code.append(BlockInstruction("vqmovnt.s32", f"{{{even}}}, {{{odd}}}", (even,), (even,)))
        code += [update("vqadd.s16", even, "zero_point")] * bool(self.average.zero_point)
        code.append(_in_place("vqmovnb.s16", even))
        return code

    def _rounded(self, value: str) -> Code:
        """Four sums, scaled."""
        code = Code()
        if self.average.left:
            code.append(update("vshl.i32", value, f"#{self.average.left}"))
        if self.average.multiplier:
            code.append(update("vqdmulh.s32", value, "multiplier"))
        if self.average.right:
            code.append(update("vrshr.s32", value, f"#{self.average.right}"))
        return code


def _in_place(mnemonic: str, value: str) -> BlockInstruction:
    """An instruction on a vector that changes it."""
    return BlockInstruction(mnemonic, f"{{{value}}}, {{{value}}}", (value,), (value,))


@dataclass(frozen=True)
class ProductsF32(Join):
    """Fused products of floats, added to the bias, which lies before the weights of its channels.

    Args:
        bounded: whether there are bounds. NaN stays NaN, as mode PROPAGATE has it: nothing is greater.
    """

    bounded: bool

    @property
    def bits(self) -> int:
        return 32

    @property
    def scalars(self) -> Mapping[str, str]:
        return {"low": "range[0]", "high": "range[1]"} if self.bounded else {}

    @property
    def predicates(self) -> bool:
        return self.bounded

    def constant_bytes(self, taps: int) -> int:
        return VECTOR * (1 + taps)

    @staticmethod
    def pack(weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """f32 (vectors, 1 + taps, 4) of weights (taps, vectors, channels) and bias (vectors, channels)."""
        rows = np.concatenate([bias[:, None], weights.transpose(1, 0, 2)], axis=1)
        return np.pad(rows, ((0, 0), (0, 0), (0, VECTOR // F32.element - bias.shape[1])))

    def vectors(self, tile: ReductionTile) -> int:
        return len(tile.outputs) + tile.held_weights + 1

    def code(self, tile: ReductionTile) -> Code:
        sums = [f"s{n}" for n in range(len(tile.outputs))]
        code: Code = [self._constants("s0", 0)]
        code += [BlockInstruction("vmov", f"{{{total}}}, {{s0}}", (total,)) for total in sums[1:]]
        for x, f, output in self.products(tile, code, lambda tap: self._constants(f"f{tap}", 1 + tap)):
            total = sums[output]
            code.append(BlockInstruction(F32.more, f"{{{total}}}, {{{x}}}, {{{f}}}", (total,), (total,)))
        for bound in self.scalars:
            code.append(BlockInstruction("vdup.32", f"{{b}}, {{{bound}}}", ("b",)))
            for total in sums:
                order = f"{{b}}, {{{total}}}" if bound == "low" else f"{{{total}}}, {{b}}"
                code.append(BlockInstruction("vpt.f32", f"gt, {order}\\nvmovt {{{total}}}, {{b}}", (total,), (total,)))
        return [
            *code,
            *(tile.access("vstr", (32, 32), total, at) for total, at in zip(sums, tile.outputs, strict=True)),
        ]

    def _constants(self, register: str, number: int) -> LaneAccess:
        return LaneAccess(F32.load[0], register, "w", VECTOR * number, F32.load[1])
