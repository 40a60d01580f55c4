"""What a build says about itself: `manifest.json`, from which it runs and every report is printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from tosaic.backends.firmware.records import Firmware
from tosaic.backends.npu import NpuOp, NpuOptions, NpuPort, NpuRegion, NpuTensor
from tosaic.backends.npus import family_of
from tosaic.backends.target import Target
from tosaic.builds.accuracy import LayerAccuracy, OutputAccuracy
from tosaic.support.attributes import text_of
from tosaic.support.errors import Advice, Error
from tosaic.support.functions import Dropped, computing_ops
from tosaic.support.locations import describe, module_of
from tosaic.support.loops import LOOP, iterations_of
from tosaic.support.mlir import constant_value, functions, ir, shape_of, walk
from tosaic.support.names import Name
from tosaic.support.quantization import CoarserWeights
from tosaic.support.values import multiplications
from tosaic.tuner.database import Environment
from tosaic.tuner.measurement import Objective

FILE = "manifest.json"
FORMAT = 10


@dataclass(frozen=True)
class PlacedOp:
    """An op of the placed module.

    Args:
        shape: of its result.
        function: the kernel or NPU region that holds it.
        where, module: the user's line behind it, and the path of its module.
        reason: why it is not on the NPU.
        macs: its multiply-accumulates.
        zeros: the share of its constant weights that are 0; None without any.
        weight_bits: those of a constant weight as the NPU's compiler encodes it; None on the CPU.
        sparsity: `2:4` where the NPU leaves out half of their products, else why not; empty where it never does.
        npu_cycles, npu_bound, npu_traffic: Vela's of it, as `NpuOp` has them; what Vela computes within another op has
            none of its own.
    """

    op: str
    shape: tuple[int, ...]
    processor: str
    function: str
    where: str
    module: str
    reason: str
    macs: int
    zeros: float | None = None
    weight_bits: float | None = None
    sparsity: str = ""
    npu_cycles: int | None = None
    npu_bound: str = ""
    npu_traffic: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelRecord:
    """How the kernel of a CPU function was chosen.

    Args:
        name: of the function.
        task: its ops and the shape of its result.
        symbol: of the kernel in C, as the firmware calls it.
        trials: how many schedules of its task have a record; one is the proof of the default alone.
        trial_instructions, trial_cycles, trial_cycles_with_memory: of the trial that won; None where no trial can tell
            right from wrong.
        refuted: schedules that were tried before it and did not equal the reference, each with what was found.
        trace: the schedule's primitives, where the kernel is a nest or a program.
        given: the file that gave the schedule by hand; empty where trials, or a guess, did.
        curve: the number of each trial that was better than all before it, and what it cost; see `Manifest.objective`.
    """

    name: str
    task: str
    symbol: str
    schedule: str
    trials: int
    trial_instructions: int | None
    trial_cycles: int | None
    trial_cycles_with_memory: int | None
    refuted: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()
    given: str = ""
    curve: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class RegionRecord:
    """A compiled NPU region without its bytes; see `NpuRegion`."""

    name: Name
    options: NpuOptions
    cycles: int
    constants_bytes: int
    command_stream_bytes: int
    scratch_bytes: int
    fast_bytes: int
    memory: Mapping[str, int]
    inputs: tuple[NpuPort, ...]
    outputs: tuple[NpuPort, ...]
    ops: tuple[NpuOp, ...]
    tensors: tuple[NpuTensor, ...]

    @staticmethod
    def of(name: str, region: NpuRegion) -> RegionRecord:
        return RegionRecord(
            name=name,
            options=region.options,
            cycles=region.cycles,
            constants_bytes=len(region.constants),
            command_stream_bytes=len(region.command_stream),
            scratch_bytes=region.scratch_bytes,
            fast_bytes=region.fast_bytes,
            memory=dict(region.memory),
            inputs=region.inputs,
            outputs=region.outputs,
            ops=region.ops,
            tensors=region.tensors,
        )


@dataclass(frozen=True)
class InputStatistics:
    """An input over the calibration data."""

    mean: float
    deviation: float
    min: float
    max: float


@dataclass(frozen=True)
class TrialCounts:
    """Trials of this compilation.

    Args:
        measured: those that prove, weigh or stream kernels included.
        reused: records found instead.
        failed: by status.
        of_other_environments: records of these tasks that do not count here.
        interrupted: whether Ctrl-C ended the tuning.
    """

    measured: int
    reused: int
    failed: Mapping[str, int]
    of_other_environments: int
    interrupted: bool


@dataclass(frozen=True)
class Manifest:
    """Everything about a build.

    Args:
        tosaic: the version that made it.
        model: as the user named it.
        target: what it was built for; it runs on that, wherever the name may lead by then.
        environment: what its trials depend on.
        accuracy: of each output that is no plain integer, on calibration data.
        layers: the accuracy of each tensor that is rounded to integers.
        calibration: of each input.
        ops: of the placed module, in order.
        dropped: dead channels that it has not, though the model has them.
        weights: what coarser steps of weights gave, where they were asked for.
        regions: of the NPU.
        objective: what tuning minimizes: `cycles` (with memory), `core-cycles` or `instructions`.
        seconds: that each station took.
    """

    tosaic: str
    model: str
    target: Target
    environment: Environment
    firmware: Firmware
    accuracy: tuple[OutputAccuracy, ...]
    layers: tuple[LayerAccuracy, ...]
    calibration: tuple[InputStatistics, ...]
    ops: tuple[PlacedOp, ...]
    kernels: tuple[KernelRecord, ...]
    regions: tuple[RegionRecord, ...]
    trials: TrialCounts
    objective: Objective
    warnings: tuple[Advice, ...]
    dropped: Dropped
    weights: CoarserWeights | None
    seconds: Mapping[str, float]
    format: int = FORMAT

    @property
    def ops_per_processor(self) -> dict[str, int]:
        return dict(Counter(op.processor for op in self.ops))

    @property
    def npu_cycles(self) -> int:
        """Vela's estimate for one inference."""
        return sum(region.cycles for region in self.regions)

    def npu_cycles_of(self, method: str) -> int:
        """The same for a method, of a model that has any."""
        names = {call.name for call in self.firmware.calls[self.firmware.calls_of(method)]}
        return sum(region.cycles for region in self.regions if region.name in names)

    @property
    def cpu_cost(self) -> int | None:
        """What one inference takes the core by the trials of its kernels, in `objective`; None where one has none."""
        costs = [kernel.curve[-1][1] if kernel.curve else None for kernel in self.kernels]
        return sum(cost for cost in costs if cost is not None) if None not in costs else None

    @property
    def milliseconds(self) -> float | None:
        """What one inference takes by the trials of its kernels and Vela's estimate, memory included; None where cycles
        or clocks are not known."""
        cycles = self.cpu_cost if self.objective == "cycles" or not self.kernels else None
        return self.target.milliseconds(cycles, self.npu_cycles)

    @property
    def first_cpu_cost(self) -> int:
        """The same with the first schedule of each kernel that a trial found right."""
        return sum(kernel.curve[0][1] for kernel in self.kernels if kernel.curve)

    def region(self, name: str) -> RegionRecord:
        """The NPU region of that name."""
        return next(region for region in self.regions if region.name == name)

    def write(self, folder: Path) -> None:
        """Write `manifest.json` into a build folder."""
        (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    @staticmethod
    def read(folder: Path) -> Manifest:
        """The manifest of a build folder.

        Raises:
            Error: there is none, it is damaged, or another version of tosaic wrote it.
        """
        file = folder / FILE
        try:
            data = file.read_bytes()
            if msgspec.json.decode(data, type=_Versioned).format != FORMAT:
                raise Error(f"`{folder}` was written by another version of tosaic", hint="compile again")
            return msgspec.json.decode(data, type=Manifest)
        except FileNotFoundError:
            raise Error(f"`{folder}` holds no build", hint=f"tosaic compile MODEL -o {folder}") from None
        except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
            raise Error(f"cannot read `{file}`", why=str(error), hint="compile again") from None


class _Versioned(msgspec.Struct):
    format: int = 0


def placed_ops(placed: ir.Module, regions: Mapping[str, NpuRegion]) -> tuple[PlacedOp, ...]:
    """Each op of a placed module but constants, function by function.

    Args:
        regions: the compiled command stream of each NPU function.
    """
    rows = []
    for name, function in functions(placed).items():
        if name == "main":
            continue
        processor = text_of(function, "tosaic.processor")
        accelerator = regions[name].accelerator if processor == "npu" else ""
        scheduled: dict[int, list[NpuOp]] = {}
        for npu_op in regions[name].ops if processor == "npu" else ():
            scheduled.setdefault(npu_op.index, []).append(npu_op)
        rows += [
            _placed_op(op, processor, name, scheduled.get(number, ()), accelerator)
            for number, op in enumerate(computing_ops(function))
        ]
    return tuple(rows)


def _weights(op: ir.Operation) -> np.ndarray | None:
    """The constant weights of a convolution."""
    return constant_value(op.operands[1]) if multiplications(op) and len(op.operands) > 1 else None


def _placed_op(
    op: ir.Operation, processor: str, function: str, scheduled: Sequence[NpuOp], accelerator: str
) -> PlacedOp:
    """
    Args:
        scheduled: the parts in which Vela runs it.
        accelerator: the NPU that runs it; empty on the CPU.
    """
    weights, sparsity, bits = _weights(op), "", None
    if weights is not None and accelerator:
        family = family_of(accelerator)
        sparsity = family.sparsity(op, weights, accelerator)
        bits = 8 * family.encoded_bytes(weights) / weights.size if weights.dtype == np.int8 else None
    traffic = Counter[str]()
    for part in scheduled:
        traffic.update(part.traffic)
    return PlacedOp(
        op=op.name.removeprefix("tosa.").upper(),
        shape=shape_of(op.results[op.name == LOOP]),
        processor=processor,
        function=function,
        where=describe(op.location),
        module=module_of(op.location),
        reason=text_of(op, "tosaic.reason") if "tosaic.reason" in op.attributes else "",
        macs=sum(map(multiplications, (op, *walk(op)))) * (iterations_of(op) if op.name == LOOP else 1),
        zeros=float((weights == 0).mean()) if weights is not None else None,
        weight_bits=bits,
        sparsity=sparsity,
        npu_cycles=sum(part.cycles for part in scheduled) if scheduled else None,
        npu_bound=max(scheduled, key=lambda part: part.cycles).bound if scheduled else "",
        npu_traffic=dict(traffic),
    )
