"""CONV2D of windows that are one pixel by weights of four bits, with the numbers that its schedules on cores that
multiply halves leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.sketch_constants import scales, sixteen_times
from tosaic.backends.cortex_m.program import algorithms
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.kernel import Knobs
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.sketches.nibbles import NibbleHalves, nibble_halves
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice

_WORD = 8
"""Weights of a word."""


@dataclass(frozen=True)
class NibbleHalvesSketch:
    """CONV2D of int8; see `sketches.nibbles`.

    Args:
        group: weights that have a factor.
        forms: of the RESCALE.
    """

    geometry: Geometry
    channels: int
    epilogue: Epilogue
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)
    group: int
    forms: tuple[str, ...]

    def program(self) -> Program:
        return algorithms.conv2d(self.geometry, self.channels, self.epilogue)

    def knobs(self, core: Core) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open, as of `NibbleHalves`."""
        return {
            "channels": tuple(n for n in (4, 2, 3, 1) if self.channels % n == 0),
            "unroll": (4, 2, 1),
            "scale": self.forms,
        }

    def steps(self, knobs: Knobs) -> Iterator[str]:
        channels, unroll, high = int(knobs["channels"]), int(knobs["unroll"]), knobs["scale"] == "high"
        if self.group // _WORD % unroll:
            raise RefusedError(f"a group of {self.group} weights has no iterations of {unroll} words")
        return nibble_halves(
            NibbleHalves(self.geometry.pixels, self.geometry.depth, self.group, channels, unroll, high)
        )

    def cost(self, knobs: Knobs) -> float:
        """About the cycles of a product: a word of weights takes 12 instructions, and the halves that it meets four
        loads, which channels share; a block takes some around."""
        channels, unroll = int(knobs["channels"]), int(knobs["unroll"])
        return (12 + 8 / channels + 8 / (channels * unroll)) / _WORD + (knobs["scale"] == "wide")


def nibble_halves_sketch(
    geometry: Geometry, channels: int, epilogue: Epilogue, constants: Mapping[str, np.ndarray], group: int
) -> NibbleHalvesSketch | None:
    """The sketch of windows that are one pixel; None where that is not of whole words, or no `group` of weights has
    four bits."""
    if not group or geometry.depth % 4:
        return None
    forms = ("wide",) if epilogue.element == "i32" else scales(sixteen_times(constants))
    return NibbleHalvesSketch(geometry, channels, epilogue, constants, group, forms)
