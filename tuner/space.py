"""Schedule spaces: what a kernel leaves open, and the legal ways to close it."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tosaic.support.errors import Error

Choice = int | str | bool

SCANNED = 65_536
"""Assignments that a search for legal ones looks through; beyond, none is taken to exist."""
DRAWS = 32
STEPS = 32


def is_text(value: Choice) -> bool:
    """Whether a choice is a list of steps, one a line, and not one of several words or numbers."""
    return isinstance(value, str) and "\n" in value


@dataclass(frozen=True)
class Schedule:
    """One closed set of decisions: the variant of the kernel and a value for each of its knobs."""

    variant: str
    knobs: tuple[tuple[str, Choice], ...] = ()

    @staticmethod
    def of(variant: str, **knobs: Choice) -> Schedule:
        return Schedule(variant, tuple(sorted(knobs.items())))

    def __getitem__(self, knob: str) -> Choice:
        return dict(self.knobs)[knob]

    def __str__(self) -> str:
        if any(is_text(value) for _, value in self.knobs):
            return self.variant
        inside = ", ".join(f"{name}={value}" for name, value in self.knobs)
        return f"{self.variant}({inside})"

    def to_json(self) -> str:
        """The canonical text of this schedule; equal schedules have equal texts."""
        return json.dumps({"variant": self.variant, **dict(self.knobs)}, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Schedule:
        """The schedule behind `to_json`.

        Raises:
            Error: the text is not a JSON object with a variant and plain knob values.
        """
        try:
            record = json.loads(text)
            variant = record.pop("variant")
        except (ValueError, KeyError, AttributeError, TypeError):
            raise Error("this is not a schedule", why=text[:200]) from None
        if not isinstance(variant, str) or not all(isinstance(v, int | str | bool) for v in record.values()):
            raise Error("this is not a schedule", why=text[:200])
        return Schedule.of(variant, **record)


def _always(_: Mapping[str, Choice]) -> bool:
    return True


@dataclass(frozen=True)
class Variant:
    """One way to write the kernel, with the knobs it leaves open.

    Args:
        name: unique within the space, e.g. `gemm` or `cmsis_nn`.
        knobs: the choices of each knob by name.
        legal: whether a full assignment can be generated at all (register pressure, divisibility ...).
    """

    name: str
    knobs: Mapping[str, tuple[Choice, ...]] = field(default_factory=dict)
    legal: Callable[[Mapping[str, Choice]], bool] = _always

    @property
    def assignments(self) -> int:
        """How many assignments the knobs have, legal or not."""
        return math.prod(len(choices) for choices in self.knobs.values())

    def scan(self) -> Iterator[Schedule | None]:
        """Every assignment in a fixed order: its schedule, or None where it is not legal."""
        names = sorted(self.knobs)
        for values in itertools.product(*(self.knobs[name] for name in names)):
            assignment = dict(zip(names, values, strict=True))
            yield Schedule.of(self.name, **assignment) if self.legal(assignment) else None

    def first(self) -> Schedule | None:
        """The first legal schedule, this variant's best guess; None where the first `SCANNED` assignments hold none."""
        return next((schedule for schedule in itertools.islice(self.scan(), SCANNED) if schedule is not None), None)

    def schedules(self) -> Iterator[Schedule]:
        """Every legal schedule of this variant, in a fixed order."""
        return (schedule for schedule in self.scan() if schedule is not None)


class Mutations(Protocol):
    """Legal schedules that no knobs number, each next to another one, or to one of a variant."""

    def __contains__(self, schedule: Schedule, /) -> bool: ...

    def neighbor(self, rng: random.Random, schedule: Schedule, /) -> Schedule | None:
        """One next to a schedule, drawn by chance; None where none is found."""
        ...


@dataclass(frozen=True)
class Space:
    """The union of a kernel's variants. The first legal schedule of the first variant is the untuned default.

    Args:
        mutations: what a search may try beside schedules of the variants.
    """

    variants: tuple[Variant, ...]
    mutations: Mutations | None = None

    def __post_init__(self) -> None:
        names = [variant.name for variant in self.variants]
        if len(set(names)) != len(names):
            raise ValueError(f"variants share a name: {names}")

    @property
    def assignments(self) -> int:
        """How many assignments the knobs of all variants have, legal or not."""
        return sum(variant.assignments for variant in self.variants)

    def variant(self, name: str) -> Variant | None:
        return next((variant for variant in self.variants if variant.name == name), None)

    def __contains__(self, schedule: Schedule) -> bool:
        variant = self.variant(schedule.variant)
        if variant is None and self.mutations is not None:
            return schedule in self.mutations
        if variant is None or {name for name, _ in schedule.knobs} != set(variant.knobs):
            return False
        assignment = dict(schedule.knobs)
        return all(assignment[k] in variant.knobs[k] for k in assignment) and variant.legal(assignment)

    def scan(self) -> Iterator[Schedule | None]:
        """Every assignment, variant by variant: its schedule, or None where it is not legal."""
        return itertools.chain.from_iterable(variant.scan() for variant in self.variants)

    def schedules(self) -> Iterator[Schedule]:
        """Every legal schedule, variant by variant."""
        return itertools.chain.from_iterable(variant.schedules() for variant in self.variants)

    def default(self) -> Schedule:
        """The best guess of the first variant that has one.

        Raises:
            ValueError: no variant has one.
        """
        for variant in self.variants:
            if (first := variant.first()) is not None:
                return first
        raise ValueError("a space without a legal schedule")

    def sample(self, rng: random.Random) -> Schedule:
        """A legal schedule drawn at random: first the variant, evenly, then each knob, evenly.

        Where legal schedules are too rare to be hit, some steps away from the variant's first.
        """
        variant = rng.choice(self.variants)
        for _ in range(DRAWS):
            assignment = {name: rng.choice(variant.knobs[name]) for name in sorted(variant.knobs)}
            if variant.legal(assignment):
                return Schedule.of(variant.name, **assignment)
        walker = variant.first() or self.default()
        for _ in range(rng.randrange(STEPS)):
            if (step := self.neighbor(rng, walker)) is None:
                break
            walker = step
        return walker

    def neighbor(self, rng: random.Random, schedule: Schedule) -> Schedule | None:
        """A legal schedule with one knob changed, or two where one alone is not legal; None where none is found."""
        variant = self.variant(schedule.variant)
        open_knobs = sorted(name for name, choices in variant.knobs.items() if len(choices) > 1) if variant else []
        if variant is None or not open_knobs:
            return None
        for attempt in range(DRAWS):
            changed = rng.sample(open_knobs, min(len(open_knobs), 1 + attempt // (DRAWS // 2)))
            assignment = {**dict(schedule.knobs), **{name: rng.choice(variant.knobs[name]) for name in changed}}
            if assignment != dict(schedule.knobs) and variant.legal(assignment):
                return Schedule.of(variant.name, **assignment)
        return None
