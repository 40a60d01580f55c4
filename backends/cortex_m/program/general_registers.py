"""The general registers of numbers that live in a block with vectors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tosaic.backends.cortex_m.program.tree import Alloc, Instr, RefusedError, Statement
from tosaic.backends.cortex_m.program.vector_order import SHARED, sharing_numbers
from tosaic.backends.cortex_m.program.vector_steps import VectorStep, names_of

NUMBERS = ("r0", "r2", "r4", "r8", "r10", "r12", "r6")
"""General registers of a block: sums of products want even ones."""
_OTHERS = ("r1", "r3", "r5", "r9")
"""Those of numbers that are no sums, where there are too many."""
_PAIRS = (("r0", "r1"), ("r2", "r3"), ("r4", "r5"), ("r8", "r9"), ("r10", "r11"))
"""Those of numbers of 64 bits."""


def guard_spent(parts: Sequence[Sequence[Statement]]) -> None:
    """Guard: registers that an instruction spends live in its part of a block alone; behind the loop, in the block.

    Raises:
        RefusedError: others may read them.
    """
    own = [{s.buffer.name for s in part if isinstance(s, Alloc)} for part in parts]
    own[-1] = set().union(*own)
    for part, names in zip(parts, own, strict=True):
        for s in part:
            if isinstance(s, Instr) and s.row.spends:
                formals = [formal.name for formal in s.row.formals]
                if s.operands[formals.index(s.row.spends)].buffer not in names:
                    raise RefusedError(f"{s} spends registers that others read")


def staying(names: Sequence[Mapping[str, str]], kind: str) -> list[str]:
    """The registers of a class that several parts name, given the names of each part with their classes."""
    found = dict.fromkeys(name for part in names for name, its in part.items() if its == kind)
    return [name for name in found if sum(part.get(name) == kind for part in names) > 1]


class GeneralRegisters:
    """The registers of a block's own numbers.

    Args:
        parts: the instructions before its loop, of an iteration, and behind.
        inside: the names of buffers that live in the block.
        numbers: registers that numbers may have; sums want even ones.
        taken: other registers of the block.

    Attributes:
        parts: the same with numbers that share names, as registers are few.
        found: by name.

    Raises:
        RefusedError: there are too few.
    """

    def __init__(
        self,
        parts: Sequence[list[VectorStep]],
        inside: Collection[str],
        numbers: Sequence[str],
        taken: Collection[str],
    ) -> None:
        self.parts, self._inside = list(parts), inside
        names = [names_of(part) for part in parts]
        pairs = self._paired(names, numbers, taken)
        free = [name for name in numbers if name not in pairs.values()]
        own = [[name for name, kind in part.items() if kind == "r" and self._is_own(name)] for part in names]
        lasting = [name for name in staying(names, "r") if self._is_own(name)]
        alone = [[name for name in part if name not in lasting] for part in own]
        room = len(free) - len(lasting)
        others = self._others(alone, room, [name for name in _OTHERS if name not in pairs.values()])
        alone = [[name for name in names if name not in others] for names in alone]
        for part, names_alone in enumerate(alone):
            if len(names_alone) > room:
                self.parts[part] = sharing_numbers(self.parts[part], names_alone, room)
                alone[part] = [name for name in names_of(self.parts[part]) if name.rpartition("__")[0] == SHARED]
        if room < 0:
            raise RefusedError(f"{len(lasting)} numbers stay in a block of {len(free)} registers for them")
        self.found = dict(zip(lasting, free, strict=False)) | pairs | others
        for names_alone in alone:
            self.found |= zip(names_alone, free[len(lasting) :], strict=False)

    def _is_own(self, name: str) -> bool:
        return name.rpartition("__")[0] in self._inside

    def _paired(
        self, names: Sequence[Mapping[str, str]], numbers: Collection[str], taken: Collection[str]
    ) -> dict[str, str]:
        """Those of numbers of 64 bits, which others leave to them."""
        halves = [name for part in names for name, kind in part.items() if kind == "p" and self._is_own(name)]
        free = [half for pair in _PAIRS if pair[0] in numbers and pair[1] not in taken for half in pair]
        found = dict(zip(dict.fromkeys(halves), free, strict=False))
        if not found.keys() >= {*halves}:
            raise RefusedError(f"{len({*halves}) // 2} numbers of 64 bits do not fit {len(free) // 2} pairs")
        return found

    def _others(self, alone: Sequence[Sequence[str]], count: int, registers: Sequence[str]) -> dict[str, str]:
        """Registers of their own for numbers that are no sums, where more than so many live in a part at a time."""
        found = dict[str, str]()
        for part, names in enumerate(alone):
            sums = {name for step in self.parts[part] if step.is_sum for name in step.targets}
            try:
                sharing_numbers(self.parts[part], names, count)
            except RefusedError:
                found |= zip([name for name in names if name not in sums], registers, strict=False)
        return found
