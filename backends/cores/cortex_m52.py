"""The Cortex-M52 with vectors of integers and floats."""

from tosaic.backends.target import Core

CORE = Core("cortex-m52", "thumbv8.1m.main-none-eabihf", ("dsp", "fp", "mve", "mve.fp"), "hard")
