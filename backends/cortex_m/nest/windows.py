"""Windows in lanes as nests: depthwise convolutions of floats, a vector of channels at a time.

    out[y, x, c] = sum over ky, kx of image[y * down + ky, x * right + kx][c] * weights[ky, kx][c]

The image is read where it lies. A hardware loop walks over the channels of a tile of outputs, whose windows are
unrolled; tiles at the left and right edges have code of their own, and rows above and below are zeros.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernel import KernelSource, Site
from tosaic.backends.cortex_m.kernels.mve import COPY, PRELUDE, VECTOR, round_up, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.nest.assembly import VECTORS, assembly, low_registers
from tosaic.backends.cortex_m.nest.block import BlockInstruction, InstructionBlock, Ordered, advance, cycles_of, ordered
from tosaic.backends.cortex_m.nest.joins import Code, Join, LaneAccess, ReductionTile
from tosaic.backends.cortex_m.nest.nest import Nest
from tosaic.backends.cortex_m.nest.sketches import (
    ISSUES,
    assigned,
    beginning_with,
    issued,
    remembered_guess,
    verified,
)
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Choice, Schedule, Variant

_GENERAL, _LOW = 13, 8
_MOST_ROWS = 6
_MOST_OUTPUTS = 12
# Instructions of a turn that LE can jump back over, and of all tiles.
_MOST_INSTRUCTIONS, _MOST_CODE = 1000, 2000
_MOST_TURNS = (1 << 16) - 1
_COMPARED = 6
# Times the fewest cycles, for which less code is preferred.
_NEAR = 1.02
_CALL, _CYCLES_OF_A_COPIED_VECTOR = 12, 5

Lines = tuple[tuple[int, ...], ...]
"""For each row or column of a tile, the rows or columns of its window that lie inside of the image."""


@dataclass(frozen=True)
class Windows:
    """What is computed: one output a channel.

    Args:
        geometry: of the window.
        join: how elements become results.
    """

    geometry: Geometry
    join: Join

    @property
    def lanes(self) -> int:
        """Channels of a vector."""
        return min(self.join.lanes, self.geometry.channels)

    @property
    def taps(self) -> int:
        """Elements of a window."""
        return math.prod(self.geometry.kernel)

    def channel_order(self) -> list[list[int]]:
        """The channels of each vector of constants; the last one starts early."""
        last = self.geometry.channels - self.lanes
        return [list(range(c, c + self.lanes)) for c in (min(c, last) for c in range(0, last + self.lanes, self.lanes))]

    @property
    def nest(self) -> Nest:
        """The unscheduled stage."""
        geometry, (tall, wide) = self.geometry, self.geometry.kernel
        axes = {"y": geometry.rows, "x": geometry.columns, "c": geometry.channels, "ky": tall, "kx": wide}
        return Nest.of(out=axes)

    def scheduled(self, variant: str, k: Mapping[str, Choice]) -> Nest:
        """The trace with its numbers filled in, applied."""
        nest = self.nest.apply("split", "out", "c", "ci", self.lanes)
        nest = nest.apply("split", "out", "y", "yi", int(k["rows"])).apply("split", "out", "x", "xi", int(k["columns"]))
        nest = nest.apply("order", "out", "y", "x", "c", "yi", "xi", "ky", "kx", "ci").apply("lanes", "out", "ci")
        nest = nest.apply("unroll", "out", "yi", "xi", "ky", "kx").apply("turn", "out", "c")
        nest = nest.apply("hold", "weights" if k["once"] == "weights" else "image", 1)
        nest = nest.apply("place", "weights", str(k["weights"]))
        return issued(nest.apply("hoist", "out", int(k["ahead"])), "out", k["issue"])


@dataclass(frozen=True)
class WindowKernel:
    """Scheduled windows, ready to print.

    Args:
        what: the problem.
        nest: stage `out`, whose hardware loop walks over the channels; of operand `weights`, or of `image`, each vector
            is read once in a turn; `weights` lie in `params`, or in a copy in `scratch`.
        pipeline: timings of the core; None leaves instructions in the order of their meaning.
    """

    what: Windows
    nest: Nest
    pipeline: Pipeline | None

    # What the nest says.

    def _positions(self, name: str) -> int:
        return next((loop.extent for loop in self.nest.stages["out"] if loop.name == name), 1)

    @cached_property
    def rows(self) -> int:
        """Rows of a tile."""
        return self._positions("yi")

    @cached_property
    def columns(self) -> int:
        """Columns of a tile."""
        return self._positions("xi")

    @property
    def _masked(self) -> bool:
        return self.what.lanes < self.what.join.lanes

    @cached_property
    def _pitch(self) -> tuple[int, int]:
        """Bytes of a pixel of the image and of the output."""
        return self.what.geometry.channels * self.what.join.element, self.what.geometry.channels * self.what.join.result

    @cached_property
    def _row_bytes(self) -> tuple[int, int]:
        """Bytes of a row of the image and of the output."""
        return self.what.geometry.width * self._pitch[0], self.what.geometry.columns * self._pitch[1]

    @cached_property
    def _by_row(self) -> bool:
        """Whether each row of the image has a pointer; else one has all, and tiles at the edges have their own code."""
        geometry = self.what.geometry
        taps = itertools.product(range(self.rows), range(geometry.kernel[0]))
        return len({r * geometry.stride[0] + ky * geometry.dilation[0] for r, ky in taps}) <= _MOST_ROWS

    # Tiles.

    def _tiles(self, axis: int) -> list[tuple[int, Lines]]:
        """The first output of each tile along an axis, the last one starting early, and its lines."""
        geometry, size = self.what.geometry, (self.rows, self.columns)[axis]
        count, extent = ((geometry.rows, geometry.height), (geometry.columns, geometry.width))[axis]
        kernel, stride, dilation = (each[axis] for each in (geometry.kernel, geometry.stride, geometry.dilation))
        found = []
        for first in (min(at, count - size) for at in range(0, count, size)):
            starts = [at * stride - geometry.pad[2 * axis] for at in range(first, first + size)]
            inside = [[k for k in range(kernel) if 0 <= at + k * dilation < extent] for at in starts]
            everything = axis == 0 and self._by_row
            found.append((first, tuple(tuple(range(kernel) if everything else taps) for taps in inside)))
        return found

    def _runs(self, axis: int) -> list[tuple[int, int, int, Lines]]:
        """(first output, tiles, last output, lines) of tiles in a row that have the same lines."""
        found = []
        for lines, tiles in itertools.groupby(self._tiles(axis), key=lambda tile: tile[1]):
            starts = [start for start, _ in tiles]
            found.append((starts[0], len(starts), starts[-1], lines))
        return found

    def _tile(self, rows: Lines, columns: Lines) -> ReductionTile:
        geometry = self.what.geometry
        return ReductionTile(
            rows,
            columns,
            geometry.kernel,
            geometry.stride,
            geometry.dilation,
            self._pitch,
            "weights" in self.nest.held,
            self._masked,
            0 if self._by_row else self._row_bytes[0],
        )

    @cached_property
    def _shapes(self) -> list[tuple[ReductionTile, int]]:
        """The tiles that differ, and how many there are of each in an image."""
        runs = itertools.product(self._runs(0), self._runs(1))
        return [(self._tile(y[3], x[3]), y[1] * x[1]) for y, x in runs]

    @property
    def _turns(self) -> list[tuple[int, int]]:
        """(first channel, turns) of all channels; the last turn starts early where it would pass their end."""
        whole, rest = divmod(self.what.geometry.channels, self.what.lanes)
        return [(0, whole), *([(self.what.geometry.channels - self.what.lanes, 1)] if rest else [])]

    @property
    def scratch_bytes(self) -> int:
        """Zeros, and the copy of the constants."""
        return self._zeros + self._copied

    @property
    def _copied(self) -> int:
        """Bytes of constants that are copied to scratch memory."""
        if self.nest.places.get("weights") != "scratch":
            return 0
        groups = -(-self.what.geometry.channels // self.what.lanes)
        return groups * self.what.join.constant_bytes(self.what.taps)

    @property
    def _zeros(self) -> int:
        """Bytes of zeros that stand for the pixels of a tile in a row outside of the image."""
        geometry = self.what.geometry
        if not (self._by_row and any(geometry.pad[:2])):
            return 0
        return round_up(((self.columns - 1) * geometry.stride[1] + geometry.span[1]) * self._pitch[0], VECTOR)

    # The code.

    def source(self, kind: str, scalars: np.ndarray | None = None, constants: np.ndarray | None = None) -> KernelSource:
        """The kernel.

        Args:
            kind: prefix of its symbol.
            scalars: 32-bit numbers behind `range`, at most four.
            constants: of the vectors of channels, in their order.
        """
        geometry, zeros, copied, params = self.what.geometry, self._zeros, self._copied, Params()
        for array in (scalars, constants):
            if array is not None:
                params.add(array)
        functions, loops = self._unrolled()
        image_in, image_out = geometry.height * self._row_bytes[0], geometry.rows * self._row_bytes[1]
        lines = [
            *(COPY.splitlines() if copied else []),
            *functions,
            "void @SYMBOL@(const int8_t *restrict in, int8_t *restrict out, const int8_t *restrict params,",
            "              int8_t *restrict scratch)",
            "{",
            "  const int32_t *range = (const int32_t *)params;",
            f"  const int8_t *constants = {f'scratch + {zeros}' if copied else f'params + {VECTOR}'};",
            f"  copy(scratch + {zeros}, params + {VECTOR}, {copied});" if copied else "",
            f"  for (int i = 0; i < {zeros}; i += {VECTOR}) vstrbq_s8(scratch + i, vdupq_n_s8(0));" if zeros else "",
            f"  for (int n = 0; n < {geometry.batch}; n++, in += {image_in}, out += {image_out}) {{",
            *(f"    {line}" for line in loops),
            "  }",
            "}",
            "",
        ]
        symbol, text = with_symbol(kind, PRELUDE + "\n".join(lines))
        return KernelSource(symbol, "c", text, bytes(params), self.scratch_bytes)

    def _unrolled(self) -> tuple[list[str], list[str]]:
        """The functions of tiles, and the loops that call them."""
        (down, _), (top, *_) = self.what.geometry.stride, self.what.geometry.pad
        functions, loops = list[str](), list[str]()
        for y, tiles, last, lines in self._runs(0):
            steps = self.what.geometry.stride[0], self.what.geometry.dilation[0]
            touched = {number * steps[0] + tap * steps[1] for number, taps in enumerate(lines) for tap in taps}
            rows = sorted(touched) if self._by_row else [0]
            loops += _loop("y", y, tiles, self.rows, last)
            loops += [f"  {line}" for row in rows for line in self._row(row, f"y * {down} + {row - top}")]
            for x, count, end, columns in self._runs(1):
                loops += [f"  {line}" for line in _loop("x", x, count, self.columns, end)]
                for first, turns in self._turns:
                    name = f"tile_{y}_{x}_{first}"
                    functions += self._function(name, self._tile(lines, columns), turns, rows)
                    loops.append(f"    {name}({', '.join(self._arguments(rows, first))});")
                loops.append("  }")
            loops.append("}")
        return functions, loops

    def _arguments(self, rows: Sequence[int], first: int) -> list[str]:
        """C of the arguments of a tile from a channel on."""
        geometry, join = self.what.geometry, self.what.join
        (_, right), left, size = geometry.stride, geometry.pad[2], join.constant_bytes(self.what.taps)
        inputs = [f"r{row} + (x * {right} - {left}) * step{row} + {first * join.element}" for row in rows]
        constants = [f"constants + {-(-first // self.what.lanes) * size}"] if size else []
        pixels = [f"((y + {r}) * {geometry.columns} + x)" for r in range(self.rows)]
        outputs = [f"out + {pixel} * {self._pitch[1]} + {first * join.result}" for pixel in pixels]
        return [*inputs, *constants, *outputs, *join.scalars.values()]

    def _row(self, row: int, at: str) -> list[str]:
        """C of where a row of the image lies, and of the bytes from a pixel of it to the next."""
        height, (pixel, row_bytes) = self.what.geometry.height, (self._pitch[0], self._row_bytes[0])
        name, step = f"const int8_t *r{row}", f"const int step{row}"
        if not any(self.what.geometry.pad[:2]) or not self._by_row:
            return [f"{name} = in + ({at}) * {row_bytes}; {step} = {pixel};"]
        inside = f"(unsigned)i{row} < {height}"
        return [
            f"const int i{row} = {at}; {step} = {inside} ? {pixel} : 0;",
            f"{name} = {inside} ? in + i{row} * {row_bytes} : scratch;",
        ]

    def _function(self, name: str, tile: ReductionTile, turns: int, rows: Sequence[int]) -> list[str]:
        """C of a function that computes a tile, `turns` times so many channels, given pointers to rows of the image."""
        code, bases = self._code(tile)
        constants = ["w"] if self.what.join.constant_bytes(self.what.taps) else []
        pointers = [*(f"p{row}" for row in rows), *constants, *(f"o{row}" for row in range(self.rows))]
        return [
            f"INLINE void {name}({self._parameters(pointers)})",
            "{",
            *(f"  {pointer} += {base};" for pointer, base in bases.items() if base),
            *(f"  {line}" for line in self._statement(code, turns, list(bases))),
            "}",
        ]

    def _parameters(self, pointers: Sequence[str]) -> str:
        declared = [f"{'' if pointer[0] == 'o' else 'const '}int8_t *{pointer}" for pointer in pointers]
        return ", ".join([*declared, *(f"int32_t {name}" for name in self.what.join.scalars)])

    def _code(self, tile: ReductionTile) -> tuple[list[BlockInstruction], dict[str, int]]:
        """The instructions of a turn, and where its pointers stand."""
        join = self.what.join
        size = {"p": join.element * self.what.lanes, "o": join.result * self.what.lanes}
        return placed(join.code(tile), {**size, "w": join.constant_bytes(self.what.taps)})

    def _statement(self, code: Sequence[BlockInstruction], turns: int, pointers: Sequence[str]) -> list[str]:
        """C of a statement that executes `turns` turns."""
        found = self._ordered(code, turns, pointers, self.pipeline)
        saves, scalars = self._masked or self.what.join.predicates, [*self.what.join.scalars, "left"]
        loops = turns - 1 if found.entry else turns
        entry = ["vmrs r12, p0"] * saves + [f"vctp.{self.what.join.bits} %[left]"] * self._masked
        leave = [*(found.last if found.entry else ()), *["vmsr p0, r12"] * saves]
        text = " ".join([*entry, *found.entry, *found.turn])
        reads = [name for name in scalars if f"%[{name}]" in text]
        lines = assembly([*entry, *found.entry], found.turn, leave, loops, pointers, reads, ["r12"] * saves)
        return [*[f"const int32_t left = {self.what.lanes};"] * self._masked, *lines]

    def _ordered(
        self, code: Sequence[BlockInstruction], turns: int, pointers: Sequence[str], pipeline: Pipeline | None
    ) -> Ordered:
        registers = {name: f"%[{name}]" for name in (*pointers, *self.what.join.scalars)}
        hoisted = self.nest.hoisted.get("out", 0) if turns != 1 and pipeline else 0
        block = InstructionBlock(tuple(code), registers, VECTORS)
        return ordered(block, pipeline, hoisted, self.nest.issue("out"))

    # What must hold.

    def verify(self) -> None:
        """Check what the printed code takes for granted.

        Raises:
            BackendError: the nest is not legal; the message says why.
        """
        self.verify_sizes()
        for tile, _ in self._shapes:
            code, bases = self._code(tile)
            self._ordered(code, 1, list(bases), None)

    @property
    def _largest(self) -> ReductionTile:
        return max((tile for tile, _ in self._shapes), key=lambda tile: len(tile.products))

    def verify_sizes(self) -> None:
        """What sizes alone tell of `verify`."""
        geometry = self.what.geometry
        if self.what.lanes > geometry.channels:
            raise BackendError(f"{geometry.channels} channels have no turns of {self.what.lanes}")
        needed = self.what.join.vectors(self._largest)
        if needed > len(VECTORS):
            raise BackendError(f"{self.rows} x {self.columns} outputs need {needed} vector registers")
        outputs = self.rows * self.columns
        if outputs > _MOST_OUTPUTS or outputs * self.what.taps > _MOST_INSTRUCTIONS:
            raise BackendError(f"{outputs} windows of {self.what.taps} are too much to unroll")
        issued = [len(self._code(tile)[0]) for tile, _ in self._shapes]
        if max(issued) > _MOST_INSTRUCTIONS or sum(issued) > _MOST_CODE:
            raise BackendError(f"tiles of {max(issued)} instructions, {sum(issued)} in all, are too long")
        code, bases = self._code(self._largest)
        beside = self._masked + (self._masked or self.what.join.predicates)
        general = beside + max(self._scalars_and_pointers(tile) for tile, _ in self._shapes)
        low = len(low_registers(each.text({name: f"%[{name}]" for name in bases}) for each in code))
        if general > _GENERAL or low > _LOW:
            raise BackendError(f"{general} general registers, {low} of them low ones, are too many")

    def _scalars_and_pointers(self, tile: ReductionTile) -> int:
        """How many the code of a tile names."""
        code, bases = self._code(tile)
        named = [name for name in self.what.join.scalars if any(f"{{{name}}}" in each.operands for each in code)]
        return len(bases) + len(named)

    def walks(self) -> Sequence[Walk]:
        """The loops over memory: tiles of outputs, and turns over the channels of their windows."""
        geometry, constants = self.what.geometry, self.what.join.constant_bytes(self.what.taps)
        (pixel, result), (row, out_row) = self._pitch, self._row_bytes
        rows, columns = -(-geometry.rows // self.rows), -(-geometry.columns // self.columns)
        size, made = self.what.lanes * self.what.join.element, self.what.lanes * self.what.join.result
        down, right = (count * stride for count, stride in zip((self.rows, self.columns), geometry.stride, strict=True))
        spans = [
            (count - 1) * stride + span
            for count, stride, span in zip((self.rows, self.columns), geometry.stride, geometry.span, strict=True)
        ]
        image = (geometry.height * row, down * row, right * pixel, size)
        written = (geometry.rows * out_row, self.rows * out_row, self.columns * result, made)
        accesses = [
            ArrayAccess("image", "input", size, image, inner=((spans[1], pixel), (spans[0], row))),
            ArrayAccess("out", "output", made, written, True, ((self.columns, result), (self.rows, out_row))),
        ]
        if self._copied:
            accesses.append(ArrayAccess("weights", "params", self._copied, ()))
        elif constants:
            accesses.append(ArrayAccess("weights", "params", constants, (0, 0, 0, constants)))
        return [Walk((geometry.batch, rows, columns, sum(turns for _, turns in self._turns)), tuple(accesses))]

    def counts(self) -> dict[str, float]:
        """What the code executes, for the cost model."""
        geometry, join = self.what.geometry, self.what.join
        found, turns = Counter[str](), sum(turns for _, turns in self._turns)
        shapes = [(self._code(tile)[0], geometry.batch * count, turns) for tile, count in self._shapes]
        for code, calls, turns in shapes:
            found += Counter(
                cycles=round(calls * (_CALL + turns * _pace(code))), turns=calls * turns, calls=calls, code=len(code)
            )
            found += Counter({pipe: number * calls * turns for pipe, number in _pipes(code).items()})
        read = self._copied or found["turns"] * join.constant_bytes(self.what.taps)
        found["cycles"] += _CYCLES_OF_A_COPIED_VECTOR * self._copied // VECTOR
        extra = {
            "scratch": self.scratch_bytes,
            "constants_read": read,
        }
        extra["ahead"] = self.nest.hoisted.get("out", 0)
        return {name: float(value) for name, value in {**found, **extra}.items()}

    @property
    def measured_pace(self) -> float:
        """Cycles of a turn in the order that the block has on the timings of the core, over those that counts take."""
        if self.pipeline is None:
            return 1
        code, bases = self._code(self._largest)
        turn = self._ordered(code, 2, list(bases), self.pipeline).turn
        return (cycles_of(turn, self.pipeline, 2) - cycles_of(turn, self.pipeline, 1)) / _pace(code)


def placed(code: Code, steps: Mapping[str, int]) -> tuple[list[BlockInstruction], dict[str, int]]:
    """The instructions of a turn, and where each pointer stands when it begins, as the offset of an access.

    Accesses of a pointer in reach of one another share a position of it; the last of them moves it on.

    Args:
        steps: bytes that pointers move in a turn, by the first letter of their names.
    """
    runs: dict[str, list[list[tuple[int, LaneAccess]]]] = {}
    for number, access in enumerate(code):
        if isinstance(access, LaneAccess):
            of_pointer = runs.setdefault(access.pointer, [[]])
            if any(abs(other.offset - access.offset) > other.reach for _, other in of_pointer[-1]):
                of_pointer.append([])
            of_pointer[-1].append((number, access))
    bases = {pointer: of_pointer[0][-1][1].offset for pointer, of_pointer in runs.items()}
    found: dict[int, list[BlockInstruction]] = {}
    for pointer, of_pointer in runs.items():
        ends = [run[-1][1] for run in of_pointer]
        targets = [*(end.offset for end in ends[1:]), bases[pointer] + steps[pointer[0]]]
        for run, end, target in zip(of_pointer, ends, targets, strict=True):
            found |= {number: [access.at(end.offset)] for number, access in run}
            distance = target - end.offset
            if 0 < abs(distance) <= end.reach:
                found[run[-1][0]] = [end.moving(distance)]
            else:
                found[run[-1][0]] += advance(pointer, distance)
    return [
        i for n, each in enumerate(code) for i in ([each] if isinstance(each, BlockInstruction) else found[n])
    ], bases


def _loop(name: str, first: int, turns: int, step: int, last: int) -> list[str]:
    """C that begins a loop over tiles, of which the last may start early, or a block where there is one tile."""
    if turns == 1:
        return [f"{{ const int {name} = {first};"]
    if last == first + (turns - 1) * step:
        return [f"for (int {name} = {first}; {name} <= {last}; {name} += {step}) {{"]
    head = f"for (int {name}_ = {first}; {name}_ < {last + step}; {name}_ += {step}) {{"
    return [head, f"  const int {name} = {name}_ < {last} ? {name}_ : {last};"]


_PIPES = {"vld": "loads", "vst": "loads", "vps": "loads", "vmu": "products", "vfm": "products", "vqd": "products"}


def _pipes(code: Iterable[BlockInstruction]) -> Counter[str]:
    """Instructions by what they hold up."""
    return Counter(_PIPES.get(i.mnemonic[:3], "vectors" if i.mnemonic[0] == "v" else "scalars") for i in code)


def _pace(code: Sequence[BlockInstruction]) -> int:
    """Cycles of a turn as far as the pipes that it holds tell."""
    pipes = _pipes(code)
    return max(len(code), *(2 * pipes[name] for name in ("loads", "products", "vectors")))


@lru_cache(maxsize=256)
def sketches(what: Windows, site: Site, pipeline: Pipeline | None) -> Sequence[Variant]:
    """`unrolled`: the hardware loop walks over the channels.

    Knobs: `rows` and `columns` of outputs in a tile; `once`, what is read once in a turn, weights or elements of the
    image; `weights`, where they are read; `ahead`, loads executed one turn ahead; `issue`, what is issued first in a
    turn. The first schedule promises the fewest cycles at the site.
    """
    name = "unrolled"
    choices: dict[str, tuple[Choice, ...]] = {
        "rows": tuple(range(1, min(4, what.geometry.rows) + 1)),
        "columns": tuple(range(1, min(6, what.geometry.columns) + 1)),
        "once": ("weights", "image"),
        "weights": ("params", "scratch"),
        "ahead": (2, 0, 1, 3, 4),
        "issue": ISSUES,
    }
    problem = (what, name, choices, site, pipeline)
    guess = remembered_guess("windows", problem, partial(_guess, *problem))
    legal = partial(verified, WindowKernel, what, name)
    return [beginning_with(guess[1], name, choices, legal)] if guess else []


def _guess(
    what: Windows, name: str, knobs: Mapping[str, tuple[Choice, ...]], site: Site, pipeline: Pipeline | None
) -> list | None:
    """[cycles, assignment] of the one that promises the fewest: of few, those in the order of the core."""
    found = []
    firsts = {name: choices[:1] if name in ("ahead", "issue") else choices for name, choices in knobs.items()}
    for chosen in itertools.product(*firsts.values()):
        guess = dict(zip(firsts, chosen, strict=True))
        with suppress(BackendError):
            kernel = WindowKernel(what, what.scheduled(name, guess), None)
            kernel.verify_sizes()
            counts = kernel.counts()
            if site.holds(counts):
                found.append((counts["cycles"] + site.waits(kernel.walks(), pipeline), counts["code"], guess))
    compared = []
    for cycles, code, guess in sorted(found, key=lambda each: each[:2]):
        for ahead in knobs.get("ahead", (0,))[:2]:
            each = {**guess, "ahead": ahead} if "ahead" in knobs else guess
            with suppress(BackendError):
                kernel = replace(verified(WindowKernel, what, name, assigned(each)), pipeline=pipeline)
                compared.append((cycles * kernel.measured_pace, code, each))
        if len(compared) >= 2 * _COMPARED:
            break
    if not compared:
        return None
    least = min(cycles for cycles, _, _ in compared)
    cycles, _, best = min((each for each in compared if each[0] <= _NEAR * least), key=lambda each: each[1])
    return [cycles, best]


def scheduled(what: Windows, schedule: Schedule, pipeline: Pipeline | None) -> WindowKernel:
    """The kernel of a schedule out of `sketches`.

    Raises:
        BackendError: it is not legal.
    """
    return replace(verified(WindowKernel, what, schedule.variant, schedule.knobs), pipeline=pipeline)
