"""The Cortex-M7 with its double-precision unit; one of single precision is `cortex-m7+nofp.dp`.

Pipes and latencies follow LLVM's scheduling model of it (`ARMScheduleM7.td`): two instructions a cycle, of which
two may load, one stores, one multiplies; loads and stores of several registers, LDRD and divisions issue alone.
Branches are predicted, and cost nothing more. Left out: what it reads of addresses and shifted operands a cycle
early.
"""

from tosaic.backends.target import Core, Pipeline, Timing

PIPELINE = Pipeline(
    scalar=(
        (r"(ldr|str)d", Timing("system", 1, 1)),
        (r"v(mla|mls|nmla|nmls|fma|fms|fnma|fnms)", Timing("mul", 1, 6)),
        (r"v(div|sqrt)", Timing("mul", 1, 16)),
        (r"v(ldr)", Timing("load", 1, 1)),
        (r"v(str)", Timing("store", 1, 1)),
        (r"v", Timing("mul", 1, 3)),
        (r"ldr(b|h|sb|sh)", Timing("load", 1, 2)),
        (r"ldr", Timing("load", 1, 1)),
        (r"str", Timing("store", 1, 1)),
        (r"[su]div", Timing("system", 7, 7)),
        (r"(mul|ml[as]|[su]ml|[su]mul|smm)", Timing("mul", 1, 2)),
        (r"([su]sat|q|uq)", Timing("int", 1, 2)),
        (r"([su]xt|[su]bfx|bf[ci]|pkh|[su]h?(add|sub|asx|sax)|sel|rev|rbit)", Timing("int", 1, 1)),
        (r"(b|bl|bx|blx|cbz|cbnz|b(eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le))$", Timing("branch", 1, 1)),
        (r"(tb[bh]|mrs|msr|dmb|dsb|isb)", Timing("system", 2, 3)),
        (r"", Timing("alu", 1, 1)),
    ),
    taken_branch=0,
    bytes_per_cycle=8,
    transfer=(1, 2),
    width=2,
    pipes=(("alu", 2), ("load", 2)),
)

CORE = Core("cortex-m7", "thumbv7em-none-eabihf", ("dsp", "fp", "fp.dp"), "hard", PIPELINE)
