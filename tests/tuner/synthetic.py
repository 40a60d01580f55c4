"""Tasks with analytic costs, and measures for them that worker processes can import."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tosaic.tuner.database import Environment
from tosaic.tuner.measurement import Measurement, Status
from tosaic.tuner.space import Schedule, Space, Variant

ENVIRONMENT = Environment(core="cortex-m55", memory="dtcm", toolchain="clang 22", simulator="qemu 9", compiler="1")
POWERS = (1, 2, 4, 8, 16, 32, 64)


def _fits_registers(knobs: Mapping[str, object]) -> bool:
    return int(knobs["rows"]) * int(knobs["columns"]) <= 256  # type: ignore[call-overload]


@dataclass(frozen=True)
class Gemm:
    """A task that looks like a tiled matrix product: 117,937 legal schedules, structured like the real thing."""

    size: int = 128

    @property
    def key(self) -> str:
        return f"gemm {self.size}"

    @property
    def name(self) -> str:
        return self.key

    @property
    def space(self) -> Space:
        tiled = {
            "rows": POWERS,
            "columns": POWERS,
            "depth": POWERS,
            "unroll": (1, 2, 3, 4, 6, 8),
            "prefetch": tuple(range(6)),
            "order": ("ijk", "ikj", "jik", "jki", "kij", "kji"),
            "pack": (False, True),
        }
        return Space((Variant("library"), Variant("tiled", tiled, _fits_registers)))

    def code(self, schedule: Schedule) -> str:
        return ""

    def features(self, schedule: Schedule) -> Mapping[str, float]:
        if schedule.variant == "library":
            return {"macs": self.size**3}
        rows, columns, depth = (int(schedule[knob]) for knob in ("rows", "columns", "depth"))
        return {"macs": self.size**3, "loads": rows * depth + depth * columns, "accumulators": rows * columns}

    def cost(self, schedule: Schedule) -> int:
        if schedule.variant == "library":
            return 3 * self.size**3
        names = ("rows", "columns", "depth", "unroll", "prefetch", "pack")
        rows, columns, depth, unroll, prefetch, pack = (int(schedule[name]) for name in names)
        miss = (
            1
            + 0.4 * abs(math.log2(rows * columns / 8))
            + 0.2 * abs(math.log2(rows / columns) - 1)
            + 0.3 * abs(math.log2(depth / 16))
            + 0.25 * abs(unroll - (4 if pack else 2))
            + 0.15 * abs(prefetch - 3)
            + {"ijk": 0.6, "ikj": 0.0, "jik": 0.9, "jki": 0.8, "kij": 0.3, "kji": 1.0}[str(schedule["order"])]
            + (0.0 if pack else 0.7)
        )
        return round(self.size**3 * miss)


@dataclass(frozen=True)
class Line:
    """A small task: one knob, `length` schedules, the optimum at `valley`."""

    key: str
    length: int = 40
    valley: int = 17
    scale: int = 100

    @property
    def name(self) -> str:
        return self.key

    @property
    def space(self) -> Space:
        return Space((Variant("line", {"x": tuple(range(self.length))}),))

    def code(self, schedule: Schedule) -> str:
        return ""

    def features(self, schedule: Schedule) -> Mapping[str, float]:
        return {"x": float(schedule["x"])}

    def cost(self, schedule: Schedule) -> int:
        return self.scale * (1 + abs(int(schedule["x"]) - self.valley))


def success(cost: int) -> Measurement:
    return Measurement("ok", instructions=cost, cycles=2 * cost)


def analytic(task, schedules: Sequence[Schedule]) -> list[Measurement]:
    return [success(task.cost(schedule)) for schedule in schedules]


def faulty(task, schedules: Sequence[Schedule]) -> list[Measurement]:
    """The candidates below the valley would be the fastest of all, and are wrong; some others fail in every way."""
    by_remainder: dict[int, Status] = {3: "illegal", 5: "compile-error", 7: "crash", 9: "timeout"}
    answers = []
    for schedule in schedules:
        x = int(schedule["x"])
        if x < task.valley:
            answers.append(Measurement("wrong", message="output 3 differs"))
        elif x > task.valley and x % 11 in by_remainder:
            answers.append(Measurement(by_remainder[x % 11]))
        else:
            answers.append(success(task.cost(schedule)))
    return answers


@dataclass(frozen=True)
class Deadly:
    """Kills its own process at x = 5, hangs at x = 9, and writes down whom it measured to the end."""

    log: Path | None = None
    seconds: float = 0.0

    def __call__(self, task, schedules: Sequence[Schedule]) -> list[Measurement]:
        for schedule in schedules:
            if schedule["x"] == 5:
                os.kill(os.getpid(), signal.SIGSEGV)
            if schedule["x"] == 9:
                time.sleep(600)
        return analytic(task, schedules)


@dataclass(frozen=True)
class Slow:
    """Takes `seconds` a trial and writes each one down in `log` when it is measured."""

    log: Path
    seconds: float

    def __call__(self, task, schedules: Sequence[Schedule]) -> list[Measurement]:
        for schedule in schedules:
            time.sleep(self.seconds)
            with open(self.log, "a", encoding="utf-8") as log:
                log.write(f"{task.key} {schedule}\n")
        return analytic(task, schedules)


def broken(task, schedules: Sequence[Schedule]) -> list[Measurement]:
    raise FileNotFoundError("qemu-system-arm")
