"""DEPTHWISE_CONV2D of int8."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial

import numpy as np

from tosaic.backends.cortex_m.kernel import ANYWHERE, FAMILIES, KernelSource, Site, Workload
from tosaic.backends.cortex_m.kernels.depthwise_sketch import DepthwiseSketch
from tosaic.backends.cortex_m.kernels.mve import PRELUDE, VECTOR, lookup_order, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import (
    INT8,
    INT32,
    Geometry,
    constants_after_first,
    fold_zero_point,
    is_chain,
    match_epilogue,
    match_window,
    number,
    workload,
)
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.kernels.sketch_constants import constants_of, epilogue_of
from tosaic.backends.cortex_m.kernels.vector_depthwise_sketch import byte_depthwise
from tosaic.backends.cortex_m.nest.nest import Nest
from tosaic.backends.cortex_m.nest.patch_kernel import PatchKernel
from tosaic.backends.cortex_m.nest.patch_turn import ALL_AHEAD
from tosaic.backends.cortex_m.nest.patches import PatchDepthwise
from tosaic.backends.cortex_m.nest.spaces import ISSUES, assigned, beginning_with, issued, remembered_guess
from tosaic.backends.cortex_m.program.family import ProgramFamily
from tosaic.backends.cortex_m.program.kernel import PROMISE, Sketched, assignments, cheapest_first
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.support.errors import BackendError
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir
from tosaic.tuner.space import Choice, Schedule, Space, Variant

_TILES = ("2x2", "4x1", "1x4", "2x1", "1x2", "1x1")
# What the default gives in cycles for weights without zeros in flash.
_LESS_FLASH = 0.99
_BLOCKS = (16, 32, 48, 64, 96, 128, 192)
# Times the least price, for which less working memory is preferred.
_NEAR = 1.005
_STRIPS = (*range(1, 15), 16, 20, 24, 32)


@FAMILIES.register
class Depthwise(ProgramFamily):
    """DEPTHWISE_CONV2D, int8 times constant int8, any multiplier, RESCALE to int32, or to int8 with optional CLAMP and
    TABLE.

    Without MVE it is a program's (`kernels.depthwise_sketch`); with it, one with channels in lanes, `lined`
    (`kernels.vector_depthwise_sketch`), where that may be faster than patches.

    Knobs of variant `patches`: `tile` is rows x columns of outputs per patch, `strips` how many strips of input are
    packed before the channels are walked, `loop` what the hardware loop walks over (`of 4`: with parts of a row, four
    turns each, in its block), `held` how many weight vectors stay in registers, `ahead` loads that are executed a turn
    ahead (`patches.ALL_AHEAD`: all code of the first sums), `weights` where these get the zeros between them: in the
    params, or at each call in scratch memory, `patch` its rows x columns; `block` channels are packed together, `pack`
    vectors of a row (columns of a block) in a turn, `pack_ahead` loads of it executed a turn ahead; `issue` is what is
    issued first in a turn.
    """

    name = "depthwise_conv2d"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or ops[0].name != "tosa.depthwise_conv2d" or not is_chain(ops, function):
            return None
        geometry, operands = match_window(ops[0]), constants_after_first(ops[0])
        if geometry is None or operands is None:
            return None
        weights, bias, input_zero_point, _ = operands
        multiples = weights.shape[3]
        channels = geometry.channels * multiples
        epilogue = match_epilogue(ops[1:], channels, wide=True)
        if epilogue is None or epilogue.element not in (INT8, INT32):
            return None
        attributes = {**vars(geometry), "multiples": multiples, **epilogue.attributes}
        constants = {
            "weights": weights.reshape(*geometry.kernel, channels).transpose(2, 0, 1),
            "bias": np.broadcast_to(bias, (channels,)),
            "input_zero_point": input_zero_point,
            **epilogue.constants,
        }
        return workload(self.name, attributes, constants)

    def sketch(self, workload: Workload) -> Sketched | None:
        geometry, epilogue = Geometry.of(workload.attributes), epilogue_of(workload)
        return DepthwiseSketch(geometry, number(workload, "multiples"), epilogue, constants_of(workload))

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        geometry = Geometry.of(workload.attributes)
        if number(workload, "multiples") > 1 or geometry.channels == 1:
            return {}
        return {"lined": byte_depthwise(geometry, epilogue_of(workload), constants_of(workload))}

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        patches = self.vector_variants(workload, core) if core.mve else ()
        if not patches:
            return super().variants(workload, core)
        promised, sketches = self._promise(workload, patches, core), self.vector_sketches(workload)
        hopeful = {name: what for name, what in sketches.items() if _least(what, core) <= promised}
        lined = cheapest_first(hopeful, core, self.site) if hopeful else []
        if lined and self._promise(workload, lined, core) < promised:
            return (*lined, *patches)
        return (*patches, *lined)

    def _promise(self, workload: Workload, variants: Sequence[Variant], core: Core) -> float:
        """The cycles that the first schedule promises."""
        return self.features(workload, Space(tuple(variants)).default(), core)[PROMISE]

    def vector_variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        what = _problem(workload)
        parts = [n for n in (8, 6, 4, 3, 2) if n < what.geometry.columns]
        knobs: dict[str, tuple[Choice, ...]] = {
            "tile": _TILES,
            "strips": tuple(n for n in _STRIPS if n <= what.geometry.rows),
            "held": (4, 3, 5, 2, 1, 0),
            "loop": (
                *("channels", *(f"channels of {n}" for n in parts)),
                *("strips", *(f"strips of {n}" for n in parts)),
                *("row", *(f"row by {n}" for n in (2, 3, 4) if n <= what.geometry.columns)),
            ),
            "ahead": (ALL_AHEAD, 1, 0, 2, 3, 4, 5),
            "weights": ("params", "scratch"),
            "patch": ("4x4", "8x2"),
            "pack": tuple(range(1, 9)),
            "pack_ahead": (0, 1, 2, 3, 4),
            "issue": ISSUES,
            "block": (what.channels, *(n for n in _BLOCKS if n < what.channels and what.channels % n == 0)),
        }
        problem = (what, core, self.site)
        first = remembered_guess("depthwise", problem, lambda: _first(what, knobs, core, self.site))
        if first is None:
            return ()
        return (beginning_with(first, "patches", knobs, partial(_distinct, what)),)

    def vector_kernel(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        what, constants, params = _problem(workload), workload.constants, Params()
        kernel = PatchKernel(what, _verified(what, schedule.knobs).nest, core.pipeline)
        bias = fold_zero_point(constants["bias"], constants["weights"], int(constants["input_zero_point"].item()))
        params.add(np.append(constants["range"], constants["input_zero_point"]).astype(np.int32))
        lookup = f"params + {params.add(lookup_order(constants['table']))}" if what.table else "0"
        factors = params.add(kernel.pack_factors(bias, constants["multiplier"], constants["shift"]))
        weights = params.add(kernel.pack_weights(constants["weights"]))
        lines = kernel.text(weights, f"(const int32_t *)(params + {factors})", lookup)
        symbol, text = with_symbol("depthwise", PRELUDE + "\n".join(lines))
        return KernelSource(symbol, "c", text, bytes(params), kernel.scratch_bytes, weights=weights)

    def vector_trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        return _verified(_problem(workload), schedule.knobs).nest.trace

    def vector_features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        kernel = _verified(_problem(workload), schedule.knobs)
        counts = kernel.counts()
        return self.site.priced(counts, _estimate(counts), kernel.walks(), core.pipeline)


def _least(what: Sketched, core: Core) -> float:
    """The fewest cycles that a schedule may take."""
    found = []
    for each in assignments(what.knobs(core)):
        with suppress(RefusedError):
            found.append(what.cost(each))
    return min(found)


def _problem(workload: Workload) -> PatchDepthwise:
    attributes = workload.attributes
    geometry, multiples = Geometry.of(attributes), number(workload, "multiples")
    clamped, table = bool(attributes["clamped"]), bool(attributes["table"])
    element = 4 if "result" in attributes else 1
    return PatchDepthwise(geometry, multiples, str(attributes["form"]), clamped, table, element)


@lru_cache(maxsize=4096)
def _verified(what: PatchDepthwise, knobs: tuple[tuple[str, Choice], ...]) -> PatchKernel:
    """The trace with its numbers filled in, applied and verified."""
    k = dict(knobs)
    rows, columns = map(int, str(k["tile"]).split("x"))
    turn = min(4 // rows, what.geometry.columns)
    if (int(k["strips"]) - 1) * rows >= what.geometry.rows:
        raise BackendError(f"{what.geometry.rows} rows have no {k['strips']} strips of {rows}")
    nest = what.nest.apply("split", "out", "y", "ys", min(rows * int(k["strips"]), what.geometry.rows))
    nest = nest.apply("split", "out", "ys", "yi", rows)
    around, inside, loop = ["y", "c", "ys"], ["x", "xt", "yi", "xi"], str(k["loop"])
    block, blocks = int(k["block"]), list[str]()
    if block < what.channels:
        nest, blocks = nest.apply("split", "out", "c", "ci", block), ["c"]
    if loop.startswith("row"):
        unroll = int(loop.removeprefix("row by ") if " " in loop else 1)
        if unroll * turn > what.geometry.columns:
            raise BackendError(f"a row of {what.geometry.columns} has no {unroll} turns of {turn}")
        nest = nest.apply("split", "out", "x", "xu", turn * unroll)
        around, inside = [*around, "x"], ["xu", "xt", "yi", "xi"]
    else:
        around = ["y", "ys", "c"] if loop.startswith("channels") else around
        if " " in loop:
            part = turn * int(loop.rpartition(" ")[2])
            if part >= what.geometry.columns:
                raise BackendError(f"a row of {what.geometry.columns} has no parts of {part}")
            nest = nest.apply("split", "out", "x", "xu", part)
            around, inside = [*around[:-1], "x", around[-1]], ["xu", "xt", "yi", "xi"]
    nest = nest.apply("split", "out", inside[0], "xt", turn).apply("split", "out", "xt", "xi", columns)
    around = [*blocks, *("ci" if blocks and axis == "c" else axis for axis in around)]
    nest = nest.apply("order", "out", *around, *inside)
    nest = nest.apply("unroll", "out", *inside).apply("turn", "out", around[-1])
    nest = _packed(nest.apply("compute_at", "strip", "out", "y"), bool(blocks), int(k["pack"]), int(k["pack_ahead"]))
    nest = nest.apply("place", "weights", str(k["weights"])).apply("place", "patch", str(k["patch"]))
    nest = nest.apply("hold", "weights", int(k["held"])).apply("hoist", "out", int(k["ahead"]))
    nest = issued(nest, "out", k["issue"])
    kernel = PatchKernel(what, nest, None)
    kernel.verify()
    return kernel


def _packed(nest: Nest, by_columns: bool, size: int, ahead: int) -> Nest:
    """The strips' packing: so many columns of a block of channels in a turn, or vectors of whole rows."""
    if by_columns:
        nest = nest.apply("split", "strip", "x", "v", size).apply("split", "strip", "c", "l", VECTOR)
        nest = nest.apply("lanes", "strip", "l").apply("unroll", "strip", "v", "c").apply("turn", "strip", "x")
        return nest.apply("hoist", "strip", ahead)
    nest = nest.apply("fuse", "strip", "x", "c")
    if nest.loop("strip", "c").extent < VECTOR and (size, ahead) == (1, 0):
        return nest
    nest = nest.apply("split", "strip", "c", "v", VECTOR * size).apply("split", "strip", "v", "l", VECTOR)
    nest = nest.apply("lanes", "strip", "l").apply("unroll", "strip", "v").apply("turn", "strip", "c")
    return nest.apply("hoist", "strip", ahead)


