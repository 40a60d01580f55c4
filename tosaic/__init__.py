"""tosaic compiles PyTorch models for Arm microcontrollers, exact to the bit.

import tosaic

build = tosaic.compile(module, example_inputs, target="corstone-300", calibration=samples)
run = build.run(x)                  # on the simulated board; run.outputs, run.exact
build.profile()                     # a DataFrame: where each op runs, why, and what it costs
build.report("report.html")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tosaic.support.errors import Error
from tosaic.support.native import use_compiled

if TYPE_CHECKING:
    from tosaic.api import Build, compile, tune
    from tosaic.compiler.options import CompileOptions, QuantizationOptions, Tuning
    from tosaic.compiler.schedules import Schedules
    from tosaic.reports.report import print_compile_report, print_run_report
    from tosaic.runs.running import Run
    from tosaic.target_files.ready import find_target

__version__ = "0.1.0"

use_compiled()

# Imported on first use: PyTorch alone takes seconds, and most commands do without it.
_MODULES = {
    "Build": "api",
    "CompileOptions": "compiler.options",
    "QuantizationOptions": "compiler.options",
    "Run": "runs.running",
    "Schedules": "compiler.schedules",
    "Tuning": "compiler.options",
    "compile": "api",
    "find_target": "target_files.ready",
    "print_compile_report": "reports.report",
    "print_run_report": "reports.report",
    "tune": "api",
}

__all__ = [
    "Build",
    "CompileOptions",
    "Error",
    "QuantizationOptions",
    "Run",
    "Schedules",
    "Tuning",
    "__version__",
    "compile",
    "find_target",
    "print_compile_report",
    "print_run_report",
    "tune",
]


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module `tosaic` has no attribute `{name}`")
    return getattr(importlib.import_module(f"tosaic.{_MODULES[name]}"), name)
