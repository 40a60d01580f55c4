"""Sums of products of rows: the steps of a schedule of `rows`."""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.backends.cortex_m.program.sketches.activations import ordered_weights
from tosaic.backends.cortex_m.program.sketches.row_numbers import LANES
from tosaic.backends.cortex_m.program.sketches.row_part import RowPart
from tosaic.backends.cortex_m.program.sketches.row_parts import SumGroup, groups_of
from tosaic.backends.cortex_m.program.sketches.strips import brought


def row_sums(part: RowPart) -> Iterator[str]:
    """The sums of a part, in the order of the epilogue."""
    w = part.named("w")
    yield from in_order(part, *([w] if part.s.constant else []), *(["bias"] if part.s.result.begun else []))
    packed = part.s.constant and (part.whole or part.behind != "")
    groups = groups_of(part)
    if rest := next((g for g in groups if g.behind == "x"), None):
        yield f"cut({groups[0].loop}, {groups[0].channels})"
        if part.s.constant:
            yield f"apart({w}, {rest.weights}, {rest.loop})"
            yield from (f"pack({group.weights})" for group in (groups[0], rest))
            packed = True
    yield from _tiles(part, groups)
    # A loop that iterates once is none, a dimension of one element is one.
    around, apart = int(part.inner != part.loop) + (part.s.parts > 1), int(part.s.parts > 0)
    strip = part.s.strip
    depth = {"a": 3, "P": 2 + (strip is not None and strip.taps[1] > 1), "Q": 1}[part.s.image]
    dims = (around, around + 1 + len(groups[0].taps)) if packed else (apart, apart + depth)
    if strip is not None and strip.tile == "sx":
        for group in groups:
            yield from brought(strip, group.over, group.depth, group.strip)
    for group in groups:
        yield from _added(group)
    for group in groups:
        if part.s.constant and not group.behind.endswith("p"):
            yield from _laid_out(group, *dims)
    for group in groups:
        yield from _read(group)


def in_order(part: RowPart, *constants: str) -> Iterator[str]:
    """The loop over the channels of a part, and its constants, in the order of the epilogue."""
    loop = part.inner
    if part.s.parts > 1:
        yield f"reorder({loop}, sp)"
    if part.pixel:
        yield f"reorder({loop}, sx{part.behind})"
    if part.whole:
        yield from (f"split({loop}, sh, 2)", f"split({loop}, sq, 2)", f"split({loop}, si, 4)")
    yield from _places(part)
    if part.whole:
        yield from [] if part.s.constant else ordered_weights(part)
        yield from ("reorder(sq, sh)", "reorder(si, sh)", "reorder(si, sq)")
    if part.whole or part.behind:
        yield from (f"pack({constant})" for constant in constants)
    if part.whole:
        yield from (f"fuse({loop}, sh)", "fuse(sh, sq)", "fuse(sq, si)")


def sums_in_place(part: RowPart) -> Iterator[str]:
    """The sums of columns of a MATMUL that are read where they lie, of all rows in an iteration.

    What zero points add to them is in them.
    """
    s, own, around, terms = part.s, part.behind, part.in_place[0], int(part.s.result.column_terms)
    columns = f"sj{own}"
    inner, each = "th" if part.whole else columns, f"sx{own}b" if part.pixel else ""
    both = s.vectors > 0 and s.short > 0
    yield from _places(part)
    yield from [f"distribute(sx{own})"] * (each != "")
    yield f"split({part.loop}m, {columns}, {part.columns_apart})"
    if part.whole and s.pairs:
        # Those of two columns that lie side by side in the order of the epilogue.
        yield from ("split(ti, tc, 2)", "reorder(tc, tq)", "reorder(tc, th)", "distribute(tc)")
        yield from ["merge(tcb, tcd)"] * terms
    yield f"stage({part.named('S')}, {inner}, R{own}, r)"
    yield from [f"stage({part.named('Z')}, {inner}, Zr{own}, r)"] * terms
    if both:
        yield from (f"cut({depth}{own}, {LANES * s.vectors}, r)" for depth in ("k", *["zk"] * terms))
    yield from [f"distribute({each})"] * (both and each != "")
    if s.vectors:
        yield from _beside(part, "", each, LANES)
        yield from [f"spread(az, {around}, qa{own}, q, i8, zl{own})"] * terms
        yield from _rows_in_place(part, around, each)
    if s.short:
        last = f"{part.column}{'_r' * both}"
        yield from _beside(part, "_r" * both, f"{each}b" if both and each else each, s.short)
        yield f"stage(b, {last}, vs{own}, q)"
        yield f"stage(a, {around}, vr{own}, q{f', i8, {last}' * both})"
        yield from [f"spread(az, {around}, qs{own}, q, i8, zl{own}{'_r' * both})"] * terms
        yield f"drop({last})"


