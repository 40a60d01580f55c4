"""What Python programs and notebooks call: models as objects in, builds as objects out."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tosaic.compilation import compile_model, tune_model
from tosaic.console import quiet_libraries
from tosaic.options import CompileOptions
from tosaic.targets import find_target

if TYPE_CHECKING:
    from tosaic.backends.target import Target
    from tosaic.build import Build
    from tosaic.frontend.capture import Calibration, Model
    from tosaic.tuner.tune import TuningResult


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
            return compile_model(asked, Path(output))
        with ExitStack() as temporary:
            folder = tempfile.mkdtemp(prefix="tosaic-build-")
            temporary.callback(shutil.rmtree, folder, ignore_errors=True)
            build = compile_model(asked, Path(folder, "build"))
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


def _asked(
    model: Model, inputs: Any, target: str | Target, calibration: Calibration, options: dict[str, Any]
) -> CompileOptions:
    found = find_target(target) if isinstance(target, str) else target
    return CompileOptions(model, found, inputs, calibration, **options)
