"""The Cortex-M23: nothing is built for it yet."""

from tosaic.backends.target import Core

CORE = Core("cortex-m23", "thumbv8m.base-none-eabi", (), "soft")
