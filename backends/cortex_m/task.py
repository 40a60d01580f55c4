"""A CPU kernel as a tuning task: the families that recognize it contribute their variants to one space."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from tosaic.backends.cortex_m.kernel import (
    ANYWHERE,
    FAMILIES,
    STEPS,
    Algorithm,
    KernelFamily,
    KernelSource,
    Overlap,
    Site,
    Workload,
)
from tosaic.backends.cortex_m.linalg import kernel_module
from tosaic.backends.cortex_m.program.mutation import mutated
from tosaic.backends.cortex_m.program.schedule import Step, print_steps
from tosaic.backends.cortex_m.recognition import Facts, Match, Recognized, name_of
from tosaic.backends.target import Core
from tosaic.support.errors import BackendError, Error
from tosaic.support.functions import is_exact
from tosaic.support.mlir import bare_bytecode, functions, ir, parse
from tosaic.tuner.space import Choice, Schedule, Space, Variant

_DRAWS = 16
"""Mutations of a schedule, of which most are not legal."""
_LONGER = 2
"""Times the text of the default that a mutation may have."""


@dataclass(frozen=True)
class KernelTask:
    """One outlined CPU function, its meaning and its schedule space. Plain data: it travels to worker processes.

    A schedule's variant is `<family>.<variant>`.

    Args:
        module: the bytecode of a TOSA module, whose `main` has the kernel's arguments and results.
        core: the core that runs it.
        families: where any of these families has a variant, no other family is asked; empty admits all.
        inputs: dense bytes of the arguments to measure with; random ones when empty.
        libraries: name and folder of the support libraries that families may use.
        site: where the kernel will run.
        memories: the number of the arena's memory in which each input and output and the working memory lie; empty for
            the first.
        over: the inputs that lose their place to an output, if the kernel allows it.
        given: the one schedule of its space, of the variant `FAMILY.steps`; None leaves the space to the families.
    """

    module: bytes
    core: Core
    families: tuple[str, ...] = ()
    inputs: tuple[bytes, ...] = ()
    libraries: tuple[tuple[str, Path], ...] = ()
    site: Site = ANYWHERE
    memories: tuple[int, ...] = ()
    over: tuple[Overlap, ...] = ()
    given: Schedule | None = None

    @staticmethod
    def of(
        function: ir.Operation,
        core: Core,
        families: Sequence[str] = (),
        inputs: Sequence[bytes] = (),
        libraries: Mapping[str, Path] | None = None,
    ) -> KernelTask:
        """The task of a `func.func`; its name and annotations do not matter."""
        module = bare_bytecode(kernel_module(function, "main"))
        return KernelTask(module, core, tuple(families), tuple(inputs), tuple((libraries or {}).items()))

    @property
    def exact(self) -> bool:
        """Whether TOSA defines every result to the bit, so that a candidate can be told right from wrong."""
        return self._facts.exact

    @property
    def weights(self) -> bytes:
        """The dense bytes of its constant weights; empty where no family knows any."""
        known = (workload.constants.get("weights") for _, workload in self._facts.matches)
        return next((array.tobytes() for array in known if array is not None), b"")

    @property
    def key(self) -> str:
        """The workload: equal keys share records."""
        return self._facts.key

    @property
    def name(self) -> str:
        """The ops and the shape of the first result, e.g. `conv2d+rescale 1x32x32x16`."""
        return self._facts.name

    @property
    def space(self) -> Space:
        return self._space

    @cached_property
    def _space(self) -> Space:
        if self.given is not None:
            return Space((Variant(self.given.variant, {name: (value,) for name, value in self.given.knobs}),))
        matches = {family.name: (family, workload) for family, workload in self._facts.matches}
        asked = [matches[name] for name in self.families if name in matches]
        # With vectors nearly all are refused: 300 trials took up to 2.7 times as long, and gained 0.06 % at most.
        mutations = None if self.core.mve else StepMutations(self)
        return Space(self._variants(asked) or self._variants(self._facts.matches), mutations)

    def _variants(self, matches: Sequence[Match]) -> tuple[Variant, ...]:
        return tuple(
            Variant(f"{family.name}.{variant.name}", variant.knobs, self._fitting(family, workload, variant))
            for family, workload in matches
            for variant in family.variants(workload, self.core)
        )

    def algorithms(self, steps: Sequence[Step] = ()) -> Mapping[str, Algorithm]:
        """What steps given by hand begin with, by family, the one that is asked first before the others.

        Raises:
            BackendError: no family that recognizes the function has a program for it on this core.
        """
        matches = self._facts.matches
        found = {family.name: family.algorithm(workload, self.core, steps) for family, workload in matches}
        known = {name: algorithm for name, algorithm in found.items() if algorithm is not None}
        if not known:
            raise BackendError(
                "the kernel takes no schedule by hand",
                why=f"on a {self.core.name} it is no program of steps, but comes from {', '.join(found)}",
            )
        return known

    def stepped(self, steps: Sequence[Step], family: str) -> KernelTask:
        """The task with one schedule: steps on the program of a family."""
        return replace(self, given=Schedule.of(f"{family}.{STEPS}", **{STEPS: print_steps(steps)}))

    def at(self, site: Site, memories: tuple[int, ...] = ()) -> KernelTask:
        """The task at a place in the program."""
        return self._moved(site=site, memories=memories)

    def writing_over(self, over: Iterable[Overlap]) -> KernelTask:
        """The task where outputs take the place of inputs, if the kernel allows it."""
        return self._moved(over=tuple(sorted(over)))

    def _moved(self, **changes: Any) -> KernelTask:
        """The same function elsewhere: what is recognized in it stays."""
        moved = replace(self, **changes)
        moved.__dict__["_recognized"] = self._recognized
        return moved

    def default(self) -> Schedule:
        """The best guess without a measurement."""
        return self.space.default()

    def generate(self, schedule: Schedule) -> KernelSource:
        """The kernel of one schedule of `space`.

        Raises:
            Error: this schedule cannot be generated.
        """
        made = self._sources.get(schedule)
        if made is None:
            family, workload, own = self._owner(schedule)
            made = self._sources[schedule] = family.generate(workload, own, self.core)
        return made

    def code(self, schedule: Schedule) -> str:
        """The symbol of a schedule's kernel, which is made of its text; empty where it cannot be generated."""
        try:
            return self.generate(schedule).symbol
        except Error:
            return ""

    def trace(self, schedule: Schedule) -> Sequence[Step]:
        """The steps of a schedule; empty where its kernel is no program."""
        family, workload, own = self._owner(schedule)
        return family.trace(workload, own, self.core)

    def is_known_to(self, family: str) -> bool:
        """Whether a family recognizes the function."""
        return any(known.name == family for known, _ in self._facts.matches)

    def is_program(self, schedule: Schedule) -> bool:
        """Whether the kernel of a schedule is a program, so that its trace can be given by hand."""
        family, workload, own = self._owner(schedule)
        return family.is_program(workload, own, self.core)

    def features(self, schedule: Schedule) -> Mapping[str, float]:
        """Static features of the generated code, by name."""
        family, workload, own = self._owner(schedule)
        return {f"{family.name}.{k}": v for k, v in family.features(workload, own, self.core).items()}

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _sources(self) -> WeakValueDictionary[Schedule, KernelSource]:
        """The kernels that were generated, as long as somebody has them: their params may be large."""
        return WeakValueDictionary()

    @cached_property
    def _facts(self) -> Facts:
        known = self._recognized
        found = [(family(dict(self.libraries), self.site), workload) for family, workload in known.matches]
        return Facts(found, known.exact, self._key(found), known.name)

    @cached_property
    def _recognized(self) -> Recognized:
        module = parse(self.module)
        (kernel,) = functions(module).values()
        families = sorted(FAMILIES.known().values(), key=lambda family: family.rank)
        tried = [(family, family(dict(self.libraries)).match(kernel)) for family in families]
        found = [(family, workload) for family, workload in tried if workload is not None]
        return Recognized(found, is_exact(kernel), name_of(kernel))

    def _key(self, found: Sequence[Match]) -> str:
        parts = [f"core: {self.core.name}", *([f"families: {', '.join(self.families)}"] if self.families else [])]
        parts += [f"memories: {', '.join(map(str, self.memories))}"] if self.memories else []
        parts += [f"over: {', '.join(f'{pair.output} {pair.input}' for pair in self.over)}"] if self.over else []
        parts += [] if self.given is None else [f"given: {self.given.to_json()}"]
        return "\n".join([*parts, *(f"{family.name}: {workload.key}" for family, workload in found)])

    def _fitting(
        self, family: KernelFamily, workload: Workload, variant: Variant
    ) -> Callable[[Mapping[str, Choice]], bool]:
        """What `variant` allows, within the site's working memory."""
        if self.site.most_scratch is None:
            return variant.legal

        def fits(assignment: Mapping[str, Choice]) -> bool:
            if not variant.legal(assignment):
                return False
            return self.site.holds(family.features(workload, Schedule.of(variant.name, **assignment), self.core))

        return fits

    def _owner(self, schedule: Schedule) -> tuple[KernelFamily, Workload, Schedule]:
        name, _, variant = schedule.variant.partition(".")
        for family, workload in self._facts.matches:
            if family.name == name:
                return family, workload, Schedule(variant, schedule.knobs)
        raise BackendError(
            f"no kernel family `{name}` covers this function",
            why=f"the schedule is {schedule}",
            hint="it may come from the records of another version; tune again",
        )


