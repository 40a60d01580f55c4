"""Sketches of DEPTHWISE_CONV2D in which a word holds a pixel of two channels, in strips of rows."""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program.assembly import GENERAL
from tosaic.backends.cortex_m.program.sketches.depthwise import Strip, copied_pixels

_MOST_PAIRS = 3
"""Pairs of sums whose epilogue C has in registers."""


def paired_depthwise(geometry: Geometry, multiples: int, strip: Strip) -> Iterator[str]:
    """Products of one half: a word is a pixel of two channels, 0 and 2 or 1 and 3 of four, which are copied together.

    The pixels that a tile of results reads are loaded once, with the weights of a row or a column of the window.
    """
    g, strips = geometry, strip.rows < geometry.rows
    yield from ("rewrite(out, high)", "widen(P, i16)", "split(n, nh, 4)", "split(nh, np, 2)", "reorder(nh, np)")
    row = "y"
    if strips:
        if strip.rows > 1:
            yield f"split(y, yi, {strip.rows}{', early' * (g.rows % strip.rows > 0)})"
            row = "yi"
        yield from (f"reorder({loop}, y)" for loop in ("m", "nh", "np"))
    tile = row if strip.down else "x"
    yield "reorder(nh, m)"
    if strip.down:
        yield f"reorder({row}, x)"
    extent = strip.rows if strip.down else g.columns
    yield f"split({tile}, p, {strip.pixels}{', early' * (extent % strip.pixels > 0)})"
    around = ["x", row] if strip.down else [row, "x"]
    yield from (f"reorder(nh, {loop})" for loop in (*(each for each in around if not strips or each != "y"), "p"))
    yield from ("split(sn, snp, 2)", "divide_dim(S, 1, 2)", "divide_dim(w, 0, 2)", "reorder_dims(w, d12340)")
    yield from ("split(cn, cnp, 2)", "divide_dim(P, 1, 2)", "reorder_dims(P, d02341)")
    loop = "y" if strips else "n"
    yield from (f"compute_at(S, {loop})", f"compute_at(P, {loop})", f"compute_at(S, {tile})")
    yield from _paired_image(g, strip)
    yield "stage(w, n, wh, scratch, i16)"
    yield from (f"stage({factor}, m, {factor}_s, scratch)" for factor in ("bias", "multiplier", "round", "right"))
    yield from _added_pairs(g, strip)
    yield from ("reorder(p, nh)", "unroll(p)", "unroll(nh)")


def _paired_image(g: Geometry, strip: Strip) -> Iterator[str]:
    """The copy of the image with the four channels of a pixel innermost."""
    yield "reorder(cn, cnp)"
    if (strip.rows - 1) * g.stride[0] + g.span[0] > 1:
        yield from ("reorder(cn, cy)", "reorder(cnp, cy)")
    letters = iter("bcd")
    if g.pad[0] or g.pad[1]:
        edge = next(letters)
        yield from ("distribute(cn)", "distribute(cnp)", f"reorder(cn{edge}, f)", f"reorder(cnp{edge}, f)")
        yield from (f"unroll(cn{edge})", f"unroll(cnp{edge})")
    width, whole = (g.columns - 1) * g.stride[1] + g.span[1], copied_pixels(g)
    left = min(g.pad[2], width)
    parts = [name for name, extent in (("cl", left), ("cx", whole), ("cr", width - left - whole)) if extent]
    if len(parts) > 1:
        yield from ("distribute(cn)", "distribute(cnp)")
    for name, suffix in zip(parts, ("", *letters), strict=False):
        if width > 1 or any(g.pad):
            yield from (f"reorder(cn{suffix}, {name})", f"reorder(cnp{suffix}, {name})")
        if name == "cx":
            yield from _copied_pairs(whole, strip, f"cnp{suffix}")
        else:
            yield from (f"unroll(cn{suffix})", f"unroll(cnp{suffix})")


def _copied_pairs(whole: int, strip: Strip, pairs: str) -> Iterator[str]:
    """Pixels as words of four bytes, which become two words of two halves."""
    iteration, copied = "cx", min(strip.copied, whole)
    if copied > 1:
        yield f"split(cx, cxi, {copied}{', early' * (whole % copied > 0)})"
        iteration = "cxi"
    yield from (f"stage(a, {iteration}, ab, r)", f"stage(P, {iteration}, pb, r)", f"write_out({pairs})")
    yield from (f"select(cx, {strip.isa})", "block(cx)")


def _added_pairs(g: Geometry, strip: Strip) -> Iterator[str]:
    """The sums of a tile, in registers."""
    along, across = ("y", "x") if strip.down else ("x", "y")
    sums = f"s{along}"
    yield from ("place(S, r)", f"reorder(sn, {sums})", "distribute(sn)", f"distribute({sums})")
    if strip.down:
        yield "reorder(ky, kx)"
    yield from (f"reorder(snb, k{across})", f"reorder(snb, k{along})", f"reorder({sums}b, k{across})")
    iteration, others = f"k{across}", g.kernel[1 if strip.down else 0]
    if others > 1:
        yield f"split(k{across}, kr, {others})"
        iteration = "kr"
    yield f"stage(wh, {iteration}, wr, r)"
    places = places_read(g, strip)
    if is_held(g, strip):
        yield f"stage(P, {iteration}, ph, r)"
    else:
        yield f"gather({sums}b, k{along}, P, t)"
        yield from (f"stage(P, t{f'_{i}' * (i > 0)}, p{chr(ord('a') + i)}h, r)" for i in range(len(places)))
    yield from (f"select(k{across}, {strip.isa})", f"block(k{across})", f"unroll({sums})", "unroll(sn)")


def places_read(g: Geometry, strip: Strip) -> list[int]:
    """The places along a tile that its results read, of one row or column of their windows."""
    axis = 0 if strip.down else 1
    steps = [(p * g.stride[axis], k * g.dilation[axis]) for p in range(strip.pixels) for k in range(g.kernel[axis])]
    return sorted({start + tap for start, tap in steps})


def fits(g: Geometry, strip: Strip) -> bool:
    """Whether registers hold a row or a column of weights and a pixel beside the sums of a tile.

    The sums are also few enough for C to make results of them without the stack.
    """
    return strip.pixels <= _MOST_PAIRS and 2 * strip.pixels + 2 + g.kernel[0 if strip.down else 1] + 1 <= GENERAL


def is_held(g: Geometry, strip: Strip) -> bool:
    """Whether all that a tile reads in an iteration lies in registers beside its sums and two pointers."""
    places, taps = places_read(g, strip), g.kernel[0 if strip.down else 1]
    dense = places[-1] - places[0] + 1 == len(places)
    return dense and 2 * strip.pixels + 2 + len(places) + taps <= GENERAL


def cost_of(g: Geometry, strip: Strip) -> float:
    """About the cycles of a product of a tile of pairs, in units of three: loads, products, and a tile's epilogue."""
    taps, others = g.kernel[0 if strip.down else 1], g.kernel[1 if strip.down else 0]
    places, products = len(places_read(g, strip)), 2 * strip.pixels * taps
    loads = taps + 1 + places * (1 if is_held(g, strip) else 2)
    tile = others * (loads + products) + 26 + 10 * strip.pixels
    return tile / (3 * others * products) + 1 / (strip.copied * others * taps)
