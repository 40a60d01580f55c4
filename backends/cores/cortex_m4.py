"""The Cortex-M4 with its single-precision unit."""

from tosaic.backends.target import Core

CORE = Core("cortex-m4", "thumbv7em-none-eabihf", ("dsp", "fp"), "hard")
