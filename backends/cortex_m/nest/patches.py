"""Depthwise convolutions as nests: strips of interleaved rows, patches of 4 x 4 bytes, four outputs a turn.

A strip holds four input rows as [column][channel][4 rows]. Gathering the 32-bit words of four neighboring columns of
one channel gives a patch of 4 x 4 bytes; its VMLADAV with a vector of the kernel's weights in the right places and
zeros elsewhere is an output. A patch serves all outputs whose windows lie in it (2 x 2 for a 3 x 3 kernel of stride 1);
larger windows take several patches. A deep patch has 8 rows of 2 columns: shifted by bytes it meets the weights of the
outputs above with those of the lowest one. Padding is written into the strips, so borders need no code of their own.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tosaic.backends.cortex_m.kernels.mve import VECTOR
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.nest.nest import Nest

PATCH = 4
"""Rows and columns of a patch."""


@dataclass(frozen=True)
class PatchDepthwise:
    """What is computed: out[y, x, c] = finish(sum over a window of channel c / multiples).

    Args:
        geometry: of the window and the input.
        multiples: outputs of an input channel.
        form: of the RESCALE, as `finish.Finish` names it.
        clamped: whether the bounds are closer than those of int8.
        table: whether results go through a TABLE.
        element: bytes of a result, 1 or 4.
    """

    geometry: Geometry
    multiples: int
    form: str
    clamped: bool
    table: bool
    element: int = 1

    @property
    def pixel(self) -> int:
        """Bytes of the results of a pixel."""
        return self.channels * self.element

    @property
    def channels(self) -> int:
        """Output channels."""
        return self.geometry.channels * self.multiples

    @property
    def nest(self) -> Nest:
        """The unscheduled stages."""
        axes = {"y": self.geometry.rows, "c": self.channels, "x": self.geometry.columns}
        strip = {"y": self.geometry.rows, "x": self.geometry.width, "c": self.geometry.channels}
        return Nest.of(strip=strip, out=axes)

    @property
    def fields(self) -> int:
        """int32 factors of a channel: bias, multiplier[, right[, left]]."""
        return {"round": 2, "right": 3, "left": 4}[self.form]


@dataclass(frozen=True)
class Patches:
    """How a tile of `rows` x `columns` outputs is cut into patches of 4 x 4 input bytes, or `deep` ones of 8 x 2."""

    geometry: Geometry
    rows: int
    columns: int
    deep: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a patch."""
        return (2 * PATCH, PATCH // 2) if self.deep else (PATCH, PATCH)

    @property
    def extent(self) -> tuple[int, int]:
        """Input rows and columns that the tile touches."""
        down, right = self.geometry.stride
        height, width = self.geometry.span
        return (self.rows - 1) * down + height, (self.columns - 1) * right + width

    @property
    def row_groups(self) -> int:
        """Patches one above the other: each has its strip."""
        return -(-self.extent[0] // self.shape[0]) * self.shape[0] // PATCH

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """(row group, first column) of the patches."""
        groups = range(0, self.row_groups, self.shape[0] // PATCH)
        return list(itertools.product(groups, range(0, self.extent[1], self.shape[1])))

    @cached_property
    def cells(self) -> list[tuple[int, int]]:
        """(row, column) of the tile's outputs."""
        return list(itertools.product(range(self.rows), range(self.columns)))

    @cached_property
    def uses(self) -> list[tuple[int, int]]:
        """(cell, place) pairs in which the cell's window meets the patch: each has a weight vector, in this order.

        Of deep patches, those of the last cell, which serve the cells above too.
        """
        probe = np.ones((1, *self.geometry.kernel), np.int8)
        cells = range(len(self.cells) - 1 if self.deep else 0, len(self.cells))
        pairs = itertools.product(cells, range(len(self.places)))
        return [pair for pair in pairs if self.patch_weights(probe, *pair).any()]

    @property
    def per_turn(self) -> int:
        """Tiles in one turn of the inner loop, which finishes four outputs."""
        return PATCH // len(self.cells)

    def patch_weights(self, weights: np.ndarray, cell: int, place: int) -> np.ndarray:
        """int8 (channels, 16) of int8 (channels, rows, columns): the weights where the window of `cell` meets patch
        `place`, column by column."""
        (row, column), (group, first) = self.cells[cell], self.places[place]
        (down, right), (tall, wide) = self.geometry.stride, self.geometry.dilation
        rows, columns = self.shape
        patch = np.zeros((len(weights), columns, rows), weights.dtype)
        for ky, kx in itertools.product(range(self.geometry.kernel[0]), range(self.geometry.kernel[1])):
            y = row * down + ky * tall - group * PATCH
            x = column * right + kx * wide - first
            if 0 <= y < rows and 0 <= x < columns:
                patch[:, x, y] = weights[:, ky, kx]
        return patch.reshape(len(weights), VECTOR)
