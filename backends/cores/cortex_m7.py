"""The Cortex-M7 with its double-precision unit; one of single precision is `cortex-m7+nofp.dp`."""

from tosaic.backends.target import Core

CORE = Core("cortex-m7", "thumbv7em-none-eabihf", ("dsp", "fp", "fp.dp"), "hard")
