"""The Cortex-M0, with the multiplier of one cycle.

Cycles follow the instruction set summary of its Technical Reference Manual (Arm DDI 0432, 3.3): as the
Cortex-M0+'s, and its pipeline, one stage longer, refills in 2 cycles.
"""

from dataclasses import replace

from tosaic.backends.cores.cortex_m0plus import PIPELINE as M0PLUS
from tosaic.backends.target import Core

PIPELINE = replace(M0PLUS, taken_branch=2)

CORE = Core("cortex-m0", "thumbv6m-none-eabi", (), "soft", PIPELINE)
