"""The loops of a kernel as a value: stages with named loops, and the trace of primitives that shaped them.

What a kernel computes stands in its stages' axes; how it does so is the trace. A trace prints as text, parses, and
replayed on the same stages gives the same nest, from which the same C is printed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from tosaic.backends.cortex_m.program.list_scheduler import AS_BEST, Issue
from tosaic.backends.cortex_m.program.schedule import Argument, Step
from tosaic.support.errors import BackendError
from tosaic.support.registry import Registry

How = Literal["each", "unroll", "lanes", "turn"]
"""What a loop becomes: one of C, code for each position, an instruction's lanes, or a hardware loop around a block."""

_NOTHING: Mapping[str, Any] = {}


class NestLoop(NamedTuple):
    """A loop over an axis: `extent` positions, `step` of them a turn."""

    name: str
    axis: str
    extent: int
    step: int = 1
    how: How = "each"

    @property
    def turns(self) -> int:
        """Turns that cover the extent; one that would pass its end starts early, or computes padding."""
        return -(-self.extent // self.step)


class Nest(NamedTuple):
    """Stages of loops, outermost first.

    Args:
        stages: the loops of each stage, by its name; the last stage is the root.
        at: the loop of another stage inside of which a stage is computed: name -> (stage, loop).
        places: where the operand that a stage reads lies, by operand: in place, or in scratch memory in some form.
        held: vectors of an operand that stay in registers.
        hoisted: loads of a stage's block that are executed a turn ahead.
        issued: how the list scheduler orders a stage's block.
        trace: the primitives that were applied.
    """

    stages: Mapping[str, tuple[NestLoop, ...]]
    at: Mapping[str, tuple[str, str]] = _NOTHING
    places: Mapping[str, str] = _NOTHING
    held: Mapping[str, int] = _NOTHING
    hoisted: Mapping[str, int] = _NOTHING
    issued: Mapping[str, Issue] = _NOTHING
    trace: tuple[Step, ...] = ()

    @staticmethod
    def of(**stages: Mapping[str, int]) -> Nest:
        """Unscheduled stages, each with a loop per axis, by name and extent."""
        return Nest({name: tuple(NestLoop(a, a, n) for a, n in axes.items()) for name, axes in stages.items()})

    def loop(self, stage: str, name: str) -> NestLoop:
        """A loop of a stage.

        Raises:
            BackendError: there is none of that name.
        """
        for loop in self.stages.get(stage, ()):
            if loop.name == name:
                return loop
        raise BackendError(f"stage `{stage}` has no loop `{name}`", why=f"the nest is\n{self}")

    def issue(self, stage: str) -> Issue:
        """How the list scheduler orders a stage's block."""
        return self.issued.get(stage, AS_BEST)

    def with_loops(self, stage: str, loops: Iterable[NestLoop]) -> Nest:
        """The same with other loops in a stage."""
        return self._replace(stages={**self.stages, stage: tuple(loops)})

    def apply(self, primitive: str, *arguments: Argument) -> Nest:
        """The nest after one primitive, its trace one step longer.

        Raises:
            BackendError: the primitive is unknown, or not legal here.
        """
        changed = PRIMITIVES.find(primitive)().apply(self, *arguments)
        return changed._replace(trace=(*self.trace, Step(primitive, arguments)))

    def replay(self, trace: Iterable[Step]) -> Nest:
        """The nest after all steps of a trace."""
        nest = self
        for step in trace:
            nest = nest.apply(step.primitive, *step.arguments)
        return nest

    def __str__(self) -> str:
        lines = []
        for stage, loops in self.stages.items():
            where = f" at {'.'.join(self.at[stage])}" if stage in self.at else ""
            hoisted = f", {self.hoisted[stage]} loads ahead" if self.hoisted.get(stage) else ""
            lines.append(f"{stage}{where}{hoisted}:")
            for depth, loop in enumerate(loops, 1):
                turns = f"{loop.axis} < {loop.extent} by {loop.step}"
                lines.append(f"{'  ' * depth}{loop.how} {loop.name}: {turns}")
        lines += [f"{operand}: {place}" for operand, place in self.places.items()]
        return "\n".join(lines)


class NestPrimitive(ABC):
    """A transformation of nests: a class in a file of its own, in `PRIMITIVES`."""

    name: ClassVar[str]

    @abstractmethod
    def apply(self, nest: Nest, *arguments: Argument) -> Nest:
        """The transformed nest.

        Raises:
            BackendError: it is not legal here.
        """


PRIMITIVES: Registry[NestPrimitive] = Registry(
    "schedule primitive", "tosaic.backends.cortex_m.nest.primitives", "tosaic.schedule_primitives"
)
"""Every primitive: those in `primitives/`, and those that packages name in the group `tosaic.schedule_primitives`."""


def print_trace(trace: Iterable[Step]) -> str:
    """A trace as text, a step a line."""
    return "".join(f"{step}\n" for step in trace)


def parse_trace(text: str) -> tuple[Step, ...]:
    """The steps behind `print_trace`.

    Raises:
        BackendError: a line is not a step.
    """
    steps = []
    for line in text.splitlines():
        match = re.fullmatch(r"(\w+)\((.*)\)", line.strip())
        if match is None:
            raise BackendError(f"`{line}` is not a step of a trace", why="a step reads `primitive(argument, ...)`")
        arguments = [argument.strip() for argument in match[2].split(",")]
        steps.append(Step(match[1], tuple(int(a) if re.fullmatch(r"-?\d+", a) else a for a in arguments)))
    return tuple(steps)
