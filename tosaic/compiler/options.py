"""What a user asks of a build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import platformdirs

from tosaic.backends.target import Target
from tosaic.compiler.schedules import Schedules
from tosaic.tuner.measure import Executor
from tosaic.tuner.measurement import Objective

if TYPE_CHECKING:
    from tosaic.frontend.capture import Calibration, Model
    from tosaic.frontend.coarser_weights import WeightBudget

KernelChoice = Literal["all", "cmsis-nn", "generic"]
Layout = Literal["model", "nhwc"]
Rounding = Literal["single", "tflite"]


def default_records() -> Path:
    """The user's own database of trials."""
    return Path(platformdirs.user_data_dir("tosaic"), "records.db")


@dataclass(frozen=True)
class QuantizationOptions:
    """Args:
    activations: `int8` or `int16`; weights are int8.
    exclude: modules, ops, or ops of a module (`attention:softmax`), that stay f32.
    int16: the same, and inputs, whose results are int16, as are those that these cannot do without.
    int4: the same, whose weights have four bits.
    group_size: inputs of a layer with such weights that have a scale.
    weights: what coarser steps of weights may lose, or shall save, on an NPU; None for the finest.
    """

    activations: Literal["int8", "int16"] = "int8"
    exclude: tuple[str, ...] = ()
    int16: tuple[str, ...] = ()
    int4: tuple[str, ...] = ()
    group_size: int = 32
    weights: WeightBudget | None = None


@dataclass(frozen=True)
class Tuning:
    """Args:
    trials: budget of measured candidates over all kernels; 0 only uses what the records hold.
    search: the strategy that searches each schedule space, a name in `tosaic.tuner.search.base.STRATEGIES`.
    objective: what is minimized; cycles when None, or instructions where the core has no cycle model.
    seed: of the search and of the trial inputs.
    records: the SQLite file of trials.
    workers: batches measured at once; the number of processors when None.
    runner: the name of what runs trials.
    measure: where trials run: `local`, `dask://HOST:PORT`, a Dask scheduler file (`.json`), or `serial:PORT[?baud=N]`.
    executor: what else runs batches of trials, in place of that.
    """

    trials: int = 0
    search: str = "evolutionary"
    objective: Objective | None = None
    seed: int = 0
    records: Path | None = None
    workers: int | None = None
    runner: str = "qemu"
    measure: str = "local"
    executor: Executor | None = None


@dataclass(frozen=True)
class CompileOptions:
    """What is compiled, for which target, and how.

    Args:
        model: a `.pt2`, `.onnx`, `.tosa`, `.mlir` or `.tflite` file, a `file.py:factory` or `zoo:NAME`; or an nn.Module
            or ExportedProgram itself.
        target: where the firmware runs.
        inputs: example inputs in place of the model's own: a tensor, a tuple of arguments, or a dict of keywords.
        calibration: inputs to calibrate with, as `capture` of the frontend takes them; the model's own when None.
        shapes: of inputs by name, for a model that takes several.
        rounding: of a `.tflite` or TOSA: `tflite` keeps rescales that round twice, as TensorFlow Lite does.
        input_layout: `nhwc` where the firmware takes images with their channels last.
        output_layout: `nhwc` where it gives results of four axes so.
        stream_input: the firmware takes the input row by row, so that it never lies in memory as a whole.
        sliding: and further rows move the window on, so that each of its results costs only what is new.
        schedules: of kernels by name, given by hand in place of those that trials or guesses choose.
        kernels: which kernels compete: all, CMSIS-NN where it has one, or only the generic lowering.
        cmsis_nn: a checkout of CMSIS-NN; the pinned subset of the `bakenn` package when None.
        save_ir: folder for the module after every pass.
        prove: compare the integer module with the quantized model, and run the finished firmware against it.
        min_sqnr: the least signal to noise ratio of every output against the float model, in dB on calibration data.
        verify_each: compare the module on random inputs before and after every pass that promises to be exact.
        name: what the firmware's symbols, header and archive are called after.
    """

    model: Model
    target: Target
    inputs: Any = None
    calibration: Calibration = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    rounding: Rounding = "single"
    input_layout: Layout = "model"
    output_layout: Layout = "model"
    stream_input: bool = False
    sliding: bool = False
    quantization: QuantizationOptions = QuantizationOptions()
    tuning: Tuning = Tuning()
    schedules: Schedules = field(default_factory=Schedules)
    kernels: KernelChoice = "all"
    cmsis_nn: Path | None = None
    save_ir: Path | None = None
    verify_each: bool = False
    prove: bool = True
    min_sqnr: float | None = None
    name: str = "model"

    @property
    def model_name(self) -> str:
        """The model as the user named it, or the name of its class."""
        return self.model if isinstance(self.model, str) else type(self.model).__name__
