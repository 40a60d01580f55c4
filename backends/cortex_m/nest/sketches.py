"""The sketches of contractions: traces with open numbers, which the search fills in."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels.mve import VECTOR
from tosaic.backends.cortex_m.nest.assembly import VECTORS
from tosaic.backends.cortex_m.nest.block import AS_BEST, Issue
from tosaic.backends.cortex_m.nest.contraction import Contraction
from tosaic.backends.cortex_m.nest.nest import Nest
from tosaic.backends.cortex_m.nest.sums import PAIRS, SUMS, SumsKernel
from tosaic.backends.cortex_m.nest.tiled import Tiled
from tosaic.backends.cortex_m.nest.window_reader import MOST_PADDED
from tosaic.backends.digest import code_digest
from tosaic.backends.target import Core, Pipeline
from tosaic.support.cache import remembered
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Choice, Schedule, Variant

_FEW_SUMS = 64
# Times the fewest cycles, for which less code is preferred.
_NEAR = 1.01
# The first choices; the scheduler orders longer turns less well than the counts promise, which only a trial tells.
_MOST_GUESSED = {"repeats": 4, "finish_repeats": 3}
# The knobs that hoist loads of a stage.
_HOISTS = {"ahead": "sums", "finish_ahead": "out"}
# The orders of a turn: a priority of the list scheduler, and from how few instructions it chooses.
ISSUES = ("best", "longest", "fewest", "best of 8", "longest of 8", "fewest of 8")
_TILES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24)
_BLOCKS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)


@lru_cache(maxsize=256)
def sketches(what: Contraction, site: Site) -> Sequence[Variant]:
    """`image`: windows are read where the image lies, pixels of a row together. `windows`: they are copied side by side
    first (im2col), pixels of all rows together; not where they lie side by side as they are.

    Knobs: `tile`, pixels x channels of the register block; `repeats` of it in one turn; `tiles` of pixels whose sums
    lie in scratch at a time; `tail`, whether the last of them in a row starts `early` or is `short`; `block` of
    channels; `outer`, the loop outside of the other; `weights`, where a block of them is read; `unroll`, vectors of the
    depth in one turn; `held` vectors of the windows; `share`, pixels that share one reading of the factors;
    `finish_repeats`, vectors of results in one turn; `ahead` and `finish_ahead`, loads executed one turn ahead; `issue`
    and `finish_issue`, what is issued first in a turn; `image`, where it is read. The first schedule of a variant is
    the one that promises the fewest cycles at its site.
    """
    names = ["image"] if what.geometry.kernel == (1, 1) else ["image", "windows"]
    knobs = {name: _knobs(what, name) for name in names}
    found = [(guess, name) for name in names if (guess := _remembered(what, name, knobs[name], site))]
    return [
        beginning_with(guess.assignment, name, knobs[name], partial(_distinct, what, name))
        for guess, name in sorted(found, key=lambda pair: pair[0])
    ]


@dataclass(frozen=True, order=True)
class _NestGuess:
    """What an assignment promises: cycles, and bytes of working memory and of code."""

    cycles: float
    scratch: float
    code: float
    assignment: Mapping[str, Choice] = field(compare=False)


def _knobs(what: Contraction, name: str) -> dict[str, tuple[Choice, ...]]:
    """The choices of a variant that may be legal, whatever the others are."""
    pixels, finish = what.geometry.pixels, what.finish
    row = pixels if name == "windows" else what.geometry.columns
    many = pixels > 1
    blocks = tuple(block for block in _BLOCKS if block < what.channels and what.channels % block == 0)
    most = len(PAIRS if what.dot.registers == 2 else SUMS)
    tiles = [(p, c) for p in range(1, most + 1) for c in range(1, most // p + 1) if p <= row and c <= what.channels]
    padded = any(what.geometry.pad) and what.geometry.batch == 1 and what.padded_bytes <= MOST_PADDED
    vectors = -(-what.depth // VECTOR)
    around: dict[str, tuple[Choice, ...]] = {
        "block": (what.channels, *reversed(blocks)) if many else _small_first((*blocks, what.channels)),
        "outer": ("pixels", "channels") if many else ("pixels",),
        "weights": ("params", "scratch") if many else ("params",),
        "image": ("in_place", "padded") if padded else ("in_place",),
    }

    def alone(*choices: int) -> tuple[int, ...]:
        """Further choices for one pixel, whose other knobs leave little open."""
        return () if many else choices

    shortened = any(row % (p * n) for p, _ in tiles for n in _TILES if p * n <= row)
    return {
        "tile": tuple(f"{p}x{c}" for p, c in tiles),
        "tail": ("early", "short") if shortened else ("early",),
        "held": tuple(range(min(len(VECTORS) - 1, most * vectors + 1))),
        "tiles": tuple(n for n in _TILES if n <= row),
        "share": tuple(n for n in (2, 1) if n <= row and finish.vectors(n, 0) <= finish.spare_vectors) or (1,),
        "unroll": ("all", *(n for n in (8, 4, 2, 1, *alone(16, 12, 10, 6, 5, 3)) if vectors % n == 0 and vectors > n)),
        "ahead": (2, 3, 1, 4, 0, *alone(5, 6)),
        "finish_ahead": (3, 2, 1, 4, 0, *alone(5, 6)) if what.channels > VECTOR and finish.form != "wide" else (0,),
        "repeats": tuple(n for n in (1, 2, 3, 4, 6, 8, *alone(5, 10, 12, 16)) if n <= what.channels),
        "finish_repeats": tuple(n for n in (1, 2, 4, 3, *alone(6, 8)) if VECTOR * n <= what.channels) or (1,),
        "issue": ISSUES,
        "finish_issue": ISSUES if finish.form != "wide" else ISSUES[:1],
        **around,
    }


def _small_first(blocks: Sequence[int]) -> tuple[int, ...]:
    """For one pixel: first the largest block whose sums take little memory, which costs but a few entries more."""
    first = max((block for block in blocks if block <= _FEW_SUMS), default=min(blocks))
    return (first, *(block for block in reversed(blocks) if block != first))


def _remembered(what: Contraction, name: str, knobs: Mapping[str, tuple[Choice, ...]], site: Site) -> _NestGuess | None:
    """The guess of this code, from an earlier process where one has made it."""

    def compute() -> list | None:
        guess = _guess(what, name, knobs, site)
        return [guess.cycles, guess.scratch, guess.code, dict(guess.assignment)] if guess else None

    known = remembered_guess("contraction", (what, name, site), compute)
    return _NestGuess(*known) if known else None


def remembered_guess(kind: str, problem: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
    """What this code guesses for a problem, plain data as JSON has it; from an earlier process where one has."""
    return remembered(f"guesses/{kind}", [code_digest("cortex_m", "simulators"), repr(problem)], compute)


def _guess(what: Contraction, name: str, knobs: Mapping[str, tuple[Choice, ...]], site: Site) -> _NestGuess | None:
    """A legal assignment that promises few cycles; the last choices are for less code where cycles are near."""
    knobs = {name: choices[: _MOST_GUESSED.get(name)] for name, choices in knobs.items()}
    first = {name: choices[0] for name, choices in knobs.items()}
    hoists = {name: first[name] for name in _HOISTS if name in first}

    def alike(around: Mapping[str, Choice], *open_knobs: str, waits: bool = True) -> list[_NestGuess]:
        """The assignments that differ in some knobs from another, legal as far as sizes tell, with what they wait for
        memory or without."""
        found = []
        for chosen in itertools.product(*(knobs[knob] for knob in open_knobs)):
            guess = {**around, **hoists, **dict(zip(open_knobs, chosen, strict=True))}
            with suppress(BackendError):
                kernel = _kernel(what, name, assigned(guess))
                if idle := _idle(kernel):
                    guess |= idle
                    kernel = _kernel(what, name, assigned(guess))
                kernel.verify_sizes()
                counts = kernel.counts()
                if site.holds(counts):
                    cycles = estimate(counts) + waits * site.waits(kernel.walks(), what.finish.pipeline)
                    found.append(_NestGuess(cycles, counts["scratch"], counts["code"], guess))
        return found

    def best(around: Mapping[str, Choice], *open_knobs: str, waits: bool = True) -> _NestGuess | None:
        return next(_legal(what, name, sorted(alike(around, *open_knobs, waits=waits))), None)

    starts: Sequence[Sequence[str]] = (
        ("tile", "image"),
        ("tile", "share", "unroll", "image"),
        ("tile", "image", "block", "tiles"),
    )
    near: Sequence[Sequence[str]] = (
        ("weights", "outer", "block", "tiles"),
        ("tile", "image", "share"),
        ("weights", "outer", "block"),
    )
    last: Sequence[Sequence[str]] = ("tile", "tail", "held"), ("repeats", "finish_repeats")
    guess = next((found for open_knobs in starts if (found := best(first, *open_knobs))), None)
    if guess is None:
        return None
    if site.waits_for_memory:
        alone = next((found for open_knobs in starts if (found := best(first, *open_knobs, waits=False))), guess)
        tried = [guess]
        for start in (guess, alone):
            for open_knobs in near:
                start = best(start.assignment, *open_knobs) or start
            tried.append(start)
        guess = min(tried)
    for open_knobs in last:
        compared = list(_legal(what, name, sorted(alike(guess.assignment, *open_knobs))))
        least = min(compared).cycles
        guess = min((each for each in compared if each.cycles <= _NEAR * least), key=lambda each: each.code)
    return guess


def _idle(kernel: Tiled) -> dict[str, Choice]:
    """Knobs that hoist loads of a loop that has no further turn, as they are without."""
    return {knob: 0 for knob, stage in _HOISTS.items() if kernel.nest.hoisted.get(stage) and kernel.turns[stage] < 2}


def _legal(what: Contraction, name: str, guesses: Sequence[_NestGuess]) -> Iterator[_NestGuess]:
    """Those whose vectors fit the registers, which takes long to find out."""
    for guess in guesses:
        with suppress(BackendError):
            _verified(what, name, assigned(guess.assignment))
            yield guess


def beginning_with(
    first: Mapping[str, Choice],
    name: str,
    knobs: Mapping[str, tuple[Choice, ...]],
    verify: Callable[[tuple[tuple[str, Choice], ...]], object],
) -> Variant:
    """The variant whose first schedule is `first`; legal is what `verify` does not refuse with a BackendError."""
    ordered = {k: (first[k], *(choice for choice in choices if choice != first[k])) for k, choices in knobs.items()}

    def legal(assignment: Mapping[str, Choice]) -> bool:
        try:
            verify(assigned(assignment))
        except BackendError:
            return False
        return True

    return Variant(name, ordered, legal)


def cheapest_first(
    kernel: Callable[[Any, Nest, None], Any],
    what: Any,
    knobs: Mapping[str, Mapping[str, tuple[Choice, ...]]],
    pipeline: Pipeline | None,
) -> Sequence[Variant]:
    """Variants with knobs, by the fewest cycles that `counts` of a kernel promise, then the least code.

    Args:
        kernel: what `verified` makes of the problem `what`.
    """

    def guess(name: str) -> list | None:
        found = []
        for chosen in itertools.product(*knobs[name].values()):
            each = dict(zip(knobs[name], chosen, strict=True))
            with suppress(BackendError):
                counts = replace(verified(kernel, what, name, assigned(each)), pipeline=pipeline).counts()
                found.append([counts["cycles"], counts["code"], each])
        return min(found, key=lambda each: each[:2], default=None)

    guesses = {name: remembered_guess(name, (what, knobs[name], pipeline), partial(guess, name)) for name in knobs}
    found = sorted((best[:2], name) for name, best in guesses.items() if best)
    legal = partial(verified, kernel, what)
    return [beginning_with(guesses[name][2], name, knobs[name], partial(legal, name)) for _, name in found]


@lru_cache(maxsize=8192)
def verified(
    kernel: Callable[[Any, Nest, None], Any], what: Any, variant: str, knobs: tuple[tuple[str, Choice], ...]
) -> Any:
    """The kernel of an assignment, its nest `what.scheduled(variant, knobs)`, its instructions in the order of their
    meaning.

    Raises:
        BackendError: it is not legal.
    """
    made = kernel(what, what.scheduled(variant, dict(knobs)), None)
    made.verify()
    return made


def assigned(knobs: Mapping[str, Choice]) -> tuple[tuple[str, Choice], ...]:
    """An assignment as a schedule holds it."""
    return tuple(sorted(knobs.items()))


def estimate(counts: Mapping[str, float]) -> float:
    """Cycles of the core as far as the counts of a kernel tell: vector pipes hold an instruction for two cycles."""
    return (
        (counts["cycles"] if "cycles" in counts else _estimated_sums(counts))
        + 3 * counts["copied"]
        + counts["constants_copied"] / 4
        + 60 * counts["border"]
    )


def _estimated_sums(counts: Mapping[str, float]) -> float:
    """Cycles of sums that go through memory, and of their finish."""
    inner = 2 * max(counts["products"], counts["loads"]) + counts["stores"] / 2 + 3 * counts["turns"]
    inner += 2 * counts["held"]
    finish = 1.4 * counts["finished"] - 8 * counts["finish_joined"] + counts["factors"] / 2
    return inner + finish + 12 * counts["entries"]


def scheduled(what: Contraction, schedule: Schedule, core: Core) -> Tiled:
    """The kernel of a schedule out of `sketches`.

    Raises:
        BackendError: it is not legal.
    """
    return replace(_verified(what, schedule.variant, schedule.knobs), pipeline=core.pipeline)


@lru_cache(maxsize=4096)
def _verified(what: Contraction, variant: str, knobs: tuple[tuple[str, Choice], ...]) -> Tiled:
    kernel = _kernel(what, variant, knobs)
    kernel.verify()
    return kernel


def _distinct(what: Contraction, name: str, knobs: tuple[tuple[str, Choice], ...]) -> None:
    """Verify a schedule, and that no other prints the same code."""
    _verified(what, name, knobs).verify_distinct()


@lru_cache(maxsize=4096)
def _kernel(what: Contraction, variant: str, knobs: tuple[tuple[str, Choice], ...]) -> Tiled:
    return SumsKernel(what, _sketch(what.nest, variant, dict(knobs), what.depth), None)


def _sketch(nest: Nest, variant: str, k: Mapping[str, Choice], depth: int) -> Nest:
    """The trace of a variant with its numbers filled in, applied."""
    pixels, channels = map(int, str(k["tile"]).split("x"))
    block, share = int(k["block"]), int(k["share"])
    rows = ["y"]
    if variant == "windows":
        nest = nest.apply("fuse", "sums", "y", "x").apply("fuse", "out", "y", "x")
        rows = []
    nest = nest.apply("place", "image", str(k["image"]))
    nest = nest.apply("place", "windows", "scratch" if variant == "windows" else "image")
    nest = nest.apply("place", "weights", str(k["weights"]))
    nest = nest.apply("split", "out", "x", "xo", pixels * int(k["tiles"])).apply("split", "out", "xo", "xi", share)
    if k["tail"] == "short":
        nest = nest.apply("shorten", "out", "x")
    if int(k["held"]):
        nest = nest.apply("hold", "windows", int(k["held"]))
    nest = nest.apply("split", "out", "n", "no", block)
    nest = nest.apply("split", "out", "no", "nu", min(VECTOR, block) * int(k["finish_repeats"]))
    nest = nest.apply("split", "out", "nu", "ni", min(VECTOR, block))
    shared = [*rows, "x", "n"] if k["outer"] == "pixels" else ["n", *rows, "x"]
    nest = nest.apply("order", "out", *shared, "xo", "no", "nu", "xi", "ni")
    nest = nest.apply("lanes", "out", "ni").apply("unroll", "out", "nu", "xi").apply("turn", "out", "no")
    nest = nest.apply("compute_at", "sums", "out", shared[-1])
    nest = nest.apply("split", "sums", "x", "xi", pixels)
    nest = nest.apply("split", "sums", "n", "nu", channels * int(k["repeats"])).apply(
        "split", "sums", "nu", "ni", channels
    )
    turn, inner = "n", ["k"]
    if k["unroll"] == "all":
        nest = nest.apply("split", "sums", "k", "kl", min(VECTOR, depth))
    else:
        turn, inner = "k", ["k", "ki"]
        nest = nest.apply("split", "sums", "k", "ki", VECTOR * int(k["unroll"]))
        nest = nest.apply("split", "sums", "ki", "kl", VECTOR)
    nest = nest.apply("order", "sums", *rows, "x", "n", "nu", *inner, "ni", "xi", "kl").apply("lanes", "sums", "kl")
    unrolled = ["ni", "xi", inner[-1], *(["nu"] if turn == "n" else [])]
    nest = nest.apply("unroll", "sums", *unrolled).apply("turn", "sums", turn)
    nest = nest.apply("hoist", "sums", int(k["ahead"])).apply("hoist", "out", int(k["finish_ahead"]))
    return issued(issued(nest, "sums", k["issue"]), "out", k["finish_issue"])


def issued(nest: Nest, stage: str, issue: Choice) -> Nest:
    """The nest with a stage's block ordered as one of `ISSUES` says."""
    priority, _, window = str(issue).partition(" of ")
    found = Issue(priority, int(window)) if window else Issue(priority)
    return nest.apply("issue", stage, *found) if found != AS_BEST else nest
