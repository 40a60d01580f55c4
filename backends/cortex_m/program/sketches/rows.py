"""The sketch of products of rows for cores with vectors: schedules of CONV2D whose windows are one pixel, whatever its
sizes are.

A hardware loop goes over the channels of a part, all of the depth in an iteration, for some pixels; the first vectors
of these stay in registers, and their last ones do where they are short. Where an iteration takes all channels, it goes
over tiles of pixels. Or it goes over the depth, for some channels at a time. Names are those of `program.algorithms`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tosaic.backends.cortex_m.program.sketches.activations import (
    brought_together,
    narrowed_terms,
    numbered,
    opened_product,
    pixel_terms,
    summed_apart,
)
from tosaic.backends.cortex_m.program.sketches.copies import copied
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, PixelRows
from tosaic.backends.cortex_m.program.sketches.row_part import RowPart
from tosaic.backends.cortex_m.program.sketches.row_parts import groups_of, row_parts, weight_bytes
from tosaic.backends.cortex_m.program.sketches.row_sums import row_sums, sums_in_place
from tosaic.backends.cortex_m.program.sketches.rows_of_fours import fours, spread
from tosaic.backends.cortex_m.program.sketches.strips import brought, filled, opened, read_in_place


def rows_of_pixels(s: PixelRows) -> Iterator[str]:
    """The steps of a schedule."""
    yield from s.result.fitted
    yield from _opened(s) if s.constant else opened_product(s)
    yield from s.result.biased
    yield from s.result.rescaled
    if s.whole and s.rest:
        yield f"cut(n, {s.whole})"
    parts = row_parts(s)
    for part in parts:
        yield from values(part)
    if len(parts) > 1:
        constants = [*(["w"] if s.constant else []), *s.result.constants]
        yield from (f"apart({name}, {name}_t, n_t)" for name in constants)
        yield from (f"pack({name}_t)" for name in s.result.constants if s.constant)
    yield from numbers(s)
    for part in parts:
        yield from _scheduled(part)
    if s.strip:
        yield from filled(s.strip)
    if s.copied:
        yield from (step for part in parts for step in _copied(part))
    if not s.constant:
        yield from pixel_terms(s.depth, s.row)
    if not s.constant and not s.in_place:
        yield from (step for part in parts for step in brought_together(part))
    for part in parts:
        yield from _selected(part)
    # What runs ahead comes last: schedules that differ in that alone share all trees before.
    for part in parts:
        yield from _hoisted(part)
    if s.strip and s.strip.tile:
        yield from ("stage(edge, b, eg, r)",) if s.strip.padded and not s.strip.sides else ()
        for own in _strips(parts):
            yield from read_in_place(s.strip, own)


def _opened(s: PixelRows) -> Iterator[str]:
    """The steps that make a tile of pixels, and a block of channels, for which sums are computed."""
    if not s.parts and not s.result.begun:
        yield "postpone(S)"
    yield from opened(s.strip) if s.strip else ("inline(P)", "drop(ky)", "drop(kx)")
    if 1 < s.together < s.row:
        yield f"split(x, xi, {s.together}{', early' * (s.row % s.together > 0)})"
    if s.pixel:
        yield f"reorder({s.pixel}, n)"
    yield "compute_at(S, n)"
    if s.blocks_outside:
        yield from _blocks_outside(s)
    if s.strip and s.strip.tile in ("x", "y"):
        yield from brought(s.strip, s.strip.tile, "k")


def _strips(parts: Sequence[RowPart]) -> list[str]:
    """What the names of strips of tiles end in."""
    s = parts[0].s
    if s.strip is None or s.strip.tile != "sx":
        return [""]
    return [g.strip for part in parts for g in groups_of(part)]


def _blocks_outside(s: PixelRows) -> Iterator[str]:
    """The loop over blocks of channels around those over tiles of pixels."""
    yield f"split(n, nm, {s.block})"
    if s.pixel != "x":
        yield "reorder(x, n)"
    if s.copied or s.strip:
        yield f"reorder({'yi' if s.strip and not s.strip.tile else 'y'}, n)"


def numbers(s: PixelRows) -> Iterator[str]:
    """What all results have in common, in registers."""
    names = {"zero_half": "zh"} if s.whole and s.result.form != "rounded" else {}
    if s.result.element == "i8" and (s.rest or s.result.form == "rounded"):
        names["zero"] = "z"
    names |= {name: f"z{name}" for name in s.result.bounds if not s.parts}
    if s.result.uniform:
        names |= {name: f"{name}_g" for name in s.result.scale}
    if s.result.column_terms:
        names["a_zero"] = "az"
    if s.result.units:
        names["unit"] = "zu"
    around = "b" if s.constant else "v"
    yield from (f"stage({name}, {around}, {new}, r{s.result.widened(name)})" for name, new in names.items())


def values(part: RowPart) -> Iterator[str]:
    """How results are computed."""
    result = part.s.result
    if part.s.parts:
        return
    if part.whole and not result.fits:
        yield f"rewrite(out, {'halves' if result.form == 'rounded' else 'narrow'}, {part.loop})"
    if result.clamped:
        yield f"rewrite(out, {'bounds' if part.whole else 'bounded'}, {part.loop})"
    elif not part.whole and result.element == "i8" and not result.fits:
        yield f"rewrite(out, lanes, {part.loop})"
    if result.table:
        yield f"rewrite(out, indexed, {part.loop})"


def _scheduled(part: RowPart) -> Iterator[str]:
    """Its sums and its epilogue."""
    yield from epilogue(part)
    yield from sums_in_place(part) if part.s.in_place else row_sums(part)


def epilogue(part: RowPart) -> Iterator[str]:
    """Its epilogue, apart from its sums."""
    if not part.s.constant:
        yield from summed_apart(part)
    elif part.inner != part.loop and not part.s.blocks_outside:
        yield f"split({part.loop}, {part.inner}, {part.block})"
    alone = not part.pixel and part.s.parts < 2
    yield from (f"expand({part.named('S')}, {part.inner})", f"distribute({part.inner}{', 2' * alone})")
    if part.s.in_place and part.s.result.column_terms:
        yield f"merge({part.loop}m, {part.inner})"
    if not part.s.parts:
        yield from _narrowed(part) if part.whole else fours(part)


def _copied(part: RowPart) -> Iterator[str]:
    """Weights and factors of a block of channels in scratch memory."""
    around = "n" if part.s.blocks_outside else "b"
    for name, size in weight_bytes(part).items():
        yield from (f"merge_dims({name})", *copied(name, around, f"{name}c", size, LANES))
    result = part.s.result
    for factor in result.factors:
        name = part.named(factor)
        if part.whole:
            yield f"merge_dims({name})"
        yield from copied(name, around, f"{name}c", part.once, FOUR, widened=result.widened(factor))


def _selected(part: RowPart) -> Iterator[str]:
    """Its instructions."""
    for around, hardware_loop, iterations, _ in _added(part):
        yield f"select({around}, mve)"
        if not part.s.constant and part.s.short and not part.s.unroll and not part.s.in_place:
            yield f"unmask({hardware_loop})"
        yield from _hardware_loop(around, hardware_loop, iterations)
    yield from epilogue_selected(part)


def _added(part: RowPart) -> list[tuple[str, str, int, int]]:
    """The blocks of its sums: the loop of which an iteration is one, its hardware loop, the iterations and the loads of
    that."""
    if part.s.in_place:
        return [(*part.in_place, part.s.vectors + (part.s.short > 0))]
    return [(g.around, g.hardware_loop, g.iterations, g.loads) for g in groups_of(part)]


def epilogue_selected(part: RowPart) -> Iterator[str]:
    """The instructions of its epilogue."""
    if part.whole:
        yield "write_out(eq)"
    for around, hardware_loop, iterations in part.epilogues:
        yield from block(around, hardware_loop, iterations)


def block(around: str, iteration: str, iterations: int) -> Iterator[str]:
    yield f"select({around}, mve)"
    yield from _hardware_loop(around, iteration, iterations)


def _hardware_loop(around: str, iteration: str, iterations: int) -> Iterator[str]:
    if iterations > 1:
        yield f"hardware_loop({iteration})"
    yield f"block({around})"


def _hoisted(part: RowPart) -> Iterator[str]:
    """Loads that run ahead."""
    for _, hardware_loop, iterations, loads in _added(part):
        ahead = min(part.s.ahead, loads)
        if ahead and iterations > 1:
            yield f"hoist({hardware_loop}, {ahead})"
    yield from epilogue_hoisted(part)


def epilogue_hoisted(part: RowPart) -> Iterator[str]:
    """Loads of its epilogue that run ahead."""
    for _, hardware_loop, iterations in part.epilogues:
        if part.ahead and iterations > 1:
            yield f"hoist({hardware_loop}, {part.ahead})"


def _narrowed(part: RowPart) -> Iterator[str]:
    """Sixteen results of an iteration, of each pixel: lane i of a vector of sums becomes byte 4 i + 2 q + h."""
    result, around, shared, iteration = part.s.result, part.epilogue, part.shared, "nf"
    if part.over_pixels:
        yield from _pixel_iterations(part)
    else:
        iteration = "nu" if part.epilogue_unroll > 1 else "nf"
        yield from _channel_iterations(part, iteration)
    yield from spread(part, around, "ni", "i8")
    halves, last = "E" if result.form == "rounded" else "FE", int(shared != "")
    bytes_ = [*(["Y"] if result.table else []), *(["D", "C"] if result.clamped else []), "B"]
    half = "low_half" if result.fits else "sat16"
    ops = {"Y": "lookup", "D": "min", "C": "max", "B": "sat8", "F": "sat16", "E": half}
    for name, source in zip((*bytes_, *halves), ("out", *bytes_, *halves), strict=False):
        yield f"part({source}, {ops[name]}, {iteration}, {name}, {'scratch, i16' if name in halves else 'q, i8'})"
    for name in f"B{halves}":
        yield f"split({name}{last}, {name.lower()}h, 2)"
        if name != "E":
            yield f"reorder({name}{last}, {name.lower()}h)"
    yield from (f"split(E{last}, eq, 2)", "reorder(eq, eh)", f"reorder(E{last}, eh)", f"reorder(E{last}, eq)")
    if shared:
        yield from ("reorder(E0, eh)", "reorder(E0, eq)")
    for name in halves:
        yield from (f"divide_dim({name}, {last}, 2)", f"reorder_dims({name}, {'d021' if shared else 'd10'})")
        yield f"place({name}, q)"
    yield from numbered(part, around, f"E{last}")
    if result.terms:
        yield from narrowed_terms(part)
    for factor in result.factors:
        if factor in result.constants:
            yield f"pack({factor})"
        yield f"stage({factor}, eq, v{factor}, q{result.widened(factor)})"
    yield from (f"unfold(E{last}, v, q)", "write_out(bh)")


def _pixel_iterations(part: RowPart) -> Iterator[str]:
    """An iteration for some pixels, which takes all channels of a block."""
    around, pixel, shared = part.epilogue, part.pixel, part.shared
    yield from (f"split({around}, nf, {part.block})", f"split(nf, ni, {LANES})")
    yield from (f"reorder(ni, {pixel})", f"reorder(nf, {pixel})")
    if shared:
        yield from (f"split({pixel}, {shared}, {part.s.share})", f"reorder({shared}, nf)")


def _channel_iterations(part: RowPart, iteration: str) -> Iterator[str]:
    """An iteration for some channels of the pixels that share their factors."""
    around, pixel, shared, s = part.epilogue, part.pixel, part.shared, part.s
    if pixel:
        yield f"reorder({around}, {pixel})"
        if shared and shared != pixel:
            yield f"split({pixel}, {shared}, {s.share}{', early' * (s.together % s.share > 0)})"
        if shared:
            yield f"reorder({shared}, {around})"
    yield f"split({around}, nf, {part.block})"
    if iteration != "nf":
        yield f"split(nf, {iteration}, {LANES * part.epilogue_unroll})"
    yield f"split({iteration}, ni, {LANES})"
    if shared:
        yield f"reorder(ni, {shared})"