def _beside(part: RowPart, behind: str, each: str, lanes: int) -> Iterator[str]:
    """The steps that add up vectors of all rows, and of a column beside them."""
    own = f"{part.behind}{behind}"
    names = ["", *["z"] * part.s.result.column_terms]
    yield from (f"split({name}k{own}, {name or 'k'}l{own}, {lanes})" for name in names)
    yield from [f"reorder({each}, k{own})"] * (each != "")
    yield from [f"merge(zk{own}, k{own})"] * part.s.result.column_terms


def _rows_in_place(part: RowPart, around: str, each: str) -> Iterator[str]:
    """The whole vectors of a column, and of all rows: the first ones of these stay."""
    s, own, depth = part.s, part.behind, part.column
    if s.unroll > 1:
        yield f"split({depth}, zu{own}, {s.unroll})"
    if 0 < s.held < s.vectors:
        yield f"cut({depth}, {s.held}, h)"
    if s.held < s.vectors:
        behind = "_h" * (s.held > 0)
        last = f"zu{own}" if s.unroll > 1 else f"{depth}{behind}"
        yield f"stage(b, {last}, vx{own}, q)"
        yield f"stage(a, {f'{each}{behind}' if each else last}, vy{own}, q)"
    if s.held:
        yield f"stage(b, {depth}, va{own}, q)"
        within = s.short > 0 or s.held < s.vectors
        yield f"stage(a, {around}, vh{own}, q{f', i8, {depth}' * within})"
        yield from [f"split(vh{own}{int(each != '')}, hl{own}, {LANES})"] * (s.held > 1)


def _tiles(part: RowPart, groups: list[SumGroup]) -> Iterator[str]:
    """The pixels whose sums lie in registers right around these, others outside; those that are left apart."""
    s = part.s
    if not part.pixel:
        return
    if any(g.behind == "x" for g in groups):
        yield f"distribute({groups[0].over})"
    if s.together % s.pixels:
        whole = s.together // s.pixels * s.pixels
        yield from (f"cut({g.over}, {whole}, p)" for g in groups if not g.behind.endswith("p"))
    for g in groups:
        if g.pixel:
            yield from (f"split({g.over}, {g.pixel}, {g.pixels})", f"reorder({g.pixel}, {g.loop})")


def _places(part: RowPart) -> Iterator[str]:
    """The sums of a pixel side by side, in the order of the epilogue."""
    total, counted, order = part.named("S"), 1, [0]
    if part.whole:
        several = int(part.block > LANES)
        yield from [f"divide_dim({total}, 0, {LANES})"] * several
        yield from (f"divide_dim({total}, {several}, 4)", f"divide_dim({total}, {several + 1}, 2)")
        order = [0, 3, 2, 1] if several else [2, 1, 0]
        counted = len(order)
    first = [counted] if part.s.parts > 1 else []
    outer = part.s.around + (part.s.parts > 0)
    pixel, dims = counted + outer, range(counted, counted + outer + 2)
    if part.pixel:
        first.append(pixel)
    order = [*first, *order, *(d for d in dims if d not in first)]
    if order != sorted(order) and part.block > 1:
        yield f"reorder_dims({total}, d{''.join(map(str, order))})"


