"""About the cycles and instructions of products of rows in parts, for cores with vectors."""

from __future__ import annotations

from tosaic.backends.cortex_m.kernels.vector_conv2d import joined_cycles
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, PixelRows, RowResult
from tosaic.backends.cortex_m.program.sketches.row_part import RowPart
from tosaic.backends.cortex_m.program.sketches.row_parts import SumGroup, groups_of, row_parts, weight_bytes

_BALANCED = 1.8
"""Cycles that a block of sums waits of as many loads as products."""
_ENTRY, _BLOCK = 14, 6
"""Cycles of a block around its hardware loop, and of one without."""
_BEGUN, _TIGHT = 3, 2
"""Cycles that an iteration waits for biases with which its sums begin; and those of a tight block of sums.

A block is tight where its instructions take nearly as long as its products, or its vectors leave few registers.
"""
_COPIED = 0.27
"""Cycles of a byte that is copied."""


def copies_of(part: RowPart) -> list[int]:
    """Bytes of each copy of constants."""
    factors = [FOUR * part.once] * len(part.s.result.factors)
    return [*weight_bytes(part).values(), *factors] if part.s.copied else []


def copied_cycles(part: RowPart) -> float:
    """Cycles of the copies of a block of channels."""
    return sum(size * _COPIED + _ENTRY for size in copies_of(part))


def sums_cycles(g: SumGroup) -> float:
    """Cycles of what one hardware loop adds up, of a tile of pixels."""
    s, vectors = g.part.s, g.part.s.vectors + (g.part.s.short > 0)
    staying = (g.held + (s.short > 0)) * g.pixels
    loads = vectors * (g.pixels + g.width) - staying
    products = vectors * g.pixels * g.width
    balanced = max(0.0, 1 - 5 * abs(products - loads) / max(products, loads))
    stores = g.pixels * (g.width / 2 if g.width % 2 == 0 else g.width)
    iteration = 2 * max(products, loads) + _BALANCED * balanced + 0.9 * stores + 1.3 / g.repeats
    iteration += 10 + 4 * vectors / s.unroll if s.unroll else 2 * (s.ahead == 0)
    if s.result.begun:
        iteration += _begun(g, 2 * max(products, loads) - products - loads - 2 * stores)
    left = s.together % s.pixels
    calls = 1 if g.pixels == left and g.behind.endswith("p") else s.together // s.pixels
    around = _ENTRY + 2 * staying + 4 * (s.short > 0)
    return calls * g.channels / g.width * iteration + (1 if g.over_tiles else calls) * around


def epilogue_cycles(part: RowPart) -> float:
    """Cycles of the results of a block of channels of a tile of pixels."""
    return (_joined if part.s.parts else _vectors if part.whole else _fours)(part)


def _vectors(part: RowPart) -> float:
    """Cycles of the epilogue of whole vectors."""
    s, factors = part.s, len(part.s.result.factors)
    integers = {1: 10, 2: 18, 3: 22}[len(s.result.scale)] + 2 * _terms(s.result) + 2 * s.result.clamped
    integers = (integers - 4 * s.result.begun - 2 * s.result.fits) * s.share
    moved = 4 * (s.share + factors) + s.share + 8 * s.result.table * s.share
    # Of each kind an instruction goes on in two cycles, of all in one.
    each = max(2 * integers, 2 * moved, integers + moved + 4 * s.share) + 2 + 2 * (s.epilogue_ahead == 0)
    shares, groups = -(-s.together // s.share), part.block / LANES
    loops = part.over_pixels or part.block > LANES * part.epilogue_unroll
    return shares * groups * each + (_ENTRY if loops else _BLOCK) * (1 if part.over_pixels else shares)


def _joined(part: RowPart) -> float:
    """Cycles of the results of sums of 48 bits."""
    return joined_cycles(part.s.together * part.block, part.s.parts)


def _fours(part: RowPart) -> float:
    """Cycles of the epilogue of results by fours, of several pixels with factors that stay."""
    s, factors = part.s, len(part.s.result.factors)
    each = 6.5 - s.result.fits + 2.5 * (len(s.result.scale) - 1) + _terms(s.result) + 4.5 * s.result.table
    if not part.pixel:
        return -(-part.block // FOUR) * (each + factors) + _ENTRY
    return -(-part.block // FOUR) * (s.together * (each + 4 / part.unrolled) + _ENTRY + 2 * factors)


def _terms(result: RowResult) -> int:
    """How many terms are added to a sum."""
    return int(result.terms) + result.column_terms


def _begun(g: SumGroup, free: float) -> float:
    """Cycles that a block of sums waits for the biases with which they begin, given how many instructions more would
    find room beside its products."""
    few = g.held > 0 and not g.over_tiles
    tight = (1 if g.over_tiles and free > 0 else _TIGHT) if few or free < _TIGHT else 0
    return _BEGUN / g.repeats + tight


def instructions_of(s: PixelRows) -> int:
    """About the instructions of its code."""
    vectors, factors, found = s.unroll or s.vectors + (s.short > 0), len(s.result.factors), 0
    for part in row_parts(s):
        found += sum(
            (vectors * (g.pixels * g.width + g.pixels + g.width) + 2 * g.pixels) * g.repeats for g in groups_of(part)
        )
        each = 4 * factors + s.share * (4 * factors + 15)
        found += part.epilogue_unroll * each if part.whole else 16 * part.unrolled
    return found
