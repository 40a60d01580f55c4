"""The sketch of DEPTHWISE_CONV2D for cores with vectors: schedules of `windows.depthwise` with channels in lanes.

The windows of a tile of results are written out, while a hardware loop goes over channels or over columns. Where
windows reach beyond the image, parts of it have code of their own; so have channels that fill no vector.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from tosaic.backends.cortex_m.program.sketches.copies import copied
from tosaic.backends.cortex_m.program.sketches.lined_windows import (
    FORMS,
    ChannelPart,
    FloatResults,
    HalfResults,
    LinedWindows,
)
from tosaic.backends.cortex_m.program.sketches.row_numbers import RowResult
from tosaic.backends.cortex_m.program.sketches.strips import filled
from tosaic.backends.cortex_m.program.sketches.tiles import TileRegion, hardware_loop

_BYTES = 16
"""Of a vector."""


def lined(t: LinedWindows) -> Iterator[str]:
    """The steps of a schedule.

    What makes trees large comes last.
    """
    yield from _values(t)
    yield from _lanes(t)
    counted, both = itertools.count(), len(t.parts) > 1
    parts = [(part, part.tiles.regions(counted if both or not part.alone else None)) for part in t.parts]
    for part, regions in parts:
        yield from part.tiles.split()
        for region in regions:
            yield from _brought(part, region)
        yield from _laid_out(part)
    if t.strip is not None:
        yield from filled(t.strip, "b" if both else "y") if t.image == "P" else ()
    numbers = [*t.bounds.values(), *(["zero"] if t.element == "i8" else [])]
    yield from (f"stage({name}, b, {name}_g, r)" for name in numbers)
    if t.copied:
        yield from _copied(t)
    for part, regions in parts:
        for region in regions:
            yield from _epilogue(part, region)
        yield from _factors(part)
        for region in regions:
            yield from _added(part, region)
    yield from (_written_out(part, region) for part, regions in parts for region in regions)
    found = [(region, region.iterations((part.iterations, False))) for part, regions in parts for region in regions]
    for region, iterations in found:
        yield from hardware_loop(region.hardware_loop, *iterations, t.isa)
    for region, (count, early) in found:
        if t.ahead and count - early > 1:
            yield f"hoist({region.hardware_loop}, {t.ahead})"


def _values(t: LinedWindows) -> Iterator[str]:
    """How results are computed."""
    if isinstance(t.result, HalfResults):
        yield from ("rewrite(out, nothing_added)", f"rewrite(out, {FORMS[t.result.form][0]})", "postpone(S)")
        if t.result.bounds:
            yield f"rewrite(out, half_{'bounds' if t.result.bounds == 'both' else t.result.bounds})"
        if not t.halves:
            yield "rewrite(out, half_lanes)"
    if isinstance(t.result, RowResult):
        yield from () if t.image == "P" else ("inline(P)",)
        yield from (f"rewrite(out, {rule})" for rule in t.result.rules)
        yield "postpone(S)"
        if t.element == "i8":
            yield f"rewrite(out, {'bounded' if t.result.clamped else 'lanes'})"
        if t.result.table:
            yield "rewrite(out, indexed)"


def _lanes(t: LinedWindows) -> Iterator[str]:
    """Vectors of channels; those that are left have a nest of their own, and constants."""
    rest = t.channels % t.lanes
    yield f"split(n, nl, {t.lanes}{', early' * (rest > 0)})"
    if not rest:
        return
    yield f"cut(n, {t.channels // t.lanes}, e)"
    yield from ("distribute(x)", "distribute(y)")
    yield from (f"split(yb, yr, {t.down.count})", f"split(yr, yc, {t.down.count})", "compute_at(S, yb, e)")
    for name in ("w", *t.result.factors):
        yield from (f"apart({name}, {name}_e, yb)", f"pack({name}_e)")
    if math.prod(t.kernel) > 1:
        yield "reorder_dims(w_e, d120)"


def _brought(part: ChannelPart, region: TileRegion) -> Iterator[str]:
    """The loops of a region around its sums."""
    yield from region.inwards()
    yield f"compute_at(S{part.behind}, {region.hardware_loop}{f', {region.name}' * (not part.alone)})"


def _laid_out(part: ChannelPart) -> Iterator[str]:
    """Weights in the order of vectors of channels."""
    t = part.what
    if part.behind or t.channels <= t.lanes:
        return
    if t.channels % t.lanes:
        yield f"lengthen(w, 2, {-(-t.channels // t.lanes) * t.lanes})"
    yield f"divide_dim(w, 2, {t.lanes})"
    if math.prod(t.kernel) > 1:
        yield "reorder_dims(w, d2013)"


def _copied(t: LinedWindows) -> Iterator[str]:
    """Weights of whole vectors in scratch memory, by copies of whole vectors."""
    size = t.channels // t.lanes * t.lanes * math.prod(t.kernel)
    yield from ("merge_dims(w)", *copied("w", "b", "wc", size, 4 if t.dtype == "f32" else _BYTES, t.isa))


def _epilogue(part: ChannelPart, region: TileRegion) -> Iterator[str]:
    """From sums to results: of eight, even and odd ones are scaled in vectors of their own."""
    t, name, dims = part.what, region.name, len(region.tile)
    lane, made = f"nl{part.behind}{region.names}", "out"
    if not isinstance(t.result, FloatResults):
        yield from _spread(part, region, [lane] * 2)
    if not t.halves:
        return
    for op, letter in zip(reversed(list(t.bounds)), "DC", strict=False):
        yield f"part({made}, {op}, {region.hardware_loop}, {letter}{name}, q, i16)"
        made = f"{letter}{name}"
    each = f"E{name}"
    yield f"part({made}, sat16, {region.hardware_loop}, {each}, q, i16)"
    yield from (f"split({each}{dims}, {each}h, 2)", f"reorder({each}{dims}, {each}h)")
    yield from (f"reorder({each}{dim}, {each}h)" for dim in reversed(range(dims)))


def _spread(part: ChannelPart, region: TileRegion, lanes: Sequence[str]) -> Iterator[str]:
    """Vectors of bounds, which loops over lanes read."""
    bounds = zip("mn", part.what.bounds.values(), lanes, strict=False)
    for letter, bound, lane in bounds:
        yield f"spread({bound}_g, {region.hardware_loop}, q{letter}{region.name}, q, {part.what.dtype}, {lane})"


def _factors(part: ChannelPart) -> Iterator[str]:
    """The constants of a RESCALE in the order of lanes."""
    t = part.what
    if isinstance(t.result, FloatResults):
        return
    for factor in (f"{factor}{part.behind}" for factor in t.result.factors):
        several = t.channels > t.lanes
        if several and not part.behind:
            if t.channels % t.lanes:
                yield f"lengthen({factor}, 0, {-(-t.channels // t.lanes) * t.lanes})"
            yield f"divide_dim({factor}, 0, {t.lanes})"
        if t.halves:
            yield f"divide_dim({factor}, {int(several)}, 2)"
            yield f"reorder_dims({factor}, {'d021' if several else 'd10'})"


def _written_out(part: ChannelPart, region: TileRegion) -> str:
    """The step that writes products out."""
    own, name, halves = part.sums(region), region.name, part.what.halves
    tile = [f"s{loop}{own}b" for loop, axis, number in region.axes if axis.tile(number) > 1]
    order = (f"vw{name}",) if part.what.once == "weights" else (f"va{name}", f"vw{name}")
    first, iteration = tile[-1] if tile else f"ky{own}", f"{'sh' if halves else 'sn'}{own}b"
    return f"line_up({first}, {iteration}, {', '.join(order)})"


def _added(part: ChannelPart, region: TileRegion) -> Iterator[str]:
    """The sums of a tile, products in the order of weights, or of the image; and the vectors of constants."""
    t, own, name = part.what, part.sums(region), region.name
    tile = [f"s{loop}{own}" for loop, axis, number in region.axes if axis.tile(number) > 1]
    lanes = [f"sn{own}"]
    if t.halves:
        yield from (f"split(sn{own}, sh{own}, 2)", f"reorder(sn{own}, sh{own})")
        yield from (f"divide_dim(S{own}, 3, 2)", f"reorder_dims(S{own}, d01243)")
        lanes.append(f"sh{own}")
    elif t.lanes < t.count:
        yield f"lengthen(S{own}, 3, {t.count})"
    lane = f"nl{part.behind}{region.names}"
    yield f"place(S{own}, q)"
    yield from (f"distribute({loop})" for loop in (*lanes, *tile))
    # The order in which sums begin changes nothing: no two loops say one.
    yield from (f"write_out({loop})" for loop in [*lanes[1:], *tile][:-1])
    if isinstance(t.result, FloatResults):
        yield from _spread(part, region, [f"sn{own}c", f"sn{own}d"])
    lanes = [f"{loop}b" for loop in lanes]
    for line, padded in zip((f"ky{own}", f"kx{own}"), t.padded, strict=True):
        for loop in lanes:
            yield f"reorder({loop}, {line})"
            if padded:
                yield f"distribute({loop})"
    iteration = lanes[-1]
    yield f"split({iteration}, sg{own}, {2 if t.halves else t.lanes})"
    yield f"stage({t.image}, {iteration}, va{name}, q, {t.dtype})"
    yield f"stage({'wc' if t.copied and not part.behind else f'w{part.behind}'}, {iteration}, vw{name}, q, {t.dtype})"
    if t.halves:
        yield f"write_out(sg{own})"
    around = region.hardware_loop
    if t.halves:
        around, lane = f"E{name}h", f"E{name}{len(tile)}"
    for factor in t.result.factors:
        yield f"stage({factor}{part.behind}, {around}, v{factor}{name}, q)"
    if not isinstance(t.result, FloatResults):
        yield f"unfold({lane}, v{name}, q)"
    if t.halves:
        yield f"write_out({around})"
