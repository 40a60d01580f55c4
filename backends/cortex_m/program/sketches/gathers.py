"""The sketch of RESIZE of few channels for cores with vectors: schedules of `GatheredResizing`.

A hardware loop goes over the elements of a row of results, eight to a vector, and gathers their neighbors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.sketches.lanes import PoolAverage, in_halves
from tosaic.backends.cortex_m.program.sketches.tiles import hardware_loop

HALVES = 8
"""Of a vector."""


@dataclass(frozen=True)
class GatheredRow:
    """The numbers of a schedule.

    Args:
        elements: of a row of results.
        vectors: in an iteration.
        ahead: loads that run an iteration ahead.
        wide: whether sums take more than sixteen bits: even and odd ones lie in vectors of their own.
    """

    elements: int
    vectors: int
    ahead: int
    wide: bool
    average: PoolAverage

    @property
    def together(self) -> int:
        """Elements of an iteration; the last one may start early."""
        return HALVES * self.vectors


def gathered(t: GatheredRow) -> Iterator[str]:
    """The steps of a schedule."""
    iterations, early = -(-t.elements // t.together), t.elements % t.together > 0
    yield from (f"rewrite(out, {rule})" for rule in t.average.rules)
    yield from (f"stage({factor}, b, {factor}_g, r)" for factor in t.average.factors)
    yield from (f"split(j, jv, {t.together}{', early' * early})", f"split(jv, jl, {HALVES})")
    yield from (f"expand({name}, jl)" for name in "LRS")
    yield "distribute(jl)"
    if t.wide:
        for loop in ("jlc", "jld", "jle"):
            yield from (f"split({loop}, {loop}h, 2)", f"reorder({loop}, {loop}h)")
    yield from in_halves(t.average, "jv", "")
    if t.wide:
        yield from ("divide_dim(S, 0, 2)", "reorder_dims(S, d10)")
    yield from (f"place({name}, q)" for name in "LRS")
    for number, neighbor in enumerate("lr"):
        yield from (f"stage(g{number}, jv, at{neighbor}, q)", f"stage(u{number}, jv, by{neighbor}, q)")
    if t.wide:
        yield from ("write_out(jldh)", "write_out(jleh)")
    yield from hardware_loop("j", iterations, early)
    if t.ahead and iterations - early > 1:
        yield f"hoist(j, {t.ahead})"
