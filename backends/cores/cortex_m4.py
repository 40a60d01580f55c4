"""The Cortex-M4 with its single-precision unit.

Cycles follow the instruction set summaries of its Technical Reference Manual (Arm DDI 0439, 3.3.1 and 7.2.3): loads
and stores in a row take one cycle each, and the first load one more; a taken branch refills the pipeline in 1 to 3
cycles, of which LLVM's scheduling model (`ARMScheduleM4.td`) takes 2; a division takes 2 to 12, of which it takes 6
here.
"""

from tosaic.backends.target import Core, Pipeline, Timing

PIPELINE = Pipeline(
    scalar=(
        (r"(ldr|str)d", Timing("system", 3, 3)),
        (r"vldr", Timing("load", 2, 2)),
        (r"vstr", Timing("store", 2, 2)),
        (r"v(mla|mls|nmla|nmls|fma|fms|fnma|fnms)", Timing("mul", 3, 3)),
        (r"v(div|sqrt)", Timing("mul", 14, 14)),
        (r"ldr", Timing("load", 2, 2)),
        (r"str", Timing("store", 1, 1)),
        (r"[su]div", Timing("alu", 6, 6)),
        (r"tb[bh]", Timing("branch", 2, 2)),
        (r"", Timing("alu", 1, 1)),
    ),
    taken_branch=2,
    bytes_per_cycle=4,
    chained=1,
)

CORE = Core("cortex-m4", "thumbv7em-none-eabihf", ("dsp", "fp"), "hard", PIPELINE)
