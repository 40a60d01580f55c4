"""Epilogues of products of rows in words, four results to a vector."""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.backends.cortex_m.program.sketches.activations import numbered
from tosaic.backends.cortex_m.program.sketches.four_bytes import bytes_of_four
from tosaic.backends.cortex_m.program.sketches.image_strips import lanes_of
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR
from tosaic.backends.cortex_m.program.sketches.row_part import RowPart


def spread(part: RowPart, around: str, lanes: str, dtype: str) -> Iterator[str]:
    """The bounds of results in all lanes."""
    for name in part.s.result.bounds:
        yield f"spread(z{name}, {around}, {lanes}q{name}, q, {dtype}, {lanes})"


def fours(part: RowPart) -> Iterator[str]:
    """Results of words, four of a vector, and those that are left."""
    around = part.epilogue
    whole, left = part.block // FOUR * FOUR, part.block % FOUR
    if whole and left:
        yield f"cut({around}, {whole})"
    if whole:
        yield from _pixels_of_four(part, around, part.pixel, FOUR) if part.pixel else _row_of_fours(part, around, whole)
    if left:
        behind = "_t" * (whole > 0)
        around, pixel = f"{around}{behind}", f"{part.pixel}{behind}" if part.pixel else ""
        yield from _pixels_of_four(part, around, pixel, left) if pixel else _last_of_row(part, around, left)


def _row_of_fours(part: RowPart, around: str, channels: int) -> Iterator[str]:
    """A hardware loop over the channels of one pixel."""
    iteration = "nq"
    yield f"split({around}, nq, {channels})"
    if part.fours > 1:
        iteration = "nv"
        yield f"split(nq, nv, {FOUR * part.fours})"
    yield f"split({iteration}, nl, {FOUR})"
    yield from _four(part, around, iteration, "nl", around, iteration)


def _last_of_row(part: RowPart, around: str, left: int) -> Iterator[str]:
    yield f"split({around}, nr, {left})"
    yield from _four(part, around, around, "nr", around, around)


def _pixels_of_four(part: RowPart, around: str, pixel: str, channels: int) -> Iterator[str]:
    """A hardware loop over the pixels of up to four channels, whose factors stay."""
    lanes, each = "nl" if channels == FOUR else "nr", pixel
    yield from (f"split({around}, {lanes}, {channels})", f"reorder({lanes}, {pixel})")
    if part.unrolled > 1:
        each = f"{lanes}p"
        yield f"split({pixel}, {each}, {part.unrolled})"
    yield from _four(part, around, around, lanes, pixel, each)


def _four(part: RowPart, around: str, iteration: str, lanes: str, pixel: str, each: str) -> Iterator[str]:
    """Up to four results: an iteration of `each`, which reads factors in an iteration of `iteration`."""
    result, made = part.s.result, lanes
    yield from (*spread(part, around, lanes, "i32"), *numbered(part, around, lanes))
    if result.terms:
        yield f"stage(T, {pixel}, {lanes}tr, r)"
    if result.narrowed and lanes == "nr" and part.block % FOUR == 1:
        # One half alone has the mask of a word where it is stored out of one.
        yield f"rewrite(out, half_lanes, {lanes})"
    elif result.narrowed:
        made = f"F{lanes}0"
        yield from (f"part(out, sat16, {each}, F{lanes}, scratch, i16)", f"space(F{lanes}, 2)")
        yield from [f"lengthen(F{lanes}, 0, {lanes_of(result.element)})"] * (lanes == "nr")
        yield f"place(F{lanes}, q)"
    elif result.fits:
        made = f"E{lanes}0"
        yield from bytes_of_four(each, lanes, few=lanes == "nr")
    for factor in result.factors:
        yield f"stage({part.named(factor)}, {iteration}, {lanes}v{factor}, q{result.widened(factor)})"
    yield f"unfold({made}, {lanes}v, q)"
