"""Instruction rows: what the lanes of a contraction become on each core and element type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tosaic.backends.cortex_m.kernels.mve import VECTOR


@dataclass(frozen=True)
class Dot:
    """The instructions of a dot product of two vectors, added up in general registers.

    Args:
        element: bytes of an element of the left operand; those of the right one are bytes.
        load: a vector of the left operand, and how far an immediate offset reaches to either side.
        load_words: the same from addresses that are multiples of 4, which reaches further.
        weights: a vector of the right operand, widened to the left one's lanes.
        first, more: a product that starts a sum, and one that is added to it.
        registers: general registers of a sum; pairs hold the lower half first.
    """

    element: int
    load: tuple[str, int]
    load_words: tuple[str, int]
    weights: str
    first: str
    more: str
    registers: int = 1

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return VECTOR // self.element


DOTS: Mapping[str, Dot] = MappingProxyType(
    {
        "i16": Dot(2, ("vldrh.u16", 254), ("vldrw.u32", 508), "vldrb.s16", "vmladav.s16", "vmladava.s16"),
        "i16 wide": Dot(
            2, ("vldrh.u16", 254), ("vldrw.u32", 508), "vldrb.s16", "vmlaldav.s16", "vmlaldava.s16", registers=2
        ),
    }
)
"""MVE's dot products of int16 by int8: to int32, and to int64 where that may not suffice."""
