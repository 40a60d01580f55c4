"""The space of a kernel's sketches: what it begins with, found by building the schedules that a sketch thinks cheap."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from operator import itemgetter
from typing import NamedTuple

from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.program.kernel import PROMISE, Knobs, Sketched, assigned, built, estimated, is_promising
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.digest import code_digest
from tosaic.backends.target import Core
from tosaic.support.cache import remembered
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Choice, Variant

# Schedules that are built to find the one a space begins with, those first that a sketch thinks cheap; a sketch may say
# otherwise how many are `compared`, and up to how many times the fewest cycles are `near` them.
_COMPARED = 8
# Lines of code of those that are built, beyond which no other is: long iterations take long to order.
_MOST_LINES = 2000
# Those of them that are looked through for legal ones.
_TRIED = 64
# Those that take more working memory than the site has, after which no other is built.
_TOO_LARGE = 8
# Groups of alike assignments that are looked at one by one: those whose first ones are cheapest.
_GROUPS = 24

_NEAR = 1.01
"""Times the fewest cycles, for which less code is preferred."""
_HOPEFUL = 1.3
"""Times the fewest cycles of the first guesses of all sketches, beyond which no others of a sketch are built."""
_WORTH = 1.2
"""Times the fewest cycles, for which a kernel does without more working memory than its tensors take."""


def cheapest_first(sketches: Mapping[str, Sketched], core: Core, site: Site) -> list[Variant]:
    """The space of sketches: a variant for each that has legal schedules, its best guess first."""
    choices_of = {name: what.knobs(core) for name, what in sketches.items()}
    firsts, _ = _first_guesses(sketches, choices_of, core, site)
    found = list[tuple[float, int, Variant]]()
    for number, (name, (cost, first)) in enumerate(firsts.items()):
        ordered = {k: (first[k], *(c for c in choices if c != first[k])) for k, choices in choices_of[name].items()}
        found.append((cost, number, Variant(name, ordered, _legal(sketches[name], core, site))))
    return [variant for *_, variant in sorted(found, key=lambda each: each[:2])]


def _first_guesses(
    sketches: Mapping[str, Sketched], choices_of: Mapping[str, Mapping[str, Sequence[Choice]]], core: Core, site: Site
) -> tuple[dict[str, tuple[float, dict[str, Choice]]], float]:
    """What the best guess of each sketch costs, and its assignment; and the most working memory of what was built to
    find them. Where a site has as much, they are those that its working memory leaves."""
    if site.most_scratch is not None and not any(map(_asks_for_room, sketches.values())):
        firsts, most = _first_guesses(sketches, choices_of, core, replace(site, most_scratch=None))
        if most <= site.most_scratch:
            return firsts, most

    def compute() -> tuple[dict[str, tuple[float, dict[str, Choice]]], float]:
        guesses = {name: _Guesses(what, choices_of[name], core, site) for name, what in sketches.items()}
        least = min((cost for each in guesses.values() if (cost := each.first()) is not None), default=0)
        for each in guesses.values():
            if site.compared and each.found and each.found[0].cost <= _HOPEFUL * least:
                each.compare()
        most = max((guess.scratch for each in guesses.values() for guess in each.found), default=0)
        return {name: each.best() for name, each in guesses.items() if each.found}, most

    problem = repr((core, site, [(name, what, dict(choices_of[name])) for name, what in sketches.items()]))
    firsts, most = remembered("guesses", code_digest("cortex_m", "simulators"), [problem], compute)
    return firsts, most


def _asks_for_room(what: Sketched) -> bool:
    """Whether the working memory of a site decides what is looked at, before anything is built."""
    return is_promising(what) or hasattr(what, "least_bytes")


def _legal(what: Sketched, core: Core, site: Site) -> Callable[[Knobs], bool]:
    def legal(knobs: Knobs) -> bool:
        try:
            if is_promising(what):
                what.promise(knobs)
            else:
                estimated(what, assigned(knobs), core, site)
        except RefusedError:
            return False
        return True

    return legal


class _Guess(NamedTuple):
    """What a schedule costs, its place in the order of guesses, its lines of code, and its working memory."""

    cost: float
    number: int
    code: float
    scratch: float
    assignment: dict[str, Choice]


class _Guesses:
    """Schedules of a sketch that are built, those first that it thinks cheap.

    Attributes:
        found: those that are legal at the site.
    """

    def __init__(self, what: Sketched, knobs: Mapping[str, Sequence[Choice]], core: Core, site: Site) -> None:
        self.found = list[_Guess]()
        self._too_large = 0
        self._what, self._core, self._site = what, core, site
        self._next = enumerate(itertools.islice(_possible(what, knobs, core, site), _TRIED))

    def first(self) -> float | None:
        """What the first legal one costs; None where none is."""
        self._build(1)
        return self.found[0].cost if self.found else None

    def compare(self) -> None:
        """Build as many as are compared."""
        self._build(getattr(self._what, "compared", _COMPARED))

    def best(self) -> tuple[float, dict[str, Choice]]:
        """The one that a space begins with, and what it costs."""
        best = min(self.found)
        if self._core.mve:
            alike = [each for each in self.found if each.cost <= getattr(self._what, "near", _NEAR) * best.cost]
            best = min(alike, key=lambda each: each.code)
        tensors = sum(b.bytes for b in self._what.program().arguments if b.memory in ("in", "out"))
        lean = [each for each in self.found if each.scratch <= tensors and each.cost <= _WORTH * best.cost]
        chosen = best if best.scratch <= tensors else min(lean, default=best)
        return chosen.cost, chosen.assignment

    @property
    def _lines(self) -> float:
        return sum(guess.code for guess in self.found)

    def _build(self, most: int) -> None:
        while len(self.found) < most and self._too_large < _TOO_LARGE and self._lines <= _MOST_LINES:
            number, each = next(self._next, (0, None))
            if each is None:
                return
            with suppress(BackendError):
                counts = built(self._what, assigned(each), self._core).priced(self._site, self._core)
                if self._site.holds(counts):
                    self.found.append(_Guess(counts[PROMISE], number, counts["code"], counts["scratch"], each))
                else:
                    self._too_large += 1


def _possible(
    what: Sketched, knobs: Mapping[str, Sequence[Choice]], core: Core, site: Site
) -> Iterator[dict[str, Choice]]:
    """The assignments for which a sketch has steps, those first that it thinks cheap.

    Those that a site has working memory for, as far as a sketch tells (`least_bytes`, or what it promises); of one that
    promises with what they wait for memory. Of a group the first one stands for all, and only those of the best groups
    are looked at.
    """
    waits = lru_cache(maxsize=1024)(partial(site.waits, pipeline=core.pipeline))
    promising = what if is_promising(what) else None
    least_bytes: Callable[[Knobs], int] | None = getattr(what, "least_bytes", None)

    def priced(group: Iterable[dict[str, Choice]]) -> Iterator[tuple[float, dict[str, Choice]]]:
        for each in group:
            with suppress(RefusedError):
                if least_bytes and site.most_scratch is not None and least_bytes(each) > site.most_scratch:
                    continue
                if promising and site.most_scratch is not None and not site.holds(promising.promise(each)):
                    return
                waited = waits(tuple(promising.moved(each))) if promising and site.waits_for_memory else 0
                yield what.cost(each) + waited, each

    groups = [priced(group) for group in (promising.groups(knobs, site) if promising else [assignments(knobs)])]
    begun = [(first, group) for group in groups if (first := next(group, None)) is not None]
    best = sorted(begun, key=lambda each: each[0][0])[:_GROUPS]
    for _, each in sorted((guess for first, group in best for guess in (first, *group)), key=itemgetter(0)):
        with suppress(RefusedError):
            list(what.steps(each))
            yield each


def assignments(knobs: Mapping[str, Sequence[Choice]]) -> Iterator[dict[str, Choice]]:
    """All of some choices."""
    return (dict(zip(knobs, values, strict=True)) for values in itertools.product(*knobs.values()))
