"""Ranges of the few tensors that alone spoil an output, as what is left of the outputs asks for.

Where a channel of small values counts for much, the range of least error in a tensor is not that of least error in an
output. MobileNets whose batch norms have gains far apart have such tensors. Only these are searched. Elsewhere a range
that is fitted to what a few samples give would clip others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch.fx import GraphModule, Node

from tosaic.frontend.bias_correction import Batch
from tosaic.frontend.calibrated import Calibrated
from tosaic.frontend.observer import RangeObserver
from tosaic.frontend.rounded_runs import RoundedRuns

_SPOILED_DB = 30.0
_LEAST_GAIN_DB = 2.0
_PARTS = (0.8, 0.65, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)
"""Of the farther end of a range, to which both its ends are cut."""


def search_worst_ranges(prepared: GraphModule, batches: Sequence[Batch]) -> None:
    """Cut the ranges of tensors that alone leave an output less than 30 dB, where that leaves it 2 dB more.

    Args:
        prepared: a calibrated graph; the ranges of its observers are changed in place.
    """
    graph = Calibrated(prepared)
    runs = RoundedRuns(prepared, batches)
    calls: dict[RangeObserver, list[Node]] = {}
    for node in runs.observed:
        if (observer := graph.observer(node)) is not None:
            calls.setdefault(observer, []).append(node)
    for observer in _spoiling(runs, calls, list(calls)):
        _search(runs, observer, calls[observer])


def _spoiling(
    runs: RoundedRuns, calls: Mapping[RangeObserver, Sequence[Node]], among: Sequence[RangeObserver]
) -> list[RangeObserver]:
    """Those that spoil an output alone, found by halves: what is well with all of a half is well with each."""
    if not among or runs.db({node for one in among for node in calls[one]}) >= _SPOILED_DB:
        return []
    if len(among) == 1:
        return list(among)
    middle = len(among) // 2
    return [*_spoiling(runs, calls, among[:middle]), *_spoiling(runs, calls, among[middle:])]


def _search(runs: RoundedRuns, observer: RangeObserver, calls: Sequence[Node]) -> None:
    low, high = observer.range
    reach = max(-low, high)
    found = [((low, high), runs.db(set(calls)))]
    for part in _PARTS:
        observer.range = max(low, -part * reach), min(high, part * reach)
        found.append((observer.range, runs.db(set(calls))))
    best, decibels = max(found, key=lambda one: one[1])
    observer.range = best if decibels >= found[0][1] + _LEAST_GAIN_DB else (low, high)
