"""Depthwise convolutions whose strips are cut into patches: a scheduled nest, and the C that it is printed as."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernel import weights_at
from tosaic.backends.cortex_m.kernels.mve import VECTOR, round_up, shift_factors
from tosaic.backends.cortex_m.nest.nest import Nest, NestLoop
from tosaic.backends.cortex_m.nest.packing import Packing
from tosaic.backends.cortex_m.nest.patch_turn import ALL_AHEAD, PatchTurn
from tosaic.backends.cortex_m.nest.patch_weights import PatchWeights
from tosaic.backends.cortex_m.nest.patches import PATCH, PatchDepthwise, Patches
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

_MOST_WEIGHT_VECTORS = 24
_MOST_STRIP_BYTES = 1 << 16
_MOST_UNROLLED = 200
# Two of eight vectors hold offsets.
_SPARE_VECTORS = 6
_WORD_REACH = 508


@dataclass(frozen=True)
class PatchKernel:
    """A scheduled depthwise convolution, ready to print.

    Args:
        what: the problem.
        nest: stage `strip` at the outer rows of `out`; operand `weights` lies in `params` as it is read, or without its
            zeros, which are put in between in `scratch`; some vectors of it stay in registers.
        pipeline: timings of the core; None leaves instructions in the order of their meaning.
    """

    what: PatchDepthwise
    nest: Nest
    pipeline: Pipeline | None

    # What the nest says.

    def _loop(self, name: str) -> NestLoop:
        return self.nest.loop("out", name)

    @cached_property
    def patches(self) -> Patches:
        deep = self.nest.places["patch"] == "8x2"
        return Patches(self.what.geometry, self._loop("yi").extent, self._loop("xi").extent, deep)

    @property
    def held(self) -> int:
        """Weight vectors that stay in registers through a row."""
        return min(len(self.patches.uses), self.nest.held["weights"])

    @cached_property
    def weights(self) -> PatchWeights:
        """The weight vectors, some of which stay in registers."""
        return PatchWeights(self.patches, self.held)

    @cached_property
    def _turn(self) -> PatchTurn:
        return PatchTurn(
            self.what,
            self.weights,
            self.pixel,
            self.group_bytes,
            walks=self.over == "c",
            last=self.starts[-1],
            early=self._early,
            issue=self.nest.issue("out"),
            pipeline=self.pipeline,
        )

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
        """The strips, one row of zero points, and the weights of a block that are expanded."""
        return self._strips_bytes + (self._packed_bytes(self.block) if self._expands else 0)

    @property
    def _expands(self) -> bool:
        return self.nest.places["weights"] == "scratch"

    def _packed_bytes(self, channels: int) -> int:
        """Bytes of the weights of so many channels as they are read, and of what is read behind them."""
        ahead = self.weights.bytes if self._hoisted == ALL_AHEAD else VECTOR * self._hoisted
        return round_up(channels * self.weights.bytes + VECTOR + ahead, VECTOR)

    # What the host packs.

    def pack_weights(self, weights: np.ndarray) -> np.ndarray:
        """int8 of int8 (channels, rows, columns): the stored columns of every channel, and what is read behind them.

        The weights alone where they are expanded.
        """
        if self._expands:
            return weights.ravel()
        packed = self.weights.pack(weights)
        return np.pad(packed, (0, self._packed_bytes(self.what.channels) - packed.size))

    def pack_factors(self, bias: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """int32 (channels, fields), as `finish.Finish.factors` derives them."""
        fields = [bias, *shift_factors(multiplier, shift)][: self.what.fields]
        return np.stack([np.asarray(field, np.int32) for field in fields], axis=1)

    # The code.

    def text(self, weights: int, factors: str, lookup: str) -> list[str]:
        """C of the kernel, whose params begin with {zero point, low, high, input's zero point}.

        Args:
            weights: where the packed ones (int8) begin, the last of the params.
            factors, lookup: C of where the factors (int32) and the TABLE lie.
        """
        geometry, patches = self.what.geometry, self.patches
        image_in = geometry.height * geometry.width * geometry.channels
        image_out = geometry.rows * geometry.columns * self.what.pixel
        last_strip, last_row = self.strip_count - self.strips, max(0, geometry.rows - patches.rows)
        first_row = f"(row < {last_row} ? row : {last_row})"
        first = " + first" if self.blocks > 1 else ""

        def of(size: int) -> str:
            """C of the bytes before those of a block's first channel."""
            return f"{first} * {size}" if first else ""

        expand = f"expand(expanded, packed{of(self.weights.taps)});"
        return [
            *self.packing.function(self.what.geometry.pad[2] * self.pixel),
            *(self.weights.expand_function(self.block) if self._expands else []),
            *self.functions(),
            "void @SYMBOL@(const int8_t *restrict in, int8_t *restrict out, const int8_t *restrict params,",
            "              int8_t *restrict scratch)",
            "{",
            "  const int32_t *range = (const int32_t *)params;",
            weights_at(weights),
            "  const int32_t zero_point = range[0], low = range[1], high = range[2];",
            f"  const int8_t *lookup = {lookup};",
            f"  int8_t *zeros = scratch + {self.strips * self.strip_bytes};",
            f"  const uint32x4_t columns = {{{', '.join(map(str, self._turn.words))}}};",
            f"  const uint32x4_t places = {{{', '.join(map(str, self._turn.places))}}};",
            *(f"  {line}" for line in self._prepare()),
            *([f"  int8_t *expanded = scratch + {self._strips_bytes};"] if self._expands else []),
            *([f"  {expand}"] if self._expands and not first else []),
            f"  for (int image = 0; image < {geometry.batch}; image++, in += {image_in}, out += {image_out})",
            *([f"  for (int first = 0; first < {self.what.channels}; first += {self.block}) {{"] if first else []),
            *([f"  {expand}"] if self._expands and first else []),
            f"  for (int group = 0; group < {self.strip_count}; group += {self.strips}) {{",
            f"    const int start = group < {last_strip} ? group : {last_strip};",
            f"    for (int s = 0; s < {self.strips}; s++) {{",
            f"      const int row = (start + s) * {patches.rows};",
            f"      const int y = {first_row} * {geometry.stride[0]} - {geometry.pad[0]};",
            f"      for (int g = 0; g < {patches.row_groups}; g++)",
            f"        pack(scratch + s * {self.strip_bytes} + g * {self.group_bytes},",
            f"             in{first}, zeros, y + g * {PATCH});",
            "    }",
            f"    const int8_t *weights = {'expanded' if self._expands else 'packed' + of(self.weights.bytes)};",
            f"    const int32_t *factors = {factors}{of(self.what.fields)};",
            *(f"    {line}" for line in self._walk(first_row)),
            "  }",
            *(["  }"] if first else []),
            "}",
            "",
        ]

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

    def functions(self) -> list[str]:
        """C of the functions that `_walk` calls: `looped`, and `single` for what the hardware loop leaves."""
        function, column, row = self._turn.function, self.what.geometry.stride[1] * self.pixel, self.what.pixel
        walked = self._walked(self.starts)
        back = walked[0] - walked[-1]
        if self.over == "x":
            starts = self.starts[: self.unrolled]
            looped = function("looped", starts, (self.turn * column, self.turn * row), self._looped, self._hoisted)
            left = self._left
            return [
                *(looped if self._looped else []),
                *(function("single", left, (0, 0), 1) if left else []),
            ]
        if self.over == "c":
            ahead = (PATCH + back * column, self.what.element + back * row)
            return function("looped", walked, ahead, self._looped, self._hoisted)
        down = self.patches.rows * self.what.geometry.columns
        ahead = (self.strip_bytes + back * column, (down + back) * row)
        looped = function("looped", walked, ahead, self._looped, self._hoisted) if self._looped else []
        return [*looped, *(function("single", walked, (0, 0), 1) if self._looped < self.strips else [])]

    @property
    def _left(self) -> list[int]:
        """The turns of a row that its hardware loop leaves; they are executed before it."""
        return self._walked(self.starts[self._looped * self.unrolled :])

    def _walk(self, first_row: str) -> list[str]:
        """C that computes all channels of the strips, given C of the output row of `row`."""
        geometry, pixel = self.what.geometry, self.what.pixel
        step, wide = geometry.stride[1] * self.pixel, f" * {self.what.element}" if self.what.element > 1 else ""
        output = f"out + {first_row} * {geometry.columns * pixel}" + (f" + first{wide}" if self.blocks > 1 else "")
        each_strip = [f"for (int s = 0; s < {self.strips}; s++, strip += {self.strip_bytes}) {{"]
        shared = "lookup, weights, columns, places, zero_point, low, high"
        if self.over == "c":
            calls = self._each_part(f"looped(strip + x * {step}, o + x * {pixel}, factors, {shared});")
            return ["const int8_t *strip = scratch;", *self._strip(each_strip, output, calls)]
        shared = ", ".join([shared, *(f"w{i}" for i in range(self.held)), *self._turn.factors])
        output += f" + c{wide}"
        channel = "c" if self.what.multiples == 1 else f"c / {self.what.multiples}"
        lines = [
            *self.weights.loaded(),
            *(f"const int32_t {name} = factors[{i}];" for i, name in enumerate(self._turn.factors)),
            f"const int8_t *strip = scratch + {channel} * {PATCH};",
        ]
        if self.over == "x":
            looped, left = [f"looped(strip, o, {shared});"] if self._looped else [], self._left
            rest = [f"single(strip, o, {shared});"] if left else []
            lines += self._strip(each_strip, output, [*rest, *looped])
        else:
            if self._looped:
                calls = self._each_part(f"looped(strip + x * {step}, o + x * {pixel}, {shared});")
                lines += self._strip(["{", "  const int s = 0;"], output, calls)
            if self._looped < self.strips:
                at = f"strip + s * {self.strip_bytes} + x * {step}"
                calls = self._each_part(f"single({at}, o + x * {pixel}, {shared});")
                lines += self._strip(["{", f"  const int s = {self.strips - 1};"], output, calls)
        each = (
            f"for (int c = 0; c < {self.block}; c++, weights += {self.weights.bytes}, factors += {self.what.fields}) {{"
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
        all_held = self.weights.all_held
        if self.over == "c" and (not all_held or self.what.multiples > 1 or self._turn.mask):
            raise BackendError(
                "a loop over channels needs all weights in registers, one output a channel and whole turns"
            )
        if self.blocks > 1 and (self.what.multiples > 1 or self.block % VECTOR):
            raise BackendError("a block of channels is whole vectors of inputs")
        if len(self.starts) * (8 + 2 * len(self.patches.uses)) > _MOST_UNROLLED and self.over != "x":
            raise BackendError(f"a row of {len(self.starts)} turns is too long to unroll")
        if self._turn.mask and self._looped > 1:
            raise BackendError("outputs that do not exist cannot be told in a hardware loop")
        spare = _SPARE_VECTORS - (0 if self.over == "c" else self.held)
        loads_ahead = 0 if self._hoisted == ALL_AHEAD else self._hoisted
        if max(self.held * (self.over == "c") + 2, loads_ahead + 1) + self.what.clamped + (not all_held) > spare:
            raise BackendError(f"{self.held} weight vectors and {self._hoisted} loads ahead leave no registers")
        if self.weights.bytes > _WORD_REACH:
            raise BackendError("weight vectors are out of the reach of their pointer")
        self._turn.verify()
        self.packing.verify()

    @property
    def _entries(self) -> int:
        """Statements of assembly for one channel of a group of strips."""
        if self.over == "ys":
            return 1 + (self._looped != self.strips)
        return self.strips * ((self._looped > 0) + (len(self._left) > 0))

    def walks(self) -> Sequence[Walk]:
        """The loops over memory: strips are packed in the outer ones, and walked in all of them."""
        geometry, patches, pixel = self.what.geometry, self.patches, self.what.pixel
        row, out_row = geometry.width * geometry.channels, geometry.columns * pixel
        loops = [loop for loop in self.nest.stages["out"] if loop.how in ("each", "turn")]
        inside = [loop for loop in self.nest.stages["out"] if loop.how == "unroll"]
        if self.blocks > 1:
            packed = 1 + next(i for i, loop in enumerate(loops) if loop.name == "y")
        else:
            loops = [*(loop for loop in loops if loop.name == "y"), *(loop for loop in loops if loop.name != "y")]
            packed = 1
        taken = self.block // self.what.multiples
        image = [{"y": loop.step * geometry.stride[0] * row, "c": taken}.get(loop.axis, 0.0) for loop in loops[:packed]]
        rows = (self.strips * patches.rows - 1) * geometry.stride[0] + geometry.span[0]
        strip = {"ys": self.strip_bytes, "ci": PATCH / self.what.multiples}
        strip |= {} if self.blocks > 1 else {"c": PATCH / self.what.multiples}
        column = geometry.stride[1] * self.pixel
        walked = [strip.get(loop.name, loop.step * column if loop.axis == "x" else 0.0) for loop in loops]
        positions = {"y": out_row, "x": pixel, "c": self.what.element}
        written = [loop.step * positions[loop.axis] for loop in loops]
        of_channel = self.weights.bytes + 4 * self.what.fields
        last = 1 + max((i for i, loop in enumerate(loops) if loop.axis == "c"), default=-1)
        weights = [loop.step * of_channel if loop.axis == "c" else 0.0 for loop in loops[:last]]
        columns = math.prod(loop.turns for loop in inside if loop.axis == "x") * geometry.stride[1]
        accesses = [
            ArrayAccess(
                "image", "input", taken, tuple(image), inner=((geometry.width, geometry.channels), (rows, row))
            ),
            ArrayAccess("strips", "scratch", self.strips * self.strip_bytes, (0.0,) * packed, writes=True),
            ArrayAccess(
                "strips",
                "scratch",
                PATCH,
                tuple(walked),
                inner=((columns, self.pixel), (patches.row_groups, self.group_bytes)),
            ),
            ArrayAccess("weights", "params", of_channel, tuple(weights)),
            ArrayAccess(
                "out",
                "output",
                self.what.element,
                tuple(written),
                writes=True,
                inner=tuple((loop.turns, loop.step * positions[loop.axis]) for loop in inside),
            ),
        ]
        return [Walk(tuple(float(loop.turns) for loop in loops), tuple(accesses))]

    def counts(self) -> dict[str, float]:
        """What the code executes, for the cost model."""
        geometry, patches = self.what.geometry, self.patches
        groups = geometry.batch * -(-self.strip_count // self.strips)
        computed = groups * self.strips * self.what.channels
        parts = -(-geometry.columns // self.columns)
        turns = computed * len(self.starts) * parts
        gathers, products = len(self._turn.offsets), patches.per_turn * len(patches.uses)
        shifted = products * (len(patches.cells) - 1) if patches.deep else 0
        entries = self.strips * parts * self.blocks if self.over == "c" else self.what.channels * self._entries * parts
        visits = groups * parts * (self.strips if self.over == "c" else 1)
        read = 4 * self.what.fields * self.what.channels * visits
        reloaded = turns * patches.per_turn * (len(patches.uses) - self.held)
        expanded = self.what.channels * (geometry.batch if self.blocks > 1 else 1) * self._expands
        if self._expands:
            read += expanded * self.weights.taps
        else:
            read += self.weights.bytes * self.what.channels * visits + VECTOR * reloaded
        counts = {
            "turns": turns,
            "gathers": turns * gathers,
            "products": turns * (products + shifted),
            "shifted": turns * shifted,
            "reloaded": reloaded,
            "moved": turns * sum(1 for at in self._turn.offsets if self._turn.reached[at][1]),
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
            "expanded": expanded * -(-self.weights.bytes // VECTOR),
            "constants_read": read,
            "blocks": self.blocks,
            "block_columns": groups
            * self.strips
            * patches.row_groups
            * geometry.width
            * self.blocks
            * (self.blocks > 1),
            "visits": visits * self.blocks,
        }
        packs = groups * self.strips * patches.row_groups * self.blocks
        counts |= {"packs": packs, "pack_turns": packs * self.packing.turns, "pack_ahead": self.packing.ahead}
        return {name: float(value) for name, value in counts.items()}
