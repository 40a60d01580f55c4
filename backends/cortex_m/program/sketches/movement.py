"""Sketches of data movement on cores with vectors.

A box moves along one of its axes, a vector of neighbors after the other: neighbors of both sides, or of one, which are
scattered over the result, or gathered from the source. A hardware loop iterates over the axis around, or over vectors
where these are many.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.movement import FILL, CopyAxis, CopyBox, loops_of_box

MANY = 12
"""Vectors along an axis that a hardware loop iterates over."""


@dataclass(frozen=True)
class MovedBox:
    """A box on its way.

    Args:
        number: of the box.
        loops: the names of its loops, outermost first, without the one around all.
        extents: of these.
        along: the loop along which vectors lie.
        staged: the buffer of which vectors are held: where neighbors lie.
        source: the buffer of the one number that fills vectors; empty where they are moved.
        lanes: of a vector; `dtype` is the type that it holds elements in.
        strip: elements along the loop that all others move before the next ones.
        unroll: vectors in an iteration.
        ahead: loads that run an iteration ahead.
    """

    number: int
    loops: tuple[str, ...]
    extents: tuple[int, ...]
    along: str
    staged: str
    source: str
    lanes: int
    dtype: str
    strip: int
    unroll: int
    ahead: int

    @property
    def extent(self) -> int:
        """Of the loop along which vectors lie, within a strip."""
        return self.strip or self.extents[self.loops.index(self.along)]


def alike(boxes: Sequence[CopyBox]) -> Iterator[tuple[str, str]]:
    """Loops of the first box, and of another, that iterate over the same places, if those around them do, and those of
    all boxes between them: so one nest may be of several boxes."""
    yield from (("b0", f"b{number}") for number in range(1, len(boxes)))
    first, beside = boxes[0], list(enumerate(boxes))[1:]
    for depth, axis in enumerate(first.axes[:-1]):

        def is_alike(each: tuple[int, CopyBox], depth: int = depth, axis: CopyAxis = axis) -> bool:
            axes = each[1].axes
            return depth < len(axes) and (axes[depth].extent, axes[depth].result) == (axis.extent, axis.result)

        beside = list(itertools.takewhile(is_alike, beside))
        for number, box in beside:
            yield loops_of_box(0, first)[depth], loops_of_box(number, box)[depth]


def written_out(loop: str, extent: int, count: int) -> Iterator[str]:
    """So many elements of a row in an iteration, the rest one by one."""
    if count < extent:
        if extent % count:
            yield f"cut({loop}, {extent - extent % count})"
        yield f"split({loop}, {loop}u, {count})"
        loop += "u"
    yield f"unroll({loop})"


def moved(m: MovedBox) -> Iterator[str]:
    """The steps of a box."""
    around = f"b{m.number}"
    inner = m.along
    if m.strip:
        inner = f"{m.along}s"
        whole = m.extents[m.loops.index(m.along)] % m.strip == 0
        yield f"split({m.along}, {inner}, {m.strip}{'' if whole else ', early'})"
    before = [loop for loop in m.loops if loop != m.along]
    for loop in m.loops[m.loops.index(m.along) + 1 :]:
        yield f"reorder({inner}, {loop})"
    if m.strip:
        yield from (f"reorder({loop}, {m.along})" for loop in reversed(m.loops[: m.loops.index(m.along)]))
        around = m.along
    if before:
        around = max(reversed(before), key=lambda loop: m.extents[m.loops.index(loop)])
        yield from (f"reorder({around}, {loop})" for loop in before[before.index(around) + 1 :])
    if m.source and m.source != FILL:
        yield f"stage({m.source}, {around}, f{m.number}, r, i32)"
    vectors = -(-m.extent // m.lanes)
    if vectors > MANY:
        yield from _hardware_loop(m, inner, around)
        return
    yield from _vectors(m, inner, m.extent)
    iterations = m.extents[m.loops.index(around)] if around in before else 1
    yield f"select({around}, mve)"
    yield f"hardware_loop({around})" if iterations > 1 else f"block({around})"
    if m.ahead and iterations > 1:
        yield f"hoist({around}, {m.ahead})"


def _hardware_loop(m: MovedBox, loop: str, around: str) -> Iterator[str]:
    """A hardware loop over vectors, and what is left behind it."""
    step = m.unroll * m.lanes
    rest = m.extent % step
    if rest:
        yield f"cut({loop}, {m.extent - rest})"
        yield from _vectors(m, f"{loop}_t", rest)
    each = loop
    if m.unroll > 1:
        each = f"{loop}u"
        yield f"split({loop}, {each}, {step})"
    yield from _held(m, each, m.lanes)
    yield from (f"select({around}, mve)", f"hardware_loop({loop})")
    if m.ahead:
        yield f"hoist({loop}, {m.ahead})"
    yield f"block({around})"


def _vectors(m: MovedBox, loop: str, extent: int) -> Iterator[str]:
    """A loop of few vectors, the last of which may begin early, or be short."""
    whole, left = divmod(extent, m.lanes)
    if whole:
        yield from _held(m, loop, m.lanes, early=left > 0)
    else:
        yield from _held(m, loop, left)


def _held(m: MovedBox, loop: str, count: int, early: bool = False) -> Iterator[str]:
    """So many neighbors of an iteration go through a vector."""
    yield f"split({loop}, {loop}l, {count}{', early' * early})"
    yield f"stage({m.staged}, {loop}, v{loop}, q, {m.dtype})"
