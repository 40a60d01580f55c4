"""What ships equals the reference model: every NPU region and every kernel is executed against it once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

import numpy as np

from tosaic.backends.cortex_m.streams.task import StreamTask
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.firmware.records import Firmware
from tosaic.backends.npu import NpuPort, NpuRegion
from tosaic.backends.npus import compile_region, emulate
from tosaic.backends.reference import Executable, evaluate, evaluate_in_turn, serialize
from tosaic.backends.simulators.execution import Runner
from tosaic.backends.simulators.npu_bridge import Execute
from tosaic.backends.simulators.run import run_firmware
from tosaic.compiler.neighborhood import neighborhood
from tosaic.compiler.trials import TryAll
from tosaic.passes import first_difference
from tosaic.runs.bisection import first_wrong_op
from tosaic.support.errors import BackendError, SimulatorError
from tosaic.support.functions import standalone
from tosaic.support.mlir import ir
from tosaic.tuner.database import Database, Record
from tosaic.tuner.measurement import Measurement, Objective
from tosaic.tuner.space import Schedule
from tosaic.tuner.transfer import nearest
from tosaic.tuner.tune import best


@dataclass(frozen=True)
class Verdict:
    """What an execution showed.

    Args:
        difference: the first element that differs from the reference, or what else is wrong; empty where all is equal
            to the bit.
        op: the op of a region with which the difference begins; None where none alone is at fault.
    """

    difference: str = ""
    op: ir.Operation | None = None


def region_difference(region: NpuRegion, function: ir.Operation, inputs: Sequence[np.ndarray]) -> str:
    """How a region's command stream on the emulator differs from its function on the reference model."""
    try:
        return first_difference(evaluate(standalone(function), inputs), emulate(region, inputs))
    except SimulatorError as error:
        return str(error)


def prove_region(region: NpuRegion, function: ir.Operation, inputs: Sequence[np.ndarray]) -> Verdict:
    """Whether a region equals its function, and the op with which it begins to differ."""
    difference = region_difference(region, function, inputs)
    if not difference:
        return Verdict()
    found = first_wrong_op(function, inputs, region.accelerator, region.options)
    return Verdict(found[1], found[0]) if found else Verdict(difference)


def prove_beside(op: ir.Operation, accelerator: str) -> str:
    """How the command stream of an op, cut out with its neighbors, differs from the reference; empty where it is equal.

    Nothing behind the neighbors can hide an error, and what they read is drawn over its whole range, then at its ends.
    """
    return _difference_alone(serialize(neighborhood(op, accelerator)), accelerator)


@lru_cache(maxsize=4096)
def _difference_alone(flatbuffer: bytes, accelerator: str) -> str:
    try:
        region = compile_region(flatbuffer, accelerator)
        for ends in (False, True):
            inputs, expected = _defined(flatbuffer, region.inputs, ends)
            if difference := first_difference(expected, emulate(region, inputs)):
                return difference
    except (BackendError, SimulatorError) as error:
        return str(error)
    return ""


