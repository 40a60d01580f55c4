"""The Cortex-M33 with its single-precision unit and DSP extension.

Arm publishes no cycles of it. One a cycle here, what is loaded or multiplied a cycle later; `benchmarks/silicon.py`
compares what follows with MLPerf Tiny's results of an nRF5340 and an RA6M4.
"""

from tosaic.backends.target import Core, Pipeline, Timing

PIPELINE = Pipeline(
    scalar=(
        (r"(ldr|str)d", Timing("load", 2, 3)),
        (r"v(mla|mls|nmla|nmls|fma|fms|fnma|fnms)", Timing("mul", 3, 3)),
        (r"v(div|sqrt)", Timing("mul", 14, 14)),
        (r"v?ldr", Timing("load", 1, 2)),
        (r"v?str", Timing("store", 1, 1)),
        (r"(mul|ml[as]|[su]ml|[su]mul|smm|smu|smul)", Timing("mul", 1, 2)),
        (r"[su]div", Timing("alu", 6, 6)),
        (r"tb[bh]", Timing("branch", 2, 2)),
        (r"", Timing("alu", 1, 1)),
    ),
    taken_branch=2,
    bytes_per_cycle=4,
    transfer=(0, 1),
)

CORE = Core("cortex-m33", "thumbv8m.main-none-eabihf", ("dsp", "fp"), "hard", PIPELINE)
