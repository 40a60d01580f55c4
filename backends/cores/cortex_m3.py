"""The Cortex-M3.

Cycles follow the instruction set summary of its Technical Reference Manual (Arm DDI 0337, 3.3.1), as the
Cortex-M4's but for products: MLA takes 2, a product of 64 bits 3 to 5, and 4 to 7 where it adds up; 4 and 5 here.
"""

from dataclasses import replace

from tosaic.backends.cores.cortex_m4 import PIPELINE as M4
from tosaic.backends.target import Core, Timing

PIPELINE = replace(
    M4,
    scalar=(
        (r"ml[as]", Timing("mul", 2, 2)),
        (r"[su]mull", Timing("mul", 4, 4)),
        (r"[su]mlal", Timing("mul", 5, 5)),
        *(row for row in M4.scalar if not row[0].startswith("v")),
    ),
)

CORE = Core("cortex-m3", "thumbv7m-none-eabi", (), "soft", PIPELINE)
