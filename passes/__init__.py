"""TOSA in, TOSA out: named passes in phases, each leaving an invariant that is checked."""

from tosaic.passes.module_pass import PASSES, ModulePass, create, register
from tosaic.passes.phases import PHASES, Phase, npu_phases, phases_of, place_phase, run_phase, run_phases
from tosaic.passes.pipeline import parse_pipeline, print_pipeline
from tosaic.passes.quantize.floats_left import FloatsLeft
from tosaic.passes.runner import (
    Callback,
    PassTimes,
    VerifyEach,
    dump_ir,
    first_difference,
    print_ir,
    random_inputs,
    run_passes,
)

__all__ = [
    "PASSES",
    "PHASES",
    "Callback",
    "FloatsLeft",
    "ModulePass",
    "PassTimes",
    "Phase",
    "VerifyEach",
    "create",
    "dump_ir",
    "first_difference",
    "npu_phases",
    "parse_pipeline",
    "phases_of",
    "place_phase",
    "print_ir",
    "print_pipeline",
    "random_inputs",
    "register",
    "run_passes",
    "run_phase",
    "run_phases",
]
