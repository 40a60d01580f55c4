"""The sketches of contractions: traces with open numbers, which the search fills in."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache

from tosaic.backends.cortex_m.nest.contraction import Contraction, Kernel
from tosaic.backends.cortex_m.nest.nest import Nest
from tosaic.backends.cortex_m.nest.rows import VECTOR
from tosaic.backends.target import Core
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Choice, Schedule, Variant

_MOST_SUMS = 7
_BLOCKS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)


def sketches(what: Contraction) -> Sequence[Variant]:
    """`image`: windows are read where the image lies, pixels of a row together. `windows`: they are copied side by side
    first (im2col), pixels of all rows together; not where they lie side by side as they are.

    Knobs: `pixels`, `channels` of the register block; `tiles` of pixels whose sums lie in scratch at a time; `block` of
    channels; `outer`, the loop outside of the other; `share`, pixels that share one reading of the factors; `unroll`, vectors
    of the depth in one turn; `ahead` and `finish_ahead`, loads executed one turn ahead; `image`, where it is read.
    """
    many = what.geometry.pixels > 1
    blocks = tuple(block for block in _BLOCKS if block < what.channels and what.channels % block == 0)
    tile = range(1, _MOST_SUMS + 1)
    knobs: dict[str, tuple[Choice, ...]] = {
        "pixels": tuple(n for n in tile if n <= what.geometry.pixels),
        "channels": tuple(n for n in tile if n <= what.channels),
        "tiles": (1, 2, 3, 4) if many else (1,),
        "block": (what.channels, *reversed(blocks)),
        "outer": ("pixels", "channels") if blocks and many else ("pixels",),
        "share": (2, 1) if many else (1,),
        "unroll": ("all", 4, 2, 1, 8),
        "ahead": (2, 3, 1, 4, 0),
        "finish_ahead": (3, 2, 1, 4, 0),
        "image": ("in_place", "padded") if any(what.geometry.pad) else ("in_place",),
    }
    names = ["image"] if what.geometry.kernel == (1, 1) else ["image", "windows"]
    found = [(guess, name) for name in names if (guess := _guess(what, name, knobs))]
    return [_variant(what, name, knobs, assignment) for (_, assignment), name in sorted(found, key=lambda pair: pair[0][0])]


def _guess(
    what: Contraction, name: str, knobs: Mapping[str, tuple[Choice, ...]]
) -> tuple[float, Mapping[str, Choice]] | None:
    """The legal assignment of a few that promises the fewest cycles, with that number."""
    first = {name: choices[0] for name, choices in knobs.items()}
    open_knobs = ("pixels", "channels", "share", "unroll", "image")
    best = None
    for values in itertools.product(*(knobs[knob] for knob in open_knobs)):
        assignment = {**first, **dict(zip(open_knobs, values, strict=True))}
        if _is_legal(what, name, assignment):
            cycles = estimate(_verified(what, name, tuple(sorted(assignment.items()))))
            if best is None or cycles < best[0]:
                best = cycles, assignment
    return best


def _variant(
    what: Contraction, name: str, knobs: Mapping[str, tuple[Choice, ...]], first: Mapping[str, Choice]
) -> Variant:
    """The variant whose first schedule is `first`."""
    ordered = {k: (first[k], *(choice for choice in choices if choice != first[k])) for k, choices in knobs.items()}
    return Variant(name, ordered, lambda assignment: _is_legal(what, name, assignment))


def _is_legal(what: Contraction, name: str, assignment: Mapping[str, Choice]) -> bool:
    try:
        _verified(what, name, tuple(sorted(assignment.items())))
    except BackendError:
        return False
    return True


def estimate(kernel: Kernel) -> float:
    """Cycles of a kernel as far as its counts tell: vector pipes hold an instruction for two cycles."""
    counts = kernel.counts()
    inner = 2 * max(counts["products"], counts["loads"]) + counts["stores"] / 2 + 3 * counts["turns"]
    return inner + 1.4 * counts["finished"] + counts["factors"] / 2 + 12 * counts["entries"] + 6 * counts["copied"] + 60 * counts["border"]


def scheduled(what: Contraction, schedule: Schedule, core: Core) -> Kernel:
    """The kernel of a schedule out of `sketches`.

    Raises:
        BackendError: it is not legal.
    """
    kernel = _verified(what, schedule.variant, schedule.knobs)
    return Kernel(what, kernel.nest, core.pipeline)


@lru_cache(maxsize=4096)
def _verified(what: Contraction, variant: str, knobs: tuple[tuple[str, Choice], ...]) -> Kernel:
    nest = _sketch(what.nest, variant, dict(knobs), what.depth)
    kernel = Kernel(what, nest, None)
    kernel.verify()
    return kernel


def _sketch(nest: Nest, variant: str, k: Mapping[str, Choice], depth: int) -> Nest:
    """The trace of a variant with its numbers filled in, applied."""
    pixels, channels, block, share = (int(k[name]) for name in ("pixels", "channels", "block", "share"))
    rows = ["y"]
    if variant == "windows":
        nest = nest.apply("fuse", "sums", "y", "x").apply("fuse", "out", "y", "x")
        rows = []
    nest = nest.apply("place", "image", str(k["image"]))
    nest = nest.apply("place", "windows", "scratch" if variant == "windows" else "image")
    nest = nest.apply("split", "out", "x", "xo", pixels * int(k["tiles"])).apply("split", "out", "xo", "xi", share)
    nest = nest.apply("split", "out", "n", "no", block).apply("split", "out", "no", "ni", min(VECTOR, block))
    shared = [*rows, "x", "n"] if k["outer"] == "pixels" else ["n", *rows, "x"]
    nest = nest.apply("order", "out", *shared, "xo", "no", "xi", "ni")
    nest = nest.apply("lanes", "out", "ni").apply("unroll", "out", "xi").apply("turn", "out", "no")
    nest = nest.apply("compute_at", "sums", "out", shared[-1])
    nest = nest.apply("split", "sums", "x", "xi", pixels).apply("split", "sums", "n", "ni", channels)
    turn, inner = "n", ["k"]
    if k["unroll"] == "all":
        nest = nest.apply("split", "sums", "k", "kl", min(VECTOR, depth))
    else:
        turn, inner = "k", ["k", "ki"]
        nest = nest.apply("split", "sums", "k", "ki", VECTOR * int(k["unroll"])).apply("split", "sums", "ki", "kl", VECTOR)
    nest = nest.apply("order", "sums", *rows, "x", "n", *inner, "xi", "ni", "kl")
    nest = nest.apply("lanes", "sums", "kl").apply("unroll", "sums", "xi", "ni", inner[-1]).apply("turn", "sums", turn)
    return nest.apply("hoist", "sums", int(k["ahead"])).apply("hoist", "out", int(k["finish_ahead"]))
