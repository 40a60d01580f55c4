"""The pipeline, station by station: a PyTorch model in, a build folder out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import tosaic
from tosaic.accuracy import (
    Computed,
    OutputAccuracy,
    check_accuracy,
    compute,
    interface_quantizations,
    measure_accuracy,
)
from tosaic.assembly import assemble
from tosaic.backends.cortex_m.cmsis_nn import CmsisNn
from tosaic.backends.firmware.build import SelfTest, build_firmware
from tosaic.backends.firmware.kit import check_name
from tosaic.backends.firmware.memory_plan import MemoryPlan, plan_memory
from tosaic.backends.firmware.program import Program
from tosaic.backends.reference import Executable, evaluate, evaluate_in_turn, prepare
from tosaic.backends.simulators.run import windows
from tosaic.build import Build, replacing, seal, write_samples
from tosaic.disassembly import STREAMS
from tosaic.domain import Range, input_ranges, sample_within
from tosaic.frontend import (
    Capture,
    TosaFile,
    calibration_advice,
    capture,
    import_program,
    input_statistics,
    is_tosa_file,
    joined_advice,
    quantize,
    range_advice,
    read_samples,
    read_tosa,
    run_float_on,
    save_float,
)
from tosaic.layers import LayerAccuracy, check_layers, measure_layers, noisy_outputs
from tosaic.manifest import InputStatistics, KernelRecord, Manifest, RegionRecord, TrialCounts, placed_ops
from tosaic.npu_execution import npu_for
from tosaic.options import CompileOptions, QuantizationOptions
from tosaic.passes import (
    PHASES,
    Callback,
    FloatsLeft,
    Phase,
    VerifyEach,
    dump_ir,
    npu_phases,
    phases_of,
    place_phase,
    random_inputs,
    run_phase,
)
from tosaic.placement import Placement, place_on
from tosaic.placement_by_cost import cheaper_placement
from tosaic.progress import Stations, durations, keep_durations
from tosaic.proof import KernelProof, prove_firmware
from tosaic.requests import waits_by_block
from tosaic.schedules import FILE as SCHEDULES
from tosaic.schedules import schedules_text
from tosaic.streaming import Fitted, Fitter, Point
from tosaic.support.errors import Advice, BackendError, Error
from tosaic.support.functions import Dropped, body_of, dropped_from, is_exact, note_bytes, note_states
from tosaic.support.locations import describe
from tosaic.support.mlir import bytecode, copy_of, functions, ir, parse
from tosaic.support.quantization import Quantization
from tosaic.trial_inputs import Samples, model_samples
from tosaic.tuner.tune import TuningResult
from tosaic.tuning import ChosenKernel, Tuner, program_of
from tosaic.verdicts import costs_of
from tosaic.verification import verify_build

_ACCURACY_SAMPLES = 4
_WINDOWS = 12
"""Windows that the firmware is proven with, each moved on from the last."""


@dataclass(frozen=True)
class Middle:
    """A model half-way: between the last pass and code generation.

    Args:
        captured: what came in: a PyTorch model, or TOSA.
        calibration: each input over the data that ranges were taken from.
        meaning: the integer module after quantization, as bytecode. Everything later equals it to the bit.
        prepared: the same for the reference model.
        computed: calibration samples as the firmware takes them, and what the integer module makes of them, one call
            behind the other.
        states: what the firmware keeps between calls, as it is before the first one.
        accuracy, layers: how far it is from the float model, and where that begins.
        warnings: what the user should know of it.
        dropped: dead channels that the passes have left out.
        placement: the fused module, divided between the processors.
        samples: arguments that `main` allows, to try kernels, regions and the firmware on.
    """

    captured: Capture | TosaFile
    calibration: Sequence[InputStatistics]
    meaning: bytes
    prepared: Executable
    computed: Sequence[Computed]
    states: Sequence[np.ndarray]
    accuracy: Sequence[OutputAccuracy]
    layers: Sequence[LayerAccuracy]
    warnings: Sequence[Advice]
    dropped: Dropped
    placement: Placement
    samples: Samples


def compile_model(options: CompileOptions, output: Path) -> Build:
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
        fitted = _in_their_memories(fitted, placement, proofs, middle, tuner)
        placed, tuned = fitted.module, None
        if options.tuning.trials and fitted.tasks:
            with stations.station("tune"):
                tuned = _tuned(tuner, fitted, stations)
                fitted = fitter.retuned(fitted)
        with stations.station("generate"):
            kernels = tuner.packed_alike(tuner.choose(fitted.tasks))
        with stations.station("firmware"):
            where = {name: describe(f.location) for name, f in functions(placed).items() if name != "main"}
            sources = {name: kernel.source for name, kernel in kernels.items()}
            names = middle.captured.input_names, middle.captured.output_names
            program = assemble(placed, sources, placement.regions, where, *names)
            firmware = build_firmware(
                program,
                target,
                folder,
                name=options.name,
                include=tuner.headers,
                libraries=tuner.libraries,
                selftest=_selftest(middle),
                states=middle.states,
                plan=_planned(program, middle, tuner),
            )
        with stations.station("write"):
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
            kernels=tuple(_kernel(name, kernel, proofs, options.schedules.file) for name, kernel in kernels.items()),
            regions=tuple(RegionRecord.of(name, region) for name, region in placement.regions.items()),
            trials=_trials(len(tuner.database.written), tuned),
            objective=tuner.objective,
            warnings=tuple(middle.warnings),
            seconds=stations.seconds,
            dropped=middle.dropped,
        )
        if options.prove:
            with stations.station("prove firmware"):
                _prove(Build(folder, manifest), middle, tuner)
        manifest.write(folder)
        seal(folder)
    keep_durations(build_name, stations.seconds)
    return Build.load(output)


def _fitted(
    options: CompileOptions, middle: Middle, tuner: Tuner, stations: Stations
) -> tuple[Placement, dict[str, KernelProof], Fitter, Fitted]:
    """The placement, by cost where that is known; the proofs of its CPU kernels, and the program with streams where
    they gain and all kernels compete."""
    placement, proofs = middle.placement, dict[str, KernelProof]()
    if options.target.accelerator and options.target.core.pipeline:
        with stations.station("place by cost"):
            placement = _by_cost(options, middle, tuner, proofs)
    placed, regions = placement.module, placement.regions
    tasks = options.schedules.given_to(tuner.tasks(placed, options.kernels, middle.samples.drawn))
    tasks = tuner.confine(tasks, placed, regions)
    with stations.station("prove"):
        proofs |= tuner.prove(tasks)
    with stations.station("fit"):
        fed = options.stream_input or options.sliding
        fitter = Fitter(tuner, placed, regions, tasks, stream_input=fed, sliding=options.sliding)
        streams = options.kernels == "all" or fed
        return placement, proofs, fitter, fitter.chosen() if streams else fitter.as_it_is()


def _in_their_memories(
    fitted: Fitted, placement: Placement, proofs: dict[str, KernelProof], middle: Middle, tuner: Tuner
) -> Fitted:
    """The same with the best guesses for tensors that do not lie in the fastest memory of the arena, proven.

    Raises:
        OutOfMemoryError: the arena does not fit the target.
    """
    if not tuner.sees_memories:
        return fitted
    program = program_of(fitted.tasks, fitted.module, placement.regions)
    tasks = tuner.lying(fitted.tasks, fitted.module, program, _planned(program, middle, tuner))
    proofs |= tuner.prove({name: task for name, task in tasks.items() if task is not fitted.tasks[name]})
    return replace(fitted, tasks=tasks)


def _by_cost(options: CompileOptions, middle: Middle, tuner: Tuner, proofs: dict[str, KernelProof]) -> Placement:
    """The placement of fewest cycles that fits the arena; `proofs` take in those of all kernels that were weighed."""

    def cpu_cycles(placed: ir.Module) -> float:
        tasks = tuner.tasks(placed, options.kernels, middle.samples.drawn)
        proofs.update(tuner.prove(tasks))
        records = [tuner.record(task) for task in tasks.values() if task.exact]
        return sum(record.measurement.cost("cycles") or 0 for record in records if record)

    cheaper = cheaper_placement(middle.placement, options.target, middle.samples, cpu_cycles)
    if cheaper is middle.placement:
        return cheaper
    tasks = tuner.tasks(cheaper.module, options.kernels, middle.samples.drawn)
    return cheaper if tuner.fits(tasks, cheaper.module, cheaper.regions) else middle.placement


def _planned(program: Program, middle: Middle, tuner: Tuner) -> MemoryPlan:
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


def _selftest(middle: Middle) -> SelfTest | None:
    """A sample and what the integer module makes of it; None where TOSA does not define that to the bit."""
    if not is_exact(parse(middle.meaning)):
        return None
    return SelfTest(*map(tuple, middle.computed[0]))


def _prove(build: Build, middle: Middle, tuner: Tuner) -> None:
    """Run the firmware: to the bit where TOSA defines every result so, else call by call within its bounds."""
    given = [sample[: len(build.manifest.firmware.inputs)] for sample in middle.samples]
    if is_exact(build.module):
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


def lower_model(options: CompileOptions, stations: Stations) -> Middle:
    """Capture, quantize, import, run the passes, place.

    Raises:
        Error: the model cannot be lowered for the target.
    """
    return _lower_tosa(options, stations) if is_tosa_file(options.model) else _lower_pytorch(options, stations)


def capture_model(options: CompileOptions) -> Capture:
    """The model of PyTorch or ONNX as it came in, with its calibration data.

    Raises:
        Error: it cannot be captured.
    """
    return capture(
        options.model,
        options.calibration,
        options.inputs,
        nhwc=options.input_layout == "nhwc",
        nhwc_results=options.output_layout == "nhwc",
        shapes=options.shapes,
    )


def _lower_pytorch(options: CompileOptions, stations: Stations) -> Middle:
    wanted = options.quantization
    with stations.station("capture"):
        captured = capture_model(options)
    _refuse_streaming(options, [state.name for state in captured.states])
    with stations.station("quantize"):
        npu = options.target.accelerator is not None
        program = quantize(captured, wanted.activations, wanted.exclude, wanted.int16, npu)
    with stations.station("import"):
        module = import_program(program, wanted.exclude)
        note_states(module, len(captured.states))
        note_bytes(module, captured.bytes)
    dumping = [dump_ir(options.save_ir)] if options.save_ir else []
    left = FloatsLeft()
    meaning, alternatives = _run_passes(options, stations, module, [*dumping, left])
    with stations.station("check"):
        prepared = prepare(parse(meaning))
        batches = captured.calibration[:_ACCURACY_SAMPLES]
        integer = parse(meaning)
        computed = [compute(integer, prepared, [tensor.numpy() for tensor in batch]) for batch in batches]
        in_pytorch = (run_float_on(each, batches) for each in (captured, program))
        accuracy = measure_accuracy(integer, computed, *in_pytorch)
        layers = measure_layers(program, wanted.exclude, captured.calibration[0])
        if options.prove:
            check_layers(layers)
            check_accuracy(accuracy, options.min_sqnr)
    placement, samples = _place(options, stations, alternatives, [x.numpy() for x in captured.calibration[0]], dumping)
    warnings = (
        *captured.advice,
        *calibration_advice(captured),
        *range_advice(program),
        *left.advice,
        *joined_advice(program),
        *noisy_outputs(accuracy, layers, options.model_name),
    )
    calibration = [InputStatistics(**seen) for seen in input_statistics(captured)]
    return Middle(
        captured, calibration, meaning, prepared, *_in_turn(prepared, computed, len(captured.states)), accuracy, layers,
        warnings, alternatives.dropped, placement, samples,
    )  # fmt: skip


def _lower_tosa(options: CompileOptions, stations: Stations) -> Middle:
    """A module that is its own meaning: there is no float model to hold it against."""
    if given := [name for name, value in _of_float_models(options).items() if value]:
        raise Error(f"{given[0]} needs a float model", why=f"{options.model_name} is TOSA, which is compiled as it is")
    with stations.station("import"):
        file = read_tosa(Path(options.model_name), options.shapes, options.rounding)
    states = len(file.states)
    _refuse_streaming(options, file.input_names[len(file.input_names) - states :])
    dumping = [dump_ir(options.save_ir)] if options.save_ir else []
    meaning, alternatives = _run_passes(options, stations, file.module, dumping)
    main = functions(alternatives.usual[0])["main"]
    kinds = interface_quantizations(main, "arg_attrs", list(body_of(main).arguments))
    if options.calibration is None:
        ranges = input_ranges(alternatives.usual[0], file.states, options.tuning.seed)
        inputs = _real(sample_within(alternatives.usual[0], ranges, options.tuning.seed), kinds[: len(ranges)])
    else:
        inputs = random_inputs(alternatives.usual[0], options.tuning.seed)
        inputs = inputs[: len(inputs) - states]
        examples = tuple(map(torch.from_numpy, inputs))
        (first, *_) = read_samples(options.calibration, file.input_names[: len(inputs)], examples, "calibration")
        inputs = _real([tensor.numpy() for tensor in first], kinds[: len(first)])
        ranges = [Range(int(array.min()), int(array.max())) if array.dtype.kind in "iu" else None for array in inputs]
    calibration = [_statistics(array, one) for array, one in zip(inputs, ranges, strict=True)]
    inputs += file.states
    placement, samples = _place(options, stations, alternatives, inputs, dumping)
    prepared = prepare(parse(meaning))
    computed = _in_turn(prepared, [compute(parse(meaning), prepared, inputs)], states)
    return Middle(
        file, calibration, meaning, prepared, *computed, (), (), file.warnings, alternatives.dropped, placement, samples
    )


def _refuse_streaming(options: CompileOptions, states: Sequence[str]) -> None:
    if states and (options.stream_input or options.sliding):
        raise Error(
            f"the model keeps `{states[0]}` from call to call, and its input is to come row by row",
            hint="leave out --stream-input and --sliding, or the state",
        )


def _in_turn(
    prepared: Executable, computed: Sequence[Computed], states: int
) -> tuple[Sequence[Computed], Sequence[np.ndarray]]:
    """The samples as calls one behind the other, without states, and the states before the first one."""
    if not states:
        return computed, ()
    first, samples = computed[0].inputs[-states:], [each.inputs[:-states] for each in computed]
    calls = evaluate_in_turn(prepared, samples, first)
    return [Computed(taken[:-states], given[:-states]) for taken, given in calls], first


def _of_float_models(options: CompileOptions) -> dict[str, object]:
    """What has no meaning for a module of TOSA, by the option's name."""
    wanted = options.quantization
    return {
        "--activations": wanted.activations != QuantizationOptions().activations,
        "--exclude": wanted.exclude,
        "--int16": wanted.int16,
        "--min-sqnr": options.min_sqnr,
        "--input-layout": options.input_layout != "model",
        "--output-layout": options.output_layout != "model",
    }


