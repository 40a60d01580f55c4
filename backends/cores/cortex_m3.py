"""The Cortex-M3."""

from tosaic.backends.target import Core

CORE = Core("cortex-m3", "thumbv7m-none-eabi", (), "soft")
