"""Loops that copy neighbors, which may move several words at a time."""

from __future__ import annotations

from collections.abc import Mapping

from tosaic.backends.cortex_m.program.tree import BYTES, Access, Assign, Buffer, For, RefusedError

TOGETHER = 16
"""Bytes that a loop of the kind `words` reads before it writes them."""


def copied_row(loop: For, buffers: Mapping[str, Buffer]) -> tuple[Access, Access]:
    """The target and the source of a loop that copies neighbors from one buffer in memory to another.

    Raises:
        RefusedError: it does something else, or has less than `TOGETHER` bytes.
    """
    match loop.body:
        case Assign(target=target, value=Access() as source):
            to, read = buffers[target.buffer], buffers[source.buffer]
        case _:
            raise RefusedError(f"`{loop.var}` does more than to copy")
    if to.in_registers or read.in_registers or to.name == read.name or to.dtype != read.dtype:
        raise RefusedError(f"`{loop.var}` copies from no other buffer in memory of the same type")
    if to.address(target.index)[loop.var] != 1 or read.address(source.index)[loop.var] != 1:
        raise RefusedError(f"`{loop.var}` copies elements that are no neighbors")
    if loop.early or loop.step != 1 or loop.extent * BYTES[to.dtype] < TOGETHER:
        raise RefusedError(f"`{loop.var}` is no loop over {TOGETHER} bytes and more, one element after the other")
    return target, source
