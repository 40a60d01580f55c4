"""The Cortex-M33 with its single-precision unit and DSP extension."""

from tosaic.backends.target import Core

CORE = Core("cortex-m33", "thumbv8m.main-none-eabihf", ("dsp", "fp"), "hard")
