"""Tasks with analytic costs, and measures for them that worker processes can import."""

from __future__ import annotations

import math
import os
import signal
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tosaic.tuner.database import Environment, Record
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
class Convolution:
    """A task as rugged as a vector kernel: 9 million assignments, registers that spill, tails, waits for memory, noise.

    Args:
        pixels, channels, outputs: of a 1x1 convolution.
    """

    pixels: int = 125
    channels: int = 64
    outputs: int = 64

    @property
    def key(self) -> str:
        return f"convolution {self.pixels}x{self.channels}x{self.outputs}"

    @property
    def name(self) -> str:
        return self.key

    @property
    def space(self) -> Space:
        knobs = {
            "rows": tuple(range(1, 9)),
            "columns": (1, 2, 3, 4, 6, 8),
            "depth": (16, 32, 64),
            "block": (4, 8, 16, 32, 64, 128, 256, 512),
            "order": ("rcd", "crd", "rdc", "cdr", "drc", "dcr"),
            "unroll": (1, 2, 4),
            "weights": ("plain", "packed", "copied"),
            "stages": (0, 1, 2, 3),
            "ahead": (0, 1, 2),
            "epilogue": ("mulh", "rounding", "narrow", "float"),
            "tail": ("overlap", "mask", "scalar"),
        }
        return Space((Variant("library"), Variant("nest", knobs, self._legal)))

    def _legal(self, knobs: Mapping[str, object]) -> bool:
        rows, depth, unroll, block = (int(knobs[name]) for name in ("rows", "depth", "unroll", "block"))  # type: ignore[call-overload]
        if knobs["tail"] == "overlap" and rows > self.pixels:
            return False
        return depth * unroll <= self.channels and block <= self.outputs and (knobs["order"] != "dcr" or rows == 1)

    def features(self, schedule: Schedule) -> Mapping[str, float]:
        macs = self.pixels * self.channels * self.outputs
        if schedule.variant == "library":
            return {"macs": macs}
        rows, columns, depth, block = (int(schedule[name]) for name in ("rows", "columns", "depth", "block"))
        return {
            "macs": macs,
            "loads": macs / 16 * (1 / rows + 1 / columns),
            "iterations": macs / (rows * columns * depth * int(schedule["unroll"])),
            "accumulators": rows * columns,
            "weight bytes": self._weight_bytes(schedule),
            "tiles": math.ceil(self.pixels / rows) * math.ceil(self.outputs / columns),
            "block bytes": block * self.channels,
        }

    def _weight_bytes(self, schedule: Schedule) -> int:
        once, rows = self.channels * self.outputs, int(schedule["rows"])
        outer = str(schedule["order"])[0] == "c"
        kept = schedule["weights"] == "copied" and int(schedule["block"]) * self.channels <= 2048
        return once if outer or kept else once * math.ceil(self.pixels / rows)

    def cost(self, schedule: Schedule) -> int:
        macs = self.pixels * self.channels * self.outputs
        if schedule.variant == "library":
            return macs
        rows, columns, depth, unroll = (int(schedule[name]) for name in ("rows", "columns", "depth", "unroll"))
        inner = macs / 8 * max(1.0, 0.62 * (1 + rows * columns / (rows + columns)) ** -1 * 3.2)
        vectors = rows + columns + (2 if int(schedule["ahead"]) else 0)
        if vectors > 8:
            inner *= 1 + 0.35 * (vectors - 8)
        if rows * columns > 14:
            inner *= 1 + 0.2 * (rows * columns - 14)
        iterations = macs / (rows * columns * depth * unroll) * (5 - int(schedule["ahead"]))
        if schedule["weights"] == "plain":
            inner *= 1.15
        left = self.pixels % rows
        tail = {"overlap": rows - left if left else 0, "mask": 0.6 * left, "scalar": 4 * left}[str(schedule["tail"])]
        epilogue = {"mulh": 2.5, "rounding": 1.6, "narrow": 1.3 if rows % 2 == 0 else 2.2, "float": 6.0}
        outputs = self.pixels * self.outputs * epilogue[str(schedule["epilogue"])]
        order = {"rcd": 1.0, "crd": 1.02, "rdc": 1.25, "cdr": 1.2, "drc": 1.5, "dcr": 1.6}[str(schedule["order"])]
        copies = self.channels * self.outputs / 4 * (1 + 64 / int(schedule["block"]))
        waits = self._weight_bytes(schedule) / 4 * (1 if int(schedule["stages"]) == 2 else 1.3)
        total = (inner * (1 + tail / self.pixels) + iterations) * order + outputs + waits
        total += copies if schedule["weights"] == "copied" else 0
        noise = zlib.crc32(f"{self.key} {schedule}".encode()) / 2**32
        return round(total * (1 + 0.01 * noise))


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


def record(task, schedule: Schedule, cost: float) -> Record:
    """A trial that cost so many cycles, a failed one where they are infinite."""
    found = success(round(cost)) if math.isfinite(cost) else Measurement("wrong")
    return Record(task.key, schedule, found, task.features(schedule))


def success(cost: int) -> Measurement:
    return Measurement("ok", instructions=cost, cycles=2 * cost)


def analytic(task, schedules: Sequence[Schedule], best: Measurement | None = None) -> list[Measurement]:
    return [success(task.cost(schedule)) for schedule in schedules]


def faulty(task, schedules: Sequence[Schedule], best: Measurement | None = None) -> list[Measurement]:
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

    def __call__(self, task, schedules: Sequence[Schedule], best: Measurement | None = None) -> list[Measurement]:
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

    def __call__(self, task, schedules: Sequence[Schedule], best: Measurement | None = None) -> list[Measurement]:
        for schedule in schedules:
            time.sleep(self.seconds)
            with open(self.log, "a", encoding="utf-8") as log:
                log.write(f"{task.key} {schedule}\n")
        return analytic(task, schedules)


def process(task, schedules: Sequence[Schedule], best: Measurement | None = None) -> list[Measurement]:
    """Tell which process measures."""
    return [Measurement("crash", message=str(os.getpid())) for _ in schedules]


def broken(task, schedules: Sequence[Schedule], best: Measurement | None = None) -> list[Measurement]:
    raise FileNotFoundError("qemu-system-arm")
