"""What a stream keeps of a tensor between its stages."""

from __future__ import annotations

from dataclasses import dataclass

from tosaic.backends.cortex_m.streams.row_map import RowMap


@dataclass(frozen=True)
class StreamWindow:
    """The buffer of a tensor between stages.

    Args:
        rows: that it holds; `bytes` of one.
        kept: rows at most that a step leaves to the next.
        first, last: the stage that makes it, the first one of the stream for what is fed, and the last that reads it.
        above, below: rows of padding before the first and behind the last row, as `padding` says; see `Argument`.
        readers: the stages that read it, each with the rows that it needs.
    """

    rows: int
    bytes: int
    kept: int
    first: int
    last: int
    above: int
    below: int
    padding: int
    readers: tuple[tuple[int, RowMap], ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return self.rows * self.bytes
