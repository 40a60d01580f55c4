"""The pipeline, station by station: a PyTorch model in, a build folder out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import tosaic
from tosaic.backends.cortex_m.cmsis_nn import CmsisNn
from tosaic.backends.cortex_m.kernels.nibble_sketch import NIBBLES
from tosaic.backends.firmware.build import SelfTest, build_firmware
from tosaic.backends.firmware.kit import check_name
from tosaic.backends.firmware.memory_plan import MemoryPlan, plan_memory
from tosaic.backends.firmware.program import CallSequence
from tosaic.backends.firmware.records import Firmware
from tosaic.backends.simulators.run import windows
from tosaic.builds.accuracy import Computed
from tosaic.builds.build import BuildFolder, replacing, seal, write_samples
from tosaic.builds.manifest import KernelRecord, Manifest, RegionRecord, TrialCounts, placed_ops
from tosaic.builds.streams import STREAMS
from tosaic.compiler.assembly import assemble
from tosaic.compiler.chosen import ChosenKernel, schedules_text
from tosaic.compiler.context import places_of
from tosaic.compiler.fitting.calls import Calls
from tosaic.compiler.fitting.fitter import Fitted, Fitter, Point
from tosaic.compiler.loops_by_cost import cheaper_loops
from tosaic.compiler.middle import Middle, lower_model
from tosaic.compiler.options import CompileOptions
from tosaic.compiler.placement import Placement
from tosaic.compiler.placement_by_cost import cheaper_placement, with_fewer_commands
from tosaic.compiler.proof import KernelProof, prove_firmware
from tosaic.compiler.requests import waits_by_block
from tosaic.compiler.schedules import FILE as SCHEDULES
from tosaic.compiler.tuning import Tuner, program_of
from tosaic.frontend import (
    Capture,
    save_float,
)
from tosaic.runs.npu_execution import npu_for
from tosaic.runs.verification import verify_build
from tosaic.support.errors import Advice, BackendError, OutOfFlashError
from tosaic.support.functions import called, is_exact
from tosaic.support.locations import describe
from tosaic.support.mlir import bytecode, functions, ir, parse
from tosaic.terminal.progress import Stations, durations, keep_durations
from tosaic.tuner.tune import TuningResult

_PLANS = 3
"""Times that tensors are placed: kernels that are guessed for their memories may take other working memory."""
_WINDOWS = 12
"""Windows that the firmware is proven with, each moved on from the last."""


def compile_model(options: CompileOptions, output: Path) -> BuildFolder:
    """Compile a model into the build folder `output`, which is replaced as a whole or left as it is.

    Raises:
        Error: the model, the options or the target do not allow it; the message says which and what to do.
    """
    check_name(options.name)
    build_name = f"{options.model_name} {options.target.name}"
    stations = Stations(before=durations(build_name))
    target = options.target
    library = CmsisNn.find(options.cmsis_nn)
    with replacing(output) as folder, stations.live(), Tuner(target, options.tuning, library) as tuner:
        middle = lower_model(options, stations)
        placement, proofs, fitter, fitted = _fitted(options, middle, tuner, stations)
        with stations.station("fit"):
            fitted = _in_their_memories(fitted, placement, proofs, middle, tuner)
        placed, tuned = fitted.module, None
        if options.tuning.trials and fitted.tasks:
            with stations.station("tune"):
                tuned = _tuned(tuner, fitted, stations)
                fitted = fitter.retuned(fitted)
        with stations.station("generate"):
            kernels = tuner.packed_alike(tuner.choose(fitted.tasks))
        with stations.station("firmware"):
            firmware = _firmware(options, middle, placement, placed, kernels, tuner, folder)
        with stations.station("write"):
            _write(folder, middle, placement, placed, kernels, firmware)
        symbols = dict(zip(called(placed), (call.name for call in firmware.calls), strict=True))
        manifest = Manifest(
            tosaic=tosaic.__version__,
            model=options.model_name,
            target=target,
            environment=tuner.environment,
            firmware=firmware,
            accuracy=tuple(middle.accuracy),
            layers=tuple(middle.layers),
            calibration=tuple(middle.calibration[: len(firmware.inputs)]),
            ops=placed_ops(placed, placement.regions),
            kernels=tuple(
                _kernel(name, symbols[name], kernel, proofs, options.schedules.file) for name, kernel in kernels.items()
            ),
            regions=tuple(RegionRecord.of(name, region) for name, region in placement.regions.items()),
            trials=_trials(len(tuner.database.written), tuned),
            objective=tuner.objective,
            warnings=(*middle.warnings, *_read_as_bytes(middle.four_bits, kernels)),
            seconds=stations.seconds,
            dropped=middle.dropped,
            weights=middle.coarser,
        )
        if options.prove:
            with stations.station("prove firmware"):
                _prove(BuildFolder(folder, manifest), middle, tuner)
        manifest.write(folder)
        seal(folder)
    keep_durations(build_name, stations.seconds)
    return BuildFolder.load(output)


def _read_as_bytes(layers: int, kernels: Mapping[str, ChosenKernel]) -> Iterator[Advice]:
    """That some of the layers with weights of four bits have kernels, or an NPU, that read bytes."""
    found = sum(str(kernel.schedule).count(f"conv2d.{NIBBLES}") for kernel in kernels.values())
    if found < layers:
        yield Advice(
            f"{layers - found} of {layers} layers with weights of four bits are read as int8",
            "",
            "kernels that read them need a core with vectors or the DSP extension, and inputs in the layer's order",
        )


def _firmware(
    options: CompileOptions,
    middle: Middle,
    placement: Placement,
    placed: ir.Module,
    kernels: Mapping[str, ChosenKernel],
    tuner: Tuner,
    folder: Path,
) -> Firmware:
    """Assemble the program, and build its firmware into a folder."""
    where = {name: describe(f.location) for name, f in functions(placed).items() if name != "main"}
    sources = {name: kernel.source for name, kernel in kernels.items()}
    names = middle.captured.input_names, middle.captured.output_names
    program = assemble(placed, sources, placement.regions, where, *names)
    module = parse(middle.meaning)
    return build_firmware(
        program,
        options.target,
        folder,
        name=options.name,
        include=tuner.headers,
        libraries=tuner.libraries,
        selftest=_selftest(middle, module),
        states=middle.states,
        plan=_planned(program, middle, tuner),
        places=places_of(module),
    )


def _write(
    folder: Path,
    middle: Middle,
    placement: Placement,
    placed: ir.Module,
    kernels: Mapping[str, ChosenKernel],
    firmware: Firmware,
) -> None:
    """Write what a build holds beside its firmware and its manifest."""
    (folder / "module.mlirbc").write_bytes(middle.meaning)
    (folder / "placed.mlirbc").write_bytes(bytecode(placed))
    if text := schedules_text(kernels):
        (folder / SCHEDULES).write_text(text)
    (folder / STREAMS).mkdir()
    for name, region in placement.regions.items():
        (folder / STREAMS / f"{name}.cop1").write_bytes(region.command_stream)
    if isinstance(middle.captured, Capture):
        save_float(middle.captured, folder / "float.pt2")
    computed = [Computed(firmware.taken(each.inputs), each.outputs) for each in middle.computed]
    write_samples(folder, firmware, computed, middle.states)


def _fitted(
    options: CompileOptions, middle: Middle, tuner: Tuner, stations: Stations
) -> tuple[Placement, dict[str, KernelProof], Fitter, Fitted]:
    """The placement, by cost where that is known, and with fewer commands of the NPU as long as the flash is too small;
    the proofs of its CPU kernels, and the program with streams where they gain and all kernels compete.

    Raises:
        OutOfMemoryError: the program does not fit the target.
    """
    placement, proofs = middle.placement, dict[str, KernelProof]()
    if options.target.accelerator and options.target.core.pipeline:
        with stations.station("place by cost"):
            placement = _by_cost(options, middle, tuner, proofs)
    while True:
        try:
            return placement, proofs, *_chosen(options, middle, placement, proofs, tuner, stations)
        except OutOfFlashError:
            fewer = with_fewer_commands(placement, options.target, middle.samples)
            if fewer is None:
                raise
            placement = fewer


def _chosen(
    options: CompileOptions,
    middle: Middle,
    placement: Placement,
    proofs: dict[str, KernelProof],
    tuner: Tuner,
    stations: Stations,
) -> tuple[Fitter, Fitted]:
    """How the calls of a placement run; `proofs` take in those of its kernels.

    Raises:
        OutOfMemoryError: the program does not fit the target.
    """
    placed, regions = placement.module, placement.regions
    tasks = options.schedules.given_to(tuner.tasks(placed, options.kernels, middle.samples.drawn))
    tasks = tuner.confine(tasks, placed, regions)
    with stations.station("prove"):
        proofs |= tuner.prove(tasks)
    with stations.station("fit"):
        fed = options.stream_input or options.sliding
        calls = Calls(tuner, placed, regions, tasks, stream_input=fed, sliding=options.sliding)
        fitter = Fitter(tuner, calls)
        streams = options.kernels == "all" or fed
        return fitter, fitter.chosen() if streams else fitter.as_it_is()


def _in_their_memories(
    fitted: Fitted, placement: Placement, proofs: dict[str, KernelProof], middle: Middle, tuner: Tuner
) -> Fitted:
    """The same with the best guesses for tensors that do not lie in the fastest memory of the arena, proven.

    Raises:
        OutOfMemoryError: the arena does not fit the target.
    """
    if not tuner.sees_memories:
        return fitted
    tasks = fitted.tasks
    for _ in range(_PLANS):
        program = program_of(tasks, fitted.module, placement.regions)
        lying = tuner.lying(tasks, fitted.module, program, _planned(program, middle, tuner))
        moved = {name: task for name, task in lying.items() if task.key != tasks[name].key}
        if not moved:
            break
        proofs |= tuner.prove(moved)
        tasks = lying
    return replace(fitted, tasks=tasks)


def _by_cost(options: CompileOptions, middle: Middle, tuner: Tuner, proofs: dict[str, KernelProof]) -> Placement:
    """The placement of fewest cycles that fits the arena; `proofs` take in those of all kernels that were weighed."""

    def cpu_cycles(placed: ir.Module) -> float:
        tasks = tuner.tasks(placed, options.kernels, middle.samples.drawn)
        proofs.update(tuner.prove(tasks))
        records = [tuner.record(task) for task in tasks.values() if task.exact]
        return sum(record.measurement.cost("cycles") or 0 for record in records if record)

    def fits(placement: Placement) -> bool:
        tasks = tuner.tasks(placement.module, options.kernels, middle.samples.drawn)
        return tuner.fits(tasks, placement.module, placement.regions)

    placement = middle.placement
    for cheaper_form in (cheaper_placement, cheaper_loops):
        cheaper = cheaper_form(placement, options.target, middle.samples, cpu_cycles)
        placement = cheaper if cheaper is placement or fits(cheaper) else placement
    return placement


def _planned(program: CallSequence, middle: Middle, tuner: Tuner) -> MemoryPlan:
    """The plan of the arena; where the fastest memory does not hold all, the one that the core waits least for.

    Raises:
        OutOfMemoryError: the arena does not fit the target.
    """
    plan = plan_memory(program, tuner.target)
    if not any(plan.used[1:]):
        return plan
    waits = waits_by_block(
        program,
        tuner.target,
        middle.samples.calibration[: len(program.inputs)],
        tuner.runner,
        include=tuner.headers,
        libraries=tuner.libraries,
        states=middle.states,
    )
    return plan_memory(program, tuner.target, waits) if waits else plan


def _selftest(middle: Middle, module: ir.Module) -> SelfTest | None:
    """A sample and what the integer module makes of it; None where TOSA does not define that to the bit."""
    if not is_exact(module):
        return None
    return SelfTest(*map(tuple, middle.computed[0]))


def _prove(build: BuildFolder, middle: Middle, tuner: Tuner) -> None:
    """Run the firmware: to the bit where TOSA defines every result so, else call by call within its bounds."""
    given = [sample[: len(build.manifest.firmware.inputs)] for sample in middle.samples]
    if is_exact(parse(middle.meaning)):
        npu, firmware = npu_for(build, "emulator"), build.manifest.firmware
        samples = [*given, *(windows(firmware, given, _WINDOWS) if firmware.hop_rows else [])]
        found = prove_firmware(build.folder, firmware, middle.prepared, samples, middle.states, tuner.runner, npu)
        where, difference = "", found.difference
    else:
        samples = [build.manifest.firmware.taken(sample) for sample in given]
        begins = verify_build(build, samples, tuner.options.runner).begins
        where, difference = (f"{begins.where} {begins.name}", begins.why) if begins else ("", "")
    if difference:
        raise BackendError(
            "the firmware does not compute the integer module",
            where=where,
            why=difference,
            hint="--no-prove builds it all the same, and `tosaic verify` then names the op",
        )


def tune_model(options: CompileOptions) -> TuningResult:
    """Spend the trial budget on the CPU kernels of a model, and keep the records.

    Raises:
        Error: as `compile_model`.
    """
    stations = Stations()
    with stations.live(), Tuner(options.target, options.tuning, CmsisNn.find(options.cmsis_nn)) as tuner:
        middle = lower_model(options, stations)
        placement, proofs, _, fitted = _fitted(options, middle, tuner, stations)
        fitted = _in_their_memories(fitted, placement, proofs, middle, tuner)
        with stations.station("tune"):
            return _tuned(tuner, fitted, stations)


def _tuned(tuner: Tuner, fitted: Fitted, stations: Stations) -> TuningResult:
    """What the trial budget gave. Trials of this compilation are measured ones, whichever station made them."""
    before = set(tuner.database.written)
    spaces = {task.key: task.space for task, _ in fitted.to_tune if task.exact}
    tuned = tuner.tune(fitted.to_tune, stations.tuning)
    stations.say_gain(tuner.objective)
    own = sum(key in spaces and schedule in spaces[key] for key, schedule in before)
    return replace(tuned, measured=len(tuner.database.written), reused=tuned.reused - own)


def fit_model(options: CompileOptions) -> list[Point]:
    """Ways to run a model in ever less memory, the fastest first; their trials are recorded.

    Raises:
        Error: as `compile_model`.
    """
    stations = Stations()
    with stations.live(), Tuner(options.target, options.tuning, CmsisNn.find(options.cmsis_nn)) as tuner:
        _, _, fitter, _ = _fitted(options, lower_model(options, stations), tuner, stations)
        with stations.station("front"):
            return fitter.front()


def _kernel(
    name: str, symbol: str, kernel: ChosenKernel, proofs: Mapping[str, KernelProof], schedules: str
) -> KernelRecord:
    measured = kernel.record.measurement if kernel.record else None
    proof = proofs.get(kernel.task.key)
    return KernelRecord(
        name=name,
        task=kernel.task.name,
        symbol=symbol,
        schedule=str(kernel.schedule),
        trials=kernel.trials,
        trial_instructions=(measured.instructions or None) if measured else None,
        trial_cycles=measured.cycles if measured else None,
        trial_cycles_with_memory=measured.cycles_with_memory if measured else None,
        refuted=tuple(proof.refuted) if proof else (),
        trace=tuple(map(str, kernel.task.trace(kernel.schedule))),
        given=schedules if kernel.given else "",
        curve=kernel.curve,
    )


def _trials(measured: int, tuned: TuningResult | None) -> TrialCounts:
    return TrialCounts(
        measured=measured,
        reused=tuned.reused if tuned else 0,
        failed=dict(tuned.failed) if tuned else {},
        of_other_environments=tuned.ignored if tuned else 0,
        interrupted=tuned.interrupted if tuned else False,
    )
