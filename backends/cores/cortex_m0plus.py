"""The Cortex-M0+, with the multiplier of one cycle.

Cycles follow the instruction set summary of its Technical Reference Manual (Arm DDI 0484, 3.3): loads and stores
take 2, those of several registers 1 and one for each, a taken branch 2, BL 3.
"""

from tosaic.backends.target import Core, Pipeline, Timing

PIPELINE = Pipeline(
    scalar=(
        (r"(ldr|str)", Timing("load", 2, 2)),
        (r"(bl|blx)$", Timing("branch", 2, 2)),
        (r"(mrs|msr|dmb|dsb|isb)", Timing("system", 3, 3)),
        (r"", Timing("alu", 1, 1)),
    ),
    taken_branch=1,
    bytes_per_cycle=4,
)

CORE = Core("cortex-m0plus", "thumbv6m-none-eabi", (), "soft", PIPELINE)
