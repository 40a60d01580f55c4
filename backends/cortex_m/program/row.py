"""Instructions of a core as rows: operands, meaning, text."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Formal:
    """An operand of an instruction: its element type, and `m` for memory or a class of registers."""

    name: str
    dtype: str
    memory: str


@dataclass(frozen=True)
class Row:
    """An instruction of a core, or a short sequence of them that has one meaning.

    Args:
        name: unique among the rows of a core.
        lanes: how often `meaning` holds, for `l` = 0, 1, 2 ...
        meaning: a statement of the tree's language on the formal operands, e.g. `d += a[l] * b[l]`; where lanes lie at
            several levels, `m` counts those of the second one, and `h` those of the third.
        formals: the operands.
        text: lines of assembly, `;` between them; `{name}` is an operand, `{between}` a vector that lives between them.
        reach: the least and the greatest offset of its memory operand, in bytes.
        align: bytes that divide the address of its memory operand.
        pair: the instruction that does two of these at addresses a register apart, `{d0}` and `{d1}` its registers;
            empty for none.
        low: whether it is one of the baseline cores: registers of class `r` are r0 to r7, and the first operand of its
            first line is lost where it is no result.
        moves: how far, in bytes, the instruction may move the pointer of its memory operand on; 0 where it cannot.
        first: of one that adds up, the instruction that begins the sum at 0; empty for none.
        masks: whether a mask may keep lanes from it.
        apart: its memory operand, where lanes of that may lie any number of elements apart, at each level in a
            stride of its own; `{o}` in the text is the vector of their distances in bytes.
        gathers: its memory operand, of which data say what is read.
        early: whether it writes its result before it has read all operands.
        together: its operand of several registers that follow each other; empty for none.
        moves_in_place: whether the register that it reads becomes the one that it writes, whose other lanes hold
            anything; `{carry}` in the text is a general register of any content.
        inner: lanes of each inner level, from outside; none where there is one level.
        dense: whether inner lanes of what may lie apart lie side by side.
        alias: whether what it writes lies in the register that it reads already: where nobody reads that behind, and
            nobody wrote other lanes of its target, both are one register, and it is no instruction.
        spoils: whether other lanes of its target hold anything behind it.
        spends: its operand whose registers it works in, so that they hold anything behind it; empty for none.
    """

    name: str
    lanes: int
    meaning: str
    formals: tuple[Formal, ...]
    text: str
    reach: tuple[int, int] = (0, 0)
    align: int = 1
    pair: str = ""
    low: bool = False
    moves: int = 0
    first: str = ""
    masks: bool = False
    apart: str = ""
    gathers: str = ""
    early: bool = False
    together: str = ""
    moves_in_place: bool = False
    inner: tuple[int, ...] = ()
    dense: bool = False
    alias: bool = False
    spoils: bool = False
    spends: str = ""

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def instructions(self) -> int:
        return self.text.count(";") + 1

    @property
    def several(self) -> bool:
        """Whether an operand is several registers, which its text numbers, and no pair."""
        return any(self.registers(formal.name) > 1 for formal in self.formals if formal.memory != "p")

    def steps(self, distance: int) -> bool:
        """Whether it may move its pointer on by so many bytes."""
        return abs(distance) == self.moves if self.together else abs(distance) <= self.moves

    def registers(self, formal: str) -> int:
        """The registers of an operand."""
        return max(1, len(set(re.findall(rf"{{{formal}(\d)}}", self.text))))
