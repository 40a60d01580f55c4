"""Strips of an image between what pads it, in scratch memory: windows of some rows of results are read from each; or
those of a tile of pixels, which are read in the image where they lie in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tosaic.backends.cortex_m.program.sketches.copies import moved
from tosaic.backends.cortex_m.program.sketches.image_strips import LEFT, RIGHT, ImageStrip
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR


def opened(s: ImageStrip) -> Iterator[str]:
    """The steps that make rows of windows whole vectors, and the loop over strips.

    Windows that are copied are one row.
    """
    if s.taps[0] == 1 and not s.runs[1]:
        yield "drop(ky)"
    if s.tile:
        return
    if s.short:
        yield f"pad(k, {s.lanes})"
    yield f"split(y, yi, {s.tall}{', early' * (s.rows % s.tall > 0)})"
    if s.runs[1]:
        yield from (f"compute_at({name}, y)" for name in "SQP")
        yield from ("fuse(sy, sx)", "fuse(yi, x)") if s.fused else ("drop(yi)",)


def brought(s: ImageStrip, loop: str, depth: str, own: str = "") -> Iterator[str]:
    """The steps that make a strip for each iteration of a loop over tiles of pixels.

    Args:
        depth: the loop over a row of a window.
        own: what names end in where others read strips of their own.
    """
    if s.runs[1]:
        yield f"compute_at(Q, {loop})"
    if s.sides:
        yield from _apart(s)
    else:
        yield f"compute_at(P, {loop}{f', {own}' * (own != '')})"
    if s.short:
        yield f"pad({depth}, {s.lanes})"
    for part in (*s.sides, s):
        if part.runs[1] and part.pitch > part.whole and not part.alone:
            yield f"lengthen({_image(part.own)}, 2, {part.pitch})"


def _image(own: str) -> str:
    return f"P_{own}" if own else "P"


def _ends(s: ImageStrip) -> list[tuple[ImageStrip, str]]:
    """The strips of a row of windows, the last one of those between its sides, and what names in loops over each end
    in."""
    between = "_m" * any(side.own == LEFT for side in s.sides)
    return [*((side, "" if side.own == LEFT else f"{between}_{RIGHT}") for side in s.sides), (s, between)]


def _apart(s: ImageStrip) -> Iterator[str]:
    """The steps that make a strip for windows at each side of a row, and one for those between."""
    *sides, (_, between) = _ends(s)
    for side in s.sides:
        yield f"cut(qx, {side.windows}, m)" if side.own == LEFT else f"cut(qx{between}, {s.inner}, {RIGHT})"
    for part, behind in (*sides, (s, between)):
        if not part.alone:
            yield f"split(qx{behind}, qxw{behind}, {part.inner})"
        yield f"compute_at(P, qx{behind}{f', {part.own}' * (part.own != '')})"
        if part.alone:
            yield from (f"inline({_image(part.own)})", f"drop(qx{behind})")


def read_in_place(s: ImageStrip, own: str = "") -> Iterator[str]:
    """The steps that leave a strip to tiles at the edges of an image, and fill it there."""
    for side in s.sides:
        yield from read_in_place(side, side.own) if not side.alone else ()
    row = f"cx_{own}" if own else "cx"
    if s.edges[0] < s.edges[1]:
        yield f"in_place({_image(own)}, i)"
    if not s.padded:
        return
    if s.above:
        yield from (f"distribute({row})", *_padding(s, f"{row}b", s.whole))
    left, right = (s.left, s.right) if s.left + s.right < s.whole else (s.whole, 0)
    if left and left < s.whole:
        yield f"cut({row}, {left}, m)"
    between = f"{row}{'_m' * (left > 0)}"
    if right:
        yield f"cut({between}, {s.whole - left - right}, e)"
    if left:
        yield from _pixels(s, row)
    if right:
        yield from _pixels(s, f"{between}_e")
    if left + right < s.whole:
        yield from (f"decide({between})",) if left or right or s.sides else ()
        yield from moved("a", between, f"{between}m", s.whole - left - right, s.lanes)


def _pixels(s: ImageStrip, loop: str) -> Iterator[str]:
    """Pixels each of which lies in the image, or does not."""
    if s.pixel == 1:
        return
    own = f"{loop}c"
    yield from (f"split({loop}, {own}, {s.pixel})", f"distribute({own})")
    yield from (*_padding(s, f"{own}b", s.pixel), *moved("a", own, f"{own}a", s.pixel, s.lanes))


def filled(s: ImageStrip, around: str = "y") -> Iterator[str]:
    """The steps that fill strips, and copy windows; the loop `around` has strips of its own where these are read."""
    if s.tile:
        yield from _gathered(s) if s.runs[1] else ()
        return
    if not s.runs[1]:
        yield f"compute_at(P, {around})"
    if s.padded:
        yield from ("stage(edge, b, eg, r)", *_padding(s, "f", s.left + s.whole + s.right))
    if s.whole:
        yield from moved("a", "cx", "ca", s.whole, s.lanes)
    if s.runs[1]:
        yield from _gathered(s)


def _gathered(s: ImageStrip) -> Iterator[str]:
    """Windows, a run of elements after the other, or four short ones together."""
    if s.sides:
        yield "stage(edge, b, eg, r)"
        ends = _ends(s)
        yield from (step for part, behind in ends if part.alone for step in _divided(part, behind))
        for part, behind in ends:
            yield from _window(part, behind) if part.alone else _copied(part, f"qxw{behind}", part.inner, behind)
        return
    loop, iterations = ("qx", s.windows) if s.windows > 1 else ("qky", s.runs[1])
    if s.gathered:
        yield f"split(qky, qkr, {FOUR}{', early' * (s.runs[1] % FOUR > 0)})"
        yield from ("stage(P, qky, qv, scratch)", "merge_dims(qv, 0)", "place(qv, q)", "fuse(qkr, qk)")
        yield from (f"select({loop}, mve)", f"hardware_loop({loop})")
        return
    yield from _copied(s, loop, iterations)


def _parts(s: ImageStrip, behind: str) -> tuple[Mapping[str, str], tuple[str, str]]:
    """Of one window, the loops over rows of padding with those over a row of it, and these loops of what lies in the
    image."""
    rows, run, padded = [f"qky{behind}{letter}" for letter in ("", "b", "c")], f"qk{behind}", dict[str, str]()
    if s.left:
        padded[rows.pop(0)], run = run, f"{run}_i"
    row = rows.pop(0)
    if s.right:
        padded[rows.pop(0)] = f"{run}_e"
    return padded, (row, run)


def _divided(s: ImageStrip, behind: str) -> Iterator[str]:
    """One window in parts, of which those beside the image are written once."""
    padded, (_, run) = _parts(s, behind)
    if s.left:
        yield f"cut(qk{behind}, {s.left}, i)"
    if s.right:
        yield f"cut({run}, {s.inside}, e)"
    yield from (f"decide({loop})" for loop in padded.values())
    yield f"distribute(qky{behind})"
    yield from (f"once({rows}, y)" for rows in padded)


def _window(s: ImageStrip, behind: str) -> Iterator[str]:
    """One window: its rows are a block where all of them lie in the image."""
    padded, (row, run) = _parts(s, behind)
    for rows, loop in padded.items():
        yield from (f"split({rows}, {rows}w, {s.height})", f"spread(eg, {rows}, {rows}q, q, {s.element}, {loop})")
        yield from (f"select({rows}, mve)", f"block({rows})")
    yield from (f"distribute({run})", f"assume({row}, s)", f"split({row}, {row}w, {s.height})")
    yield from (f"split({run}, {run}l, {s.inside})", f"stage(a, {run}, {run}q, q)")
    yield from (f"select({row}, mve)", f"block({row})")
    yield from (*_padding(s, f"{run}b_s", s.inside), *moved("a", f"{run}_s", f"{run}m", s.inside, s.lanes))


def _copied(s: ImageStrip, loop: str, iterations: int, behind: str = "") -> Iterator[str]:
    """Windows, a run of elements after the other; names of their loops end in `behind`."""
    run, iteration = s.runs[0], f"{s.run}{behind}"
    if run > s.lanes:
        iteration = f"qk{behind}"
        yield f"split({iteration}, qkl{behind}, {s.lanes}{', early' * (run % s.lanes > 0)})"
    yield from (f"stage({_image(s.own)}, {iteration}, qv{behind}, q)", f"select({loop}, mve)")
    if run < s.lanes:
        yield f"unmask({loop})"
    yield f"{'hardware_loop' if iterations > 1 else 'block'}({loop})"


def _padding(s: ImageStrip, loop: str, size: int) -> Iterator[str]:
    """A loop that writes a number so many times."""
    lanes, vector = min(size, s.lanes), f"{loop}v"
    yield from (
        f"split({loop}, {vector}, {size})",
        f"split({vector}, {loop}l, {lanes}{', early' * (size % lanes > 0)})",
    )
    yield f"spread(eg, {loop}, {loop}q, q, {s.element}, {loop}l)"
    iterations = size // lanes
    if size % lanes and iterations:
        yield f"cut({vector}, {iterations}, e)"
    yield f"select({loop}, mve)"
    if iterations > 1:
        yield f"hardware_loop({vector})"
    yield f"block({loop})"
