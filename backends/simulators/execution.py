"""The interface of everything that can run a firmware: a simulator, a virtual platform, a board on the bench."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from tosaic.backends.simulators.memory_model import Traffic
from tosaic.backends.simulators.npu_bridge import Execute
from tosaic.backends.target import Memory, Target
from tosaic.support.errors import SimulatorError


@dataclass(frozen=True)
class Cost:
    """What ran between the marker of a region's beginning and that of its end (`firmware/markers.h`).

    Args:
        instructions: 0 where nothing counts them.
        cycles: with memory that answers at once; all of them where a core's own counter tells; None where the core has
            no cycle model.
        traffic: of each memory that was watched.
    """

    instructions: int
    cycles: int | None
    traffic: tuple[Traffic, ...] = ()

    def __add__(self, other: Cost) -> Cost:
        """Of both, one after the other."""
        cycles = None if self.cycles is None or other.cycles is None else self.cycles + other.cycles
        traffic = tuple(one + another for one, another in zip(self.traffic, other.traffic, strict=True))
        return Cost(self.instructions + other.instructions, cycles, traffic)

    @property
    def waits(self) -> int:
        """Cycles that the core waits for memory."""
        return sum(traffic.waits for traffic in self.traffic)


@dataclass(frozen=True)
class Execution:
    """How a run ended.

    Args:
        exit_code: the guest's, by semihosting.
        console: what the guest and the runner wrote.
        files: what the guest left, by name, but for the files that it was given.
        costs: of each region between markers, in order; empty where the runner does not count.
        failure: empty unless the guest faulted, ran into a limit or the runner itself gave up.
        timed_out: whether the failure is a limit of time or instructions.
        late: whether it is one of time, which another load of the machine may not reach.
    """

    exit_code: int
    console: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    costs: tuple[Cost, ...] = ()
    failure: str = ""
    timed_out: bool = False
    late: bool = False

    def check(self, what: str) -> Execution:
        """This execution, if it ended well.

        Raises:
            SimulatorError: `what` did not run to its end.
        """
        if self.failure or self.exit_code:
            why = self.failure or self.console.strip()[-2000:] or f"it ended with status {self.exit_code}"
            raise SimulatorError(f"{what} did not run to its end", why=why)
        return self


class Machine(Protocol):
    """Runs ELFs for one target. Plain picklable data: it travels to worker processes."""

    monitored: ClassVar[bool]
    """Whether ELFs run under a monitor, linked with `toolchain.monitored_objects`; else from reset."""

    def version(self) -> str:
        """Its name and version, for the stamp of records."""
        ...

    def run(
        self,
        elf: Path,
        files: Mapping[str, bytes],
        *,
        npu: Execute | None = None,
        timeout: float = 120.0,
        region_limit: int | None = None,
        count: bool = True,
        memories: Sequence[Memory] = (),
    ) -> Execution:
        """Run `elf` to its end, whichever that is.

        Args:
            files: what the guest finds in its working folder, by name.
            npu: executes NPU calls on the host.
            timeout: seconds of wall time.
            region_limit: instructions that one region may execute; more is a time-out, the same on every machine.
            count: whether to count regions; without it `costs` is empty.
            memories: those whose traffic is counted.

        Raises:
            Error: the runner is not installed.
        """
        ...


class Runner(Machine, Protocol):
    """A machine that runs a target's firmware. Found by name: see `runners`."""

    name: ClassVar[str]
    executes_npu: ClassVar[bool]
    """Whether there is an NPU; where there is none, NPU calls of the guest come to `npu`."""

    @classmethod
    def of(cls, target: Target) -> Runner:
        """The runner of a target's firmware.

        Raises:
            SimulatorError: it cannot run that target.
        """
        ...
