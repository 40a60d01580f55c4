"""Sketches of pointwise functions."""

from __future__ import annotations

from collections.abc import Iterator


def unrolled(elements: int, factor: int) -> Iterator[str]:
    """`factor` elements in a turn of loop `x`, the rest of the `elements` one by one."""
    if factor == 1:
        return
    if elements % factor:
        yield f"cut(x, {elements // factor * factor})"
    yield f"split(x, xi, {factor})"
    yield "unroll(xi)"
