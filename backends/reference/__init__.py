"""The oracle: a TOSA module executed by `tosa_reference_model`, which every other form must equal to the bit."""

from tosaic.backends.reference.bounds import UnknownBoundError, beyond_bounds
from tosaic.backends.reference.model import evaluate, evaluate_each, serialize

__all__ = ["UnknownBoundError", "beyond_bounds", "evaluate", "evaluate_each", "serialize"]
