"""Sketches of DEPTHWISE_CONV2D: a channel of the padded image at a time, in strips of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.kernels.mve_match import Geometry

_FEW_TAPS = 3
"""Weights of a row that low registers hold beside two pointers, a pixel and a product."""


@dataclass(frozen=True)
class Strip:
    """The numbers of a schedule.

    Args:
        rows: of results whose part of the image is copied together.
        pixels: results of a row whose sums lie in registers.
        copied: pixels that an iteration of the copy copies.
        isa: the instruction set.
        down: whether these results follow each other in a column.
    """

    rows: int
    pixels: int
    copied: int
    isa: str
    down: bool = False


def _walked(geometry: Geometry, multiples: int, strip: Strip, high: bool, registers: str = "r") -> Iterator[str]:
    """Results by channel, strip, row, tile; sums in registers for each tile."""
    g = geometry
    if high:
        yield "rewrite(out, high)"
    if strip.rows < g.rows:
        if strip.rows > 1:
            yield f"split(y, yi, {strip.rows}{', early' * (g.rows % strip.rows > 0)})"
        yield "reorder(m, y)"
    if strip.pixels > 1:
        yield f"split(x, xi, {strip.pixels}{', early' * (g.columns % strip.pixels > 0)})"
    around = "y" if strip.rows < g.rows else "n"
    yield f"compute_at(S, {around})"
    yield f"compute_at(P, {around})"
    if (strip.rows, g.columns, multiples) != (1, 1, 1):
        yield "compute_at(S, x)"
    yield f"place(S, {registers})"
    if strip.pixels > 1:
        yield "distribute(sx)"
    if min(g.width, strip.copied) > 1:
        yield f"split(cx, cxi, {strip.copied}{', early' * (copied_pixels(g) % strip.copied > 0)})"
        yield "unroll(cxi)"


def copied_pixels(g: Geometry) -> int:
    """Pixels of a row of the image that are copied."""
    width = (g.columns - 1) * g.stride[1] + g.span[1]
    return min(g.width, width - min(g.pad[2], width))


def _constants(strip: Strip, high: bool, loop: str) -> Iterator[str]:
    for factor in ("bias", "multiplier", *(("round", "right") if high else ("shift",))):
        yield f"stage({factor}, {loop}, {factor}_r, r)"
    if strip.pixels > 1:
        yield "unroll(xi)"
        yield "unroll(sx)"


def scalar_depthwise(geometry: Geometry, multiples: int, strip: Strip, high: bool) -> Iterator[str]:
    """A channel walks over the image with its weights in registers, in C."""
    yield from _walked(geometry, multiples, strip, high)
    loop = "m" if multiples > 1 or strip.rows < geometry.rows else "n"
    yield from _constants(strip, high, loop)
    if geometry.kernel[0] * geometry.kernel[1] <= 9:
        yield f"stage(w, {loop}, wr, r, i32)"
        yield from ("unroll(ky)", "unroll(kx)")
        yield from (f"unroll(wr{dim})" for dim, extent in enumerate(e for e in geometry.kernel if e > 1))
    if strip.pixels > 1:
        yield "unroll(sxb)"


def word_depthwise(geometry: Geometry, multiples: int, strip: Strip, high: bool, thumb: bool) -> Iterator[str]:
    """A channel walks over the image in blocks: a pixel is loaded once for the results of a row that read it.

    Args:
        thumb: whether the core is one with sums in high registers, whose loads are of words.
    """
    g, iteration = geometry, "ky"
    if thumb:
        yield "widen(P, i32)"
    yield from _walked(g, multiples, strip, high, "h" if thumb else "r")
    loop = "m" if multiples > 1 or strip.rows < g.rows else "n"
    yield from _constants(strip, high, loop)
    if thumb:
        yield f"stage(w, {loop}, wh, scratch, i32)"
    weights, several = "wh" if thumb else "w", strip.pixels > 1
    if several:
        yield "reorder(sxb, ky)"
    if g.kernel[0] > 1:
        yield f"split(ky, kr, {g.kernel[0]})"
        iteration = "kr"
    held = not thumb or g.kernel[1] <= _FEW_TAPS
    if held:
        yield f"stage({weights}, {iteration}, wr, r, i32)"
    if several:
        yield "gather(sxb, kx, P, t)"
        for number, iterations in enumerate(_readers(g, strip)):
            suffix, letter = f"_{number}" * (number > 0), chr(ord("a") + number)
            yield f"stage(P, t{suffix}, p{letter}h, r, i32)"
            if not held:
                yield f"stage({weights}, {'kx' if iterations > 1 else 't'}{suffix}, w{letter}h, r)"
    else:
        yield f"stage(P, {iteration}, ph, r, i32)"
        if not held:
            yield f"stage({weights}, kx, wr, r)"
    yield from (f"select(ky, {strip.isa})", "block(ky)")


def float_depthwise(geometry: Geometry, strip: Strip, clamped: bool) -> Iterator[str]:
    """The same of floats, each in a register of its own."""
    g, several = geometry, strip.pixels > 1
    if 1 < strip.rows < g.rows:
        yield f"split(y, yi, {strip.rows}{', early' * (g.rows % strip.rows > 0)})"
    if several:
        yield f"split(x, xi, {strip.pixels}{', early' * (g.columns % strip.pixels > 0)})"
    around = "y" if strip.rows < g.rows else "n"
    yield from (f"compute_at(S, {around})", f"compute_at(P, {around})")
    if (strip.rows, g.columns) != (1, 1):
        yield "compute_at(S, x)"
    yield "place(S, s)"
    yield from ("distribute(sx)", "reorder(sxb, ky)") if several else ()
    if min(g.width, strip.copied) > 1:
        yield f"split(cx, cxi, {strip.copied}{', early' * (copied_pixels(g) % strip.copied > 0)})"
        yield "unroll(cxi)"
    iteration = "kr" if g.kernel[0] > 1 else "ky"
    if iteration == "kr":
        yield f"split(ky, kr, {g.kernel[0]})"
    yield f"stage(w, {iteration}, wr, s)"
    if several:
        yield "gather(sxb, kx, P, t)"
        for number in range(len(_readers(g, strip))):
            yield f"stage(P, t{f'_{number}' * (number > 0)}, p{chr(ord('a') + number)}h, s)"
    else:
        yield f"stage(P, {iteration}, ph, s)"
    yield from ("select(ky, fp)", "block(ky)")
    yield from (f"unroll({loop})" for loop in ("xi", "sx", *(("sxc", "sxd") if clamped else ())) if several)


def _readers(g: Geometry, strip: Strip) -> list[int]:
    """How many results of a tile read each place of a row."""
    read = [p * g.stride[1] + k * g.dilation[1] for p in range(strip.pixels) for k in range(g.kernel[1])]
    return [read.count(place) for place in sorted(set(read))]


def dsp_depthwise(geometry: Geometry, multiples: int, strip: Strip, high: bool, widens: bool) -> Iterator[str]:
    """Products of neighboring halves of a row, of an even number of pixels.

    With an odd stride, the windows of two results are one, and the weights of each lie in it where that result's window
    does. A word of packed weights holds four bytes: of two results, or of two words of a window.

    Args:
        widens: whether the image is of bytes.
    """
    g, skewed = geometry, geometry.stride[1] % 2 == 1
    if widens:
        yield "widen(P, i16)"
    yield from _walked(g, multiples, strip, high)
    loop = "m" if multiples > 1 or strip.rows < g.rows else "n"
    yield from _constants(strip, high, loop)
    pairs, window = strip.pixels > 2, "kx"
    extent = g.kernel[1]
    if skewed:
        inner, window = "sxi" if pairs else "sxb", "t"
        if pairs:
            yield "split(sxb, sxi, 2)"
        yield f"skew({inner}, kx, t)"
        yield f"reorder({inner}, ky)"
        extent += g.stride[1]
    if pairs or not skewed:
        yield "reorder(sxb, ky)"
    words = 2 if skewed else 4
    if extent % words:
        yield f"pad({window}, {words})"
        extent += -extent % words
    width = _width(g, extent, skewed)
    if width % 2:
        yield f"lengthen(P, 3, {width + 1})"
    yield f"split({window}, th, 2)"
    if not skewed:
        yield f"split({window}, te, 2)"
    if skewed:
        # The packed weights are [n, m where there are several, ky, result, word, half].
        yield from ("pack(w)", f"reorder_dims(w, {'d012453' if multiples > 1 else 'd01342'})")
    else:
        yield from ("divide_dim(w, 3, 4)", "divide_dim(w, 4, 2)") if extent > 4 else ("divide_dim(w, 3, 2)",)
        yield f"reorder_dims(w, {'d012354' if extent > 4 else 'd01243'})"
    if g.kernel[0] > 1:
        yield f"split(ky, kr, {g.kernel[0]})"
    iteration = "kr" if g.kernel[0] > 1 else "ky"
    yield f"stage(w, {iteration}, wh, scratch, i16)"
    # Halves to the innermost dimension, results or words to the outermost.
    if extent > words:
        yield from (f"reorder_dims(wh, {'d201' if skewed else 'd021'})", "reorder(wh1, wh2)", "write_out(wh2)")
    else:
        yield from ("reorder_dims(wh, d10)", "reorder(wh0, wh1)", "write_out(wh1)")
    yield "place(wh, r)"
    yield f"stage(P, {iteration}, ph, r)"
    yield "split(ph0, phl, 2)"
    yield from (f"select(ky, {strip.isa})", "block(ky)")


def _width(g: Geometry, window: int, skewed: bool) -> int:
    """Elements of a row of the copy, where each window, or that of two results, is `window` long."""
    last = (g.columns - (2 if skewed else 1)) * g.stride[1]
    return max((g.columns - 1) * g.stride[1] + g.span[1], last + window)
