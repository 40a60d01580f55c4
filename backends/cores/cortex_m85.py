"""The Cortex-M85 with vectors of integers and floats."""

from tosaic.backends.target import Core

CORE = Core("cortex-m85", "thumbv8.1m.main-none-eabihf", ("dsp", "fp", "mve", "mve.fp"), "hard")