def _real(stored: Sequence[np.ndarray], kinds: Sequence[Quantization | None]) -> list[np.ndarray]:
    """What the stored integers of quantized tensors stand for; all else as it is."""
    return [
        array if kind is None or array.dtype.kind not in "iu" else kind.dequantize(array).astype(np.float32)
        for array, kind in zip(stored, kinds, strict=True)
    ]


def _statistics(array: np.ndarray, allowed: Range | None) -> InputStatistics:
    """Of a sample; plain integers may have any value that is allowed."""
    low, high = allowed[:2] if allowed and array.dtype.kind in "iu" else (array.min(), array.max())
    return InputStatistics(float(array.mean()), float(array.std()), float(low), float(high))


class _Alternatives(NamedTuple):
    """Forms of a module of which placement takes one; `smaller` makes those that need less memory."""

    usual: list[ir.Module]
    dropped: Dropped
    smaller: Callable[[], list[ir.Module]] = list


def _run_passes(
    options: CompileOptions, stations: Stations, module: ir.Module, dumping: Sequence[Callback]
) -> tuple[bytes, _Alternatives]:
    """The integer module, and the forms that the passes before placement give it."""
    with stations.station("passes"):
        meaning = b""
        accelerator = options.target.accelerator
        for name in phases_of(npu=accelerator is not None):
            if name != "npu":
                run_phase(module, name, [*dumping, *_verifying(options, PHASES[name])])
            if name == "quantize":
                meaning = bytecode(module)
        dropped = dropped_from(functions(module)["main"])
        if accelerator is None:
            return meaning, _Alternatives([module], dropped)
        costs = costs_of(options.target)

        def formed(small: bool) -> list[ir.Module]:
            distinct: dict[bytes, ir.Module] = {}
            for phase in npu_phases(costs, small):
                alternative = copy_of(module)
                run_phase(alternative, phase, [*dumping, *_verifying(options, phase)])
                distinct.setdefault(bytecode(alternative), alternative)
            return list(distinct.values())

        return meaning, _Alternatives(formed(small=False), dropped, lambda: formed(small=True))


def _place(
    options: CompileOptions,
    stations: Stations,
    alternatives: _Alternatives,
    sample: Sequence[np.ndarray],
    dumping: Sequence[Callback],
) -> tuple[Placement, Samples]:
    with stations.station("place"):
        samples = model_samples(alternatives.usual[0], sample, options.tuning.seed)
        verifying = _verifying(options, place_phase())
        callbacks: list[Callback] = [*dumping, *verifying]
        return place_on(options.target, alternatives.usual, samples, callbacks, alternatives.smaller), samples


def _verifying(options: CompileOptions, phase: Phase) -> list[VerifyEach]:
    return [VerifyEach(evaluate)] if options.verify_each and phase.exact else []


def _kernel(name: str, kernel: ChosenKernel, proofs: Mapping[str, KernelProof], schedules: str) -> KernelRecord:
    measured = kernel.record.measurement if kernel.record else None
    proof = proofs.get(kernel.task.key)
    return KernelRecord(
        name=name,
        task=kernel.task.name,
        symbol=kernel.source.symbol,
        schedule=kernel.schedule.variant if kernel.given else str(kernel.schedule),
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