def _distinct(what: PatchDepthwise, knobs: tuple[tuple[str, Choice], ...]) -> None:
    """Verify a schedule, and that it holds no more weight vectors than there are, which would print the same code."""
    if _verified(what, knobs).held < int(dict(knobs)["held"]):
        raise BackendError(f"there are no {dict(knobs)['held']} weight vectors")


@lru_cache(maxsize=256)
def _guesses(
    what: PatchDepthwise, knobs: tuple[tuple[str, tuple[Choice, ...]], ...], core: Core, site: Site
) -> list[dict[str, Choice]]:
    """Legal assignments, the one that promises the fewest cycles first; only the knobs that matter most vary."""
    choices = dict(knobs)
    first = {name: values[0] for name, values in choices.items()}

    def legal(around: Mapping[str, Choice], *open_knobs: str) -> list[tuple[float, float, dict[str, Choice]]]:
        """The legal assignments that differ in some knobs from another, with price and scratch memory, by price."""
        found = []
        for values in itertools.product(*(choices[knob] for knob in open_knobs)):
            guess = {**around, **dict(zip(open_knobs, values, strict=True))}
            with suppress(BackendError):
                kernel = _verified(what, assigned(guess))
                counts = kernel.counts()
                if site.holds(counts):
                    price = _estimate(counts) + site.waits(kernel.walks(), core.pipeline)
                    price *= _LESS_FLASH if guess["weights"] == "scratch" else 1
                    found.append((price, counts["scratch"], guess))
        return sorted(found, key=lambda each: each[:2])

    def cheapest(around: Mapping[str, Choice], *open_knobs: str) -> list[tuple[float, dict[str, Choice]]]:
        """Those assignments with their price, the first one's channels in blocks where that is cheaper, as there is
        room for weights to be expanded, or takes less memory at nearly that price."""
        found = legal(around, *open_knobs)
        if not found:
            return []
        blocked = legal(found[0][-1], "weights", "block")
        least, _, best = blocked[0]
        alike = (each for each in blocked if each[-1]["weights"] == best["weights"])
        near = [(scratch, price, guess) for price, scratch, guess in alike if price <= _NEAR * least]
        _, price, small = min(near, key=lambda each: each[:2])
        return [(price, small), *((price, guess) for price, _, guess in found)]

    if site == ANYWHERE:
        return [guess for _, guess in cheapest(first, "patch", "tile", "loop", "held")]
    guesses = _guesses(what, knobs, core, ANYWHERE)
    ways = [cheapest(guesses[0], "loop", "strips", "weights"), cheapest(first, "tile", "loop", "block")]
    ways += [cheapest(way[0][1], "loop", "strips", "held") for way in ways if way] if site.tensors else []
    ways = sorted((way for way in ways if way), key=lambda way: way[0][0])
    return [*(guess for way in ways for _, guess in way), *guesses]


