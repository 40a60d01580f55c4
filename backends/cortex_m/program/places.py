"""Where tensors may lie over each other."""

from __future__ import annotations

from typing import NamedTuple


class Overlap(NamedTuple):
    """An input and an output, by number, that may share memory.

    Args:
        lead: the output begins at least so many bytes before the input, so that what it overwrites has been read by
            then; None where both begin together.
    """

    input: int
    output: int
    lead: int | None = None
