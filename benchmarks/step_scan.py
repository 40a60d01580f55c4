"""Every small step more on shipped schedules: `python benchmarks/step_scan.py --json --run 40`.

After every few steps of a schedule, and at its end, each primitive is tried with every loop, buffer and small number.
A step is refused with a reason, or it changes the kernel, which then puts out what it did before: it works. Where the
core could run the kernel before, it can behind, and the printed C or the params differ, else the step is ignored; one
that says what runs ahead works where the order of issue lets that run ahead already. Where outputs change, or it raises
anything else, it is wrong. `--run` builds so many of the kernels that work and runs them on QEMU; `--walks` takes
random walks of two to four steps more instead, behind all of a schedule or its beginning.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import click
import numpy as np

from tosaic.backends.cores.cortex_m4 import CORE as CORTEX_M4
from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels.conv2d_sketch import Conv2dSketch
from tosaic.backends.cortex_m.kernels.depthwise_sketch import DepthwiseSketch
from tosaic.backends.cortex_m.kernels.float_depthwise_sketch import ScalarFloatDepthwise
from tosaic.backends.cortex_m.kernels.float_product_sketch import ScalarFloatProduct
from tosaic.backends.cortex_m.kernels.indexing_sketch import PlainRows, VectorRows
from tosaic.backends.cortex_m.kernels.lookup import LookupSketch
from tosaic.backends.cortex_m.kernels.masked_sketch import MaskedProduct
from tosaic.backends.cortex_m.kernels.matmul_sketch import (
    HalfMatmulSketch,
    LongMatmulSketch,
    LongRowsSketch,
    MatmulSketch,
)
from tosaic.backends.cortex_m.kernels.movement_sketch import PlainMovement, VectorMovement
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.pixel_sketch import PixelSketch
from tosaic.backends.cortex_m.kernels.pool_sketch import PoolSketch
from tosaic.backends.cortex_m.kernels.reduction_sketch import ReductionSketch, RowsSketch, VectorsSketch
from tosaic.backends.cortex_m.kernels.resize_sketch import ResizeSketch
from tosaic.backends.cortex_m.kernels.row_sketch import RowSketch
from tosaic.backends.cortex_m.kernels.space_to_depth_sketch import SpaceToDepthSketch
from tosaic.backends.cortex_m.kernels.spatial_tile_sketch import SpatialTileSketch
from tosaic.backends.cortex_m.kernels.transposed_sketch import TransposedAxis, TransposedRows
from tosaic.backends.cortex_m.kernels.vector_depthwise_sketch import FloatDepthwise, VectorDepthwise, byte_depthwise
from tosaic.backends.cortex_m.kernels.vector_pool_sketch import SteppedPool, TiledPool, WalkedPool
from tosaic.backends.cortex_m.kernels.vector_product_sketch import FloatProduct
from tosaic.backends.cortex_m.kernels.vector_sketch import vector_sketches
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.calls import call_of, kernel, with_scratch
from tosaic.backends.cortex_m.program.canonical import guard_change
from tosaic.backends.cortex_m.program.check import check
from tosaic.backends.cortex_m.program.guesses import cheapest_first
from tosaic.backends.cortex_m.program.host import Derive
from tosaic.backends.cortex_m.program.indexing import IndexedRows
from tosaic.backends.cortex_m.program.interpret import Meaning, host_constants, interpreted
from tosaic.backends.cortex_m.program.kernel import Built, Sketched
from tosaic.backends.cortex_m.program.memory import params_of, scratch_bytes
from tosaic.backends.cortex_m.program.movement import CopyAxis, CopyBox
from tosaic.backends.cortex_m.program.moves import all_moves, drawn
from tosaic.backends.cortex_m.program.print_c import Printer
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.resizing import ResizedAxis, Resizing
from tosaic.backends.cortex_m.program.rewriting import nested, seq
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Step, applied, parse_steps, replayed, trees
from tosaic.backends.cortex_m.program.tree import NUMPY, Access, Alloc, Assign, Buffer, If, Let, Op, RefusedError
from tosaic.backends.cortex_m.toolchain import compile_kernels
from tosaic.backends.target import Core

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "backends" / "cortex_m"))
import board  # pyright: ignore[reportMissingImports]

Verdict = Literal["refused", "works", "ignored", "wrong"]
VERDICTS: tuple[Verdict, ...] = ("refused", "works", "ignored", "wrong")
CORTEX_M3 = Core("cortex-m3", "thumbv7m-none-eabi", (), "soft")
_AHEAD = ("hoist", "pipeline")
"""The primitives that say what runs ahead."""
_DRAWN = 200
"""Steps of a walk, of which most are refused."""
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Shipped:
    """A kernel as it is shipped: an algorithm and a schedule of it for a core.

    Args:
        meanings: of kernels that it calls.
    """

    name: str
    core: Core
    program: Program
    steps: tuple[Step, ...]
    meanings: Mapping[str, Meaning] = field(default_factory=dict)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """Random inputs, and constants that the algorithm names."""
        rng = np.random.default_rng(0)
        given = {"multiplier": (1 << 30, (1 << 31) - 1), "shift": (36, 39), "bias": (-4000, 4000)}
        given |= {"w": (-127, 128), "low": (-100, -90), "upper": (90, 100)}
        given |= {"y0": (0, 7), "y1": (0, 7), "x0": (0, 5), "x1": (0, 5), "wy": (0, 5), "wx": (0, 5)}
        given["mask"] = (0, 2)
        given["indices"] = (-1, 7) if "rows" in self.program.buffers else (0, 5)
        rules = {step.rule for step in replayed(self.program, self.steps).host if isinstance(step, Derive)}
        if "nothing_added" in rules or any((b.memory, b.dtype) == ("out", "i16") for b in self.program.arguments):
            given["zero"] = (0, 1)
        names = {b.name for b in self.program.arguments}
        if "bias_low" in names or ("multiplier" in names and names.isdisjoint(("bias", "zero"))):  # sums of 48 bits
            given |= {"multiplier": (1 << 14, 1 << 15), "shift": (20, 23), "bias_low": (0, 256)}
        unit = 256 if "whole" in rules else 1  # A multiplier that is shifted before.
        small = {"i8": (-128, 128), "i16": (-400, 400), "i32": (-20, 20), "f32": (-20, 20)}
        found = {
            b.name: rng.integers(*given.get(b.name, small[b.dtype]), b.shape).astype(NUMPY[b.dtype])
            for b in self.program.arguments
            if b.memory != "out"
        }
        return {name: array // unit * unit if name == "multiplier" else array for name, array in found.items()}

    def outputs(self, program: Program) -> dict[str, np.ndarray]:
        """What a tree made of the algorithm puts out, flat."""
        found = interpreted(program, host_constants(program, self.arrays), self.meanings)
        return {name: array.ravel() for name, array in found.items()}

    @cached_property
    def expected(self) -> dict[str, np.ndarray]:
        return self.outputs(self.program)


def shipped_schedules() -> Iterator[Shipped]:
    """The first schedule of each sketch on each core, for small layers."""
    plain, activated = Epilogue(False, False), Epilogue(True, True)
    window = Geometry(1, 3, 5, 4, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 3, 5)
    row = Geometry(1, 1, 6, 8, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1, 6)
    # Constants of which every form of a RESCALE, and of weights, can be made.
    likely = {"shift": np.full(4, 37), "zero": np.array(0), "w": np.zeros((4, 16)), "bias": np.zeros(4)}
    # A transpose, and three rows that are filled.
    boxes = CopyBox.of(0, 0, 0, [CopyAxis(6, 7, 1), CopyAxis(7, 1, 6)]), CopyBox.of(None, 0, 42, [CopyAxis(18, 0, 1)])
    moved = boxes, (42,), 60, "i8", 3
    kinds: dict[str, Sketched] = {
        "conv2d 3x3": Conv2dSketch(window, 4, plain, likely),
        "conv2d 1x1": Conv2dSketch(row, 4, activated, likely),
        "dense": Conv2dSketch(Geometry(1, 1, 1, 16, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1, 1), 4, plain, likely),
        "depthwise": DepthwiseSketch(window, 1, plain, likely),
        "matmul": MatmulSketch(1, 6, 8, 4, plain, likely),
        "half matmul": HalfMatmulSketch(1, 6, 8, 4, False, 28707, 20),
        "long matmul": LongMatmulSketch(1, 6, 8, 4, True, {}),
        "max pool": PoolSketch(window, ("i8", "i8"), False, False, {}),
        "average pool": PoolSketch(window, ("i8", "i8"), True, True, likely),
        "reduction": ReductionSketch("max", "i8", 6, 21, -128),
        "movement": PlainMovement(*moved),
        "rows read": PlainRows(IndexedRows(2, 5, 3, 20, "i16"), "in", {}),
        "rows written": PlainRows(IndexedRows(2, 5, 3, 20, "i8"), "", {}),
        "rows shared": LookupSketch(12, 32, 3, 0, False, {}),
        "resize": ResizeSketch(
            Resizing(2, ResizedAxis(3, 2, 4, 2, -1), ResizedAxis(4, 3, 4, 2, -1), 2, "i8", plain), ("high",), {}
        ),
    }
    floats = {
        "float conv2d": ScalarFloatProduct(
            Geometry(1, 2, 3, 4, (2, 2), (1, 1), (0, 0, 1, 0), (1, 1), 1, 3), 4, True, True, {}
        ),
        "float depthwise": ScalarFloatDepthwise(
            Geometry(1, 3, 4, 4, (2, 2), (1, 1), (0, 0, 1, 0), (1, 1), 2, 4), True, {}
        ),
    }
    for name, what in floats.items():
        yield _first(f"{CORTEX_M4.name} {name}", CORTEX_M4, what)
    yield from _calls()
    for core, (name, what) in itertools.product((CORTEX_M4, CORTEX_M3), kinds.items()):
        yield _first(f"{core.name} {name}", core, what)
    vectors = Geometry(1, 1, 6, 16, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1, 6)
    kinds = {
        **vector_sketches(vectors, 16, plain, {**likely, "multiplier": np.array(1 << 30)}, "i8"),
        **_windows(plain, likely),
        "halves": PixelSketch(vectors, 16, Epilogue(False, False, "i16"), "doubled", {}, element="i16"),
        "parts": PixelSketch(vectors, 16, Epilogue(False, False, "i16", 2), "joined", {}, element="i16"),
        "row": RowSketch(
            Geometry(1, 1, 1, 20, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1, 1), 18, activated, "doubled", {}
        ),
        "rows": RowsSketch("max", "i8", 6, 21, -128),
        "vectors": VectorsSketch("add", "i16", 3, 21, 5),
        "movement": VectorMovement(*moved),
        "rows read": VectorRows(IndexedRows(2, 5, 3, 20, "i16"), "const", {}),
        "rows written": VectorRows(IndexedRows(2, 5, 3, 20, "i8"), "", {}),
        "rows shared": LookupSketch(32, 32, 3, 0, True, {}),
        **_pools(likely),
        "lined": VectorDepthwise(
            Geometry(1, 2, 3, 16, (2, 2), (1, 1), (0, 0, 1, 0), (1, 1), 1, 3),
            Epilogue(True, False, "i16"),
            "doubled",
            "both",
            {},
        ),
        "long matmul": LongRowsSketch(1, 3, 40, 4, False, {}),
        "outer": FloatProduct(Geometry(1, 1, 4, 6, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1, 4), 4, False, "conv2d", {}),
        "lined floats": FloatDepthwise(Geometry(1, 2, 3, 8, (2, 2), (1, 1), (0, 0, 1, 0), (1, 1), 1, 3), True, {}),
        "lined bytes": byte_depthwise(
            Geometry(1, 2, 3, 8, (2, 2), (1, 1), (0, 0, 1, 0), (1, 1), 1, 3),
            plain,
            {**likely, "multiplier": np.array(1 << 30), "w": np.zeros((8, 2, 2), np.int8)},
        ),
    }
    constants = {**likely, "multiplier": np.array(1 << 30), "w": np.zeros((8, 1, 3, 3), np.int8)}
    image = Geometry(1, 2, 4, 8, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 2, 4)
    kinds["spatial_tiles"] = SpatialTileSketch(image, 1, plain, "rounded", constants)
    image = Geometry(1, 8, 8, 16, (4, 4), (2, 2), (2, 0, 2, 0), (1, 1), 4, 4)
    constants = {**constants, "w": np.zeros((16, 4, 4), np.int8)}
    kinds["space_to_depth"] = SpaceToDepthSketch(image, 1, plain, "rounded", constants)
    for name, what in kinds.items():
        yield _first(f"{CORTEX_M55.name} {name}", CORTEX_M55, what)


def _calls() -> Iterator[Shipped]:
    """Rows made by calls, of which some read the image, others a copy with zero points around it."""
    axes = TransposedAxis(4, 4, 2, -1, 8), TransposedAxis(4, 3, 2, -1, 7)
    rows = TransposedRows(1, *axes, 4, 2, ("i8", "i8"), 3)

    def row(given: np.ndarray, params: np.ndarray) -> Sequence[np.ndarray]:
        """All numbers of the rows, each in several results, and the params."""
        size = rows.program("row", 32, 16).buffers["made"].size
        return [(np.resize(given.sum(0), size) + np.resize(params, size)).astype(np.int8)]

    for core in (CORTEX_M4, CORTEX_M55):
        steps = parse_steps("\n".join(rows.steps(core)))
        yield Shipped(f"{core.name} calls", core, rows.program("row", 32, 16), steps, {"row": row})
        masked = MaskedProduct(1, 2, 1, 2, 4, 20, 1, -128, 4)
        program, steps = masked.program("product", 0, 16, core), parse_steps("\n".join(masked.steps(core)))
        yield Shipped(f"{core.name} masked", core, program, steps, {"product": _multiplied})
        yield Shipped(f"{core.name} turns", core, _turns(), (Step("place", ("written", "r")),), {"adds": _added})


def _turns() -> Program:
    """Rows that are added up, call by call, to what the call before wrote: two buffers take turns."""
    t, p, c, zero = (Affine.of(name) if name else Affine() for name in ("t", "p", "c", ""))
    windows = [Buffer(name, "i8", (16,), "in") for name in "ab"] + [Buffer("sum", "i8", (16,), "out")]
    adds, state, written = kernel("adds", windows, 0, 32), Buffer("state", "i8", (2, 16), "scratch"), Access("written")
    first, later, target = Access("y", (zero,)), Access("state", (p * -1 + 1, zero)), Access("state", (p, zero))
    calls = [call_of(adds, (Access("x", (t, zero)), before, target), target, "own") for before in (first, later)]
    each = Let("p", written, 2, with_scratch(adds, "own", If((t - 1,), calls[1], calls[0])))
    body = nested(seq(each, Assign(written, Op("sub", (1, written)))), t=5)
    last = nested(Assign(Access("out", (c,)), Access("state", (zero, c))), c=16)
    body = Alloc(Buffer("written", "i32", (), "scratch"), Alloc(state, seq(Assign(written, 0), body, last)))
    shapes = ("x", (5, 16), "in"), ("y", (16,), "in"), ("out", (16,), "out")
    return Program(tuple(Buffer(name, "i8", shape, memory) for name, shape, memory in shapes), body)


def _multiplied(columns: np.ndarray, rows: np.ndarray) -> Sequence[np.ndarray]:
    return [(rows.astype(int) @ columns.T.astype(int)).astype(np.int8)]


def _added(a: np.ndarray, b: np.ndarray) -> Sequence[np.ndarray]:
    return [a + b]


def _windows(plain: Epilogue, likely: Mapping[str, np.ndarray]) -> dict[str, Sketched]:
    """Windows read from strips, copied side by side, and of one column."""
    constants = {**likely, "multiplier": np.array(1 << 30)}
    shapes = [
        Geometry(1, 3, 4, 16, (2, 2), (1, 1), (0, 1, 1, 0), (1, 1), 3, 4),
        Geometry(1, 3, 4, 3, (2, 2), (1, 1), (0, 1, 1, 0), (1, 1), 3, 4),
    ]
    found: dict[str, Sketched] = {}
    for g in shapes:
        weights = np.zeros((16, *g.kernel, g.channels), np.int8)
        found |= vector_sketches(g, 16, plain, {**constants, "w": weights}, "i8")
    column = Geometry(1, 3, 9, 1, (3, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1, 9)
    return found | vector_sketches(column, 1, plain, constants, "i8")


def _pools(likely: Mapping[str, np.ndarray]) -> dict[str, Sketched]:
    """Pools with channels in lanes: the greatest number at edges, and with sums in memory; the average of an image."""
    edges = Geometry(1, 4, 4, 16, (3, 3), (2, 2), (1, 0, 1, 0), (1, 1), 2, 2)
    image = Geometry(1, 3, 2, 16, (3, 2), (1, 1), (0, 0, 0, 0), (1, 1), 1, 1)
    above = Geometry(1, 3, 2, 8, (3, 1), (1, 1), (1, 1, 0, 0), (1, 1), 3, 2)
    scale = {**likely, "multiplier": np.array((1 << 30) + 1), "offset": np.array(5)}
    greatest, average = (("i8", "i8"), False, False, {}), (("i8", "i8"), True, False, scale)
    return {
        "tiled": TiledPool(edges, *greatest),
        "walked": WalkedPool(image, *average),
        "stepped": SteppedPool(above, ("i16", "i16"), False, False, {}),
    }


def _first(name: str, core: Core, what: Sketched) -> Shipped:
    """The schedule that a search begins with."""
    (variant,) = cheapest_first({name: what}, core, Site(compared=False))
    first = variant.first()
    assert first is not None
    steps = parse_steps("\n".join(what.steps(dict(first.knobs))))
    return Shipped(name, core, what.program(), steps)


class Tried(NamedTuple):
    """A tree with one step more, and what became of it.

    Args:
        why: the reason of a refusal, or the fault.
        program: the tree after a step that works.
        behind: the steps of a walk before it.
    """

    shipped: Shipped
    step: Step
    verdict: Verdict
    why: str
    program: Program | None = None
    behind: tuple[Step, ...] = ()


def tried(shipped: Shipped, before: Program, step: Step) -> Tried:
    """One step more on a tree of a schedule. What the core could not run before it may not be able to run behind."""
    try:
        after = applied(before, step)
        outputs = shipped.outputs(after)
        if any(not np.array_equal(outputs[name], want) for name, want in shipped.expected.items()):
            return Tried(shipped, step, "wrong", "other outputs")
        guard_change(before, after, step)
        earlier = printed(shipped, before)
        if earlier is not None:
            check(after, shipped.core)
            if earlier == printed(shipped, after) and step.primitive not in _AHEAD:
                return Tried(shipped, step, "ignored", "the same C and params")
    except RefusedError as error:
        return Tried(shipped, step, "refused", error.what)
    except Exception as error:  # Whatever else a step raises is a fault of it.
        return Tried(shipped, step, "wrong", f"{type(error).__name__}: {error}")
    return Tried(shipped, step, "works", "", after)


def printed(shipped: Shipped, program: Program) -> tuple[str, bytes] | None:
    """C with names by first appearance, and params; None where the core cannot run the tree, be it as yet."""
    try:
        check(program, shipped.core)
        text = Printer(program, shipped.core.pipeline).text
        return _renamed(text), params_of(program, host_constants(program, shipped.arrays))
    except RefusedError:
        return None


def _renamed(text: str) -> str:
    """C with names by first appearance."""
    names = dict[str, str]()
    return _WORD.sub(lambda word: names.setdefault(word[0], f"x{len(names)}"), text)


def scanned(shipped: Shipped, every: int, share: float, rng: random.Random) -> Iterator[Tried]:
    """One step more after each `every` steps of a schedule and at its end; of all such steps a share."""
    stages = list(trees(shipped.program, shipped.steps))
    for number in sorted({*range(0, len(stages), every), len(stages) - 1}):
        for step in all_moves(stages[number], shipped.core):
            if rng.random() < share:
                yield tried(shipped, stages[number], step)


def walked(shipped: Shipped, rng: random.Random) -> Tried:
    """Two to four steps more that work, behind all of a schedule or its beginning: the last of them, or one that is no
    good; where none of many steps drawn works any more, the last that was refused."""
    steps = shipped.steps
    taken = steps[: rng.choice((len(steps), rng.randint(0, len(steps))))]
    program, wanted = replayed(shipped.program, taken), rng.randint(2, 4)
    primitives, found = list(PRIMITIVES.known().values()), None
    for _ in range(_DRAWN):
        step = drawn(program, rng.choice(primitives), shipped.core, rng)
        if step is None:
            continue
        found = tried(shipped, program, step)._replace(behind=taken)
        if found.program is not None:
            program, taken, wanted = found.program, (*taken, step), wanted - 1
        if found.verdict in ("ignored", "wrong") or not wanted:
            break
    assert found is not None
    return found


def runnable(found: Sequence[Tried]) -> list[Tried]:
    """Those that work whose kernels the core can run alone."""
    return [
        each
        for each in found
        if each.program is not None and not each.shipped.meanings and printed(each.shipped, each.program) is not None
    ]


class Ran(NamedTuple):
    """Kernels on QEMU: how many were exact, what others did wrong, and which clang found too few registers for."""

    exact: int
    wrong: list[str]
    uncompiled: list[str]


def run_on_board(found: Sequence[Tried], folder: Path) -> Ran:
    """Build kernels that work, all of one core, and run them."""
    core, cases = found[0].shipped.core, list[board.Case]()
    for number, each in enumerate(found):
        assert each.program is not None
        inputs = [each.shipped.arrays[b.name] for b in each.program.arguments if b.memory == "in"]
        want = [each.shipped.expected[b.name] for b in each.program.arguments if b.memory == "out"]
        printer = Printer(each.program, core.pipeline)
        built = Built(each.program, (), printer.text, printer.instructions, printer.cycles, scratch_bytes(each.program))
        source = built.source(f"scan_{number}", each.shipped.arrays)
        cases.append(board.Case(source, inputs, want, f"{each.shipped.name}, {each.step}"))
    errors = compile_kernels([case.source for case in cases], core, folder / "tried").errors
    uncompiled = [f"{case.name}: {errors[case.source.symbol]}" for case in cases if case.source.symbol in errors]
    cases = [case for case in cases if case.source.symbol not in errors]
    bench = {CORTEX_M4: board.M4, CORTEX_M55: board.M55}.get(core, board.M3)
    outcomes = board.run_cases(cases, folder, bench=bench)
    wrong = [str(outcome) for outcome in outcomes if not outcome.exact]
    return Ran(len(outcomes) - len(wrong), wrong, uncompiled)


def summary(found: Sequence[Tried], ran: Sequence[Ran]) -> Mapping[str, object]:
    """Counts, and each step that is no good."""
    counts = Counter(each.verdict for each in found)
    faults = [
        f"{each.shipped.name}, {'; '.join(map(str, (*each.behind, each.step)))}: {each.why}"
        for each in found
        if each.verdict in ("ignored", "wrong")
    ]
    on_board = {
        "exact": sum(r.exact for r in ran),
        "wrong": [case for r in ran for case in r.wrong],
        "uncompiled": [case for r in ran for case in r.uncompiled],
    }
    return {verdict: counts[verdict] for verdict in VERDICTS} | {"faults": faults, "on board": on_board}


@click.command(help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--every", default=10, help="Steps of a schedule between two scans.")
@click.option("--share", default=1.0, help="Share of the steps that are tried.")
@click.option("--run", default=0, help="Kernels that work to run on QEMU, of each core.")
@click.option("--walks", default=0, help="Random walks instead of the scan.")
@click.option("--seed", default=0)
def main(as_json: bool, every: int, share: float, run: int, walks: int, seed: int) -> None:
    rng, shipped = random.Random(seed), list(shipped_schedules())
    if walks:
        found = [walked(shipped[number % len(shipped)], rng) for number in range(walks)]
    else:
        found = [each for one in shipped for each in scanned(one, every, share, rng)]
    ran = list[Ran]()
    for core in (CORTEX_M4, CORTEX_M3, CORTEX_M55):
        sample = [each for each in runnable(found) if each.shipped.core is core]
        if sample := rng.sample(sample, min(run, len(sample))):
            with tempfile.TemporaryDirectory() as folder:
                ran.append(run_on_board(sample, Path(folder)))
    result = summary(found, ran)
    print(json.dumps(result, indent=2) if as_json else "\n".join(f"{name}: {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
