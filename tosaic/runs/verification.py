"""Compare a build and each of its calls with the reference, and name the op where a difference begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

import numpy as np
from rich.table import Table

from tosaic.backends.npus import compile_region
from tosaic.backends.reference import Executable, UnknownBoundError, beyond_bounds, evaluate, prepare, serialize
from tosaic.backends.simulators.npu_bridge import COMMAND_STREAM
from tosaic.backends.simulators.run import run_firmware
from tosaic.backends.simulators.runners import find_runner
from tosaic.backends.simulators.trace import Signature, Trace, TracedCall, trace_firmware
from tosaic.builds.build import BuildFolder
from tosaic.builds.manifest import Manifest
from tosaic.passes import first_difference
from tosaic.runs.bisection import first_wrong_op
from tosaic.runs.npu_execution import DESCRIPTION, EmulatedNpu, read_ports, write_ports
from tosaic.runs.running import Sample, difference_of_samples, reference_outputs
from tosaic.support.errors import Error
from tosaic.support.functions import body_of, callee_of, computing_ops, is_exact, returned, standalone
from tosaic.support.locations import describe
from tosaic.support.mlir import constant_value, element_type, functions, ir, numpy_dtype, shape_of, walk
from tosaic.support.values import byte_size, producer
from tosaic.terminal.console import stdout
from tosaic.terminal.progress import Stations

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Beginning:
    """Where a difference begins.

    Args:
        call: number of the call in the firmware, from 0; None where no call is at fault.
        op: the first TOSA op at fault; of a CPU kernel, which is one piece of code, all its ops; empty where unknown.
        where: the user's source line and op.
        why: what was found there.
    """

    call: int | None
    name: str
    op: str
    where: str
    why: str


@dataclass(frozen=True)
class CallCheck:
    """A call, on the inputs that it had on the board, against the reference model on the same inputs.

    Args:
        ops: the TOSA ops in it.
        difference: the first element that differs, or what else is wrong; empty where all is equal to the bit, or
            within the bounds of TOSA where that defines its floats no closer.
        judgement: `to the bit`, `within TOSA's bounds`, or why that cannot be told; empty where it is wrong.
    """

    name: str
    processor: str
    where: str
    ops: tuple[str, ...]
    difference: str
    judgement: str


@dataclass(frozen=True)
class Verification:
    """What a verification showed.

    Args:
        samples: how many random samples ran.
        npu: what executed NPU regions: `none` or `emulator`.
        difference: where the board's outputs first differ from the integer module's; empty where they are equal.
        defined: whether TOSA defines every result to the bit.
        calls: each call of the firmware, in order.
        begins: where the difference begins; None where there is none.
    """

    build: BuildFolder
    samples: int
    npu: str
    difference: str
    defined: bool
    calls: Sequence[CallCheck]
    begins: Beginning | None

    @property
    def exact(self) -> bool:
        return not self.difference and self.begins is None

    @property
    def right(self) -> bool:
        """Whether all is as TOSA defines it: integers to the bit, floats of each call within their bounds."""
        return self.begins is None and (not self.difference or not self.defined)


def verify_build(build: BuildFolder, given: Sequence[Sample], runner: str = "qemu") -> Verification:
    """Run samples on the board and compare its outputs, and every call alone, with the reference model.

    Raises:
        Error: the board does not run to its end, or the build is damaged.
    """
    stations = Stations()
    with stations.live():
        target, firmware = build.manifest.target, build.manifest.firmware
        on = find_runner(runner, target)
        samples = [build.quantize_inputs(sample) for sample in given]
        defined = is_exact(build.module)
        calls = _calls(build)
        npu = _RecordingNpu(build, calls) if build.manifest.regions else None
        with stations.station("reference"):
            expected = reference_outputs(build, samples)
        with stations.station("board"):
            outputs = run_firmware(build.elf, firmware, samples, on, npu).outputs
        with stations.station("board, call by call"):
            traced_npu = replace(npu, executed=[]) if npu else None
            signatures = [call.signature for call in calls if call.processor == "cpu"]
            trace = trace_firmware(build.folder, firmware, target.core, signatures, samples, on, traced_npu)
        runs = _with_faults(build, calls, samples, _executed(calls, trace, traced_npu))
        checks = []
        begins = None
        for call in calls:
            with stations.station(f"compare {call.number + 1}/{len(calls)} {call.name}"):
                found, judgement = _judge(build, call, [run[call.number] for run in runs])
            begins = begins or found
            checks.append(
                CallCheck(call.name, call.processor, call.where, call.ops, found.why if found else "", judgement)
            )
        difference = difference_of_samples(expected, outputs)
        if difference and begins is None:
            begins = _outside_calls(expected if defined else outputs, trace.outputs, defined)
    return Verification(build, len(samples), "emulator" if npu else "none", difference, defined, checks, begins)


@dataclass(frozen=True, eq=False)
class _Call:
    """A call of `main`: its function, and the values it reads and writes."""

    number: int
    name: str
    processor: str
    where: str
    function: ir.Operation
    operands: tuple[ir.Value, ...]
    results: tuple[ir.Value, ...]

    @property
    def ops(self) -> tuple[str, ...]:
        return tuple(map(_name, computing_ops(self.function)))

    @property
    def signature(self) -> Signature:
        return Signature(
            tuple(map(byte_size, body_of(self.function).arguments)), tuple(map(byte_size, returned(self.function)))
        )

    @cached_property
    def meaning(self) -> Executable:
        """The function as the reference model executes it."""
        return prepare(standalone(self.function))


@dataclass(frozen=True)
class _Executed:
    """What a call read and wrote on the board.

    Args:
        fault: what is known to be wrong before any comparison.
        stream, constants: of an NPU call, as the firmware handed them over.
    """

    inputs: Arrays
    outputs: Arrays
    fault: str = ""
    stream: bytes = b""
    constants: bytes = b""


@dataclass
class _RecordingNpu:
    """Executes NPU calls by the emulator and keeps what they read and wrote.

    Where the emulator refuses, the reference's outputs take the place of its own, so that later calls can be judged.
    """

    build: BuildFolder
    calls: Sequence[_Call]
    executed: list[_Executed] = field(default_factory=list)

    def __call__(self, number: int, regions: dict[int, bytearray]) -> None:
        call = self.calls[number]
        record = self.build.manifest.region(call.name)
        inputs = read_ports(record.inputs, regions)
        stream, constants = bytes(regions[COMMAND_STREAM]), bytes(regions.get(0, b""))
        fault = ""
        try:
            EmulatedNpu(self.build)(number, regions)
        except Error as error:
            fault = str(error)
            write_ports(record.outputs, evaluate(call.meaning, inputs), regions)
        self.executed.append(_Executed(inputs, read_ports(record.outputs, regions), fault, stream, constants))


def _calls(build: BuildFolder) -> list[_Call]:
    known = functions(build.placed)
    called = [op for op in walk(known["main"]) if op.name == "func.call"]
    return [
        _Call(
            number=number,
            name=record.name,
            processor=record.processor,
            where=record.where,
            function=known[callee_of(op)],
            operands=tuple(map(_viewed, op.operands)),
            results=tuple(op.results),
        )
        for number, (op, record) in enumerate(zip(called, build.manifest.firmware.calls, strict=True))
    ]


def _viewed(value: ir.Value) -> ir.Value:
    """The value behind reshapes, which move nothing in `main`."""
    while (view := producer(value, "tosa.reshape")) is not None:
        value = view.operands[0]
    return value


def _array(data: bytes, value: ir.Value) -> np.ndarray:
    return np.frombuffer(data, numpy_dtype(element_type(value))).reshape(shape_of(value))


def _executed(calls: Sequence[_Call], trace: Trace, npu: _RecordingNpu | None) -> list[list[_Executed]]:
    """For each sample, the calls as the board executed them."""
    on_npu = iter(npu.executed if npu else ())
    runs = []
    for kernels in trace.calls:
        on_cpu = iter(kernels)
        runs.append([next(on_npu) if call.processor == "npu" else _of_kernel(call, next(on_cpu)) for call in calls])
    return runs


def _of_kernel(call: _Call, traced: TracedCall) -> _Executed:
    return _Executed(
        inputs=list(map(_array, traced.inputs, body_of(call.function).arguments)),
        outputs=list(map(_array, traced.outputs, returned(call.function))),
    )


def _with_faults(
    build: BuildFolder, calls: Sequence[_Call], samples: Sequence[Arrays], runs: Sequence[Sequence[_Executed]]
) -> list[list[_Executed]]:
    """The runs, with a fault on each call whose inputs are not what their producers wrote."""
    main, states, checked = functions(build.placed)["main"], list[np.ndarray | None](build.states), []
    kept = [_viewed(value) for value in returned(main)[len(returned(main)) - len(states) :]]
    for sample, run in zip(samples, runs, strict=True):
        written = dict[ir.Value, np.ndarray | None](zip(body_of(main).arguments, [*sample, *states], strict=True))
        row = []
        for call, done in zip(calls, run, strict=True):
            fault = done.fault or _written_over(call, done.inputs, written)
            row.append(replace(done, fault=fault))
            written |= zip(call.results, done.outputs, strict=True)
        states = [_known(value, written) for value in kept]
        checked.append(row)
    return checked


def _known(value: ir.Value, written: Mapping[ir.Value, np.ndarray | None]) -> np.ndarray | None:
    return written[value] if value in written else constant_value(value)


def _written_over(call: _Call, inputs: Arrays, written: Mapping[ir.Value, np.ndarray | None]) -> str:
    for index, (operand, array) in enumerate(zip(call.operands, inputs, strict=True)):
        original = _known(operand, written)
        if original is None or np.ascontiguousarray(original).tobytes() != array.tobytes():
            return f"its input {index} is not what was written there: other data lie over it"
    return ""


def _judge(build: BuildFolder, call: _Call, runs: Sequence[_Executed]) -> tuple[Beginning | None, str]:
    """What is wrong with a call in the first sample in which something is, looked into; or how it was judged right."""
    judgement = "to the bit"
    for number, done in enumerate(runs):
        difference = done.fault or first_difference(evaluate(call.meaning, done.inputs), list(done.outputs))
        if not difference:
            continue
        if not done.fault and not is_exact(call.function):
            try:
                difference = beyond_bounds(call.function, done.inputs, done.outputs)
                judgement = "within TOSA's bounds"
            except UnknownBoundError as error:
                difference, judgement = "", f"unknown: there is no bound here for {error}"
            if not difference:
                continue
        why = f"sample {number}: {difference}"
        if call.processor == "npu":
            return _inside_region(call, done, why, build.manifest), ""
        return Beginning(call.number, call.name, "+".join(call.ops), call.where, why), ""
    return None, judgement


def _inside_region(call: _Call, done: _Executed, why: str, manifest: Manifest) -> Beginning:
    accelerator, options = manifest.target.accelerator or "", manifest.region(call.name).options
    fresh = compile_region(serialize(standalone(call.function)), accelerator, options)
    changed = [
        part
        for part, ours, theirs in (("command stream", done.stream, fresh.commands),
                                   ("weights", done.constants, fresh.constants))
        if ours != theirs
    ]  # fmt: skip
    if changed:
        why += f"; the firmware's {' and '.join(changed)} are not what Vela makes of this region: compile again"
        return Beginning(call.number, call.name, "", call.where, why)
    if found := first_wrong_op(call.function, done.inputs, accelerator, options):
        op, difference = found
        why += f"; the region cut behind this op: {difference}"
        return Beginning(call.number, call.name, _name(op), describe(op.location), why)
    why += "; no part of the region differs when it is compiled alone"
    return Beginning(call.number, call.name, "", call.where, why)


def _outside_calls(expected: Sequence[Arrays], traced: Sequence[Arrays], defined: bool) -> Beginning | None:
    """Every call is right and the outputs are not: either `model.elf` or the placed module is at fault.

    Where TOSA does not define the outputs to the bit, `model.elf` alone can be judged.
    """
    if not defined and not difference_of_samples(expected, traced):
        return None
    if defined and difference_of_samples(expected, traced):
        why = "every call equals its function, but the functions together do not equal the integer module: a pass " \
              "changed its meaning; `tosaic compile --verify-each` names it"  # fmt: skip
        return Beginning(None, "passes", "", "", why)
    why = "the archive, linked anew, gives the right outputs, and `model.elf` does not: compile again"
    return Beginning(None, "model.elf", "", "", why)


def _name(op: ir.Operation) -> str:
    return op.name.removeprefix("tosa.").upper()


def verification_result(verification: Verification) -> dict:
    """What `verify --json` prints."""
    return {
        "build": str(verification.build.folder),
        "samples": verification.samples,
        "exact": verification.exact,
        "right": verification.right,
        "npu": verification.npu,
        "difference": verification.difference,
        "begins": asdict(verification.begins) if verification.begins else None,
        "calls": [{**asdict(call), "exact": call.judgement == "to the bit"} for call in verification.calls],
    }


def print_verification(verification: Verification) -> None:
    """Each call's verdict, the outputs', and where a difference begins."""
    table = Table("call", "on", "from", "equals the reference", box=None)
    for call in verification.calls:
        verdict = f"NO: {call.difference}" if call.difference else call.judgement
        table.add_row(call.name, call.processor, call.where, verdict)
    stdout.print(table)
    verdict = "NO" if not verification.right else "not to the bit, which TOSA does not define for its floats"
    outputs = f"{verdict}: {verification.difference}" if verification.difference else "equal to the bit"
    stdout.print(f"outputs of {verification.samples} samples: {outputs}", highlight=False)
    stdout.print(f"NPU: {DESCRIPTION[verification.npu]}", highlight=False)
    if begins := verification.begins:
        place = " ".join(part for part in (begins.name, begins.op, begins.where) if part)
        stdout.print(f"the difference begins in {place}", highlight=False)
        stdout.print(f"  because: {begins.why}", highlight=False, soft_wrap=True)
