"""A planned stream as a task: kernels chosen for its strips, one schedule, proven and measured like any kernel."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tosaic.backends.cortex_m.kernel import KernelSource, Overlap
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.cortex_m.streams.driver import stream_kernel
from tosaic.backends.cortex_m.streams.plan import Plan
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.target import Core
from tosaic.tuner.space import Schedule, Space, Variant


@dataclass(frozen=True)
class StripKernel:
    """The kernel of a stage for calls that make `rows` rows: what it computes, and how.

    Args:
        further: what calls behind the first one compute, where each has weights of its own.
    """

    stage: int
    rows: int
    task: KernelTask
    schedule: Schedule
    further: tuple[KernelTask, ...] = ()

    @property
    def tasks(self) -> list[KernelTask]:
        """What the calls compute: one for all, or one for each."""
        if not self.further:
            return [self.task]
        return [replace(task, site=replace(task.site, alike=True)) for task in (self.task, *self.further)]


@dataclass(frozen=True)
class StreamTask:
    """A stream with a plan and the kernels of its strips. Plain data: it travels to worker processes.

    Args:
        module: the bytecode of a TOSA module, whose `main` is what all stages compute together.
        core: the core that runs it.
        strips: of each stage that is no copy, for each number of rows that a call makes.
        cached: stages whose params are copied to scratch memory first.
        inputs: dense bytes of the arguments to measure with; random ones when empty.
    """

    module: bytes
    core: Core
    plan: Plan
    strips: tuple[StripKernel, ...]
    cached: tuple[int, ...] = ()
    inputs: tuple[bytes, ...] = ()

    @property
    def memories(self) -> tuple[int, ...]:
        """Streams are for what fits the first memory of the arena."""
        return ()

    @property
    def over(self) -> tuple[Overlap, ...]:
        """No output takes the place of an input, whatever the plan allows."""
        return ()

    @property
    def exact(self) -> bool:
        """Whether TOSA defines every result to the bit."""
        return all(strip.task.exact for strip in self.strips)

    @property
    def key(self) -> str:
        """The workload and how its strips are computed: equal keys share records."""
        keys = [f"{strip.stage} {strip.rows}: {strip.schedule}\n{strip.task.key}" for strip in self.strips]
        digest = hashlib.sha256("\n".join([repr(self.plan), *keys]).encode()).hexdigest()
        return f"core: {self.core.name}\nstream: {self.name} {digest}"

    @property
    def name(self) -> str:
        """The stages and the shape of the result."""
        kinds = Counter(strip.task.name.split()[0].split("+")[0] for strip in self._main_strips)
        stages = "+".join(f"{count}x{kind}" if count > 1 else kind for kind, count in kinds.items())
        return f"stream of {stages}"

    @property
    def space(self) -> Space:
        plan = self.plan
        knobs = {"rows": plan.rows, "slack": plan.slack, "parts": plan.stream.parts, "thrift": plan.thrift}
        return Space((Variant("streamed", {name: (value,) for name, value in knobs.items()}),))

    def default(self) -> Schedule:
        """The one schedule."""
        return self.space.default()

    def generate(self, schedule: Schedule) -> KernelSource:
        """The kernel, with those of its strips as parts.

        Raises:
            Error: a strip cannot be generated.
        """
        sources = {
            (strip.stage, strip.rows): [task.generate(strip.schedule) for task in strip.tasks] for strip in self.strips
        }
        return stream_kernel(self.plan, sources, self.cached, self.core)

    def code(self, schedule: Schedule) -> str:
        """The symbol of the kernel, which is made of its text and the symbols of its parts."""
        return self.generate(schedule).symbol

    def trace(self, schedule: Schedule) -> Sequence[Step]:
        """The primitives that make the nests of the strips, stage by stage."""
        return [step for strip in self._main_strips for step in strip.task.trace(strip.schedule)]

    def features(self, schedule: Schedule) -> Mapping[str, float]:
        """What the cost model knows of it: calls, and bytes that slide."""
        calls = sum(sum(counts.values()) for counts in self.plan.calls)
        return {"stream.calls": float(calls), "stream.moved": float(self.plan.moved)}

    @property
    def _main_strips(self) -> list[StripKernel]:
        return [strip for strip in self.strips if strip.rows == self.plan.units[strip.stage]]
