"""How often conditions hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from operator import mul

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.tree import For

_MOST = 4096
"""Iterations of loops that conditions name together, of which each is looked at."""


def share_of(conditions: Sequence[Affine], loops: Mapping[str, For]) -> float:
    """The share of the iterations of loops in which all conditions hold; those hold that name something else, or very
    many iterations."""
    found, left = 1.0, list(conditions)
    while left:
        names, group = _together(left)
        left = [each for each in left if each not in group]
        if names <= loops.keys() and math.prod(loops[name].iterations for name in names) <= _MOST:
            found *= _share(group, [loops[name] for name in names])
    return found


def _together(conditions: Sequence[Affine]) -> tuple[set[str], list[Affine]]:
    """The first condition, and those that name what it, or another one of them, names."""
    names, group = conditions[0].names, list(conditions[:1])
    while True:
        more = [each for each in conditions if each not in group and each.names & names]
        if not more:
            return names, group
        group += more
        names = names.union(*(each.names for each in more))


def _share(conditions: Sequence[Affine], loops: Sequence[For]) -> float:
    """The share of the iterations of some loops in which conditions on these hold."""
    factors = [(each.const, [each[f.var] for f in loops]) for each in conditions]
    positions = list(itertools.product(*(f.positions for f in loops)))
    held = sum(all(const + sum(map(mul, own, at)) >= 0 for const, own in factors) for at in positions)
    return held / len(positions)
