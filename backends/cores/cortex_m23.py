"""The Cortex-M23, with the multiplier of one cycle.

Arm publishes no cycles of it. Its pipeline has two stages, as the Cortex-M0+'s, whose cycles these are; a division
takes 17 (Cortex-M23 Technical Reference Manual, fast divider).
"""

from dataclasses import replace

from tosaic.backends.cores.cortex_m0plus import PIPELINE as M0PLUS
from tosaic.backends.target import Core, Timing

PIPELINE = replace(M0PLUS, scalar=((r"[su]div", Timing("alu", 17, 17)), *M0PLUS.scalar))

CORE = Core("cortex-m23", "thumbv8m.base-none-eabi", (), "soft", PIPELINE)
