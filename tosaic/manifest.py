"""What a build says about itself: `manifest.json`, from which every report is printed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

import tosaic
from tosaic.backends.firmware.build import Firmware
from tosaic.frontend import Capture, input_statistics
from tosaic.npu import Placement
from tosaic.options import CompileOptions
from tosaic.support.locations import describe
from tosaic.support.mlir import functions, ir, shape_of, walk
from tosaic.tuner.tune import TuningResult
from tosaic.tuning import ChosenKernel, environment


def manifest(
    options: CompileOptions,
    captured: Capture,
    placement: Placement,
    kernels: Mapping[str, ChosenKernel],
    proven: int,
    tuned: TuningResult | None,
    firmware: Firmware,
    seconds: Mapping[str, float],
) -> dict:
    """The manifest of a build as plain JSON values; `proven` counts the trials that checked untuned kernels."""
    ops = placed_ops(placement.module)
    target = options.target
    return {
        "tosaic": tosaic.__version__,
        "model": options.model,
        "target": target.name,
        "core": target.core.name,
        "accelerator": target.accelerator,
        "machine": target.core.machine,
        "environment": asdict(environment(target.core)),
        "inputs": [asdict(tensor) for tensor in firmware.inputs],
        "outputs": [asdict(tensor) for tensor in firmware.outputs],
        "calibration": input_statistics(captured),
        "calls": [asdict(call) for call in firmware.calls],
        "regions": {"npu": len(placement.regions), "cpu": len(kernels)},
        "ops_per_processor": dict(Counter(op["processor"] for op in ops)),
        "ops": ops,
        "kernels": [_kernel_row(name, kernel) for name, kernel in kernels.items()],
        "npu_regions": [
            {
                "name": name,
                "cycles": region.cycles,
                "constants_bytes": len(region.constants),
                "command_stream_bytes": len(region.command_stream),
                "scratch_bytes": region.scratch_bytes,
                "fast_bytes": region.fast_bytes,
                "memory": dict(region.memory),
                "inputs": [asdict(port) for port in region.inputs],
                "outputs": [asdict(port) for port in region.outputs],
                "ops": [asdict(op) for op in region.ops],
            }
            for name, region in placement.regions.items()
        ],
        "npu_cycles": sum(region.cycles for region in placement.regions.values()),
        "arena_bytes": firmware.arena_bytes,
        "memories": dict(firmware.memories),
        "flash_bytes": firmware.flash_bytes,
        "trials": proven + (tuned.measured if tuned else 0),
        "trials_reused": tuned.reused - proven if tuned else 0,
        "trials_failed": dict(tuned.failed) if tuned else {},
        "trials_of_other_environments": tuned.ignored if tuned else 0,
        "tuning_interrupted": tuned.interrupted if tuned else False,
        "seconds": dict(seconds),
    }


def placed_ops(placed: ir.Module) -> list[dict]:
    """Each op of a placed module: what it is, where it runs, why not on the NPU, and the user's line behind it."""
    rows = []
    for name, function in functions(placed).items():
        if name == "main":
            continue
        processor = ir.StringAttr(function.attributes["tosaic.processor"]).value
        for op in walk(function):
            if op.name in ("tosa.const", "tosa.const_shape", "func.return"):
                continue
            reason = ir.StringAttr(op.attributes["tosaic.reason"]).value if "tosaic.reason" in op.attributes else ""
            rows.append(
                {
                    "op": op.name.removeprefix("tosa.").upper(),
                    "shape": list(shape_of(op.results[0])),
                    "processor": processor,
                    "function": name,
                    "where": describe(op.location),
                    "reason": reason,
                }
            )
    return rows


def _kernel_row(name: str, kernel: ChosenKernel) -> dict:
    measured = kernel.record.measurement if kernel.record else None
    return {
        "name": name,
        "task": kernel.task.name,
        "symbol": kernel.source.symbol,
        "schedule": str(kernel.schedule),
        "trials": kernel.trials,
        "trial_instructions": measured.instructions if measured else None,
        "trial_cycles": measured.cycles if measured else None,
    }


def sqnr_db(reference: list, outputs: list) -> float | None:
    """Signal to quantization noise over all samples of one output, 10 log10(sum f^2 / sum (f - q)^2).

    None where it has no finite value: the outputs agree exactly, or the reference is all zero.
    """
    signal = sum(float((f.astype("float64") ** 2).sum()) for f in reference)
    noise = sum(float(((f.astype("float64") - q) ** 2).sum()) for f, q in zip(reference, outputs, strict=True))
    return 10 * math.log10(signal / noise) if signal and noise else None
