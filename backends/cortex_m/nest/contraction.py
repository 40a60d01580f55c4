"""Convolutions and matrix products as nests: sums of dot products at a loop of the finished output.

    sums[y, x, n] = sum over k of image[window of y, x][k] * weights[n, k]
    out[y, x, n] = finish(sums[y, x, n])

Without padding and windows the image is a matrix: one row of `x`, each `k` bytes long.
"""

from __future__ import annotations

from dataclasses import dataclass

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.nest.finish import Finish
from tosaic.backends.cortex_m.nest.nest import Nest
from tosaic.backends.cortex_m.nest.rows import Dot


@dataclass(frozen=True)
class Contraction:
    """What is computed.

    Args:
        geometry: of the window; its channels count bytes of the input.
        channels: output channels.
        dot: the instructions of a product.
        finish: how a sum becomes a result.
    """

    geometry: Geometry
    channels: int
    dot: Dot
    finish: Finish

    @property
    def depth(self) -> int:
        """Bytes of the left operand behind one sum."""
        return self.geometry.depth

    @property
    def padded_bytes(self) -> int:
        """Bytes of the image between its padding."""
        geometry, (top, bottom, left, right) = self.geometry, self.geometry.pad
        return (top + geometry.height + bottom) * (left + geometry.width + right) * geometry.channels

    @property
    def nest(self) -> Nest:
        """The unscheduled stages: pixels of a row `x` in rows `y`; the windows of all pixels are one row of them."""
        rows, columns = self.geometry.batch * self.geometry.rows, self.geometry.columns
        axes = {"y": rows, "x": columns, "n": self.channels}
        return Nest.of(sums={**axes, "k": self.depth}, out=axes)
