"""What a stream does at each of its steps, as statements with numbers that go along with the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.rewriting import seq
from tosaic.backends.cortex_m.program.tree import Access, For, If, Let, Statement

Numbers: TypeAlias = tuple[int, ...]
Found: TypeAlias = Mapping[int, Sequence[Numbers]]
"""By step what is done there: the numbers of each time."""
Build: TypeAlias = Callable[[Sequence[Affine]], Statement]
"""What makes a statement of its numbers."""
_MOST_PHASES, _MOST_NESTED = 4, 8
_TURN, _PHASE, _TIME = "turn", "phase", "time"


class Piece(NamedTuple):
    """Steps one behind the other that do the same `times` each, with numbers that go along by equal strides.

    Args:
        base: the numbers of the first time, where the step's number is 0.
        by_step, by_time: what is added to them from step to step, and from time to time.
    """

    first: int
    last: int
    times: int
    base: Numbers
    by_step: Numbers
    by_time: Numbers

    def built(self, build: Build, step: Affine) -> Statement:
        """The statement of a step."""
        time = Affine.of(_TIME if self.times > 1 else 0)
        parts = zip(self.base, self.by_step, self.by_time, strict=True)
        one = build([step * by_step + time * by_time + base for base, by_step, by_time in parts])
        return For(_TIME, self.times, one) if self.times > 1 else one


@dataclass(frozen=True)
class Turns:
    """The steps of a stream, of which so many `phases` are a turn: what they do may differ by their phase."""

    steps: int
    phases: int = 1

    @staticmethod
    def of(steps: int, found: Sequence[Found]) -> Turns:
        """Phases with which there is little that differs."""
        ways = [Turns(steps, phases) for phases in range(1, min(steps, _MOST_PHASES) + 1)]
        counted = [(each, len(pieces(each))) for each in found]
        return min(ways, key=lambda way: sum(min(whole, way._apart(each)) for each, whole in counted))

    @property
    def _turns(self) -> int:
        return -(-self.steps // self.phases)

    def loop(self, body: Statement) -> Statement:
        """A statement at each step."""
        return For(_TURN, self._turns, For(_PHASE, self.phases, body) if self.phases > 1 else body)

    def given(self, turn: Access, phase: Access, body: Statement) -> Statement:
        """A statement at the step whose turn and phase are told."""
        return Let(_TURN, turn, self._turns, Let(_PHASE, phase, self.phases, body) if self.phases > 1 else body)

    def statement(self, found: Found, build: Build) -> Statement:
        """What a step does of this, given how it is made of its numbers."""
        phase = Affine.of(_PHASE if self.phases > 1 else 0)
        turn = Affine.of(_TURN)
        if len(whole := pieces(found)) <= self._apart(found):
            return _chain(whole, build, turn * self.phases + phase, 0, self._turns * self.phases - 1)
        parts = list[Statement]()
        for number, own in self._by_phase(found).items():
            does = _chain(pieces(own), build, turn, 0, self._turns - 1)
            conditions = [phase - number] if number else []
            conditions += [phase * -1 + number] if number < self.phases - 1 else []
            parts.append(If(tuple(conditions), does, seq()))
        return seq(*parts)

    def _by_phase(self, found: Found) -> dict[int, dict[int, Sequence[Numbers]]]:
        """By phase what is done at each turn."""
        parts: dict[int, dict[int, Sequence[Numbers]]] = {}
        for step, times in found.items():
            parts.setdefault(step % self.phases, {})[step // self.phases] = times
        return parts

    def _apart(self, found: Found) -> int:
        """In how many pieces it is done where each phase has its own."""
        return sum(len(pieces(own)) for own in self._by_phase(found).values())


def pieces(found: Found) -> list[Piece]:
    """What is done, in as few pieces as there can be."""
    made, left = list[Piece](), sorted(found)
    while left:
        (first, *others), times = left, found[left[0]]
        still = (0,) * len(times[0])
        by_time = _less(times[1], times[0]) if len(times) > 1 else still
        by_step = _less(found[others[0]][0], times[0]) if others else still
        last = first
        while _goes_on(found.get(last + 1, ()), found[last][0], by_step, by_time, len(times)):
            last += 1
        by_step = by_step if last > first else still
        base = tuple(number - first * step for number, step in zip(times[0], by_step, strict=True))
        made.append(Piece(first, last, len(times), base, by_step, by_time))
        left = [step for step in left if step > last]
    return made


def alike(found: Found) -> list[Found]:
    """What is done at each step, in parts whose times go along by equal strides."""
    still = all(
        _goes_on(times, times[0], (), _less(times[-1], times[-2]) if len(times) > 1 else (), len(times))
        for times in found.values()
    )
    if still:
        return [found]
    most = max(map(len, found.values()))
    return [{step: times[number : number + 1] for step, times in found.items() if len(times) > number}
            for number in range(most)]  # fmt: skip


def _goes_on(times: Sequence[Numbers], before: Numbers, by_step: Numbers, by_time: Numbers, count: int) -> bool:
    """Whether so many times follow on what the step before did first."""
    by_step, by_time = by_step or (0,) * len(before), by_time or (0,) * len(before)
    wanted = [
        tuple(b + s + time * t for b, s, t in zip(before, by_step, by_time, strict=True)) for time in range(count)
    ]
    return list(times) == wanted


def _less(one: Numbers, other: Numbers) -> Numbers:
    return tuple(a - b for a, b in zip(one, other, strict=True))


def _chain(parts: Sequence[Piece], build: Build, step: Affine, low: int, last: int) -> Statement:
    """The statement of the piece that a step is in, of steps from `low` to `last`."""
    if not parts:
        return seq()
    if len(parts) > _MOST_NESTED:
        return seq(*(_chain([each], build, step, low, last) for each in parts))
    piece, *others = parts
    begins = [step - piece.first] if piece.first > low else []
    ends = [step * -1 + piece.last] if piece.last < last else []
    own = piece.built(build, step)
    if not begins and not ends:
        return own
    return If((*begins, *ends), own, _chain(others, build, step, low if begins else piece.last + 1, last))
