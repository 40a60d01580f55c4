"""The Cortex-M0: nothing is built for it yet."""

from tosaic.backends.target import Core

CORE = Core("cortex-m0", "thumbv6m-none-eabi", (), "soft")
