"""The Cortex-M0+, whose multiplier takes one cycle."""

from tosaic.backends.target import Core

CORE = Core("cortex-m0plus", "thumbv6m-none-eabi", (), "soft")
