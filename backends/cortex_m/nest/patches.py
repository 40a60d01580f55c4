"""Depthwise convolutions as nests: strips of interleaved rows, patches of 4 x 4 bytes, four outputs a turn.

A strip holds four input rows as [column][channel][4 rows]. Gathering the 32-bit words of four neighboring columns of
one channel gives a patch of 4 x 4 bytes; its VMLADAV with a vector of the kernel's weights in the right places and
zeros elsewhere is an output. A patch serves all outputs whose windows lie in it (2 x 2 for a 3 x 3 kernel of stride 1);
larger windows take several patches. A deep patch has 8 rows of 2 columns: shifted by bytes it meets the weights of the
outputs above with those of the lowest one. Padding is written into the strips, so borders need no code of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tosaic.backends.cortex_m.kernels.mve import VECTOR, round_up, shift_factors
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.nest.assembly import assembly
from tosaic.backends.cortex_m.nest.block import Block, Instruction, advance, ordered
from tosaic.backends.cortex_m.nest.finish import narrowed
from tosaic.backends.cortex_m.nest.nest import Loop, Nest
from tosaic.backends.cortex_m.nest.packing import Packing
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

PATCH = 4
"""Rows and columns of a patch."""
ALL_AHEAD = 6
"""As many loads hoisted, a turn's code up to its first four sums is executed one turn ahead."""

_SUMS = ("r0", "r2", "r4", "r6")
_POINTERS = 4
_MOST_WEIGHT_VECTORS = 24
_MOST_STRIP_BYTES = 1 << 16
_MOST_UNROLLED = 200
_GENERAL = 13
# Two of eight vectors hold offsets.
_SPARE_VECTORS = 6
_ADD_REACH, _MOVE_REACH, _WORD_REACH = 4095, 65535, 508


@dataclass(frozen=True)
class Depthwise:
    """What is computed: out[y, x, c] = finish(sum over a window of channel c / multiples).

    Args:
        geometry: of the window and the input.
        multiples: outputs of an input channel.
        form: of the RESCALE, as `finish.Finish` names it.
        clamped: whether the bounds are closer than those of int8.
        table: whether results go through a TABLE.
    """

    geometry: Geometry
    multiples: int
    form: str
    clamped: bool
    table: bool

    @property
    def channels(self) -> int:
        """Output channels."""
        return self.geometry.channels * self.multiples

    @property
    def nest(self) -> Nest:
        """The unscheduled stages."""
        axes = {"y": self.geometry.rows, "c": self.channels, "x": self.geometry.columns}
        strip = {"y": self.geometry.rows, "x": self.geometry.width, "c": self.geometry.channels}
        return Nest.of(strip=strip, out=axes)

    @property
    def fields(self) -> int:
        """int32 factors of a channel: bias, multiplier[, right[, left]]."""
        return {"round": 2, "right": 3, "left": 4}[self.form]


@dataclass(frozen=True)
class Patches:
    """How a tile of `rows` x `columns` outputs is cut into patches of 4 x 4 input bytes, or `deep` ones of 8 x 2."""

    geometry: Geometry
    rows: int
    columns: int
    deep: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a patch."""
        return (2 * PATCH, PATCH // 2) if self.deep else (PATCH, PATCH)

    @property
    def extent(self) -> tuple[int, int]:
        """Input rows and columns that the tile touches."""
        down, right = self.geometry.stride
        height, width = self.geometry.span
        return (self.rows - 1) * down + height, (self.columns - 1) * right + width

    @property
    def row_groups(self) -> int:
        """Patches one above the other: each has its strip."""
        return -(-self.extent[0] // self.shape[0]) * self.shape[0] // PATCH

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """(row group, first column) of the patches."""
        groups = range(0, self.row_groups, self.shape[0] // PATCH)
        return list(itertools.product(groups, range(0, self.extent[1], self.shape[1])))

    @cached_property
    def cells(self) -> list[tuple[int, int]]:
        """(row, column) of the tile's outputs."""
        return list(itertools.product(range(self.rows), range(self.columns)))

    @cached_property
    def uses(self) -> list[tuple[int, int]]:
        """(cell, place) pairs in which the cell's window meets the patch: each has a weight vector, in this order.

        Of deep patches, those of the last cell, which serve the cells above too.
        """
        probe = np.ones((1, *self.geometry.kernel), np.int8)
        cells = range(len(self.cells) - 1 if self.deep else 0, len(self.cells))
        pairs = itertools.product(cells, range(len(self.places)))
        return [pair for pair in pairs if self.patch_weights(probe, *pair).any()]

    @property
    def per_turn(self) -> int:
        """Tiles in one turn of the inner loop, which finishes four outputs."""
        return PATCH // len(self.cells)

    def patch_weights(self, weights: np.ndarray, cell: int, place: int) -> np.ndarray:
        """int8 (channels, 16) of int8 (channels, rows, columns): the weights where the window of `cell` meets patch
        `place`, column by column."""
        (row, column), (group, first) = self.cells[cell], self.places[place]
        (down, right), (tall, wide) = self.geometry.stride, self.geometry.dilation
        rows, columns = self.shape
        patch = np.zeros((len(weights), columns, rows), weights.dtype)
        for ky, kx in itertools.product(range(self.geometry.kernel[0]), range(self.geometry.kernel[1])):
            y = row * down + ky * tall - group * PATCH
            x = column * right + kx * wide - first
            if 0 <= y < rows and 0 <= x < columns:
                patch[:, x, y] = weights[:, ky, kx]
        return patch.reshape(len(weights), VECTOR)