@dataclass(frozen=True)
class StepMutations:
    """Schedules of a task that are given step by step, each one step from another."""

    task: KernelTask

    def __contains__(self, schedule: Schedule) -> bool:
        family, _, variant = schedule.variant.partition(".")
        if variant != STEPS or [name for name, _ in schedule.knobs] != [STEPS]:
            return False
        try:
            counts = self.task.features(schedule)
        except Error:
            return False
        return self.task.site.holds({"scratch": counts.get(f"{family}.scratch", 0)})

    def neighbor(self, rng: random.Random, schedule: Schedule) -> Schedule | None:
        """One whose kernel differs, and is not much longer than the default."""
        task = self.task
        if not task.is_program(schedule):
            return None
        family = schedule.variant.partition(".")[0]
        steps, own = task.trace(schedule), task.generate(schedule).symbol
        program = task.algorithms(steps)[family].program
        for _ in range(_DRAWS):
            with suppress(Error):
                changed = print_steps(mutated(program, steps, task.core, rng))
                found = Schedule.of(f"{family}.{STEPS}", **{STEPS: changed})
                kernel = task.generate(found)
                if kernel.symbol != own and len(kernel.text) <= self._longest and found in self:
                    return found
        return None

    @cached_property
    def _longest(self) -> int:
        return _LONGER * len(self.task.generate(self.task.default()).text)
