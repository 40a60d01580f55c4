"""The Cortex-M23."""

from tosaic.backends.target import Core

CORE = Core("cortex-m23", "thumbv8m.base-none-eabi", (), "soft")
