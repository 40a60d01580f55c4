"""What one trial found out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from tosaic.tuner.space import Schedule, Space

Objective = Literal["cycles", "core-cycles", "instructions"]
"""What a tuning run minimizes; `cycles` are those with memory, `core-cycles` those of memory that answers at once."""

Status = Literal["ok", "wrong", "illegal", "compile-error", "crash", "timeout", "late", "slow"]
"""`timeout` is a limit of instructions, the same on every machine; `late` one of wall time, which is not recorded;
`slow` is a trial that was ended once it was sure to cost more than the best known."""


@dataclass(frozen=True)
class Measurement:
    """The outcome of one trial: `instructions` and `cycles` of one call, 0 and None unless `status` is ok.

    `cycles` is None too where no cycle model of the core exists; `waits` are the cycles for memory on top of them.

    `code` is the task's digest of what was measured.

    A trial whose output differs from the oracle by one bit is `wrong`, and `wrong` never wins.
    """

    status: Status
    instructions: int = 0
    cycles: int | None = None
    waits: int = 0
    message: str = ""
    code: str = ""

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def cycles_with_memory(self) -> int | None:
        return None if self.cycles is None else self.cycles + self.waits

    def cost(self, objective: Objective) -> int | None:
        """What `objective` counts."""
        return {
            "cycles": self.cycles_with_memory,
            "core-cycles": self.cycles,
            "instructions": self.instructions,
        }[objective]


class Named(Protocol):
    """What a measure takes. Plain picklable data: it travels to worker processes."""

    @property
    def name(self) -> str:
        """Short and readable, for progress lines and tables."""
        ...


class Task(Named, Protocol):
    """One kernel to tune."""

    @property
    def key(self) -> str:
        """The workload: equal keys share records. Holds shapes, dtypes and attributes, never weights."""
        ...

    @property
    def space(self) -> Space: ...

    def code(self, schedule: Schedule) -> str:
        """A digest of the code of `schedule`: a record of other code says nothing about it."""
        ...

    def features(self, schedule: Schedule) -> Mapping[str, float]:
        """Static features of the generated code (loop trips, MACs, loads, registers ...), by name.

        `estimate` and `estimate_with_waits`, also behind a dot, are cycles that the code is thought to take.
        """
        ...


NamedT = TypeVar("NamedT", bound=Named, contravariant=True)
TaskT = TypeVar("TaskT", bound=Task)


class Measure(Protocol[NamedT]):
    """Builds and runs candidates of one task; one measurement per schedule, in order; never raises for a candidate.

    `best` is the best known of the task: a candidate that is sure to cost more may be given up as `slow`.
    """

    def __call__(
        self, task: NamedT, schedules: Sequence[Schedule], best: Measurement | None = None, /
    ) -> list[Measurement]: ...
