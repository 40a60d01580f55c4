"""An instruction as issue rules see it."""

from __future__ import annotations

from typing import NamedTuple

from tosaic.backends.target import Timing


class Instruction(NamedTuple):
    """An instruction as the scoreboard sees it.

    `flow` is `branch`, `loop-start`, `loop-end` or empty; `access` is `load`, `store` (of a vector),
    `interleaving-store` or empty; `offsets` is the register with the offsets of a gather or scatter, or empty.
    """

    timing: Timing
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    flow: str
    narrow: bool
    pairs: bool
    access: str = ""
    offsets: str = ""
