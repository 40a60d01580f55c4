"""Bilinear resizing as nests: two rows are blended in lanes of 16 bits, then two columns of that, in lanes of 16 or 32.

    blend[x, c] = image[y0, x, c] * (scale - dy) + image[y1, x, c] * dy
    out[y, x, c] = finish(blend[x0, c] * (scale - dx) + blend[x1, c] * dx)

Where there are few channels, the elements of a row are gathered from where a table says, which holds their weights too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernels.mve import VECTOR
from tosaic.backends.cortex_m.nest.assembly import VECTORS, assembly
from tosaic.backends.cortex_m.nest.blend_finish import Average, BlendFinish, stored
from tosaic.backends.cortex_m.nest.block import BlockInstruction, InstructionBlock, Ordered, cycles_of, ordered, update
from tosaic.backends.cortex_m.nest.lane_access import Code, LaneAccess, placed
from tosaic.backends.cortex_m.nest.nest import Nest
from tosaic.backends.cortex_m.nest.spaces import cheapest_first, verified
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Choice, Schedule, Variant

_LANES = 8
_MOST_TURNS = (1 << 16) - 1
_GROUP_BYTES = 4 * VECTOR
# Cycles of a call beside its turns.
_CALL = 15
_NAMES = ("p0", "p1", "o0", "first", "second", "multiplier", "zero_point")


@dataclass(frozen=True)
class Blends:
    """What is computed: `rows` x `columns` pixels of each image.

    Args:
        height, width: pixels of the image; `batch` how many images there are.
        average: how a sum becomes a result.
        wide: whether sums of two columns take more than sixteen bits; those of two rows never do.
    """

    batch: int
    rows: int
    columns: int
    height: int
    width: int
    channels: int
    average: Average
    wide: bool = False

    @property
    def nest(self) -> Nest:
        """The unscheduled stages."""
        axes = {"y": self.rows, "x": self.columns, "c": self.channels}
        return Nest.of(blend={"y": self.rows, "i": self.width * self.channels}, out=axes)

    def scheduled(self, variant: str, k: Mapping[str, Choice]) -> Nest:
        """The trace with its numbers filled in, applied."""
        nest = self.nest.apply("compute_at", "blend", "out", "y")
        if variant == "columns":
            nest = nest.apply("fuse", "out", "x", "c")
        for stage, axis in (("blend", "i"), ("out", "c")):
            nest = nest.apply("split", stage, axis, "v", _LANES * int(k[stage])).apply("split", stage, "v", "l", _LANES)
            nest = nest.apply("lanes", stage, "l").apply("unroll", stage, "v").apply("turn", stage, axis)
            nest = nest.apply("hoist", stage, int(k["ahead"]))
        return nest


@dataclass(frozen=True)
class BlendsKernel:
    """A scheduled resizing, ready to print.

    Args:
        what: the problem.
        nest: stage `blend` at the rows of `out`, whose columns are fused with the channels where it gathers.
        pipeline: timings of the core; None leaves instructions in the order of their meaning.
    """

    what: Blends
    nest: Nest
    pipeline: Pipeline | None

    @property
    def gathers(self) -> bool:
        """Whether the elements of a row are gathered."""
        return all(loop.name != "x" for loop in self.nest.stages["out"])

    def parts(self, stage: str) -> list[tuple[int, int, int]]:
        """(first element, vectors, turns) of a row, or of the channels of a pixel; the last turn starts early."""
        (loop,) = (loop for loop in self.nest.stages[stage] if loop.how == "turn")
        turns, rest = divmod(loop.extent, loop.step)
        vectors = -(-rest // _LANES)
        return [(0, loop.step // _LANES, turns), *([(loop.extent - _LANES * vectors, vectors, 1)] if rest else [])]

    def pack_neighbors(self, fields: np.ndarray) -> np.ndarray:
        """uint16 (groups, 4, 8) of (4, elements of a row): where both neighbors lie, and their weights."""
        starts = [at + _LANES * n for at, vectors, turns in self.parts("out") for n in range(vectors * turns)]
        return np.stack([fields[:, at : at + _LANES] for at in starts]).astype(np.uint16)

    # The code.

    def functions(self) -> list[str]:
        """C of `blended` and `finished`: elements of two rows, or of two columns, and the weights of both."""
        scalars = "".join(f", int {name}" for name in _NAMES[3:])
        lines = []
        for stage, name, sizes in (("blend", "blended", (1, 1, 2)), ("out", "finished", (2, 2, 1))):
            lines += [f"INLINE void {name}(const int8_t *in0, const int8_t *in1, int8_t *to{scalars})", "{"]
            for start, vectors, turns in self.parts(stage):
                places = [size * start for size in sizes]
                if stage == "out" and self.gathers:
                    places[:2] = 0, -(-start // _LANES) * _GROUP_BYTES
                code, bases = self._code(stage, vectors)
                pointers = zip(("p0", "p1", "o0"), ("in0", "in1", "to"), places, strict=True)
                lines += [
                    "  {",
                    *(f"    int8_t *{p} = (int8_t *){at} + {place + bases.get(p, 0)};" for p, at, place in pointers),
                    *(f"    {line}" for line in self._statement(stage, code, list(bases), turns)),
                    "  }",
                ]
            lines.append("}")
        return lines

    def _code(self, stage: str, vectors: int) -> tuple[list[BlockInstruction], dict[str, int]]:
        """The instructions of so many vectors, and where their pointers stand."""
        code, blends, gathers = Code(), stage == "blend", stage == "out" and self.gathers
        size = _LANES if blends else _GROUP_BYTES if gathers else VECTOR
        for v in range(vectors):
            code += self._gathered(v) if gathers else self._neighbors(v, blends)
            finish = BlendFinish(self.what.average)
            if blends:
                code.append(LaneAccess("vstrh.16", f"a{v}", "o0", VECTOR * v, 254))
            elif self.what.wide:
                code += finish.narrowed(f"e{v}", f"d{v}")
                code.append(stored(f"e{v}", v))
            else:
                code += finish.finish(f"a{v}", v)
        return placed(code, {"p": size * vectors, "o": (VECTOR if blends else _LANES) * vectors})

    def _neighbors(self, v: int, bytes_: bool) -> Code:
        """The blend `a<v>` of elements that lie side by side."""
        a, b, load, size = f"a{v}", f"b{v}", *(("vldrb.s16", _LANES) if bytes_ else ("vldrh.u16", VECTOR))
        loads: Code = [LaneAccess(load, name, f"p{n}", size * v, 127 * size // _LANES) for n, name in enumerate((a, b))]
        if self.what.wide and not bytes_:
            weights = {f"f{v}": "first", f"s{v}": "second"}
            spread = [BlockInstruction("vdup.16", f"{{{to}}}, {{{number}}}", (to,)) for to, number in weights.items()]
            return [*loads, *spread, *_widened(v, *weights)]
        return [
            *loads,
            update("vmul.i16", a, "first"),
            BlockInstruction("vmla.i16", f"{{{a}}}, {{{b}}}, {{second}}", (a,), (a,)),
        ]

    def _gathered(self, v: int) -> Code:
        """The same of elements that are gathered."""
        code, names = Code(), (f"a{v}", f"b{v}")
        for n, name in enumerate(names):
            at, weight = f"{name}at", f"{name}w"
            code.append(LaneAccess("vldrh.u16", at, "p1", _GROUP_BYTES * v + VECTOR * n, 254))
            code.append(LaneAccess("vldrh.u16", weight, "p1", _GROUP_BYTES * v + VECTOR * (2 + n), 254))
            code.append(BlockInstruction("vldrh.u16", f"{{{name}}}, [{{p0}}, {{{at}}}, uxtw #1]", (name,), apart=True))
            code += [] if self.what.wide else [update("vmul.i16", name, weight)]
        if self.what.wide:
            return [*code, *_widened(v, *(f"{name}w" for name in names))]
        return [*code, update("vadd.i16", *names)]

    def _statement(self, stage: str, code: Sequence[BlockInstruction], changes: Sequence[str], turns: int) -> list[str]:
        found = self._ordered(stage, code, turns, self.pipeline)
        last, loops = (found.last, turns - 1) if found.entry else ((), turns)
        text = " ".join([*found.entry, *found.turn])
        reads = [name for name in _NAMES if f"%[{name}]" in text and name not in changes]
        return assembly(found.entry, found.turn, last, loops, changes, reads, ())

    def _ordered(self, stage: str, code: Sequence[BlockInstruction], turns: int, pipeline: Pipeline | None) -> Ordered:
        registers = {name: f"%[{name}]" for name in _NAMES}
        hoisted = self.nest.hoisted[stage] if turns > 1 and pipeline else 0
        return ordered(InstructionBlock(tuple(code), registers, VECTORS), pipeline, hoisted)

    # What must hold.

    def verify(self) -> None:
        """Check what the printed code takes for granted.

        Raises:
            BackendError: the nest is not legal; the message says why.
        """
        for stage, (_, vectors, turns) in ((s, part) for s in ("blend", "out") for part in self.parts(s)):
            if turns > _MOST_TURNS:
                raise BackendError(f"a hardware loop does not count {turns} turns")
            self._ordered(stage, self._code(stage, vectors)[0], 1, None)

    def walks(self) -> Sequence[Walk]:
        """The loops over memory: rows of results, each from two of the image, which are blended in scratch memory."""
        what, result = self.what, self.what.columns * self.what.channels
        row, down = what.width * what.channels, what.height * what.width * what.channels / what.rows
        tables = sum(vectors * turns for _, vectors, turns in self.parts("out")) * _GROUP_BYTES if self.gathers else 0
        accesses = [
            ArrayAccess("image", "input", 2 * row, (what.height * row, down)),
            ArrayAccess("blended", "scratch", 2 * row, (0, 0), writes=True),
            ArrayAccess("out", "output", result, (what.rows * result, result), writes=True),
            *([ArrayAccess("neighbors", "params", tables, (0, 0))] if tables else []),
        ]
        return [Walk((what.batch, what.rows), tuple(accesses))]

    def counts(self) -> dict[str, float]:
        """What the code executes, for the cost model."""
        what, found, rows = self.what, Counter[str](), self.what.batch * self.what.rows
        for stage, calls in (("blend", rows), ("out", rows * (1 if self.gathers else what.columns))):
            for _, vectors, turns in self.parts(stage):
                code, _ = self._code(stage, vectors)
                found += Counter(cycles=calls * (_CALL + self._cycles(stage, code, turns)), code=len(code))
                found += Counter({"issued": calls * turns * len(code), "calls": calls})
        found["scratch"], found["ahead"] = 2 * what.width * what.channels, self.nest.hoisted["out"]
        return {name: float(value) for name, value in found.items()}

    def _cycles(self, stage: str, code: Sequence[BlockInstruction], turns: int) -> int:
        """Cycles of so many turns; without the timings of a core, instructions."""
        if self.pipeline is None:
            return turns * len(code)
        turn = self._ordered(stage, code, turns, self.pipeline).turn
        once, twice = (cycles_of(turn, self.pipeline, times) for times in (1, 2))
        return once + (twice - once) * (turns - 1)


def _widened(v: int, first: str, second: str) -> Code:
    """Sums of `a<v>` and `b<v>` times weights: `e<v>` those of the even lanes, in 32 bits, `d<v>` those of the odd."""
    code = Code()
    for half, to in (("b", f"e{v}"), ("t", f"d{v}")):
        other = f"{to}o"
        code.append(BlockInstruction(f"vmull{half}.s16", f"{{{to}}}, {{a{v}}}, {{{first}}}", (to,)))
        code.append(BlockInstruction(f"vmull{half}.s16", f"{{{other}}}, {{b{v}}}, {{{second}}}", (other,)))
        code.append(update("vadd.i32", to, other))
    return code


@lru_cache(maxsize=256)
def sketches(what: Blends, pipeline: Pipeline | None) -> Sequence[Variant]:
    """`channels` reads neighbors as vectors of their channels, `columns` gathers them.

    Knobs: vectors in a turn of `blend` and of `out`; `ahead`, loads executed one turn ahead. The first schedule of a
    variant, and the first variant, promise the fewest cycles.
    """
    row, pixels = what.width * what.channels, {"channels": what.channels, "columns": what.channels * what.columns}
    blend, *outs = (tuple(n for n in (1, 2, 3, 4) if _LANES * n <= most) for most in (row, *pixels.values()))
    ahead = (0, 1, 2, 3, 4)
    knobs = {name: {"blend": blend, "out": out, "ahead": ahead} for name, out in zip(pixels, outs, strict=True)}
    return cheapest_first(BlendsKernel, what, knobs, pipeline)


def scheduled(what: Blends, schedule: Schedule, pipeline: Pipeline | None) -> BlendsKernel:
    """The kernel of a schedule out of `sketches`.

    Raises:
        BackendError: it is not legal.
    """
    return replace(verified(BlendsKernel, what, schedule.variant, schedule.knobs), pipeline=pipeline)
