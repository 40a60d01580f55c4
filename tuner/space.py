"""Schedule spaces: what a kernel leaves open, and the legal ways to close it."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tosaic.support.errors import Error

Choice = int | str | bool


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

    def next_legal(self, start: int) -> Schedule | None:
        """The first legal schedule at or after assignment number `start`, going round; None where none is legal."""
        for number in itertools.chain(range(start, self.assignments), range(start)):
            assignment = {}
            for name in sorted(self.knobs):
                number, choice = divmod(number, len(self.knobs[name]))
                assignment[name] = self.knobs[name][choice]
            if self.legal(assignment):
                return Schedule.of(self.name, **assignment)
        return None

    def schedules(self) -> Iterator[Schedule]:
        """Every legal schedule of this variant, in a fixed order."""
        names = sorted(self.knobs)
        for values in itertools.product(*(self.knobs[name] for name in names)):
            assignment = dict(zip(names, values, strict=True))
            if self.legal(assignment):
                yield Schedule.of(self.name, **assignment)


@dataclass(frozen=True)
class Space:
    """The union of a kernel's variants. The first legal schedule of the first variant is the untuned default."""

    variants: tuple[Variant, ...]

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
        if variant is None or {name for name, _ in schedule.knobs} != set(variant.knobs):
            return False
        assignment = dict(schedule.knobs)
        return all(assignment[k] in variant.knobs[k] for k in assignment) and variant.legal(assignment)

    def schedules(self) -> Iterator[Schedule]:
        """Every legal schedule, variant by variant."""
        return itertools.chain.from_iterable(variant.schedules() for variant in self.variants)

    def default(self) -> Schedule:
        return next(self.schedules())

    def sample(self, rng: random.Random, attempts: int = 64) -> Schedule:
        """A legal schedule drawn at random: first the variant, evenly, then each knob, evenly."""
        variant = rng.choice(self.variants)
        for _ in range(attempts):
            assignment = {name: rng.choice(variant.knobs[name]) for name in sorted(variant.knobs)}
            if variant.legal(assignment):
                return Schedule.of(variant.name, **assignment)
        return variant.next_legal(rng.randrange(variant.assignments)) or self.default()

    def mutate(self, rng: random.Random, parent: Schedule, attempts: int = 16) -> Schedule:
        """A legal neighbor: one knob of `parent` changed; a fresh sample where it has no neighbor."""
        variant = self.variant(parent.variant)
        if variant is None:
            return self.sample(rng)
        open_knobs = sorted(name for name, choices in variant.knobs.items() if len(choices) > 1)
        for _ in range(attempts if open_knobs else 0):
            knob = rng.choice(open_knobs)
            assignment = {**dict(parent.knobs), knob: rng.choice(variant.knobs[knob])}
            if assignment != dict(parent.knobs) and variant.legal(assignment):
                return Schedule.of(variant.name, **assignment)
        return self.sample(rng)