def _defined(flatbuffer: bytes, ports: Sequence[NpuPort], ends: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Inputs and what the reference makes of them; without the least numbers where TOSA does not define their result.

    It does not say how the square of the least int16 is scaled by 31 bits.
    """
    try:
        inputs = [_drawn(port, ends) for port in ports]
        return inputs, evaluate(flatbuffer, inputs)
    except BackendError:
        inputs = [_drawn(port, ends, above=1) for port in ports]
        return inputs, evaluate(flatbuffer, inputs)


def _drawn(port: NpuPort, ends: bool, above: int = 0) -> np.ndarray:
    rng = np.random.default_rng(0)
    low, high = (0, 1) if port.dtype == "bool" else (np.iinfo(port.dtype).min + above, np.iinfo(port.dtype).max)
    drawn = rng.choice([low, high], port.shape) if ends else rng.integers(low, high, port.shape, endpoint=True)
    return drawn.astype(port.dtype)


@dataclass
class KernelProof:
    """The proof of one exact task: its default and what is best on the nearest task that has records; where these are
    refuted, the first schedule of each further variant.

    Args:
        near: what is best on the nearest task.
        tried: how many schedules were.
        refuted: those that did not equal the reference, each with what was found.
    """

    task: KernelTask | StreamTask
    near: Sequence[Schedule] = ()
    tried: int = 0
    refuted: list[str] = field(default_factory=list)
    outcome: Measurement = field(
        default_factory=lambda: Measurement("wrong", message="every variant has failed before")
    )

    def choices(self, known: set[Schedule]) -> Iterator[list[Schedule]]:
        """What to try together, in order, but for schedules that have a record."""
        firsts = (first for variant in self.task.space.variants if (first := variant.first()) is not None)
        together = dict.fromkeys([*islice(firsts, 1), *self.near])
        for schedules in chain([together], ([first] for first in firsts if first not in together)):
            if unknown := [schedule for schedule in schedules if schedule not in known]:
                yield unknown


def prove_kernels(
    tasks: Mapping[str, KernelTask | StreamTask],
    database: Database,
    try_all: TryAll,
    objective: Objective,
) -> dict[str, KernelProof]:
    """Try the default of each exact task that no recorded trial has proven, and what is best on the nearest task that
    has records; record both. Proofs by task key.

    Where they differ from the reference, they give way to the first schedule of the next variant.

    Raises:
        BackendError: no variant of a kernel equals the reference.
        DatabaseError: the records cannot be read or written.
    """
    exact = {task.key: task for task in tasks.values() if task.exact}
    unknown = {key: task for key, task in exact.items() if best(database, task, objective) is None}
    bests = database.bests(objective) if unknown else []
    proofs = {key: KernelProof(task, nearest(task, bests, 1)) for key, task in unknown.items()}
    known = {key: tried(proof.task, database) for key, proof in proofs.items()}
    choices = {key: proof.choices(known[key]) for key, proof in proofs.items()}
    unproven = list(proofs.values())
    while unproven:
        tries = [(proof, _next(proof, choices[proof.task.key])) for proof in unproven]
        results = iter(try_all([(proof.task, schedule) for proof, schedules in tries for schedule in schedules]))
        for proof, schedules in tries:
            task = proof.task
            outcomes = list(zip(schedules, islice(results, len(schedules)), strict=True))
            database.append(Record(task.key, s, outcome, task.features(s)) for s, outcome in outcomes)
            proof.tried += len(outcomes)
            proof.outcome = next((outcome for _, outcome in outcomes if outcome.ok), outcomes[-1][1])
            proof.refuted += [f"{s}: {outcome.status}: {outcome.message}" for s, outcome in outcomes if not outcome.ok]
        unproven = [proof for proof in unproven if not proof.outcome.ok]
    return proofs


def tried(task: KernelTask | StreamTask, database: Database) -> set[Schedule]:
    """The schedules whose present code has a record."""
    records = database.records(task.key)
    return {record.schedule for record in records if record.measurement.code == task.code(record.schedule)}


def prove_firmware(
    build: Path,
    firmware: Firmware,
    prepared: Executable,
    samples: Sequence[Sequence[np.ndarray]],
    states: Sequence[np.ndarray],
    runner: Runner,
    npu: Execute | None,
) -> Verdict:
    """Run `model.elf` of a build folder on `samples`, and the integer module, which is exact, on the reference model.

    Args:
        prepared: the integer module, as the reference model executes it.
        samples: as it takes them.
        states: what the firmware keeps between calls, as it is before the first one.

    Raises:
        SimulatorError: the firmware does not run to its end.
    """
    taken = [firmware.taken(sample) for sample in samples]
    outputs = run_firmware(build / "model.elf", firmware, taken, runner, npu).outputs
    expected = evaluate_in_turn(prepared, samples, states)
    for number, ((_, wanted), got) in enumerate(zip(expected, outputs, strict=True)):
        if difference := first_difference(wanted[: len(got)], list(got)):
            return Verdict(f"sample {number}: {difference}")
    return Verdict()


def _next(proof: KernelProof, choices: Iterator[list[Schedule]]) -> list[Schedule]:
    schedules = next(choices, None)
    if schedules is None:
        why = f"{proof.outcome.status}: {proof.outcome.message}"
        raise BackendError(f"no kernel of `{proof.task.name}` equals the reference model", why=why)
    return schedules
