"""Loads and stores of vectors, and the pointers that they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tosaic.backends.cortex_m.nest.block import BlockInstruction, advance


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


def placed(code: Code, steps: Mapping[str, int]) -> tuple[list[BlockInstruction], dict[str, int]]:
    """The instructions of a turn, and where each pointer stands when it begins, as the offset of an access.

    Accesses of a pointer in reach of one another share a position of it; the last of them moves it on.

    Args:
        steps: bytes that pointers move in a turn, by the first letter of their names.
    """
    runs: dict[str, list[list[tuple[int, LaneAccess]]]] = {}
    for number, access in enumerate(code):
        if isinstance(access, LaneAccess):
            of_pointer = runs.setdefault(access.pointer, [[]])
            if any(abs(other.offset - access.offset) > other.reach for _, other in of_pointer[-1]):
                of_pointer.append([])
            of_pointer[-1].append((number, access))
    bases = {pointer: of_pointer[0][-1][1].offset for pointer, of_pointer in runs.items()}
    found: dict[int, list[BlockInstruction]] = {}
    for pointer, of_pointer in runs.items():
        ends = [run[-1][1] for run in of_pointer]
        targets = [*(end.offset for end in ends[1:]), bases[pointer] + steps[pointer[0]]]
        for run, end, target in zip(of_pointer, ends, targets, strict=True):
            found |= {number: [access.at(end.offset)] for number, access in run}
            distance = target - end.offset
            if 0 < abs(distance) <= end.reach:
                found[run[-1][0]] = [end.moving(distance)]
            else:
                found[run[-1][0]] += advance(pointer, distance)
    return [
        i for n, each in enumerate(code) for i in ([each] if isinstance(each, BlockInstruction) else found[n])
    ], bases
