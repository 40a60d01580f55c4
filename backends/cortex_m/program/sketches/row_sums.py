"""Sums of products of one row: the steps of a schedule of `rows`."""

from __future__ import annotations

from collections.abc import Iterator

from tosaic.backends.cortex_m.program.sketches.row_parts import LANES, RowPart, SumGroup


def row_sums(part: RowPart) -> Iterator[str]:
    """The sums of a part, in the order in which they are finished."""
    loop, w, total = part.inner, part.named("w"), part.named("S")
    packed = True
    if part.whole:
        yield from (f"split({loop}, sh, 2)", f"split({loop}, sq, 2)", f"split({loop}, si, 4)")
        if part.block > LANES:
            yield from (f"divide_dim({total}, 0, {LANES})", f"divide_dim({total}, 1, 4)")
            yield from (f"divide_dim({total}, 2, 2)", f"reorder_dims({total}, d03214567)")
        else:
            yield from (f"divide_dim({total}, 0, 4)", f"divide_dim({total}, 1, 2)")
            yield f"reorder_dims({total}, d2103456)"
        yield from ("reorder(sq, sh)", "reorder(si, sh)", "reorder(si, sq)", f"pack({w})")
        yield from (f"fuse({loop}, sh)", "fuse(sh, sq)", "fuse(sq, si)")
    elif part.behind:
        yield f"pack({w})"
    else:
        packed = False
    groups = part.groups
    if len(groups) > 1:
        first, rest = groups
        yield from (f"cut({first.loop}, {first.channels})", f"apart({w}, {rest.weights}, {rest.loop})")
        yield from (f"pack({group.weights})" for group in groups)
        packed = True
    around = int(part.inner != part.loop)
    for group in groups:
        yield from _added(group, (around, around + 1) if packed else (0, 3))


def _added(g: SumGroup, dims: tuple[int, int]) -> Iterator[str]:
    """The sums of a group; `dims` of its weights count channels and depth."""
    turn = inner = g.own("sj")
    yield f"split({g.loop}, {turn}, {g.channels})"
    if g.repeats > 1:
        inner = g.own("sr")
        yield f"split({turn}, {inner}, {g.repeats * g.width})"
    each = g.own("sc") if g.width > 1 else ""
    if each:
        yield f"split({inner}, {each}, {g.width})"
    yield f"stage({g.part.named('S')}, {inner}, {g.own('R')}, r)"
    if each:
        yield f"distribute({each})"
    if g.width in (4, 6):
        yield f"split({g.own('R')}0, {g.own('rp')}, 2)"
    yield from _products(g, inner, f"{each}b" if each else "", dims)


def _products(g: SumGroup, inner: str, each: str, dims: tuple[int, int]) -> Iterator[str]:
    """All of the depth for the channels that `each` counts, or one."""
    s, k, w, each_last = g.part.s, g.depth, g.weights, each
    if s.short:
        within = ""
        if s.vectors:
            within = f", i8, {g.last}"
            yield f"cut({k}, {LANES * s.vectors})"
            if each:
                each_last = f"{each}b"
                yield f"distribute({each})"
        yield from (f"stage(a, {g.around}, {g.own('vs')}, q{within})", f"pad({g.last}, {LANES})")
    if s.vectors:
        yield f"split({k}, {g.own('kl')}, {LANES})"
        if each:
            yield f"reorder({each}, {k})"
    yield from _laid_out(g, *dims)
    if s.short:
        within = f", i8, {g.last}" if s.vectors and not each else ""
        yield f"stage({w}, {each_last or inner}, {g.own('vz')}, q{within})"
    if s.vectors:
        yield from _vectors(g)


def _vectors(g: SumGroup) -> Iterator[str]:
    """The whole vectors of a window, and of weights."""
    s, k, w, left = g.part.s, g.depth, g.weights, g.left
    if s.unroll:
        left = g.own("ku")
        yield f"split({k}, {left}, {s.unroll})"
    elif g.held:
        within = f", i8, {k}" if g.held < s.vectors or s.short else ""
        if g.held < s.vectors:
            yield f"cut({k}, {g.held})"
        yield f"stage(a, {g.loop}, {g.own('vh')}, q{within})"
        if g.held > 1:
            yield f"split({g.own('vh')}0, {g.own('hl')}, {LANES})"
        yield f"stage({w}, {k}, {g.own('vw')}, q)"
    if g.held < s.vectors:
        yield from (f"stage(a, {left}, {g.own('va')}, q)", f"stage({w}, {left}, {g.own('vx')}, q)")


def _laid_out(g: SumGroup, channel: int, depth: int) -> Iterator[str]:
    """The weights in the order in which a turn reads them: all channels of a vector of the depth."""
    s, dims = g.part.s, depth + 1
    if s.vectors + (s.short > 0) == 1:
        return
    yield f"divide_dim({g.weights}, {depth}, {LANES})"
    if g.width == 1:
        return
    dims += 1
    if g.width < g.channels:
        yield f"divide_dim({g.weights}, {channel}, {g.width})"
        channel, depth, dims = channel + 1, depth + 1, dims + 1
    order = [d for d in range(dims) if d != channel]
    order.insert(order.index(depth) + 1, channel)
    yield f"reorder_dims({g.weights}, d{''.join(map(str, order))})"
