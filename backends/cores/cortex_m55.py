"""The Cortex-M55.

Pipes, occupancies, latencies and the offsets of gathers follow LLVM's scheduling model of it (`ARMScheduleM55.td`).
What follows a store and what goes into an interleaving one follow SLOTHY's (`slothy/targets/arm_v81m/cortex_m55r1.py`),
which calls both upper bounds: whether a load waits for a store depends on their addresses.
"""

from tosaic.backends.target import Core, Pipeline, Timing

PIPELINE = Pipeline(
    vector=(
        (r"v(ld|st)[24]\d", Timing("load-store", 2, 1)),
        (r"v(ldr|str)", Timing("load-store", 2, 1)),
        (r"vpst|vpnot|vctp", Timing("system", 1, 1)),
        (r"vmovn", Timing("int", 2, 3)),
        (r"vmovl", Timing("int", 2, 1)),
        (r"v(ml|rml|qdml|qrdml|qrdmul|qdmul|mul|rmul|fm|cml|cmul)", Timing("mul", 2, 2)),
        (r"v(addv|addlv|cmp|pt|cvt|rint|maxnm|minnm)", Timing("mul", 2, 2)),
        (r"v(qmov|q?r?shrn|q?r?shrun)", Timing("int", 2, 3)),
        (r"v(rshl|qshl|qrshl|rshr|maxa?v|mina?v)", Timing("int", 2, 2)),
        (r"v", Timing("int", 2, 1)),
    ),
    scalar=(
        (r"[su]div", Timing("alu", 8, 8)),
        (r"v(div|sqrt)", Timing("alu", 12, 12)),
        (r"v", Timing("alu", 1, 2)),
        (r"ldr", Timing("alu", 1, 2)),
        (r"str", Timing("alu", 1, 1)),
        (r"(mul|mla|mls|smul|smla|smml|smmul|umul|umla|[su]mull|[su]mlal)", Timing("alu", 1, 2)),
        (r"([su]sat|[su]bfx|asrl|lsll|lsrl|[su]q?r?sh[lr]l|[su]add|q(add|sub)|[su]xta)", Timing("alu", 1, 2)),
        (r"", Timing("alu", 1, 1)),
    ),
    vector_immediate=Timing("mul", 2, 2),
    lane_insert=Timing("either", 2, 1),
    lane_extract=Timing("mul", 2, 1),
    shifted_operand=Timing("alu", 1, 2),
    taken_branch=2,
    loop_entry=3,
    bytes_per_cycle=8,
    offsets_ahead=4,
    into_interleaving_store=3,
    store_to_load=2,
    issue="beats",
    transfer=(1, 2),
)

CORE = Core("cortex-m55", "thumbv8.1m.main-none-eabihf", ("dsp", "fp", "mve", "mve.fp"), "hard", PIPELINE)
