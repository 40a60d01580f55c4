"""A scheduled program as a kernel."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, NamedTuple, Protocol, TypeGuard, TypeVar

import numpy as np

from tosaic.backends.cortex_m.footprint import Walk
from tosaic.backends.cortex_m.kernel import STEPS, KernelSource, Site
from tosaic.backends.cortex_m.kernels.mve import with_symbol
from tosaic.backends.cortex_m.program.canonical import guard_change
from tosaic.backends.cortex_m.program.check import check
from tosaic.backends.cortex_m.program.interpret import host_constants
from tosaic.backends.cortex_m.program.memory import constant_offsets, params_of, scratch_bytes, weights_of
from tosaic.backends.cortex_m.program.overlap import overlaps
from tosaic.backends.cortex_m.program.print_c import Printer
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.schedule import Step, parse_steps, replayed
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.cortex_m.program.walks import walks
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice, Schedule

PROMISE = "estimate_with_waits"
"""The feature by which schedules are compared before any is measured."""
Knobs = Mapping[str, Choice]
_FoundT = TypeVar("_FoundT")


class Sketched(Hashable, Protocol):
    """A workload with a sketch: what it computes, the numbers that its schedules leave open, and their steps.

    It is hashable, and its `repr` says all that the code depends on, which constants are not.
    """

    def program(self) -> Program:
        """What it computes."""
        ...

    def steps(self, knobs: Knobs) -> Iterator[str]:
        """The steps of a schedule.

        Raises:
            RefusedError: there is none with these numbers.
        """
        ...

    def cost(self, knobs: Knobs) -> float:
        """A cheap guess of what a schedule costs, to order guesses by.

        Raises:
            RefusedError: there is none with these numbers.
        """
        ...

    def knobs(self, core: Core) -> Mapping[str, Sequence[Choice]]:
        """The numbers that are open, and their choices on a core with these constants."""
        ...

    @property
    def constants(self) -> Mapping[str, np.ndarray]:
        """The constants that the program names."""
        ...


class Promising(Sketched, Protocol):
    """A sketch that tells what its schedules cost without their trees, so that a search may look at many.

    Args:
        compared: schedules that are built to find the one that its space begins with.
        near: times the fewest cycles of those, for which less code is preferred.
    """

    compared: ClassVar[int]
    near: ClassVar[float]

    def groups(self, knobs: Mapping[str, Sequence[Choice]], site: Site) -> Iterator[Iterable[dict[str, Choice]]]:
        """The assignments that are worth a thought at a site, those together that differ in what matters least, and
        take the same working memory."""
        ...

    def promise(self, knobs: Knobs) -> Mapping[str, float]:
        """Features of a schedule as of `Built.features`, about.

        Raises:
            RefusedError: there is none with these numbers.
        """
        ...

    def moved(self, knobs: Knobs) -> Sequence[Walk]:
        """The loops of a schedule over memory."""
        ...


def is_promising(what: Sketched) -> TypeGuard[Promising]:
    """Whether a sketch is one that promises; to ask a protocol takes longer than to price a schedule."""
    return hasattr(what, "promise")


@dataclass(frozen=True)
class Built:
    """A schedule applied and printed.

    Args:
        text: C, with `@SYMBOL@` for the name of the function.
        instructions, cycles: about how many a call executes and takes; alike on a core without timings.
        scratch: bytes of working memory.
    """

    program: Program
    steps: tuple[Step, ...]
    text: str
    instructions: int
    cycles: int
    scratch: int

    @property
    def features(self) -> dict[str, float]:
        """For the cost model."""
        return {"estimate": self.cycles, "scratch": self.scratch, "code": len(self.text.splitlines())}

    def priced(self, site: Site, core: Core) -> dict[str, float]:
        """The features, with what it waits for memory at its site."""
        return site.priced(self.features, self.cycles, self.moved if site.waits_for_memory else [], core.pipeline)

    @cached_property
    def moved(self) -> Sequence[Walk]:
        """The loops over memory."""
        return walks(self.program)

    def source(self, kind: str, constants: Mapping[str, np.ndarray]) -> KernelSource:
        """The kernel with its constants, those that the algorithm names.

        Raises:
            RefusedError: an identity of the schedule does not hold for them.
        """
        symbol, text = with_symbol(kind, self.text)
        params = params_of(self.program, host_constants(self.program, constants))
        weights = constant_offsets(self.program).get(weights_of(self.program))
        return KernelSource(symbol, "c", text, params, self.scratch, overlaps(self.program), weights=weights)


class Estimate(NamedTuple):
    """The features of a schedule whose blocks are not `filled`, and its loops over memory where these are priced."""

    features: Mapping[str, float]
    moved: Sequence[Walk]


def built(what: Sketched, knobs: tuple[tuple[str, Choice], ...], core: Core) -> Built:
    """A schedule of a sketch, `knobs` as a schedule holds them.

    Raises:
        RefusedError: a step is not legal, or the core cannot run it.
    """
    return _or_refused(_outcome(what, knobs, core))


def _or_refused(found: _FoundT | RefusedError) -> _FoundT:
    """What was found; a refusal that is remembered is raised anew, as what is raised holds the frames it passes."""
    if isinstance(found, RefusedError):
        raise copy(found)
    return found


def _steps_of(what: Sketched, knobs: Knobs) -> tuple[Step, ...]:
    """The steps of a schedule: those given one by one, or those of the sketch."""
    return parse_steps(str(knobs[STEPS]) if STEPS in knobs else "\n".join(what.steps(knobs)))


@lru_cache(maxsize=256)
def _outcome(what: Sketched, knobs: tuple[tuple[str, Choice], ...], core: Core) -> Built | RefusedError:
    try:
        return scheduled(what.program(), _steps_of(what, dict(knobs)), core)
    except RefusedError as error:
        return error.with_traceback(None)


def of_schedule(what: Sketched, schedule: Schedule, core: Core) -> Built:
    """A schedule of a sketch, or one of the variant `STEPS`, given step by step.

    Raises:
        RefusedError: a step is not legal, or the core cannot run it.
    """
    return built(what, schedule.knobs, core)


def assigned(knobs: Knobs) -> tuple[tuple[str, Choice], ...]:
    """An assignment as a schedule holds it."""
    return Schedule.of("", **knobs).knobs


def features_of(what: Sketched, schedule: Schedule, core: Core, site: Site) -> Mapping[str, float]:
    """The features of a schedule, with what it waits for memory at a site; cycles as of blocks that are not `filled`.

    Raises:
        RefusedError: it is not legal.
    """
    if schedule.variant == STEPS or not is_promising(what):
        counts, moved = estimated(what, schedule.knobs, core, site)
    else:
        knobs = dict(schedule.knobs)
        counts, moved = what.promise(knobs), what.moved(knobs) if site.waits_for_memory else ()
    return site.priced(counts, counts["estimate"], moved, core.pipeline)


def estimated(what: Sketched, knobs: tuple[tuple[str, Choice], ...], core: Core, site: Site) -> Estimate:
    """What a schedule is compared by.

    Raises:
        RefusedError: a step is not legal, or the core cannot run it.
    """
    return _or_refused(_estimate(what, knobs, core, site.waits_for_memory))


@lru_cache(maxsize=16_384)
def _estimate(
    what: Sketched, knobs: tuple[tuple[str, Choice], ...], core: Core, waits: bool
) -> Estimate | RefusedError:
    """What is kept of a schedule that is built to be compared: there are many, of which few are measured."""
    try:
        found = scheduled(what.program(), _steps_of(what, dict(knobs)), core, filled=False)
    except RefusedError as error:
        return error.with_traceback(None)
    return Estimate(found.features, found.moved if waits else ())


def scheduled(program: Program, steps: Sequence[Step], core: Core, *, filled: bool = True) -> Built:
    """A program after a schedule, checked and printed.

    Args:
        filled: whether instructions of its blocks move to where nothing issues. Without, it is found in a third of the
            time, and takes some percent more.

    Raises:
        RefusedError: a step is not legal, the last one changes nothing, or the core cannot run the result.
    """
    steps = tuple(steps)
    found = replayed(program, steps)
    if steps:
        guard_change(replayed(program, steps[:-1]), found, steps[-1])
    check(found, core)
    printer = Printer(found, core.pipeline, baseline=core.baseline, filled=filled)
    return Built(found, steps, printer.text, printer.instructions, printer.cycles, scratch_bytes(found))
