"""The search for the cheapest segments one after another, within a limit of live bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from tosaic.compiler.fitting.costs import Price, Prices
from tosaic.compiler.fitting.reuse import Kept
from tosaic.compiler.fitting.ways import ROOM, Segment, Ways

_NEAR = 1.01
_ESTIMATED = 9 / 8
"""What an estimate of bytes may be of them, about."""
_LEAN, _LEANEST = 2048, 128
"""Bytes of working memory that kernels are held to where memory is short; and the least."""
_ROOMY = ((ROOM, 0), (_LEAN, 0), (_LEANEST, 0))
_THRIFTY = ((ROOM, 0), (_LEAN, 0), (_LEAN, 1), (_LEAN, 2), (_LEANEST, 2))
"""Bytes of working memory and thrift of streams, in turn until something fits; the latter where memory is short."""
_PARTS = (2, 3, 4)
"""Into which images are cut then."""


@dataclass(frozen=True)
class Need:
    """What executes the calls `first` to `last` in `rows` a step or more, while so many bytes or more are live."""

    first: int
    last: int
    rows: int
    bytes: int

    def is_met_by(self, segment: Segment, price: Price) -> bool:
        alike = (segment.first, segment.last) == (self.first, self.last)
        return alike and segment.rows >= self.rows and price.bytes >= self.bytes


@dataclass(frozen=True)
class Conflict:
    """Segments one after another that have no plan of `size` bytes together."""

    size: int
    needs: tuple[Need, ...]


Progress = frozenset[tuple[int, int]]
"""By the numbers of conflicts how many segments at the end of a way stand at their beginning."""


class _State(NamedTuple):
    """What counts of a way so far for what may follow, and for what that costs."""

    progress: Progress
    kept: Kept


_BEGIN = _State(frozenset(), frozenset())


@dataclass(frozen=True)
class Limits:
    """What a way has to keep to.

    Args:
        bytes: that may be live at once.
        conflicts: segments that may not stand together.
        penalty: what a byte of flash is deemed to cost.
    """

    bytes: int
    conflicts: tuple[Conflict, ...] = ()
    penalty: float = 0.0

    def blame(self, segment: Segment, price: Price) -> bool:
        """Whether a segment is part of a conflict."""
        return any(need.is_met_by(segment, price) for conflict in self.conflicts for need in conflict.needs)

    def beyond(self, progress: Progress, segment: Segment, price: Price) -> Progress | None:
        """The progress of conflicts behind one more segment; None where one is complete."""
        begun = [*progress, *((number, 0) for number in range(len(self.conflicts)))]
        further = [(n, done + 1) for n, done in begun if self.conflicts[n].needs[done].is_met_by(segment, price)]
        return None if any(done == len(self.conflicts[n].needs) for n, done in further) else frozenset(further)


@dataclass(frozen=True)
class Fit:
    """A way to run the program: segments one after another.

    Args:
        bytes: the most that is live at once; what an arena needs at least.
        cost: in the tuner's objective; `weighed` with what its flash is deemed to cost.
    """

    segments: tuple[Segment, ...]
    bytes: int
    cost: float
    measured: bool
    weighed: float = 0.0

    @property
    def streams(self) -> tuple[Segment, ...]:
        """The segments that are streams."""
        return tuple(segment for segment in self.segments if segment.rows)


class WaySearch:
    """Finds the ways of least cost.

    Args:
        ways: the streams that calls could run as.
        prices: what is known of them.
    """

    def __init__(self, ways: Ways, prices: Prices) -> None:
        self._ways, self._prices, self._calls = ways, prices, ways.calls

    def fastest(self, limits: Limits) -> Fit | None:
        """The fastest way within limits, all of it measured; None without one.

        Estimates guide the search. It ends where nothing promises to be faster by more than a hundredth.
        """
        while (hoped := self._hoped(limits)) is not None and not hoped.measured:
            known = self._cheapest(limits, measured=True)
            if known is not None and known.weighed <= _NEAR * hoped.weighed:
                return known
            if rough := self._rough(hoped):
                self._prices.size(rough)
            else:
                self._prices.measure([s for s, price in self._open(hoped).items() if not price.measured])
        return hoped

    def sized(self, limits: Limits) -> Fit | None:
        """The way that promises to be the fastest within limits, by bytes that are no estimates."""
        while (fit := self._hoped(limits)) is not None and (rough := self._rough(fit)):
            self._prices.size(rough)
        return fit

    def _hoped(self, limits: Limits) -> Fit | None:
        """The cheapest way within limits by what is known; where there is none, more is found out of those that go
        beyond by an estimate of their bytes alone."""
        while (fit := self._cheapest(limits)) is None:
            beyond = self._cheapest(replace(limits, bytes=int(limits.bytes * _ESTIMATED)))
            if beyond is None or not (rough := self._rough(beyond)):
                return None
            self._prices.size(rough)
        return fit

    def price(self, segment: Segment) -> Price:
        """The price of a segment of a way."""
        price = self._prices.of(segment) if segment.rows or segment.lean else self._prices.alone[segment.first]
        assert price is not None
        return price

    def _open(self, fit: Fit) -> dict[Segment, Price]:
        """The prices of segments that are estimates at first."""
        return {s: price for s in fit.segments if s.rows or s.lean if (price := self._prices.of(s)) is not None}

    def _rough(self, fit: Fit) -> list[Segment]:
        """The segments whose bytes are estimates."""
        return [segment for segment, price in self._open(fit).items() if not price.sized]

    def _cheapest(self, limits: Limits, measured: bool = False) -> Fit | None:
        """The cheapest sequence of segments within limits, by what is known of their prices, or of `measured` ones."""
        count = len(self._calls)
        best: list[dict[_State, Fit]] = [{_BEGIN: Fit((), 0, 0.0, True)}, *({} for _ in range(count))]
        by_end: dict[int, list[tuple[Segment, Price]]] = {}
        for segment, price in self._priced(limits):
            if not measured or price.measured:
                by_end.setdefault(segment.last, []).append((segment, price))
        for end, known in enumerate(best[1:]):
            for segment, price in by_end.get(end, ()):
                for state, fit in best[segment.first].items():
                    progress = limits.beyond(state.progress, segment, price)
                    if progress is None:
                        continue
                    joined = self._joined(fit, state.kept, segment, price, limits.penalty)
                    beyond = _State(progress, self._prices.reuse.kept(joined.segments))
                    if beyond not in known or _by_cost(joined) < _by_cost(known[beyond]):
                        known[beyond] = joined
        return min(best[count].values(), key=_by_cost, default=None)

    def _joined(self, fit: Fit, kept: Kept, segment: Segment, price: Price, penalty: float) -> Fit:
        """A way with one more segment, before which the cache holds some constants."""
        cost = price.cost - self._prices.spared(kept, segment)
        weighed = fit.weighed + cost + (penalty and penalty * self._prices.flash_bytes(segment))
        most, whole = max(fit.bytes, price.bytes), fit.measured and price.measured
        return Fit((*fit.segments, segment), most, fit.cost + cost, whole, weighed)

    def _priced(self, limits: Limits) -> Iterator[tuple[Segment, Price]]:
        """Every segment that fits, with its price: streams for what does not fit, and for what needs most memory."""
        calls, prices, limit = self._calls, self._prices, limits.bytes
        hot = [*calls.fed_calls]
        hot += [number for number, price in enumerate(prices.alone) if price.bytes > min(limit, prices.most - 1)]
        hot += prices.waiting
        hot += [n for conflict in limits.conflicts for need in conflict.needs for n in range(need.first, need.last + 1)]
        for number, alone in enumerate(prices.alone):
            if number in calls.fed_calls:
                continue
            if fits := alone.bytes <= limit:
                yield Segment(number, number), alone
            if fits and not limits.blame(Segment(number, number), alone):
                continue
            if calls.names[number] in calls.tasks and calls.tasks[calls.names[number]].exact:
                yield from self._leaner(Segment(number, number), limits)
        for first, last, across in self._ways.streamable:
            if not any(first <= number <= last for number in hot) or (across and limit >= prices.most):
                continue
            for segment in self._ways.across(first, last) if across else self._ways.of(first, last):
                yield from self._leaner(segment, limits)

    def _leaner(self, segment: Segment, limits: Limits) -> Iterator[tuple[Segment, Price]]:
        """The segment with no less working memory than it must have to fit, and its price; none where it does not."""
        price = None
        is_short = limits.bytes < self._prices.most
        for most, thrift in _THRIFTY if is_short else _ROOMY:
            lean = replace(segment, lean=most, thrift=thrift if segment.rows else 0)
            price = self._prices.of(lean)
            if price is not None and price.bytes <= limits.bytes:
                yield lean, price
                if not limits.blame(lean, price):
                    return
        if is_short and segment.rows == 1 and not segment.across and segment.cached == "none" and price is not None:
            yield from self._cut(segment, price, limits)

    def _cut(self, segment: Segment, price: Price, limits: Limits) -> Iterator[tuple[Segment, Price]]:
        """A stream with its images in no more parts than it must have to fit, and its price.

        Args:
            price: of the stream in one part.
        """
        always = self._prices.live_bytes(segment, 0, self._ways.plan(segment).leads)
        for parts in _PARTS:
            cut = replace(segment, lean=_LEANEST, thrift=2, parts=parts)
            if always + (price.bytes - always) // parts > limits.bytes or not self._ways.possible_plan(cut):
                continue
            price_cut = self._prices.of(cut)
            if price_cut is not None and price_cut.bytes <= limits.bytes:
                yield cut, price_cut
                if not limits.blame(cut, price_cut):
                    return


def _by_cost(fit: Fit) -> tuple[float, int]:
    return fit.weighed, fit.bytes
