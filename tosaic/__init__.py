"""tosaic compiles PyTorch models for Arm microcontrollers, exact to the bit.

import tosaic

options = tosaic.CompileOptions("zoo:resnet8", tosaic.find_target("corstone-300"))
build = tosaic.compile_model(options, Path("build/resnet8"))
report = tosaic.run_build(build, samples)
assert report.exact
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tosaic.support.errors import Error

if TYPE_CHECKING:
    from tosaic.build import Build
    from tosaic.compilation import compile_model, tune_model
    from tosaic.options import CompileOptions, QuantizationOptions, Tuning
    from tosaic.report import print_compile_report, print_run_report
    from tosaic.running import reference_outputs, run_build
    from tosaic.targets import find_target

__version__ = "0.1.0"

# Imported on first use: PyTorch alone takes seconds, and most commands do without it.
_HOME = {
    "Build": "build",
    "CompileOptions": "options",
    "QuantizationOptions": "options",
    "Tuning": "options",
    "compile_model": "compilation",
    "find_target": "targets",
    "print_compile_report": "report",
    "print_run_report": "report",
    "reference_outputs": "running",
    "run_build": "running",
    "tune_model": "compilation",
}

__all__ = [
    "Build",
    "CompileOptions",
    "Error",
    "QuantizationOptions",
    "Tuning",
    "__version__",
    "compile_model",
    "find_target",
    "print_compile_report",
    "print_run_report",
    "reference_outputs",
    "run_build",
    "tune_model",
]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module `tosaic` has no attribute `{name}`")
    return getattr(importlib.import_module(f"tosaic.{_HOME[name]}"), name)
