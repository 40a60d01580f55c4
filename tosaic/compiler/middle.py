"""A model half-way: from what a user gives to the placed integer module, station by station."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.export import ExportedProgram

from tosaic.backends.npus import family_of
from tosaic.backends.reference import Executable, evaluate, evaluate_in_turn, prepare
from tosaic.builds.accuracy import Computed, LayerAccuracy, OutputAccuracy
from tosaic.builds.manifest import InputStatistics
from tosaic.compiler.accuracy import check_accuracy, compute, interface_quantizations, measure_accuracy
from tosaic.compiler.domain import Range, input_ranges, sample_within
from tosaic.compiler.layers import check_layers, measure_layers, noisy_outputs
from tosaic.compiler.options import CompileOptions, QuantizationOptions
from tosaic.compiler.placement import Placement, npu_forms, place_on
from tosaic.compiler.trial_inputs import Samples, model_samples
from tosaic.frontend import (
    Capture,
    TosaFile,
    bias_advice,
    calibration_advice,
    capture,
    coarsen,
    import_program,
    input_statistics,
    is_tosa_file,
    joined_advice,
    quantize,
    range_advice,
    read_samples,
    read_tosa,
    run_float_on,
)
from tosaic.frontend.canonical import is_quantized
from tosaic.frontend.grouped_weights import LAYERS
from tosaic.frontend.quantizer import Prepared
from tosaic.passes import (
    PHASES,
    Callback,
    FloatsLeft,
    Phase,
    VerifyEach,
    dump_ir,
    phases_of,
    place_phase,
    random_inputs,
    run_phase,
)
from tosaic.passes.place.methods import cut_methods
from tosaic.support.errors import Advice, Error
from tosaic.support.functions import Dropped, body_of, dropped_from, note_bytes, note_states
from tosaic.support.methods import note_methods
from tosaic.support.mlir import bytecode, functions, ir, parse
from tosaic.support.quantization import CoarserWeights, Quantization
from tosaic.support.threads import one_thread
from tosaic.terminal.progress import Stations

_ACCURACY_SAMPLES = 4


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
        coarser: what coarser steps of weights gave, where they were asked for.
        four_bits: layers with weights of four bits.
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
    coarser: CoarserWeights | None = None
    four_bits: int = 0


def lower_model(options: CompileOptions, stations: Stations) -> Middle:
    """Capture, quantize, import, run the passes, place.

    Raises:
        Error: the model cannot be lowered for the target.
    """
    if is_tosa_file(options.model):
        return _lower_tosa(options, stations)
    with stations.station("capture"):
        captured = capture_model(options)
    with one_thread():
        return _lower_pytorch(options, captured, stations)


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
        columns=options.target.core.mve,
    )


def quantized(options: CompileOptions, captured: Capture) -> tuple[ExportedProgram, CoarserWeights | None]:
    """A captured model as an option asks, and what coarser steps of its weights gave.

    Raises:
        Error: it cannot be quantized so.
    """
    wanted, accelerator, found = options.quantization, options.target.accelerator, list[CoarserWeights]()
    if wanted.weights and (accelerator is None or is_quantized(captured.program)):
        why = "the model is quantized already" if accelerator else f"{options.target.name} reads weights as they are"
        raise Error("--weights makes weights smaller that an NPU's compiler encodes", why=why)

    def adjust(prepared: Prepared) -> None:
        if wanted.weights and accelerator:
            encoded = family_of(accelerator).encoded_bytes
            found.append(coarsen(prepared, captured.calibration, wanted.weights, encoded))

    npu = accelerator is not None
    program = quantize(
        captured, wanted.activations, wanted.exclude, wanted.int16, wanted.int4, wanted.group_size, npu, adjust
    )
    return program, found[0] if found else None


def _lower_pytorch(options: CompileOptions, captured: Capture, stations: Stations) -> Middle:
    wanted = options.quantization
    _refuse_streaming(options, [state.name for state in captured.states])
    if captured.methods and (options.stream_input or options.sliding):
        raise Error("a model with several methods cannot take its input row by row")
    with stations.station("quantize"):
        program, coarser = quantized(options, captured)
    with stations.station("import"):
        module = import_program(program, wanted.exclude)
        note_states(module, len(captured.states))
        note_bytes(module, captured.bytes)
        note_methods(module, captured.methods)
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
    inputs = [x.numpy() for x in captured.calibration[0]]
    placement, samples = _place(options, stations, integer, alternatives, inputs, dumping)
    warnings = (
        *captured.advice,
        *calibration_advice(captured),
        *range_advice(program),
        *left.advice,
        *joined_advice(program),
        *bias_advice(program),
        *noisy_outputs(accuracy, layers, options.model_name),
    )
    calibration = [InputStatistics(**seen) for seen in input_statistics(captured)]
    without_data = replace(captured, calibration=())  # states of each call may take more memory than weights
    return Middle(
        without_data, calibration, meaning, prepared, *_in_turn(prepared, computed, len(captured.states)), accuracy,
        layers, warnings, alternatives.dropped, placement, samples, coarser, program.graph_module.meta.get(LAYERS, 0),
    )  # fmt: skip


def _lower_tosa(options: CompileOptions, stations: Stations) -> Middle:
    """A module that is its own meaning: there is no float model to compare it with."""
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
    placement, samples = _place(options, stations, parse(meaning), alternatives, inputs, dumping)
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
        "--int4": wanted.int4,
        "--weights": wanted.weights,
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
                cut_methods(module)
        dropped = dropped_from(functions(module)["main"])
        if accelerator is None:
            return meaning, _Alternatives([module], dropped)
        seeing: list[Callback] = [*dumping, *_verifying(options, PHASES["npu"])]
        usual, smaller = (partial(npu_forms, module, options.target, seeing, small) for small in (False, True))
        return meaning, _Alternatives(usual(), dropped, smaller)


def _place(
    options: CompileOptions,
    stations: Stations,
    meaning: ir.Module,
    alternatives: _Alternatives,
    sample: Sequence[np.ndarray],
    dumping: Sequence[Callback],
) -> tuple[Placement, Samples]:
    with stations.station("place"):
        samples = model_samples(meaning, sample, options.tuning.seed)
        verifying = _verifying(options, place_phase())
        callbacks: list[Callback] = [*dumping, *verifying]
        return place_on(options.target, alternatives.usual, samples, callbacks, alternatives.smaller), samples


def _verifying(options: CompileOptions, phase: Phase) -> list[VerifyEach]:
    return [VerifyEach(evaluate)] if options.verify_each and phase.exact else []
