"""How many pixels have their sums in scratch memory at a time, before results are made of them."""

from __future__ import annotations

from collections.abc import Sequence

TOGETHER, _MOST_TOGETHER, _FEW, _SIZES = (2, 3, 4, 6, 8, 12, 16, 24), 64, 6, 16
"""Pixels whose sums lie in scratch memory at a time, beside those of a row in about equal parts, up to a most; a good
number of them, and how many numbers are looked at."""
_ENTRIES, _STORES, _NEAR = 4, 0.5, 1.02
"""Products that a block of sums around its hardware loop is worth, those of what is stored; and times the least work
that is little more."""


def possible_together(row: int) -> list[int]:
    """Pixels whose sums may lie in scratch memory at a time: those first of which few are computed twice."""
    some = {-(-row // n) for n in range(1, row + 1)} | {n for n in TOGETHER if n <= row}
    return sorted((n for n in some if n <= _MOST_TOGETHER), key=lambda n: (-(-row // n) * n, abs(n - _FEW)))[:_SIZES]


def few_together(some: Sequence[int], row: int, tile: tuple[int, int], block: int, little: int) -> list[int]:
    """Of some numbers of pixels: for the least work, the most for little more, the most of those that take little
    memory, and few.

    Args:
        row: pixels of a row.
        tile: pixels and channels of the sums in registers.
        block: channels of sums in scratch memory.
        little: pixels whose sums take little memory.
    """
    pixels, width = tile

    def work(together: int) -> tuple[float, int]:
        whole, left = divmod(together, pixels)
        each = whole * (max(pixels * width, pixels + width) + _STORES)
        each += (max(left * width, left + width) + _STORES) * (left > 0)
        return -(-row // together) * (each + _ENTRIES * (whole + (left > 0)) / block), abs(together - _FEW)

    best = min(some, key=work, default=pixels)
    near = [n for n in some if work(n)[0] <= _NEAR * work(best)[0]]
    few = [n for n in near if n <= little]
    return sorted({pixels, best, *(max(each, default=pixels) for each in (few, near))})
