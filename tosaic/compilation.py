"""The pipeline, station by station: a PyTorch model in, a build folder out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tosaic.assembly import assemble
from tosaic.backends.cortex_m.cmsis_nn import VARIABLE as CMSIS_NN_VARIABLE
from tosaic.backends.firmware.build import build_firmware
from tosaic.backends.reference import evaluate
from tosaic.build import Build, replacing, write_manifest
from tosaic.frontend import Capture, capture, import_program, quantize, save_float
from tosaic.kernel_inputs import model_inputs
from tosaic.manifest import manifest
from tosaic.npu import Placement, place_on, save_regions
from tosaic.options import CompileOptions
from tosaic.passes import PHASES, VerifyEach, dump_ir, phases_of, run_phase
from tosaic.progress import Stations
from tosaic.proof import prove_kernels
from tosaic.support.locations import describe
from tosaic.support.mlir import bytecode, functions
from tosaic.tuner.tune import TuningResult
from tosaic.tuning import choose_kernels, headers, kernel_tasks, libraries, tune_tasks


@dataclass(frozen=True)
class Middle:
    """A model half-way: between the last pass and code generation.

    Args:
        meaning: the integer module after quantization, as bytecode. Everything later equals it to the bit.
        placement: the fused module, divided between the processors.
        inputs: arguments that `main` allows, to try kernels and regions on.
    """

    captured: Capture
    meaning: bytes
    placement: Placement
    inputs: Sequence[np.ndarray]


def compile_model(options: CompileOptions, output: Path) -> Build:
    """Compile a model into the build folder `output`, which is replaced as a whole or left as it is.

    Raises:
        Error: the model, the options or the target do not allow it; the message says which and what to do.
    """
    stations = Stations()
    with replacing(output) as folder, stations.live(), _cmsis_nn(options.cmsis_nn):
        middle = lower_model(options, stations)
        placed = middle.placement.module
        tasks = kernel_tasks(placed, options.target.core, options.kernels, middle.inputs)
        with stations.station("prove"):
            proven = prove_kernels(tasks, options.tuning)
        tuned = None
        if options.tuning.trials and tasks:
            with stations.station("tune"):
                tuned = tune_tasks(tasks, options.tuning, stations.tuning)
        with stations.station("generate"):
            kernels = choose_kernels(tasks, options.tuning)
        with stations.station("firmware"):
            where = {name: describe(f.location) for name, f in functions(placed).items() if name != "main"}
            sources = {name: kernel.source for name, kernel in kernels.items()}
            names = middle.captured.input_names
            program = assemble(placed, sources, middle.placement.regions, where, names)
            firmware = build_firmware(
                program, options.target, folder, include=headers(), libraries=libraries(options.target.core)
            )
        with stations.station("write"):
            (folder / "module.mlirbc").write_bytes(middle.meaning)
            (folder / "placed.mlirbc").write_bytes(bytecode(placed))
            save_regions(middle.placement, folder)
            save_float(middle.captured, folder / "float.pt2")
        write_manifest(
            folder,
            manifest(options, middle.captured, middle.placement, kernels, proven, tuned, firmware, stations.seconds),
        )
    return Build.load(output)


def tune_model(options: CompileOptions) -> TuningResult:
    """Spend the trial budget on the CPU kernels of a model, and keep the records.

    Raises:
        Error: as `compile_model`.
    """
    stations = Stations()
    with stations.live(), _cmsis_nn(options.cmsis_nn):
        middle = lower_model(options, stations)
        tasks = kernel_tasks(middle.placement.module, options.target.core, options.kernels, middle.inputs)
        with stations.station("tune"):
            return tune_tasks(tasks, options.tuning, stations.tuning)


def lower_model(options: CompileOptions, stations: Stations) -> Middle:
    """Capture, quantize, import, run the passes, place.

    Raises:
        Error: the model cannot be lowered for the target.
    """
    with stations.station("capture"):
        captured = capture(options.model, options.calibration)
    with stations.station("quantize"):
        program = quantize(captured, options.quantization.activations, options.quantization.exclude)
    with stations.station("import"):
        module = import_program(program, options.quantization.exclude)
    with stations.station("passes"):
        meaning = b""
        dumping = [dump_ir(options.save_ir)] if options.save_ir else []
        for name in phases_of(npu=options.target.accelerator is not None):
            verifying = [VerifyEach(evaluate)] if options.verify_each and PHASES[name].exact else []
            run_phase(module, name, [*dumping, *verifying])
            if name == "quantize":
                meaning = bytecode(module)
    with stations.station("place"):
        inputs = model_inputs(module, [tensor.numpy() for tensor in captured.calibration[0]], options.tuning.seed)
        verifying = [VerifyEach(evaluate)] if options.verify_each else []
        placement = place_on(options.target, module, inputs, [*dumping, *verifying])
    return Middle(captured, meaning, placement, inputs)


@contextmanager
def _cmsis_nn(checkout: Path | None) -> Iterator[None]:
    """Let this process and its workers find CMSIS-NN in `checkout`."""
    before = os.environ.get(CMSIS_NN_VARIABLE)
    if checkout is not None:
        os.environ[CMSIS_NN_VARIABLE] = str(checkout.absolute())
    try:
        yield
    finally:
        if checkout is not None:
            os.environ.pop(CMSIS_NN_VARIABLE)
            if before is not None:
                os.environ[CMSIS_NN_VARIABLE] = before