def _added(g: SumGroup) -> Iterator[str]:
    """The sums of a group in registers, vector by vector of the depth."""
    inner, (each, *_) = g.inner, (*g.each, "")
    yield f"split({g.loop}, {g.own('sj')}, {g.channels})"
    if g.over_tiles:
        yield f"reorder({g.over}, {g.loop})"
    if g.repeats > 1:
        yield f"split({g.own('sj')}, {inner}, {g.repeats * g.width})"
    if g.width > 1:
        yield f"split({inner}, {each}, {g.width})"
    yield f"stage({g.part.named('S')}, {inner}, {g.own('R')}, r)"
    yield from (f"distribute({loop})" for loop in reversed(g.each))
    if g.width in (4, 6):
        yield f"split({g.own('R')}{int(g.pixel != '')}, {g.own('rp')}, 2)"
    s, k, loops = g.part.s, g.depth, [f"{loop}b" for loop in g.each]
    begun = s.result.begun and len(loops) > 1
    if begun:
        yield f"reorder({', '.join(g.each)})"
    if s.short:
        within = f", {s.element}, {g.last}" if s.vectors else ""
        if s.vectors:
            yield f"cut({k}, {s.lanes * s.vectors})"
            yield from (f"distribute({loop})" for loop in reversed(loops))
        yield f"stage(a, {g.around}, {g.own('vs')}, q{within})"
        if s.constant:
            yield f"pad({g.last}, {s.lanes})"
    if s.vectors:
        yield f"split({k}, {g.own('kl')}, {s.lanes})"
        yield from (f"reorder({loop}, {over})" for loop in reversed(loops) for over in (*g.taps, k))
        if begun or (s.overlapping and len(loops) > 1):
            yield f"reorder({loops[0]}, {loops[1]})"


def _read(g: SumGroup) -> Iterator[str]:
    """The vectors of a window, and of weights."""
    s, k, w, left = g.part.s, g.depth, g.weights, g.left
    if s.short:
        each = f"{g.each[0]}{'bb' if s.vectors else 'b'}" if g.width > 1 else g.inner
        within = f", {s.element}, {g.last}" if s.vectors and g.width == 1 else s.widened
        yield f"stage({w}, {each}, {g.own('vz')}, q{within})"
    if not s.vectors:
        return
    if s.unroll:
        left = g.own("ku")
        yield f"split({k}, {left}, {s.unroll})"
    elif g.held:
        within = f", {s.element}, {k}" if g.held < s.vectors or s.short else ""
        if g.held < s.vectors:
            yield f"cut({k}, {g.held})"
        yield f"stage({s.image}, {g.over if g.over_tiles else g.loop}, {g.own('vh')}, q{within})"
        if g.held > 1:
            yield f"split({g.own('vh')}{int(g.pixel != '')}, {g.own('hl')}, {s.lanes})"
        yield f"stage({w}, {k}, {g.own('vw')}, q{s.widened})"
    if g.held < s.vectors:
        # Windows that overlap are read alone.
        each = f"{g.pixel}b" if s.overlapping and g.pixel else left
        yield from (f"stage({g.image}, {each}, {g.own('va')}, q)", f"stage({w}, {left}, {g.own('vx')}, q{s.widened})")


def _laid_out(g: SumGroup, channel: int, depth: int) -> Iterator[str]:
    """The weights in the order in which an iteration reads them: all channels of a vector of the depth."""
    s, dims = g.part.s, depth + 1
    if s.vectors + (s.short > 0) == 1:
        return
    if s.depth > s.lanes:
        yield f"divide_dim({g.weights}, {depth}, {s.lanes})"
        dims += 1
    if g.width == 1:
        return
    if g.width < g.channels:
        yield f"divide_dim({g.weights}, {channel}, {g.width})"
        channel, dims = channel + 1, dims + 1
    order = [d for d in range(dims) if d != channel]
    order.insert(-1, channel)
    yield f"reorder_dims({g.weights}, d{''.join(map(str, order))})"
