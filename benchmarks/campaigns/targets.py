"""A model for each ready target: compiled, proven and run."""

from __future__ import annotations

import tempfile
from pathlib import Path

import tosaic
from benchmarks.campaigns.trials import Here, Outcome
from tosaic.compiler.options import Tuning
from tosaic.runs.running import random_samples, run_build
from tosaic.target_files.source import ready
from tosaic.terminal.console import quiet_libraries

NAMES = tuple(ready())


def trial(number: int) -> Outcome:
    """DS-CNN for the ready target of that number, by name."""
    return outcome(NAMES[number], "zoo:dscnn")


def outcome(name: str, model: str) -> Outcome:
    """What becomes of a model for a target."""
    with tempfile.TemporaryDirectory(prefix="tosaic-campaign-") as folder, quiet_libraries():
        records = Tuning(records=Path(folder, "records.db"), executor=Here())
        try:
            build = tosaic.compile(model, target=name, tuning=records, output=Path(folder, "build"))
            report = run_build(build, random_samples(build, 1, 0))
        except tosaic.Error as error:
            return Outcome("refused", f"{name}: {error.what}", fault=True)
        cost = f"{report.milliseconds:.3f} ms" if report.milliseconds is not None else "no cycle model"
        found = f"{name}: {report.board.instructions:,} instructions, {report.npu_cycles:,} NPU cycles, {cost}"
        return Outcome("exact" if report.exact else "differs", found, fault=not report.exact)