_Columns = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class PatchKernel:
    """A scheduled depthwise convolution, ready to print.

    Args:
        what: the problem.
        nest: stage `strip` at the outer rows of `out`; operand `weights` lies in `params` as it is read, or without its
            zeros, which are put in between in `scratch`; some vectors of it stay in registers.
        pipeline: timings of the core; None leaves instructions in the order of their meaning.
    """

    what: Depthwise
    nest: Nest
    pipeline: Pipeline | None

    # What the nest says.

    def _loop(self, name: str) -> Loop:
        return self.nest.loop("out", name)

    @cached_property
    def patches(self) -> Patches:
        deep = self.nest.places["patch"] == "8x2"
        return Patches(self.what.geometry, self._loop("yi").extent, self._loop("xi").extent, deep)

    @property
    def strips(self) -> int:
        """Strips that are packed before the channels are walked."""
        return -(-self._loop("y").step // self.patches.rows)

    @property
    def strip_count(self) -> int:
        """Strips that cover the output of one image."""
        return -(-self.what.geometry.rows // self.patches.rows)

    @property
    def turn(self) -> int:
        """Output columns of one turn."""
        return self.patches.per_turn * self.patches.columns

    @property
    def columns(self) -> int:
        """Output columns that the blocks of a row cover: a part of it where a loop over columns stands around them."""
        around = next((loop for loop in self.nest.stages["out"] if loop.name == "x" and loop.how == "each"), None)
        return around.step if around else self.what.geometry.columns

    @cached_property
    def starts(self) -> list[int]:
        """The first output column of every turn in `columns`; one that would pass their end starts early."""
        columns = self.columns
        whole = list(range(0, columns - self.turn + 1, self.turn)) or [0]
        return whole if whole[-1] + self.turn >= columns else [*whole, columns - self.turn]

    @property
    def _early(self) -> int:
        """Columns of the last turn that the one before has too."""
        return self.starts[-2] + self.turn - self.starts[-1] if len(self.starts) > 1 else 0

    def _walked(self, starts: list[int]) -> list[int]:
        """Starts in the order of execution: a turn that starts early leaves out what the one after it writes again."""
        return [*starts[:-2], *starts[-2:][::-1]] if self._early else starts

    @cached_property
    def over(self) -> str:
        """The hardware loop: along `x`, or over strips `ys` or channels `c` with a whole row of turns in its block."""
        (turning,) = (loop for loop in self.nest.stages["out"] if loop.how == "turn")
        return "c" if turning.axis == "c" else turning.name

    @property
    def block(self) -> int:
        """Output channels whose strips are packed together."""
        first = next(loop for loop in self.nest.stages["out"] if loop.axis == "c")
        return first.step if first.step > 1 else self.what.channels

    @property
    def blocks(self) -> int:
        """Blocks of channels."""
        return self.what.channels // self.block

    @property
    def unrolled(self) -> int:
        """Turns in a block."""
        return self._loop("xu").extent // self._loop("xu").step if self.over == "x" else len(self.starts)

    @property
    def _looped(self) -> int:
        """How often the hardware loop turns; a strip that starts early, and turns of a row that are left, stay out."""
        geometry = self.what.geometry
        if self.over == "c":
            return self.block
        if self.over == "ys":
            return self.strips - (geometry.rows % self.patches.rows > 0)
        return (geometry.columns // self.turn) // self.unrolled

    # Sizes of what lies in memory.

    @property
    def pixel(self) -> int:
        """Bytes of a column of a strip."""
        return self.block // self.what.multiples * PATCH

    @property
    def strip_columns(self) -> int:
        """Columns of a strip: the padded image, and as far as the last turn gathers."""
        geometry, patches = self.what.geometry, self.patches
        first = max(geometry.columns - patches.columns, self.turn - patches.columns) * geometry.stride[1]
        gathered = first + round_up(patches.extent[1], patches.shape[1])
        return max(gathered, geometry.pad[2] + geometry.width + geometry.pad[3])

    @property
    def group_bytes(self) -> int:
        """Bytes of one row group of a strip; a whole vector of four rows may spill over its end."""
        return round_up(self.strip_columns * self.pixel + PATCH * VECTOR, VECTOR)

    @property
    def strip_bytes(self) -> int:
        return self.patches.row_groups * self.group_bytes

    @property
    def _zero_bytes(self) -> int:
        """Bytes of zero points that stand for a row outside of the image: those of a column serve all of a block's."""
        return self.block if self.blocks > 1 else self.what.geometry.width * self.what.geometry.channels

    @property
    def _zeros(self) -> int:
        """Bytes of the row of zero points, with what loads that are ahead read behind the last strip."""
        geometry, row = self.what.geometry, round_up(self._zero_bytes, VECTOR)
        if not self._hoisted:
            return row
        patches = self.patches
        tiles = round_up(patches.extent[1], patches.shape[1]) + (self.turn - patches.columns) * geometry.stride[1]
        last = 1 if self.over == "c" else (self.starts[-1] + 2 * self.turn) * geometry.stride[1]
        end = tiles + last
        rows = self.strip_bytes if self.over == "ys" else 0
        return max(row, round_up(rows + max(0, end - self.strip_columns) * self.pixel, VECTOR))

    @property
    def _hoisted(self) -> int:
        return self.nest.hoisted.get("out", 0) if self._looped > 1 else 0

    @property
    def _strips_bytes(self) -> int:
        """Bytes of the strips, and of one row of zero points."""
        return self.strips * self.strip_bytes + self._zeros

    @property
    def scratch_bytes(self) -> int:
        """The strips, one row of zero points, and the weights that are expanded."""
        return self._strips_bytes + (self._packed_bytes if self._expands else 0)

    @property
    def _expands(self) -> bool:
        return self.nest.places["weights"] == "scratch"

    @property
    def _packed_bytes(self) -> int:
        """Bytes of the weights as they are read, and of what is read behind them."""
        ahead = self.weight_bytes if self._hoisted == ALL_AHEAD else VECTOR * self._hoisted
        return round_up(self.what.channels * self.weight_bytes + VECTOR + ahead, VECTOR)

    # What the host packs.

    @cached_property
    def _columns(self) -> list[_Columns]:
        """For each weight vector its four columns: the numbers of the weights in each, -1 for zeros."""
        kernel = self.what.geometry.kernel
        numbers = np.arange(1, kernel[0] * kernel[1] + 1).reshape(1, *kernel)
        spread = [self.patches.patch_weights(numbers, *use).reshape(PATCH, PATCH) - 1 for use in self.patches.uses]
        return [tuple(tuple(int(n) for n in column) for column in vector) for vector in spread]

    @cached_property
    def _moved(self) -> dict[int, int]:
        """Weight vectors that are another one moved down by a row, where all of them stay in registers."""
        found: dict[int, int] = {}
        for number, here in enumerate(self._columns if self.held == len(self.patches.uses) else []):
            for other, there in enumerate(self._columns):
                fits = all(column[-1] < 0 for column in there)
                if fits and other not in found and here == tuple((-1, *column[:-1]) for column in there):
                    found[number] = other
        return found

    @cached_property
    def _words(self) -> tuple[list[tuple[int, ...]], dict[int, int]]:
        """The columns that are stored for each channel, and the first column of each weight vector that is loaded.

        Vectors share columns where the end of one is the beginning of another, and zeros with the next channel.
        """
        loaded = [number for number in range(len(self._columns)) if number not in self._moved]
        return min((self._chain(first, loaded) for first in loaded), key=lambda found: len(found[0]))

    def _chain(self, begin: int, loaded: Sequence[int]) -> tuple[list[tuple[int, ...]], dict[int, int]]:
        """What `_words` gives, with one vector before the others."""
        chain, first = list(self._columns[begin]), {begin: 0}
        left = [number for number in loaded if number != begin]
        while left:
            number, shared = max(((n, _overlap(chain, self._columns[n])) for n in left), key=lambda pair: pair[1])
            first[number] = len(chain) - shared
            chain += self._columns[number][shared:]
            left.remove(number)
        zeros = (-1,) * PATCH
        around = max(n for n in range(PATCH) if n < len(chain) and {*chain[:n], *chain[len(chain) - n :]} <= {zeros})
        return chain[: len(chain) - around], first

    @property
    def weight_bytes(self) -> int:
        """Bytes of the packed weights of a channel."""
        return PATCH * len(self._words[0])

    def pack_weights(self, weights: np.ndarray) -> np.ndarray:
        """int8 of int8 (channels, rows, columns): the stored columns of every channel, and what is read behind them.

        The weights alone where they are expanded.
        """
        if self._expands:
            return weights.ravel()
        flat = np.pad(weights.reshape(len(weights), -1), ((0, 0), (0, 1)))
        packed = flat[:, np.array(self._words[0])].ravel()
        return np.pad(packed, (0, self._packed_bytes - packed.size))

    def pack_factors(self, bias: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """int32 (channels, fields), as `finish.Finish.factors` derives them."""
        fields = [bias, *shift_factors(multiplier, shift)][: self.what.fields]
        return np.stack([np.asarray(field, np.int32) for field in fields], axis=1)

    # The code.

    def text(self, weights: str, factors: str, lookup: str) -> list[str]:
        """C of the kernel, whose params begin with {zero point, low, high, input's zero point}.

        Args:
            weights, factors, lookup: C of where the packed weights (int8), factors (int32) and the TABLE lie.
        """
        geometry, patches = self.what.geometry, self.patches
        image_in = geometry.height * geometry.width * geometry.channels
        image_out = geometry.rows * geometry.columns * self.what.channels
        last_strip, last_row = self.strip_count - self.strips, max(0, geometry.rows - patches.rows)
        first_row = f"(row < {last_row} ? row : {last_row})"
        first = " + first" if self.blocks > 1 else ""

        def of(size: int) -> str:
            """C of the bytes before those of a block's first channel."""
            return f"{first} * {size}" if first else ""

        return [
            *self.packing.function(self.what.geometry.pad[2] * self.pixel),
            *(self._expand_function() if self._expands else []),
            *self.functions(),
            "void @SYMBOL@(const int8_t *restrict in, int8_t *restrict out, const int8_t *restrict params,",
            "              int8_t *restrict scratch)",
            "{",
            "  const int32_t *range = (const int32_t *)params;",
            "  const int32_t zero_point = range[0], low = range[1], high = range[2];",
            f"  const int8_t *lookup = {lookup};",
            f"  int8_t *zeros = scratch + {self.strips * self.strip_bytes};",
            f"  const uint32x4_t columns = {{{', '.join(map(str, self._patch_words))}}};",
            f"  const uint32x4_t places = {{{', '.join(map(str, self._offsets))}}};",
            *(f"  {line}" for line in self._prepare()),
            *(
                [f"  int8_t *expanded = scratch + {self._strips_bytes};", f"  expand(expanded, {weights});"]
                if self._expands
                else []
            ),
            f"  for (int image = 0; image < {geometry.batch}; image++, in += {image_in}, out += {image_out})",
            *(
                [f"  for (int first = 0; first < {self.what.channels}; first += {self.block})"]
                if self.blocks > 1
                else []
            ),
            f"  for (int group = 0; group < {self.strip_count}; group += {self.strips}) {{",
            f"    const int start = group < {last_strip} ? group : {last_strip};",
            f"    for (int s = 0; s < {self.strips}; s++) {{",
            f"      const int row = (start + s) * {patches.rows};",
            f"      const int y = {first_row} * {geometry.stride[0]} - {geometry.pad[0]};",
            f"      for (int g = 0; g < {patches.row_groups}; g++)",
            f"        pack(scratch + s * {self.strip_bytes} + g * {self.group_bytes},",
            f"             in{first}, zeros, y + g * {PATCH});",
            "    }",
            f"    const int8_t *weights = {'expanded' if self._expands else weights}{of(self.weight_bytes)};",
            f"    const int32_t *factors = {factors}{of(self.what.fields)};",
            *(f"    {line}" for line in self._walk(first_row)),
            "  }",
            "}",
            "",
        ]

    @property
    def _factors(self) -> list[str]:
        return ["bias", "multiplier", "right", "left"][: self.what.fields]

    @property
    def held(self) -> int:
        """Weight vectors that stay in registers through a row."""
        return min(len(self.patches.uses), self.nest.held["weights"])

    def _prepare(self) -> list[str]:
        """Write the padding that stays: the row of zero points, and the columns left and right of the image."""
        geometry = self.what.geometry
        if not any(geometry.pad):
            return []
        right = (geometry.pad[2] + geometry.width) * self.pixel
        lines = ["const int8x16_t zero = vdupq_n_s8(range[3]);"]
        fills = [("zeros", 0, self._zero_bytes, "1", "0")]
        count, step = str(self.strips * self.patches.row_groups), str(self.group_bytes)
        fills += [("scratch", 0, geometry.pad[2] * self.pixel, count, step)]
        fills += [("scratch", right, geometry.pad[3] * self.pixel, count, step)]
        for base, first, size, times, distance in fills:
            if size:
                lines += [
                    f"for (int i = 0; i < {times}; i++)",
                    f"  for (int k = {first}; k < {first + size}; k += 16)",
                    f"    vstrbq_s8({base} + i * {distance} + k, zero);",
                ]
        return lines

    @cached_property
    def packing(self) -> Packing:
        """How the strips are packed."""
        block = self.block if self.blocks > 1 else None
        return Packing(self.what.geometry, self.nest, self._packed_rows, block, self.pipeline)

    @property
    def _packed_rows(self) -> int:
        """Rows of a strip's groups that a window meets: all four, or as many as the only group has."""
        return PATCH if self.patches.row_groups > 1 else self.patches.extent[0]

    def _expand_function(self) -> list[str]:
        """C of `expand`: the stored columns of every channel out of its weights alone."""
        taps = self.what.geometry.kernel[0] * self.what.geometry.kernel[1]
        flat = [number for column in self._words[0] for number in column]
        lines = []
        for first in range(0, len(flat), VECTOR):
            part = [*flat[first : first + VECTOR], *[-1] * (first + VECTOR - len(flat))]
            offsets = ", ".join(str(max(number, 0)) for number in part)
            mask = sum(1 << lane for lane, number in enumerate(part) if number >= 0)
            gathered = f"vldrbq_gather_offset_z_s8(from, (uint8x16_t){{{offsets}}}, {mask:#x})"
            lines.append(f"    vstrbq_s8(to + {first}, {gathered});")
        return [
            "INLINE void expand(int8_t *to, const int8_t *from)",
            "{",
            f"  for (int c = 0; c < {self.what.channels}; c++, from += {taps}, to += {self.weight_bytes}) {{",
            *lines,
            "  }",
            "  vstrbq_s8(to, vdupq_n_s8(0));",
            "}",
        ]

    @property
    def _outputs(self) -> list[tuple[int, int]]:
        """(row, column) of the four outputs of a turn."""
        patches = self.patches
        return [
            (row, tile * patches.columns + column) for tile in range(patches.per_turn) for row, column in patches.cells
        ]

    @property
    def _offsets(self) -> list[int]:
        """Bytes from the first output of a turn to each."""
        geometry, channels = self.what.geometry, self.what.channels
        return [(row * geometry.columns + column) * channels for row, column in self._outputs]

    @property
    def _mask(self) -> int:
        """The predicate of the four outputs, where some do not exist; else 0."""
        geometry = self.what.geometry
        inside = [row < geometry.rows and column < geometry.columns for row, column in self._outputs]
        return 0 if all(inside) else sum(0xF << 4 * lane for lane, kept in enumerate(inside) if kept)

    def functions(self) -> list[str]:
        """C of the functions that `_walk` calls: `looped`, and `single` for what the hardware loop leaves."""
        column, row = self.what.geometry.stride[1] * self.pixel, self.what.channels
        walked = self._walked(self.starts)
        back = walked[0] - walked[-1]
        if self.over == "x":
            starts = self.starts[: self.unrolled]
            looped = self._function("looped", starts, (self.turn * column, self.turn * row), self._looped)
            left = self._left
            return [*(looped if self._looped else []), *(self._function("single", left, (0, 0), 1) if left else [])]
        if self.over == "c":
            return self._function("looped", walked, (PATCH + back * column, 1 + back * row), self._looped)
        down = self.patches.rows * self.what.geometry.columns
        ahead = (self.strip_bytes + back * column, (down + back) * row)
        looped = self._function("looped", walked, ahead, self._looped) if self._looped else []
        return [*looped, *(self._function("single", walked, (0, 0), 1) if self._looped < self.strips else [])]

    @property
    def _left(self) -> list[int]:
        """The turns of a row that its hardware loop leaves; they are executed before it."""
        return self._walked(self.starts[self._looped * self.unrolled :])

    def _walk(self, first_row: str) -> list[str]:
        """C that computes all channels of the strips, given C of the output row of `row`."""
        geometry, channels = self.what.geometry, self.what.channels
        step = geometry.stride[1] * self.pixel
        output = f"out + {first_row} * {geometry.columns * channels}" + (" + first" if self.blocks > 1 else "")
        each_strip = [f"for (int s = 0; s < {self.strips}; s++, strip += {self.strip_bytes}) {{"]
        shared = "lookup, weights, columns, places, zero_point, low, high"
        if self.over == "c":
            calls = self._each_part(f"looped(strip + x * {step}, o + x * {channels}, factors, {shared});")
            return ["const int8_t *strip = scratch;", *self._strip(each_strip, output, calls)]
        shared = ", ".join([shared, *(f"w{i}" for i in range(self.held)), *self._factors])
        output += " + c"
        channel = "c" if self.what.multiples == 1 else f"c / {self.what.multiples}"
        lines = [
            *self._load_weights(),
            *(f"const int32_t {name} = factors[{i}];" for i, name in enumerate(self._factors)),
            f"const int8_t *strip = scratch + {channel} * {PATCH};",
        ]
        if self.over == "x":
            looped, left = [f"looped(strip, o, {shared});"] if self._looped else [], self._left
            rest = [f"single(strip, o, {shared});"] if left else []
            lines += self._strip(each_strip, output, [*rest, *looped])
        else:
            if self._looped:
                calls = self._each_part(f"looped(strip + x * {step}, o + x * {channels}, {shared});")
                lines += self._strip(["{", "  const int s = 0;"], output, calls)
            if self._looped < self.strips:
                at = f"strip + s * {self.strip_bytes} + x * {step}"
                calls = self._each_part(f"single({at}, o + x * {channels}, {shared});")
                lines += self._strip(["{", f"  const int s = {self.strips - 1};"], output, calls)
        each = (
            f"for (int c = 0; c < {self.block}; c++, weights += {self.weight_bytes}, factors += {self.what.fields}) {{"
        )
        return [each, *(f"  {line}" for line in lines), "}"]

    def _each_part(self, call: str) -> list[str]:
        """C of a call for each part of a row, which begins at column `x`; the last one starts early where it must."""
        last = self.what.geometry.columns - self.columns
        return [
            f"for (int part = 0; part < {self.what.geometry.columns}; part += {self.columns}) {{",
            f"  const int x = part < {last} ? part : {last};",
            f"  {call}",
            "}",
        ]

    def _strip(self, head: list[str], output: str, calls: list[str]) -> list[str]:
        """C of the block that `head` opens: `calls` on strip `s`, the results of which begin at `output`."""
        row = f"const int row = (start + s) * {self.patches.rows};"
        return [*head, *(f"  {line}" for line in (row, f"int8_t *o = {output};", *calls)), "}"]

    def _load_weights(self) -> list[str]:
        """C of the weight vectors that stay in registers."""
        lines = []
        for number in sorted(range(self.held), key=lambda n: n in self._moved):
            if number in self._moved:
                words = f"vshlq_n_s32(vreinterpretq_s32_s8(w{self._moved[number]}), 8)"
            else:
                words = f"vldrwq_s32((const int32_t *)(weights + {PATCH * self._words[1][number]}))"
            lines.append(f"const int8x16_t w{number} = vreinterpretq_s8_s32({words});")
        return lines

    @property
    def _patch_words(self) -> list[int]:
        """Bytes from the beginning of a patch to each of its words: four columns, or two of two groups of rows."""
        if self.patches.deep:
            return [0, self.group_bytes, self.pixel, self.pixel + self.group_bytes]
        return [column * self.pixel for column in range(PATCH)]

    @cached_property
    def _patch_offsets(self) -> list[int]:
        """Bytes from a turn's first patch to each, tile by tile."""
        step = self.patches.columns * self.what.geometry.stride[1]
        return [
            group * self.group_bytes + (first + tile * step) * self.pixel
            for tile in range(self.patches.per_turn)
            for group, first in self.patches.places
        ]

    @property
    def _reached(self) -> dict[int, tuple[int, int]]:
        """For each offset of a patch the pointer that stands nearest before it, by its own offset, and the distance."""
        offsets = sorted(set(self._patch_offsets))
        most = 1 if self.over == "c" else min(_POINTERS, max(1, _GENERAL - self._general))
        gaps = zip([-_ADD_REACH - 1, *offsets], offsets, strict=False)
        near = [at for before, at in gaps if at - before > _ADD_REACH]
        stands = offsets if len(offsets) <= most else near[:most]
        return {at: max((stand, at - stand) for stand in stands if stand <= at) for at in offsets}

    @property
    def _scalars(self) -> list[str]:
        """The numbers that the finish needs."""
        return ["zero_point", *(["low", "high"] if self.what.clamped else []), *self._factors]

    @property
    def _spilled(self) -> bool:
        """Whether the finish reads its numbers from memory, where general registers do not hold them all."""
        return self.over != "c" and self._others + 1 + len(self._scalars) > _GENERAL

    @property
    def _others(self) -> int:
        """General registers for sums, the output, a distance, and what only some kernels have."""
        return (
            len(_SUMS)
            + 2
            + self.what.table
            + (self.held < len(self.patches.uses))
            + (self._mask > 0)
            + self.patches.deep
        )

    @property
    def _general(self) -> int:
        """General registers beside those that point to patches."""
        scalars = 2 if self._spilled else len(self._scalars)
        return self._others + scalars + (2 if self.over == "c" else 0)

    def _function(self, name: str, starts: list[int], ahead: tuple[int, int], turns: int) -> list[str]:
        """C of a function that computes `turns` times the turns at columns `starts`.

        Args:
            ahead: bytes of input and output from the last turn of a block to the first of the next.
        """
        what, mask, walks = self.what, self._mask, self.over == "c"
        pointers = {each: int(each[1:]) for each in self._pointers}
        numbers = [] if self._spilled else [each for each in self._scalars if not (walks and each in self._factors)]
        scalars = [*numbers, *(["lookup"] if what.table else []), *(["context"] if self._spilled else [])]
        scalars += ["weights"] if self.held < len(self.patches.uses) else []
        constants = [*([] if walks else [f"w{i}" for i in range(self.held)]), "columns", "places"]
        changes = ["o", *pointers, *(["weights", "factors", *self._factors] if walks else [])]
        scratch = {"t": "r8"} if any(distance for _, distance in self._reached.values()) else {}
        scratch |= {"n": "r10"} if self._spilled else {}
        scratch |= {"carry": "r12"} if self.patches.deep else {}
        sums = {f"s{i}": register for i, register in enumerate(_SUMS)}
        registers = {each: f"%[{each}]" for each in (*changes, *scalars)} | sums | scratch
        registers |= {each: f"%q[{each}]" for each in constants}
        free = tuple(f"q{i}" for i in range(8 - len(constants)))
        step = what.geometry.stride[1] * self.pixel
        widths = [there - here for here, there in itertools.pairwise(starts)]
        code, opening = self._weights_code() if walks else [], 0
        steps = [*((width * step, width * what.channels) for width in widths), ahead]
        for number, (start, (along, to)) in enumerate(zip(starts, steps, strict=True)):
            code += self._sums_code(along, self._early if start == self.starts[-1] else 0)
            if number == 0:
                opening = len(code) if turns > 1 and self._hoisted == ALL_AHEAD else 0
                code += self._factors_code() if walks else []
            code += self._finish_code(to)
        block = Block(tuple(code[opening:]), registers, free, tuple(code[:opening]))
        found = ordered(block, self.pipeline, self._hoisted if turns > 1 else 0, self.nest.issue("out"))
        entry, leave = list(found.entry), list[str]()
        if mask:
            scalars, leave = [*scalars, "mask"], ["vmsr p0, lr"]
            entry = ["vmrs lr, p0", "vmsr p0, %[mask]", *entry]
        used = " ".join([*entry, *found.turn])
        reads = [each for each in scalars if f"%[{each}]" in used]
        clobbers = [*sums.values(), *scratch.values()]
        statement = assembly(entry, found.turn, leave, turns, changes, reads, clobbers, constants, free)
        declared = [f"int8x16_t w{i}" for i in range(self.held)] + [f"int32_t {factor}" for factor in self._factors]
        head = "const int8_t *x, int8_t *o, " + ("const int32_t *factors, " if walks else "")
        head += "const int8_t *lookup, const int8_t *weights, uint32x4_t columns, uint32x4_t places"
        tail = "" if walks else "".join(f", {each}" for each in declared)
        return [
            f"INLINE void {name}({head},",
            f"  int32_t zero_point, int32_t low, int32_t high{tail})",
            "{",
            *([f"  int32_t {', '.join(f'{factor} = 0' for factor in self._factors)};"] if walks else []),
            *([f"  const uint32_t mask = {mask:#x};"] if mask else []),
            *([f"  const int32_t context[] = {{{', '.join(self._scalars)}}};"] if self._spilled else []),
            *(f"  const int8_t *{pointer} = x + {at + starts[0] * step};" for pointer, at in pointers.items()),
            *([f"  o += {starts[0] * what.channels};"] if starts[0] else []),
            *(f"  {line}" for line in statement),
            "}",
        ]

    def _weights_code(self) -> list[Instruction]:
        """The instructions that load the weights of the next channel."""
        code = []
        for number in sorted(range(self.held), key=lambda n: n in self._moved):
            if number in self._moved:
                code.append(Instruction("vshl.i32", f"{{w{number}}}, {{w{self._moved[number]}}}, #8", (f"w{number}",)))
            else:
                at = PATCH * self._words[1][number]
                code.append(Instruction("vldrw.u32", f"{{w{number}}}, [{{weights}}, #{at}]", (f"w{number}",)))
        if self.held == len(self.patches.uses):
            code += advance("weights", self.weight_bytes)
        return code

    def _factors_code(self) -> list[Instruction]:
        """The instructions that load the factors of the next channel."""
        code = []
        for first in range(0, len(self._factors), 2):
            names = tuple(self._factors[first : first + 2])
            values = ", ".join(f"{{{name}}}" for name in names)
            mnemonic, operands = "ldrd" if len(names) == 2 else "ldr", f"{values}, [{{factors}}], #{4 * len(names)}"
            code.append(Instruction(mnemonic, operands, (*names, "factors"), ("factors",)))
        return code

    def _sums_code(self, step: int, skipped: int) -> list[Instruction]:
        """The instructions of one turn that come to a vector of four sums: patches, products, a step (bytes) ahead.

        Sums of the first `skipped` columns are left out.
        """
        patches = self.patches
        code: list[Instruction] = []
        skips = [column < skipped for _, column in self._outputs]
        for tile in range(patches.per_turn):
            left_out = {cell for cell in range(len(patches.cells)) if skips[tile * len(patches.cells) + cell]}
            started = set[int]()
            for place in range(len(patches.places)):
                if all(cell in left_out for cell, at in patches.uses if at == place):
                    continue
                stand, distance = self._reached[self._patch_offsets[tile * len(patches.places) + place]]
                base = f"p{stand}"
                if distance > _ADD_REACH:
                    code.append(Instruction("movw", f"{{t}}, #{distance}", ("t",)))
                    code.append(Instruction("add.w", f"{{t}}, {{t}}, {{{base}}}", ("t",), ("t",)))
                elif distance:
                    code.append(Instruction("addw", f"{{t}}, {{{base}}}, #{distance}", ("t",)))
                base = "t" if distance else base
                code.append(Instruction("vldrw.u32", f"{{x}}, [{{{base}}}, {{columns}}]", ("x",)))
                for number, (cell, at) in enumerate(patches.uses):
                    if at != place or cell in left_out:
                        continue
                    weights = f"w{number}"
                    if number >= self.held:
                        column = PATCH * self._words[1][number]
                        code.append(Instruction("vldrw.u32", f"{{w}}, [{{weights}}, #{column}]", ("w",)))
                        weights = "w"
                    for above in range(cell + 1) if patches.deep else (0,):
                        if above:
                            bits = 8 * patches.geometry.stride[0]
                            code.append(
                                Instruction("vshlc", f"{{x}}, {{carry}}, #{bits}", ("x", "carry"), ("x", "carry"))
                            )
                        total, more = f"s{tile * len(patches.cells) + cell - above}", cell - above in started
                        started.add(cell - above)
                        mnemonic = "vmladava.s8" if more else "vmladav.s8"
                        operands = f"{{{total}}}, {{x}}, {{{weights}}}"
                        code.append(Instruction(mnemonic, operands, (total,), (total,) if more else ()))
        pairs = [first for first in (0, 1) if not (skips[first] and skips[first + 2])]
        for first in pairs:
            operands = f"{{v}}[{first + 2}], {{v}}[{first}], {{s{first}}}, {{s{first + 2}}}"
            code.append(Instruction("vmov", operands, ("v",), ("v",) if first != pairs[0] else ()))
        return code + [i for pointer in self._pointers for i in advance(pointer, step)]

    def _finish_code(self, step: int) -> list[Instruction]:
        """The instructions of one turn that finish four sums, and a step (bytes) ahead."""
        what = self.what
        code = self._with("bias", "vadd.i32", "{v}, {v}, ")
        if what.form == "left":
            code += self._with("left", "vshl.s32", "{v}, ")
        code += self._with("multiplier", "vqrdmulh.s32" if what.form == "round" else "vqdmulh.s32", "{v}, {v}, ")
        if what.form != "round":
            code += self._with("right", "vrshl.s32", "{v}, ")
        code += self._with("zero_point", "vadd.i32", "{v}, {v}, ")
        for instruction in narrowed(what.clamped, what.table):
            bound = next((name for name in ("low", "high") if name in instruction.names), "") if self._spilled else ""
            if bound:
                code.append(Instruction("ldr", f"{{n}}, [{{context}}, #{4 * self._scalars.index(bound)}]", ("n",)))
                instruction = replace(instruction, operands=instruction.operands.replace(f"{{{bound}}}", "{n}"))
            code.append(instruction)
        value = "v"
        if what.table:
            code.append(Instruction("vldrb.u32", "{y}, [{lookup}, {v}]", ("y",), apart=True))
            value = "y"
        store = "vpst\\nvstrbt.32" if self._mask else "vstrb.32"
        code.append(Instruction(store, f"{{{value}}}, [{{o}}, {{places}}]"))
        return code + advance("o", step)

    def _with(self, scalar: str, mnemonic: str, operands: str) -> list[Instruction]:
        """An instruction that changes `v` by a scalar in a register, or one that it loads first."""
        if not self._spilled:
            return [_update(mnemonic, f"{operands}{{{scalar}}}")]
        load = Instruction("ldr", f"{{n}}, [{{context}}, #{4 * self._scalars.index(scalar)}]", ("n",))
        return [load, _update(mnemonic, f"{operands}{{n}}")]

    @property
    def _pointers(self) -> list[str]:
        return [f"p{stand}" for stand in sorted({stand for stand, _ in self._reached.values()})]

    # What must hold.

    def verify(self) -> None:
        """Check what the printed code takes for granted.

        Raises:
            BackendError: the nest is not legal; the message says why.
        """
        if len(self.patches.cells) > PATCH or PATCH % len(self.patches.cells):
            raise BackendError("a turn has four outputs")
        rows, columns = self.patches.rows, self.patches.columns
        if self.patches.deep and (rows == 1 or columns > 1 or self.patches.extent[0] > self.patches.shape[0]):
            raise BackendError(f"{rows} x {columns} outputs do not share deep patches")
        if len(self.patches.uses) > _MOST_WEIGHT_VECTORS:
            raise BackendError(f"{len(self.patches.uses)} weight vectors are too many")
        if self.strips > self.strip_count or (self.strips > 1 and self.strips * self.strip_bytes > _MOST_STRIP_BYTES):
            raise BackendError(f"{self.strips} strips are too many")
        all_held = self.held == len(self.patches.uses)
        if self.over == "c" and (not all_held or self.what.multiples > 1 or self._mask):
            raise BackendError(
                "a loop over channels needs all weights in registers, one output a channel and whole turns"
            )
        if self._general + len(self._pointers) > _GENERAL:
            raise BackendError("pointers and factors do not fit the registers")
        if self.blocks > 1 and (self.what.multiples > 1 or self.block % VECTOR):
            raise BackendError("a block of channels is whole vectors of inputs")
        if len(self.starts) * (8 + 2 * len(self.patches.uses)) > _MOST_UNROLLED and self.over != "x":
            raise BackendError(f"a row of {len(self.starts)} turns is too long to unroll")
        if self._mask and self._looped > 1:
            raise BackendError("outputs that do not exist cannot be told in a hardware loop")
        spare = _SPARE_VECTORS - (0 if self.over == "c" else self.held)
        loads_ahead = 0 if self._hoisted == ALL_AHEAD else self._hoisted
        if max(self.held * (self.over == "c") + 2, loads_ahead + 1) + self.what.clamped + (not all_held) > spare:
            raise BackendError(f"{self.held} weight vectors and {self._hoisted} loads ahead leave no registers")
        if any(distance > _MOVE_REACH for _, distance in self._reached.values()):
            raise BackendError("patches are too far from each other")
        if self.weight_bytes > _WORD_REACH:
            raise BackendError("weight vectors are out of the reach of their pointer")
        self.packing.verify()

    @property
    def _entries(self) -> int:
        """Statements of assembly for one channel of a group of strips."""
        if self.over == "ys":
            return 1 + (self._looped != self.strips)
        return self.strips * ((self._looped > 0) + (len(self._left) > 0))

    def counts(self) -> dict[str, float]:
        """What the code executes, for the cost model."""
        geometry, patches = self.what.geometry, self.patches
        groups = geometry.batch * -(-self.strip_count // self.strips)
        computed = groups * self.strips * self.what.channels
        parts = -(-geometry.columns // self.columns)
        turns = computed * len(self.starts) * parts
        gathers, products = len(self._patch_offsets), patches.per_turn * len(patches.uses)
        shifted = products * (len(patches.cells) - 1) if patches.deep else 0
        entries = self.strips * parts * self.blocks if self.over == "c" else self.what.channels * self._entries * parts
        visits = groups * parts * (self.strips if self.over == "c" else 1)
        read = 4 * self.what.fields * self.what.channels * visits
        reloaded = turns * patches.per_turn * (len(patches.uses) - self.held)
        if self._expands:
            read += self.what.channels * geometry.kernel[0] * geometry.kernel[1]
        else:
            read += self.weight_bytes * self.what.channels * visits + VECTOR * reloaded
        counts = {
            "turns": turns,
            "gathers": turns * gathers,
            "products": turns * (products + shifted),
            "shifted": turns * shifted,
            "reloaded": reloaded,
            "moved": turns * sum(1 for at in self._patch_offsets if self._reached[at][1]),
            "channel_starts": groups * self.what.channels * (self.over != "c"),
            "entries": groups * entries,
            "over_channels": self.over == "c",
            "over_strips": self.over == "ys",
            "weights": computed * parts * len(self.patches.uses) * (self.over == "c"),
            "unrolled": self.unrolled,
            "packed": groups
            * self.strips
            * patches.row_groups
            * (self._packed_rows + PATCH)
            * geometry.width
            * geometry.channels,
            "weight_vectors": len(patches.uses),
            "held": self.held,
            "ahead": self._hoisted,
            "scratch": self.scratch_bytes,
            "strips": self.strips,
            "expanded": self.what.channels * -(-self.weight_bytes // VECTOR) * self._expands,
            "constants_read": read,
            "blocks": self.blocks,
            "block_columns": groups
            * self.strips
            * patches.row_groups
            * geometry.width
            * self.blocks
            * (self.blocks > 1),
            "streams": 2 * visits * self.blocks,
        }
        packs = groups * self.strips * patches.row_groups * self.blocks
        counts |= {"packs": packs, "pack_turns": packs * self.packing.turns, "pack_ahead": self.packing.ahead}
        return {name: float(value) for name, value in counts.items()}


def _update(mnemonic: str, operands: str) -> Instruction:
    """An instruction that changes `v`."""
    return Instruction(mnemonic, operands, ("v",), ("v",))


def _overlap(chain: Sequence[tuple[int, ...]], vector: _Columns) -> int:
    """How many columns at the end of `chain` are the first of `vector`."""
    return next(n for n in range(PATCH, -1, -1) if n <= len(chain) and tuple(chain[len(chain) - n :]) == vector[:n])
