"""The sketch of DEPTHWISE_CONV2D of bytes for cores with vectors: schedules of `algorithms.depthwise`, a spatial tile
of the image in a vector.

A strip holds four rows of the padded image side by side, and a word of it is a column of a channel. Four words that
are gathered are a spatial tile. Its product with the weights of a window, and zeros around these, is a sum. A spatial
tile serves all results whose windows lie in it; a large window takes several. A hardware loop goes over channels, in
which a part of a row of results is written out, four at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR
from tosaic.backends.cortex_m.program.sketches.spatial_tile_numbers import DEEP, PAIR, SpatialTiles, channels
from tosaic.backends.cortex_m.program.sketches.spatial_tile_strips import StripCopy
from tosaic.backends.cortex_m.program.sketches.tiles import hardware_loop


def spatially_tiled(t: SpatialTiles) -> Iterator[str]:
    """The steps of a schedule."""
    yield from rescaled(t)
    yield from tile_loops(t)
    yield from _strips(t)
    yield from _deep_sums(t) if t.deep else _large_sums(t) if t.large else _sums(t)
    yield from epilogue(t)
    copies = [StripCopy(t, group) for group in range(t.groups)]
    if t.groups > 1:
        yield from _grouped(t)
    for copy in copies:
        yield from copy.shaped()
        yield from copy.extended()
    for copy in copies:
        yield from copy.padding()
    if t.alone:
        yield "fuse(v0, v1)"
    if t.skips and not t.slides:
        yield f"skip({t.tile}, S{', S_1' * t.paired})"
    for copy in copies:
        yield from copy.hardware_loop()
    yield from tiles_as_blocks(t)


def tiles_as_blocks(t: SpatialTiles) -> Iterator[str]:
    """The steps that make the loop over channels the hardware loop, and a part of an iteration run ahead."""
    if t.short_of_registers:
        yield from ("select(x, mve)", *([f"hardware_loop({t.channel})"] if t.iterations > 1 else []), "block(x)")
    else:
        yield from hardware_loop(t.channel, t.iterations, early=False)
    if t.iterations > 1:
        yield f"hoist({t.channel}, {t.pairs})" if t.slides else f"pipeline({t.channel}, {t.first})"


def rescaled(t: SpatialTiles) -> Iterator[str]:
    """How results are computed."""
    form = "nearest" if t.result.form == "rounded" and not t.factor_lanes else t.result.form
    if t.paired:
        yield f"rewrite(out, {'halves' if t.factor_lanes else 'narrow'})"
        yield from ["fit(out)"] if t.result.fits else []
    yield f"rewrite(out, {form})"
    if not t.paired and t.result.element == "i8":
        yield f"rewrite(out, {'bounded' if t.result.clamped else 'lanes'})"
    if t.result.table:
        yield "rewrite(out, indexed)"
    yield "postpone(S)"


def tile_loops(t: SpatialTiles) -> Iterator[str]:
    """Loops over strips, parts of a row, channels, and the four results of a tile."""
    g, n = t.geometry, t.channel
    several = ["m"] if t.several else []
    yield from (f"drop({loop})" for loop in (["b"] if g.batch == 1 else []) + ["n" if t.alone else "m"] * (not several))
    if not t.whole:
        yield f"split(n, nn, {t.block})"
    yield from (f"reorder({n}, {m})" for m in several)
    yield from (f"reorder({loop}, y)" for loop in (n, *several))
    if t.height > 1:
        yield f"split(y, yi, {t.height})"
    if t.rows > 1:
        yield f"split(y, yi, {t.rows}{', early' * (g.rows % t.rows > 0)})"
        yield from (f"reorder(yi, {loop})" for loop in (*several, n, "x"))
    if t.apart_parts:
        yield from (f"split(x, xp, {t.part}{', early' * (g.columns % t.part > 0)})", f"reorder({n}, x)")
    if t.passes > 1:
        yield from (f"split(sx, sq, {t.passes})", "reorder(sx, sq)", f"split({t.tile}, xq, {t.passes})")
        yield from (f"divide_dim(S, 4, {t.passes})", f"reorder({t.tile}, xq)")
    if t.paired:
        yield f"split({t.tile}, xh, {t.iteration}{', early' * t.skips})"
    if t.across > 1:
        yield f"split({t.four}, xi, {t.across}{', early' * (t.skips and not t.paired)})"
    if t.rows > 1 and t.across > 1:
        yield "reorder(xi, yi)"
    yield f"reorder_dims(P, {'d0321' if t.groups > 1 else 'd0312'})"
    if t.slides:
        yield f"reorder_dims(S, {'d012543' if t.passes > 1 else 'd01243'})"
    yield from ("compute_at(S, y)", "compute_at(P, y)", f"compute_at(S, {t.scope})")


def _strips(t: SpatialTiles) -> Iterator[str]:
    """The copies of a strip apart, the padding on both sides once for all."""
    left, image, right = t.loops
    if t.alone:
        yield "merge_dims(P, 1)"
    if left or right:
        yield from ("distribute(cy)", *(() if t.alone else ("distribute(cn)",)))
    for row, column in ((left, "cl"), (image, "cx"), (right, "cr")):
        if row and not t.alone:
            yield from (f"reorder({channels(row)}, {row})", f"reorder({channels(row)}, {column})")
    tails = ["_t" * group for group in range(t.groups)]
    yield from (f"cut({loop}{tail}, {FOUR})" for tail in tails[:-1] for loop in (left, image, right) if loop)
    for tail in tails:
        yield f"reorder({image}{tail}, cx{tail})"
        if not t.alone:
            yield f"reorder({image}{tail}, {channels(image)}{tail})"
        yield from (f"once({loop}{tail}, y)" for loop in (left, right) if loop)


def _sums(t: SpatialTiles) -> Iterator[str]:
    """Products of spatial tiles and weights, which have zeros around them; the windows of a tile in one spatial
    tile."""
    row, column, first = "ky", "kx", 1
    if t.shared:
        yield from ("reorder(sy, sx)", "distribute(sy)")
    yield from ("distribute(sx)", "reorder(ky, kx)")
    if t.shared:
        row, column, first = "r", "t", 3
        yield from ("skew(syb, ky, r)", "reorder(kx, r)", "skew(sxb, kx, t)", "reorder(r, t)")
    for loop, extent in zip((row, column), t.extent, strict=True):
        if extent % FOUR:
            yield f"pad({loop}, {FOUR})"
    yield from (*_laid_out(t), f"merge_dims(w, {first + t.several})")
    if t.moves:
        yield from ("stage(P, sxb, v, scratch)", "merge_dims(v, 0)", f"fuse({column}, {row})", "place(v, q)")
        yield from ("push(syb, v, 1)", f"stage(w, {t.channel}, vw, q)", f"overlay(w, {1 + t.several}, {FOUR})")
        yield "line_up(sxb, sxb, v)"
        return
    yield f"stage(w, {t.channel}, vw, q)"
    if t.shared:
        down, right = t.geometry.stride
        yield from (f"slide(vw1, {FOUR}, {down})", *_laid_out(t), f"overlay(w, {1 + t.several}, {FOUR * right})")
    around = t.four if t.shared else "sxb"
    yield from (f"stage(P, {around}, v, scratch)", "merge_dims(v, 0)", f"fuse({column}, {row})", "place(v, q)")


def _deep_sums(t: SpatialTiles) -> Iterator[str]:
    """The same, of windows that follow each other in a column: a spatial tile moves on from one to the next."""
    rows, columns = t.extent
    if t.cells:
        yield "reorder(sy, sx)"
    yield "distribute(sy)"
    if t.cells:
        yield "distribute(sx)"
    yield from ("reorder(ky, kx)", "skew(syb, ky, r)")
    if rows % DEEP:
        yield f"pad(r, {DEEP})"
    if columns % PAIR:
        yield f"pad(kx, {PAIR})"
    several = columns > PAIR
    if several:
        yield from (f"split(kx, t, {PAIR})", "reorder(syb, kx)")
    column = "t" if several else "kx"
    yield from (*_laid_out(t), f"merge_dims(w, {2 + several + t.several})")
    around = "kx" if several else "sxb" if t.cells else t.four
    yield from (f"stage(P, {around}, v, scratch)", "merge_dims(v, 0)", f"fuse({column}, r)", "place(v, q)")
    yield from (f"push(syb, v, {t.geometry.stride[0]})", f"stage(w, {t.channel}, vw, q)")


def _large_sums(t: SpatialTiles) -> Iterator[str]:
    """The same, of windows of several spatial tiles, each of which is added to all sums of a tile."""
    yield from ("reorder(sy, sx)", "distribute(sy)", "distribute(sx)", "reorder(ky, kx)", "skew(syb, ky, r)")
    rows, columns = t.extent
    for loop, inner, extent in (("r", "u", rows), ("kx", "t", columns)):
        yield from (f"pad({loop}, {FOUR})",) if extent % FOUR else ()
        yield f"split({loop}, {inner}, {FOUR})"
    yield from ("reorder(t, r)", "reorder(syb, kx)", "reorder(syb, r)", "reorder(sxb, kx)", "reorder(sxb, r)")
    yield from (*_laid_out(t), f"merge_dims(w, {4 + t.several})", "stage(w, r, vw, q)")
    yield from ("stage(P, sxb, v, scratch)", "merge_dims(v, 0)", "fuse(t, u)", "place(v, q)")


def _laid_out(t: SpatialTiles) -> Iterator[str]:
    """Weights in the order of the loops, channel by channel."""
    yield "pack(w)"
    if not t.whole:
        yield "merge_dims(w, 0)"


def epilogue(t: SpatialTiles) -> Iterator[str]:
    """From four sums to results, which lie apart."""
    lanes = t.lanes[-1]
    if t.slides:
        yield from (f"stage(S, {t.four}, s, scratch)", "reorder_dims(s, d10)")
    if t.paired:
        yield from _pairs(t)
        lanes = f"E{len(t.lanes) - 1}"
    else:
        yield f"stage(out, {t.tile}, o, scratch, i32)"
        if len(t.lanes) > 1:
            yield "fuse(yi, xi)"
        if t.rows * t.across < FOUR:
            yield f"lengthen(o, 0, {FOUR})"
        if t.result.element == "i8":
            yield "place(o, q)"
    yield from ("merge_dims(S)", "place(S, r)")
    factors, iteration = len(t.result.factors), t.four if t.sparing else t.channel
    if t.factor_lanes:
        yield f"spread(whole, {iteration}, qwhole, q, i32, {lanes})"
    yield from (f"interleave(f, {', '.join(t.result.factors)})", f"stage(f, {iteration}, k, r)")
    if factors > 2 and not t.sparing:
        yield "split(k0, kp, 2)" if factors == 4 else "cut(k0, 2)"
    zero = "zero_half" if t.paired and not t.factor_lanes else "zero"
    numbers = [*([zero] if t.result.element == "i8" else []), *t.result.bounds]
    yield from (f"stage({number}, y, {number}_r, r)" for number in numbers)
    where = "x" if t.short_of_registers else t.tile
    yield from (f"spread({number}_r, {where}, q{number}, q, i32, {lanes})" for number in t.spread)
    yield from ("place(s, q)", "write_out(s0)") if t.slides else ()
    yield f"unfold({lanes}, u, q)"
    if t.result.element != "i8":
        yield "place(o, q)"
    if t.paired:
        yield "write_out(xh)"


def _pairs(t: SpatialTiles) -> Iterator[str]:
    """Halves of two fours of results, those of each pixel side by side: `E`, and `F` with the zero point where factors
    are no vectors. These become bytes together, `B`, each with room behind it."""
    lanes, half = len(t.lanes), "low_half" if t.result.fits else "sat16"
    halves = "E" if t.factor_lanes else "FE"
    for source, name in zip(("out", *halves), halves, strict=False):
        yield f"part({source}, {half if name == 'E' else 'sat16'}, xh, {name}, scratch, i16)"
        yield from (f"expand({name}, xh)", "distribute(xh)")
    yield f"part(out, sat8, {t.tile}, B, scratch, i8)"
    if not t.factor_lanes:
        yield from (f"reorder(xhc, F{i})" for i in range(lanes))
    yield from (f"reorder(B0, B{i + 1})" for i in range(lanes))
    yield from (f"reorder(xhb, {lane})" for lane in t.lanes)
    for name in f"{halves}B":
        yield from (f"reorder_dims({name}, d1{'2' * (lanes > 1)}0)", *[f"merge_dims({name}, 0)"] * lanes)
    if lanes > 1:
        yield from (*(f"fuse({name}0, {name}1)" for name in halves), "fuse(B1, B2)")
    yield from ("space(B, 2)", *[f"fuse(F{lanes - 1}, xhc)"] * (not t.factor_lanes), f"fuse(B{lanes}, B0)")
    yield from (f"place({name}, q)" for name in f"{halves}B")


def _grouped(t: SpatialTiles) -> Iterator[str]:
    """Rows in strips of four, which lie side by side, pixel by pixel."""
    tails = ("", "_1")[: 1 + (t.paired and not t.slides)] if t.deep else ()
    yield from (f"split(v1{tail}, v2{tail}, {FOUR})" for tail in tails)
    yield from (f"divide_dim(P, 2, {FOUR})", "reorder_dims(P, d01243)")
    yield from (f"fuse(v0{tail}, v1{tail})" for tail in tails)
    if t.slides:
        yield "line_up(sxb, kx, v)"
