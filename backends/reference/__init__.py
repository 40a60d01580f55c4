"""The oracle: a TOSA module executed by `tosa_reference_model`, which every other form must equal to the bit."""

from tosaic.backends.reference.bounds import UnknownBoundError, beyond_bounds
from tosaic.backends.reference.executable import Executable, prepare
from tosaic.backends.reference.flatbuffer import serialize
from tosaic.backends.reference.model import evaluate, evaluate_each, evaluate_in_turn

__all__ = [
    "Executable",
    "UnknownBoundError",
    "beyond_bounds",
    "evaluate",
    "evaluate_each",
    "evaluate_in_turn",
    "prepare",
    "serialize",
]