def _first(
    what: PatchDepthwise, knobs: Mapping[str, tuple[Choice, ...]], core: Core, site: Site
) -> dict[str, Choice] | None:
    """The best guess whose vectors fit the registers in the order of the core."""
    for guess in _guesses(what, tuple(knobs.items()), core, site):
        with suppress(BackendError):
            kernel = PatchKernel(what, _verified(what, assigned(guess)).nest, core.pipeline)
            if site.holds(kernel.counts()):
                kernel.functions()
                return _well_packed(what, {**guess, "held": kernel.held}, knobs, core)
    return None


def _well_packed(
    what: PatchDepthwise, guess: dict[str, Choice], knobs: Mapping[str, tuple[Choice, ...]], core: Core
) -> dict[str, Choice]:
    """The assignment with the fewest cycles of its strips' packing, then the least code."""
    found = []
    for size, ahead in itertools.product(knobs["pack"], knobs["pack_ahead"]):
        packed = {**guess, "pack": size, "pack_ahead": ahead}
        with suppress(BackendError):
            nest = _verified(what, assigned(packed)).nest
            found.append((PatchKernel(what, nest, core.pipeline).packing.cycles(), int(size), packed))
    return min(found, key=lambda each: each[:2])[2]


def _estimate(counts: Mapping[str, float]) -> float:
    """Cycles of the core as far as the counts of a kernel tell."""
    vectors = 2 * counts["products"] + 2 * counts["gathers"] + 2 * counts["reloaded"]
    turn = vectors + counts["moved"] + counts["shifted"] + 9 * counts["turns"]
    alone = 12 * counts["turns"] / counts["unrolled"]
    starts = 25 * counts["channel_starts"] + 15 * counts["entries"] + 1.5 * counts["weights"] + 20 * counts["visits"]
    packed = counts["packed"] / 8 + counts["block_columns"] / 2
    return turn + alone + starts + packed + 11 * counts["expanded"]
