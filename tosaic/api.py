"""What Python programs and notebooks call: models as objects in, builds as objects out."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tosaic.builds.build import BuildFolder
from tosaic.compiler.compilation import compile_model, tune_model
from tosaic.compiler.options import CompileOptions
from tosaic.runs.generation import Generation
from tosaic.runs.generation import generate as run_generation
from tosaic.runs.npu_execution import NpuChoice
from tosaic.runs.running import Run, run_build, split_samples
from tosaic.runs.sampling import Sampling
from tosaic.support.errors import Error
from tosaic.target_files.ready import find_target
from tosaic.terminal.console import quiet_libraries

if TYPE_CHECKING:
    from pandas import DataFrame

    from tosaic.backends.target import Target
    from tosaic.frontend.capture import Calibration, Model
    from tosaic.tuner.tune import TuningResult


class Build(BuildFolder):
    """A build folder that runs, and shows what it costs."""

    def run(self, *inputs: Any, npu: NpuChoice = "emulator", runner: str = "qemu") -> Run:
        """Run the firmware on the simulated board, and compare its outputs with the reference's.

        Args:
            inputs: a tensor or array for each of the model's inputs: one sample, or several along a leading axis;
                floats are quantized. None takes the samples that the build carries.
            npu, runner: see `run_build`.

        Raises:
            Error: an input does not fit, or the run failed.
        """
        given = [np.asarray(array) for array in inputs]
        samples = split_samples(self, given) if given else [list(sample.inputs) for sample in self.samples]
        with quiet_libraries():
            return run_build(self, samples, npu=npu, runner=runner)

    def generate(
        self,
        prompt: Sequence[int],
        tokens: int = 32,
        *,
        sampling: Sampling = Sampling(),  # noqa: B008  a frozen value
        end: int | None = None,
        npu: NpuChoice = "emulator",
        runner: str = "qemu",
    ) -> Generation:
        """Let a language model run a prompt and draw tokens on the simulated board; compare each with the reference's.

        Args:
            prompt: tokens, one at least.
            tokens: how many to draw; the model's context may hold fewer.
            sampling: how they are drawn; the likeliest ones where nothing is said.
            end: the token that ends a text.
            npu, runner: see `run_build`.

        Raises:
            Error: the model does not generate, a token is none of its own, or the run failed.
        """
        with quiet_libraries():
            return run_generation(self, prompt, tokens, sampling=sampling, end=end, npu=npu, runner=runner)

    @cached_property
    def measured(self) -> Run:
        """A run on the first sample that the build carries."""
        return self.run(*self.samples[0].inputs)

    def profile(self) -> DataFrame:
        """Each op in the order of execution, a row each with the columns of `OpProfile`.

        Raises:
            Error: pandas is not installed, or the run failed.
        """
        from tosaic.reports.profile import data_frame

        return data_frame(self.measured)

    def report(self, file: str | Path | None = None, other: Build | None = None) -> Path:
        """Write what the build is and what it costs as one HTML file, and return its path.

        Args:
            file: where it goes; `report.html` in the build folder where None.
            other: a build that is shown beside this one.

        Raises:
            Error: Bokeh is not installed, or a run failed.
        """
        try:
            from tosaic.reports.html_report import write_report
        except ImportError as error:
            raise Error("a report needs Bokeh", why=str(error), hint="pip install tosaic[report]") from None
        path = Path(file) if file else self.folder / "report.html"
        write_report(self.measured, path, other.measured if other else None)
        return path


def compile(
    model: Model,
    example_inputs: Any = None,
    *,
    target: str | Target = "cortex-m55",
    calibration: Calibration = None,
    output: str | Path | None = None,
    **options: Any,
) -> Build:
    """Compile a model.

    Args:
        model: an nn.Module, an ExportedProgram, or what the command line calls MODEL.
        example_inputs: a tensor, a tuple of all arguments, or a dict of keyword arguments; None where the model has
            its own.
        target: a name that `tosaic targets` lists, a TOML file, or what `find_target` returned.
        calibration: samples, each given as the example inputs are; one array with the samples along its first axis;
            or a file. The example inputs where None.
        output: the build folder, which is replaced as a whole or left as it is; a temporary one, which goes with the
            build, where None.
        options: the other fields of `CompileOptions`.

    Raises:
        Error: the model, the options or the target do not allow it; the message says which and what to do.
    """
    asked = _asked(model, example_inputs, target, calibration, options)
    with quiet_libraries():
        if output is not None:
            return _as_build(compile_model(asked, Path(output)))
        with ExitStack() as temporary:
            folder = tempfile.mkdtemp(prefix="tosaic-build-")
            temporary.callback(shutil.rmtree, folder, ignore_errors=True)
            build = _as_build(compile_model(asked, Path(folder, "build")))
            weakref.finalize(build, temporary.pop_all().close)
            return build


def tune(
    model: Model,
    example_inputs: Any = None,
    *,
    target: str | Target = "cortex-m55",
    calibration: Calibration = None,
    **options: Any,
) -> TuningResult:
    """Spend `tuning=Tuning(trials=...)` on the CPU kernels of a model and keep the records; see `compile`."""
    with quiet_libraries():
        return tune_model(_asked(model, example_inputs, target, calibration, options))


def _as_build(made: BuildFolder) -> Build:
    return Build(made.folder, made.manifest)


def _asked(
    model: Model, inputs: Any, target: str | Target, calibration: Calibration, options: dict[str, Any]
) -> CompileOptions:
    found = find_target(target) if isinstance(target, str) else target
    return CompileOptions(model, found, inputs, calibration, **options)
