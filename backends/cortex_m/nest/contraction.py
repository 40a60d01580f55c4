"""Convolutions and matrix products as nests: sums of dot products at a loop of the finished output.

    sums[y, x, n] = sum over k of image[window of y, x][k] * weights[n, k]
    out[y, x, n] = finish(sums[y, x, n])

Without padding and windows the image is a matrix: one row of `x`, each `k` bytes long.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.kernels.mve import COPY, PRELUDE, VECTOR, lookup_order, round_up, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.nest.assembly import VECTORS, assembly
from tosaic.backends.cortex_m.nest.block import Block, Instruction, ordered
from tosaic.backends.cortex_m.nest.finish import GROUP, Finish
from tosaic.backends.cortex_m.nest.nest import Loop, Nest
from tosaic.backends.cortex_m.nest.rows import Dot
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

# General registers for sums, the even ones that VMLADAVA wants first; what is left over holds pointers.
SUMS = ("r0", "r2", "r4", "r8", "r10", "r12", "r6")
PAIRS = (("r0", "r1"), ("r2", "r3"), ("r4", "r5"), ("r8", "r9"))
_GENERAL = 13
# Bytes that LE can jump back.
REACH_OF_LOOP = 4000
MOST_PADDED = 4096
_STORE_PAIR, _STORE = 1020, 4095


@dataclass(frozen=True)
class Contraction:
    """What is computed.

    Args:
        geometry: of the window; its channels count bytes of the input.
        channels: output channels.
        dot: the instructions of a product.
        finish: how a sum becomes a result.
    """

    geometry: Geometry
    channels: int
    dot: Dot
    finish: Finish

    @property
    def depth(self) -> int:
        """Bytes of the left operand behind one sum."""
        return self.geometry.depth

    @property
    def padded_bytes(self) -> int:
        """Bytes of the image between its padding."""
        geometry, (top, bottom, left, right) = self.geometry, self.geometry.pad
        return (top + geometry.height + bottom) * (left + geometry.width + right) * geometry.channels

    @property
    def nest(self) -> Nest:
        """The unscheduled stages: pixels of a row `x` in rows `y`; the windows of all pixels are one row of them."""
        rows, columns = self.geometry.batch * self.geometry.rows, self.geometry.columns
        axes = {"y": rows, "x": columns, "n": self.channels}
        return Nest.of(sums={**axes, "k": self.depth}, out=axes)


@dataclass(frozen=True)
class Vector:
    """One vector along the depth of a window.

    Args:
        row: the row of the window that it lies in.
        offset: bytes from the start of that row.
        first, count: the weights that meet it, as elements of the depth.
        skipped: elements before those, which another vector has.
    """

    row: int
    offset: int
    first: int
    count: int
    skipped: int = 0


@dataclass(frozen=True)
class Kernel:
    """A scheduled contraction, ready to print.

    Args:
        what: the problem.
        nest: stage `sums` at a loop of `out`; operand `image` is read `in_place` or from a `padded` copy, the `windows`
            from the `image` or side by side in `scratch`, `weights` from `params` or a copy of a block in `scratch`.
        pipeline: timings of the core; None leaves instructions in the order of their meaning.
    """

    what: Contraction
    nest: Nest
    pipeline: Pipeline | None

    # What the nest says.

    @cached_property
    def _shared(self) -> list[Loop]:
        """The loops around both stages, outermost first."""
        loops = self.nest.stages["out"]
        _, name = self.nest.at["sums"]
        return list(loops[: loops.index(self.nest.loop("out", name)) + 1])

    def _around(self, axis: str) -> Loop:
        return next(loop for loop in self._shared if loop.axis == axis)

    @cached_property
    def pixels(self) -> int:
        """Pixels whose sums lie in scratch memory at a time."""
        return self._around("x").step

    @cached_property
    def _row_tiles(self) -> list[int]:
        """The pixels of each tile of a row."""
        loop = self._around("x")
        starts = range(0, loop.extent, loop.step)
        return [min(loop.step, loop.extent - start) if loop.short else loop.step for start in starts]

    @cached_property
    def _short(self) -> int:
        """Pixels of the last tile of a row where it is shorter than the others, or 0."""
        return self._row_tiles[-1] % self.pixels

    @property
    def _finished_rows(self) -> list[int]:
        """How many pixels are finished together, fewest first."""
        return sorted({self.share, self.pixels % self.share, self._short % self.share} - {0})

    @property
    def _count(self) -> str:
        """C of the pixels of a tile."""
        return "pixels" if self._short else str(self.pixels)

    @cached_property
    def block(self) -> int:
        """Channels whose sums lie in scratch memory at a time."""
        return self._around("n").step

    @cached_property
    def tile(self) -> tuple[int, int]:
        """Pixels and channels of the register block."""
        return self.nest.loop("sums", "xi").extent, self.nest.loop("sums", "ni").extent

    @property
    def _repeats(self) -> int:
        """Register blocks in one turn over the channels."""
        return self._turn.step // self.tile[1] if self._turn.axis == "n" else 1

    @property
    def _code_bytes(self) -> int:
        """Bytes of the hardware loop of the sums."""
        mr, nr = self.tile
        vectors = len(self.vectors) if self._turn.axis == "n" else self._turn.step // VECTOR
        return 4 * self._repeats * (vectors * (mr + nr + mr * nr) + mr * nr)

    @property
    def _finish_repeats(self) -> int:
        """Vectors of results in one turn of the finish."""
        loops = self.nest.stages["out"]
        return next(loop.step // VECTOR for loop in loops if loop.how == "turn") or 1

    @property
    def turns(self) -> dict[str, int]:
        """The most turns of a hardware loop of each stage whose loads may be executed ahead."""
        whole, repeats = self.block // self.what.finish.lanes, self._finish_repeats
        sums = -(-self.block // self.tile[1]) // self._repeats if self._turn.axis == "n" else 1
        return {"sums": sums, "out": max(whole // repeats, whole % repeats)}

    @cached_property
    def share(self) -> int:
        """Pixels that are finished with one reading of the factors."""
        return next(loop.extent for loop in self.nest.stages["out"] if loop.axis == "x" and loop.how == "unroll")

    @cached_property
    def _turn(self) -> Loop:
        """The hardware loop of the sums."""
        return next(loop for loop in self.nest.stages["sums"] if loop.how == "turn")

    @property
    def _copies_weights(self) -> bool:
        """Whether a block's weights and factors are copied to scratch memory, where all pixels then read them."""
        return self.nest.places["weights"] == "scratch"

    @property
    def flat(self) -> bool:
        """Whether pixels are counted through all rows."""
        return all(loop.axis != "y" for loop in self._shared)

    @cached_property
    def staged(self) -> bool:
        """Whether windows are copied side by side."""
        return self.nest.places["windows"] == "scratch"

    @cached_property
    def geometry(self) -> Geometry:
        """Of the image as it is read: padded, it has no border."""
        found = self.what.geometry
        if not self._is_padded:
            return found
        top, bottom, left, right = found.pad
        height, width = top + found.height + bottom, left + found.width + right
        return replace(found, height=height, width=width, pad=(0, 0, 0, 0))

    @cached_property
    def vectors(self) -> list[Vector]:
        """The vectors of a window in the order in which they are multiplied.

        The last of a stretch in the image ends where that does, so that nothing behind it is read.
        """
        element, found = self.what.dot.element, list[Vector]()
        for row, at, first, size in [(0, 0, 0, self.what.depth)] if self.staged else _runs(self.geometry):
            for step in range(0, size, VECTOR):
                skipped = max(0, step + VECTOR - size) if self._overlaps and size >= VECTOR else 0
                count = min(VECTOR, size - step) // element
                found.append(Vector(row, at + step - skipped, (first + step) // element, count, skipped // element))
        return found

    # Sizes of what lies in memory.

    @property
    def padded_block(self) -> int:
        """Channels of a block that are computed: whole register blocks, whole groups of four."""
        nr = self.tile[1]
        return round_up(round_up(self.block, nr), GROUP)

    @property
    def sum_bytes(self) -> int:
        """Bytes of a sum."""
        return 4 * self.what.dot.registers

    @property
    def sum_stride(self) -> int:
        """Bytes from the sums of a pixel to those of the next."""
        return self.sum_bytes * self.padded_block

    @property
    def window_pitch(self) -> int:
        """Bytes from a window to the next, in the image or side by side."""
        if self.staged:
            return len(self.vectors) * VECTOR
        return self.geometry.stride[1] * self.geometry.channels

    @property
    def _read_at_once(self) -> int:
        """Windows that one set of pointers reaches: all of a tile in the image; one where each is copied."""
        return 1 if self.staged else self.pixels

    @property
    def _row_reach(self) -> int:
        """Bytes from where a row of a window begins to the end of what is read there."""
        first = (self._read_at_once - 1) * self.geometry.stride[1] * self.geometry.channels
        ends = (max(size, VECTOR) if self._overlaps else round_up(size, VECTOR) for *_, size in _runs(self.geometry))
        return first + max(at + end for (_, at, _, _), end in zip(_runs(self.geometry), ends, strict=True))

    @cached_property
    def _overlaps(self) -> bool:
        """Whether the last vector of a stretch begins in the one before: where the host packs the weights."""
        return not self.staged and not self.what.finish.terms

    @property
    def _strip_columns(self) -> int:
        return (self._read_at_once - 1) * self.geometry.stride[1] + self.geometry.span[1]

    @property
    def _strip_pitch(self) -> int:
        return round_up(max(self._strip_columns * self.geometry.channels, self._row_reach), VECTOR)

    @cached_property
    def _layout(self) -> dict[str, tuple[int, int]]:
        """Offset and size of the parts of scratch memory."""
        geometry = self.geometry
        sizes = {"sums": self.sums_bytes}
        if self.staged:
            sizes["windows"] = self.pixels * self.window_pitch + VECTOR
        if self._is_padded:
            sizes["padded"] = geometry.height * geometry.width * geometry.channels + self._row_reach + VECTOR
        elif self._border:
            sizes["strip"] = geometry.kernel[0] * self._strip_pitch + VECTOR
        if self._copies_weights:
            sizes["weights"] = self.block_bytes + VECTOR * self.nest.hoisted.get("sums", 0)
            sizes["factors"] = self._block_factors + VECTOR * self.nest.hoisted.get("out", 0)
        if self.what.finish.terms:
            sizes["terms"] = 4 * self.pixels
        offsets, end = {}, 0
        for name, size in sizes.items():
            offsets[name] = (end, size)
            end = round_up(end + size, VECTOR)
        return offsets

    @property
    def scratch_bytes(self) -> int:
        """Bytes of all of scratch memory."""
        offset, size = list(self._layout.values())[-1]
        return round_up(offset + size, VECTOR)

    @property
    def sums_bytes(self) -> int:
        """Bytes of the sums of a tile."""
        return self.pixels * self.sum_stride + VECTOR * self.nest.hoisted.get("out", 0)

    @property
    def block_bytes(self) -> int:
        """Bytes of the packed weights of a block of channels."""
        nr = self.tile[1]
        return round_up(self.block, nr) * len(self.vectors) * self.what.dot.lanes

    @property
    def blocks(self) -> int:
        """Blocks of channels."""
        return self._around("n").turns

    @property
    def weight_bytes(self) -> int:
        """Bytes of all packed weights, and of what loads that are ahead read behind them."""
        return self.blocks * self.block_bytes + VECTOR * self.nest.hoisted.get("sums", 0)

    # What the host packs.

    def channel_order(self) -> np.ndarray:
        """The channel behind each sum of a block, past the end for padding: int32 (round_up(block, nr),)."""
        order = self.what.finish.channel_order(self.block)
        return np.concatenate([order, np.arange(self.block, round_up(self.block, self.tile[1]), dtype=np.int32)])

    def pack_weights(self, weights: np.ndarray) -> np.ndarray:
        """int8 of `weight_bytes`: weights (channels, depth elements) in the order in which they are read."""
        lanes, nr, order = self.what.dot.lanes, self.tile[1], self.channel_order()
        vectors = np.zeros((len(weights), len(self.vectors), lanes), np.int8)
        for i, vector in enumerate(self.vectors):
            end = vector.skipped + vector.count
            vectors[:, i, vector.skipped : end] = weights[:, vector.first : vector.first + vector.count]
        blocks = vectors.reshape(self.blocks, self.block, len(self.vectors), lanes)
        padded = np.pad(blocks, ((0, 0), (0, len(order) - self.block), (0, 0), (0, 0)))[:, order]
        packed = padded.reshape(self.blocks, -1, nr, len(self.vectors), lanes).transpose(0, 1, 3, 2, 4)
        return np.pad(packed.ravel(), (0, self.weight_bytes - packed.size))

    def pack_factors(self, bias: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """int32: the factors of all channels in the order in which they are read."""
        split = [np.split(np.asarray(values), self.blocks) for values in (bias, multiplier, shift)]
        packed = np.concatenate([self.what.finish.factors(*block).ravel() for block in zip(*split, strict=True)])
        return np.pad(packed, (0, GROUP * self.nest.hoisted.get("out", 0)))

    @property
    def factor_bytes(self) -> int:
        """Bytes of `pack_factors`."""
        return self.blocks * self._block_factors + VECTOR * self.nest.hoisted.get("out", 0)

    @property
    def _block_factors(self) -> int:
        return 4 * self.what.finish.fields * round_up(self.block, GROUP)

    # The code.

    def functions(self) -> list[str]:
        """C of the functions that `body` calls."""
        lines = self._sums_function("sums")
        finish, strides = self.what.finish, (self.sum_stride, self._result_stride)
        hoisted = self.nest.hoisted.get("out", 0)
        if rest := self._short % self.tile[0]:
            loops = (loop._replace(extent=rest) if loop.name == "xi" else loop for loop in self.nest.stages["sums"])
            lines += replace(self, nest=self.nest.with_loops("sums", loops))._sums_function("sums_rest")
        for rows in self._finished_rows:
            repeats, issue = self._finish_repeats, self.nest.issue("out")
            lines += finish.function(f"finish{rows}", self.block, rows, *strides, hoisted, repeats, issue)
        return self._with_copies(lines)

    def _with_copies(self, lines: list[str]) -> list[str]:
        """C of the functions that copy, where they are needed, and of others."""
        copies = self._border or self._is_padded or self._copies_weights
        copy, strip = COPY.splitlines() if copies else [], self._strip_function() if self._border else []
        return [*copy, *lines, *strip]

    @property
    def _result_stride(self) -> int:
        return self.what.channels * self.what.finish.element

    def body(self, weights: str, factors: str, lookup: str) -> list[str]:
        """C that computes all of `out` from `in`; `range` is {zero point, low, high, input's zero point, ...}.

        Args:
            weights, factors, lookup: C of where the packed weights (int8), factors (int32) and the TABLE lie.
        """
        lines = [
            "const int32_t zero_point = range[0], low = range[1], high = range[2];",
            f"const int8_t *lookup = {lookup};",
            *(["const int8x16_t zero = vdupq_n_s8(range[3]);"] if self._border or self._is_padded else []),
            *self._padding(),
        ]
        unbound = {loop.axis for loop in self._shared} & {"x", "y"}
        for depth, loop in enumerate(self._shared):
            lines += ["  " * depth + line for line in self._open(loop, weights, factors)]
            if unbound == {loop.axis}:
                lines += ["  " * (depth + 1) + line for line in self._windows()]
            unbound.discard(loop.axis)
        depth = len(self._shared)
        lines += ["  " * depth + line for line in self._tile()]
        return [*lines, *("  " * d + "}" for d in reversed(range(depth)))]

    def _open(self, loop: Loop, weights: str, factors: str) -> list[str]:
        if loop.axis == "n":
            block = f"{weights} + n / {self.block} * {self.block_bytes}"
            group = f"{factors} + n / {self.block} * {self._block_factors // 4}"
            at = [f"const int8_t *w = {block};", f"const int32_t *t = {group};"]
            if self._copies_weights:
                (w, size), (t, bytes_) = self._layout["weights"], self._layout["factors"]
                at = [f"int8_t *w = scratch + {w};", f"int32_t *t = (int32_t *)(scratch + {t});"]
                at += [*_copied("w", block, size), *_copied("t", group, bytes_)]
            return [f"for (int n = 0; n < {loop.extent}; n += {loop.step}) {{", *(f"  {line}" for line in at)]
        last = loop.extent - loop.step
        bind = f"{loop.axis}_ < {last} ? {loop.axis}_ : {last}" if loop.extent % loop.step else f"{loop.axis}_"
        head = f"for (int {loop.axis}_ = 0; {loop.axis}_ < {loop.extent}; {loop.axis}_ += {loop.step}) {{"
        if loop.short:
            return [head, f"  const int x = x_, pixels = x_ < {last} ? {self.pixels} : {self._short};"]
        return [head, f"  const int {loop.axis} = {bind};"]

    def _tile(self) -> list[str]:
        """The sums and results of one tile of pixels and one block of channels."""
        mr, share, short = self.tile[0], self.share, self._short
        pitch, stride, element = self.window_pitch, self.sum_stride, self.what.finish.element
        position = f"{'' if self.flat else f'y * {self.geometry.columns} + '}x"
        lines = [
            f"int8_t *o = out + (({position}) * {self.what.channels} + n) * {element};",
            f"{self._sum_type} *totals = ({self._sum_type} *)(scratch + {self._layout['sums'][0]});",
        ]

        def sums(name: str, r: str) -> str:
            moved = ", ".join(f"{pointer} + {r} * {pitch}" for pointer in self._pointers)
            return f"{name}({moved}, w, (int8_t *)totals + {r} * {stride});"

        def finish(r: str, rows: int) -> str:
            terms = "".join(f", terms[{r} + {i}]" for i in range(rows)) if self.what.finish.terms else ""
            at = f"totals + {r} * {stride // self.sum_bytes}, t, o + {r} * {self._result_stride}"
            return f"finish{rows}({at}, zero_point, low, high, lookup{terms});"

        lines += [f"for (int r = 0; r <= {self._count} - {mr}; r += {mr})", f"  {sums('sums', 'r')}"]
        if short % mr:
            lines.append(f"if (pixels == {short}) {sums('sums_rest', str(short - short % mr))}")
        lines += [f"for (int r = 0; r <= {self._count} - {share}; r += {share})", f"  {finish('r', share)}"]
        for pixels in filter(None, (self.pixels, short)):
            if rest := pixels % share:
                only = f"if (pixels == {pixels}) " if short else ""
                lines.append(only + finish(str(pixels - rest), rest))
        return lines

    @property
    def _sum_type(self) -> str:
        return "int64_t" if self.what.dot.registers == 2 else "int32_t"

    # Where windows are read.

    @property
    def _is_padded(self) -> bool:
        return self.nest.places["image"] == "padded"

    @property
    def _safe(self) -> int:
        """The last byte of the images at which a tile may begin, and read nothing behind their end."""
        geometry = self.geometry
        row_bytes = geometry.width * geometry.channels
        reach = (geometry.kernel[0] - 1) * geometry.dilation[0] * row_bytes + self._row_reach
        return geometry.batch * geometry.height * row_bytes - reach

    @property
    def _fits(self) -> tuple[int, int]:
        """The last row and column at which a tile may begin, and lie in the image."""
        return self.geometry.height - self.geometry.span[0], self.geometry.width - self._strip_columns

    @cached_property
    def _conditions(self) -> list[str]:
        """C of what must hold to read a tile in `image`, where it begins at row `iy`, column `ix`, at `from`."""
        if self._is_padded:
            return []
        geometry, fits = self.geometry, self._fits
        if min(fits) < 0:
            return ["0"]
        found = [f"(unsigned)iy <= {fits[0]}", f"(unsigned)ix <= {fits[1]}"] if any(geometry.pad) else []
        last = ((geometry.batch * geometry.height - geometry.span[0]) * geometry.width + fits[1]) * geometry.channels
        if self._safe < last:
            found.append(f"from <= in + {self._safe}" if self._safe >= 0 else "0")
        return found

    @property
    def _border(self) -> bool:
        """Whether some tiles cannot be read in the image."""
        return bool(self._conditions)

    def _padding(self) -> list[str]:
        """C that copies the image between zeros."""
        if not self._is_padded:
            return []
        found, padded, (offset, size) = self.what.geometry, self.geometry, self._layout["padded"]
        row, pitch = found.width * found.channels, padded.width * found.channels
        start = found.pad[0] * pitch + found.pad[2] * found.channels
        return [
            f"int8_t *padded = scratch + {offset};",
            f"for (int i = 0; i < {round_up(size, VECTOR)}; i += {VECTOR}) vstrbq_s8(padded + i, zero);",
            f"for (int row = 0; row < {found.height}; row++)",
            f"  copy(padded + {start} + row * {pitch}, in + row * {row}, {row});",
        ]

    def _strip_function(self) -> list[str]:
        """C of `strip`: the rows of a tile's windows, with zeros outside of the image."""
        geometry, pitch = self.geometry, self._strip_pitch
        row_bytes, pixel, columns = geometry.width * geometry.channels, geometry.channels, self._strip_columns
        start = f"image + iy * {row_bytes} + (ix + first) * {pixel}"
        return [
            "INLINE void strip(int8_t *to, const int8_t *image, int iy, int ix, int8x16_t zero)",
            "{",
            "  const int first = ix < 0 ? -ix : 0;",
            f"  const int last = {geometry.width} - ix < {columns} ? {geometry.width} - ix : {columns};",
            f"  for (int ky = 0; ky < {geometry.kernel[0]}; ky++, to += {pitch}, iy += {geometry.dilation[0]}) {{",
            f"    for (int i = 0; i < {pitch}; i += {VECTOR}) vstrbq_s8(to + i, zero);",
            f"    if ((unsigned)iy < {geometry.height})",
            f"      copy(to + first * {pixel}, {start}, (last - first) * {pixel});",
            "  }",
            "}",
        ]

    def _windows(self) -> list[str]:
        """C that sets the pointers of a tile, and copies its windows where they are staged."""
        geometry = self.geometry
        rows, columns = geometry.rows, geometry.columns
        image_bytes = geometry.height * geometry.width * geometry.channels
        base = f"scratch + {self._layout['padded'][0]}" if self._is_padded else "in"
        lines = []
        if self.flat and (rows > 1 or geometry.batch > 1):
            lines += [f"const int row = x / {columns};", f"int column = x - row * {columns};"]
        else:
            lines += [f"const int row = {'0' if self.flat else 'y'};", "int column = x;"]
        if geometry.batch > 1:
            lines += [
                f"const int8_t *image = {base} + row / {rows} * {image_bytes};",
                f"int iy = row % {rows} * {geometry.stride[0]} - {geometry.pad[0]};",
            ]
        else:
            lines += [f"const int8_t *image = {base};", f"int iy = row * {geometry.stride[0]} - {geometry.pad[0]};"]
        lines.append(f"int ix = column * {geometry.stride[1]} - {geometry.pad[2]};")
        if self.staged:
            lines += self._copies(image_bytes)
        else:
            lines += ["const int8_t *from;", "int step;", *self._locate()]
            lines += [f"const int8_t *p{ky} = from + {ky} * step;" for ky in range(geometry.kernel[0])]
        if self.what.finish.terms:
            lines += [
                f"int32_t *terms = (int32_t *)(scratch + {self._layout['terms'][0]});",
                f"for (int r = 0; r < {self._count}; r++)",
                f"  terms[r] = -range[4] * row_sum(p0 + r * {self.window_pitch});",
            ]
        return lines

    def _locate(self) -> list[str]:
        """C that lets `from` and `step` lead through the rows of the windows at `image`, `iy`, `ix`."""
        geometry = self.geometry
        row_bytes = geometry.width * geometry.channels
        lines = [
            f"from = image + iy * {row_bytes} + ix * {geometry.channels};",
            f"step = {geometry.dilation[0] * row_bytes};",
        ]
        if not self._border:
            return lines
        return [
            *lines,
            f"if (!({' && '.join(self._conditions)})) {{",
            f"  strip(scratch + {self._layout['strip'][0]}, image, iy, ix, zero);",
            f"  from = scratch + {self._layout['strip'][0]};",
            f"  step = {self._strip_pitch};",
            "}",
        ]

    def _copies(self, image_bytes: int) -> list[str]:
        """C that copies the windows of a tile side by side, those of a row inside the image together."""
        geometry, kernel, pitch = self.geometry, self.geometry.kernel, self.window_pitch
        runs = [(at, first, size) for ky, at, first, size in _runs(geometry) if ky == 0]
        pixel, row = geometry.channels, geometry.dilation[0] * geometry.width * geometry.channels
        (top, _, left, _), (down, right), width = geometry.pad, geometry.stride, kernel[1] * geometry.channels

        def moves(to: int, start: int) -> list[str]:
            return [
                f"vstrbq_s8(to + {to + first + at}, vldrbq_s8(from + {start + source + at}));"
                for source, first, size in runs
                for at in range(0, size, VECTOR)
            ]

        together = [moves(ky * width, ky * row) for ky in range(kernel[0])]
        limits = [f"{geometry.columns} - column", f"{self._count} - r"]
        limits += [f"({self._fits[1]} - ix) / {right} + 1"] if any(geometry.pad) else []
        limits += (
            [f"(in + {self._safe} - from) / {right * pixel} + 1"] if any("in +" in c for c in self._conditions) else []
        )
        inside = [
            *(f"if (count > {limit}) count = {limit};" for limit in limits),
            f"for (int i = 0; i < count; i++, from += {right * pixel}, to += {pitch}) {{",
            *(f"  {line}" for line in itertools.chain.from_iterable(together)),
            "}",
        ]
        alone = (
            [
                "count = 1;",
                f"strip(scratch + {self._layout['strip'][0]}, image, iy, ix, zero);",
                f"from = scratch + {self._layout['strip'][0]};",
                f"for (int ky = 0; ky < {kernel[0]}; ky++, from += {self._strip_pitch}, to += {width}) {{",
                *(f"  {line}" for line in moves(0, 0)),
                "}",
            ]
            if self._border
            else []
        )
        next_image = f"  if (iy == {geometry.rows * down - top}) {{ iy = {-top}; image += {image_bytes}; }}"
        return [
            f"int8_t *p0 = scratch + {self._layout['windows'][0]};",
            f"for (int r = 0, count = {self._count}; r < {self._count}; r += count, count = {self._count}) {{",
            f"  int8_t *to = p0 + r * {pitch};",
            f"  const int8_t *from = image + iy * {geometry.width * pixel} + ix * {pixel};",
            f"  if ({' && '.join(self._conditions) or 1}) {{",
            *(f"    {line}" for line in inside),
            *(["  } else {"] if alone else []),
            *(f"    {line}" for line in alone),
            "  }",
            f"  ix += count * {right};",
            "  column += count;",
            f"  if (column == {geometry.columns}) {{",
            f"    column = 0; ix = {-left}; iy += {down};",
            *([f"  {next_image}"] if geometry.batch > 1 else []),
            "  }",
            "}",
        ]

    # The register block.

    @property
    def _pointers(self) -> list[str]:
        """The pointers into the image that `sums` takes: one for each row of a window."""
        return [f"p{row}" for row in dict.fromkeys(vector.row for vector in self.vectors)]

    @cached_property
    def _words(self) -> bool:
        """Whether all vectors of the image lie at multiples of four."""
        return self.staged or self.geometry.channels % 4 == 0

    @cached_property
    def _held(self) -> list[tuple[int, int]]:
        """The (pixel, vector) of the windows that stay in registers over the turns."""
        reads = [(r, i) for i in range(len(self.vectors)) for r in range(self.tile[0])]
        return reads[: self.nest.held.get("windows", 0)]

    def _plan(self) -> tuple[dict[str, tuple[str, int]], dict[tuple[int, int], tuple[str, int]]]:
        """Registers that point into the image, and where each (pixel, vector) is read from them."""
        mr, pitch = self.tile[0], self.window_pitch
        reach = (self.what.dot.load_words if self._words else self.what.dot.load)[1]
        unit = 4 if self._words else self.what.dot.element
        registers: dict[str, tuple[str, int]] = {}
        reads: dict[tuple[int, int], tuple[str, int]] = {}
        for row in dict.fromkeys(vector.row for vector in self.vectors):
            members = [(i, vector.offset) for i, vector in enumerate(self.vectors) if vector.row == row]
            left = sorted((r * pitch + offset, r, i) for r in range(mr) for i, offset in members)
            while left:
                first = left[0][0]
                near = [read for read in left if read[0] - first <= 2 * reach // unit * unit]
                center = first if near[-1][0] - first <= reach else first + reach // unit * unit
                name = f"x{row}_{first}"
                registers[name] = (f"p{row}", center)
                reads |= {(r, i): (name, at - center) for at, r, i in near}
                left = left[len(near) :]
        return registers, reads

    def _sums_function(self, name: str) -> list[str]:
        """C of a function: a register block's pixels times a block of channels."""
        arguments = ", ".join(f"const int8_t *{name}" for name in self._pointers)
        by_channels = self._turn.axis == "n"
        return [
            f"INLINE void {name}({arguments}, const int8_t *w, int8_t *a)",
            "{",
            *(f"  {line}" for line in (self._over_channels() if by_channels else self._over_depth())),
            "}",
        ]

    @property
    def _sum_registers(self) -> dict[str, str]:
        """The register of each sum by name; of pairs, the lower half ends in `l`, the upper in `h`."""
        cells = list(itertools.product(*map(range, self.tile)))
        if self.what.dot.registers == 1:
            return {f"s{r}_{c}": register for (r, c), register in zip(cells, SUMS, strict=False)}
        halves = {f"s{r}_{c}l": pair[0] for (r, c), pair in zip(cells, PAIRS, strict=False)}
        return halves | {f"s{r}_{c}h": pair[1] for (r, c), pair in zip(cells, PAIRS, strict=False)}

    def _cell(self, r: int, c: int) -> tuple[str, ...]:
        return (f"s{r}_{c}",) if self.what.dot.registers == 1 else (f"s{r}_{c}l", f"s{r}_{c}h")

    def _window(self, name: str, pointer: str, offset: int | None) -> Instruction:
        """The load of a window's vector; without an offset the pointer moves on by a vector."""
        mnemonic = (self.what.dot.load_words if self._words else self.what.dot.load)[0]
        moved = (pointer,) if offset is None else ()
        address = f"[{{{pointer}}}], #{VECTOR}" if offset is None else f"[{{{pointer}}}, #{offset}]"
        return Instruction(mnemonic, f"{{{name}}}, {address}", (name, *moved), moved)

    def _products(self, windows: Sequence[str | Instruction], first: bool) -> list[Instruction]:
        """One vector along the depth: every pixel with every channel.

        Args:
            windows: for each pixel the vector of its window that is held, or its load.
            first: whether the products start the sums.
        """
        dot, (mr, nr) = self.what.dot, self.tile
        channels = [
            Instruction(dot.weights, f"{{w{c}}}, [{{w}}], #{dot.lanes}", (f"w{c}", "w"), ("w",)) for c in range(nr)
        ]
        code = list[Instruction]()
        for c, r in itertools.product(range(nr), range(mr)):
            window, cell = windows[r], self._cell(r, c)
            loads = [load for load in (window, channels[c]) if isinstance(load, Instruction)]
            code += [load for load in loads if load not in code]
            x = window if isinstance(window, str) else window.writes[0]
            operands = ", ".join([*(f"{{{half}}}" for half in cell), f"{{{x}}}", f"{{w{c}}}"])
            code.append(Instruction(dot.first if first else dot.more, operands, cell, () if first else cell))
        return code

    def _stores(self) -> list[Instruction]:
        """Store the sums of a register block, the first pixel's last, and move to the next block."""
        (mr, nr), size, stride = self.tile, self.sum_bytes, self.sum_stride
        code: list[Instruction] = []
        pairs = size == 8 or (nr % 2 == 0 and (mr - 1) * stride + (nr - 2) * size <= _STORE_PAIR)
        step = 2 if pairs else 1
        for r in reversed(range(mr)):
            names = [name for c in range(nr) for name in self._cell(r, c)]
            for at in reversed(range(0, len(names), step)):
                values = ", ".join(f"{{{name}}}" for name in names[at : at + step])
                if r or at:
                    offset = r * stride + 4 * at
                    code.append(Instruction("strd" if pairs else "str.w", f"{values}, [{{a}}, #{offset}]"))
                else:
                    moved = f"{values}, [{{a}}], #{nr * size}"
                    code.append(Instruction("strd" if pairs else "str", moved, ("a",), ("a",)))
        return code

    def _over_channels(self) -> list[str]:
        """All of the depth unrolled in a hardware loop over register blocks of channels."""
        pointers, reads = self._plan()
        held = {read: f"h{number}" for number, read in enumerate(self._held)}
        windows = {read: held.get(read) or self._window(f"x{read[0]}", *at) for read, at in reads.items()}
        code: list[Instruction] = []
        for _ in range(self._repeats):
            for i in range(len(self.vectors)):
                code += self._products([windows[r, i] for r in range(self.tile[0])], first=i == 0)
            code += self._stores()
        changes, sums = ["w", "a"], self._sum_registers
        free = VECTORS[: len(VECTORS) - len(held)]
        homes = dict(zip(held.values(), VECTORS[len(free) :], strict=True))
        registers = {**{name: f"%[{name}]" for name in (*pointers, *changes)}, **sums, **homes}
        turns = -(-self.block // self.tile[1]) // self._repeats
        hoisted = self.nest.hoisted.get("sums", 0) if turns > 1 else 0
        found = ordered(Block(tuple(code), registers, free), self.pipeline, hoisted, self.nest.issue("sums"))
        placed = [f"const int8_t *{name} = {base} + {center};" for name, (base, center) in pointers.items()]
        entry = [self._window(name, *reads[read]).text(registers) for read, name in held.items()]
        clobbers = list(sums.values())
        return [*placed, *assembly([*entry, *found.entry], found.turn, (), turns, changes, list(pointers), clobbers)]

    def _over_depth(self) -> list[str]:
        """A hardware loop over the depth, for each register block of channels."""
        (mr, nr), sums = self.tile, self._sum_registers
        unrolled = self._turn.step // VECTOR
        code: list[Instruction] = []
        for _ in range(unrolled):
            code += self._products([self._window(f"x{r}", f"x_{r}", None) for r in range(mr)], first=False)
        pointers = {f"x_{r}": f"p0 + {r * self.window_pitch}" for r in range(mr)}
        changes = ["w", "a", *pointers]
        registers = {**{name: f"%[{name}]" for name in changes}, **sums}
        turns = len(self.vectors) // unrolled
        found = ordered(Block(tuple(code), registers, VECTORS), self.pipeline, 0, self.nest.issue("sums"))
        entry = [*(f"mov.w {register}, #0" for register in sums.values()), *found.entry]
        leave = [instruction.text(registers) for instruction in self._stores()]
        statement = assembly(entry, found.turn, leave, turns, changes, (), list(sums.values()))
        return [
            f"for (int block = 0; block < {-(-self.block // nr)}; block++) {{",
            *(f"  const int8_t *{name} = {at};" for name, at in pointers.items()),
            *(f"  {line}" for line in statement),
            "}",
        ]

    def source(
        self, kind: str, header: np.ndarray, weights: np.ndarray, factors: np.ndarray, lookup: np.ndarray | None
    ) -> KernelSource:
        """The kernel on constant weights.

        Args:
            kind: prefix of its symbol.
            header: int32 (4,): the output's zero point, lowest and highest value, the input's zero point.
            weights, factors: as `pack_weights` and `pack_factors` pack them.
            lookup: int8 (256,), the TABLE, where there is one.
        """
        params = Params()
        at = [params.add(array) for array in (header, weights, factors)]
        where = f"params + {params.add(lookup_order(lookup))}" if lookup is not None else "0"
        lines = [
            *self.functions(),
            "void @SYMBOL@(const int8_t *restrict in, int8_t *restrict out, const int8_t *restrict params,",
            "              int8_t *restrict scratch)",
            "{",
            "  const int32_t *range = (const int32_t *)params;",
            *(f"  {line}" for line in self.body(f"params + {at[1]}", f"(const int32_t *)(params + {at[2]})", where)),
            "}",
            "",
        ]
        symbol, text = with_symbol(kind, PRELUDE + "\n".join(lines))
        return KernelSource(symbol, "c", text, bytes(params), self.scratch_bytes)

    # What must hold.

    def verify(self) -> None:
        """Check what the printed code takes for granted.

        Raises:
            BackendError: the nest is not legal; the message says why.
        """
        self.verify_sizes()

    def verify_sizes(self) -> None:
        """As far as sizes tell, which takes no time.

        Raises:
            BackendError: the nest is not legal; the message says why.
        """
        (mr, nr), dot, turn = self.tile, self.what.dot, self._turn
        general = _GENERAL - dot.registers * mr * nr - 2
        if mr * nr > (len(SUMS) if dot.registers == 1 else len(PAIRS)):
            raise BackendError(f"{mr} x {nr} sums do not fit the registers")
        if mr > self.pixels or nr > self.block:
            raise BackendError(f"the register block {mr} x {nr} is larger than the block around it")
        if self.block % VECTOR and self.blocks > 1:
            raise BackendError(f"blocks of {self.block} channels do not end at whole vectors")
        if self.what.channels % self.block:
            raise BackendError(f"blocks of {self.block} do not divide {self.what.channels} channels")
        if (mr - 1) * self.sum_stride + nr * self.sum_bytes > (_STORE_PAIR if dot.registers == 2 else _STORE):
            raise BackendError("the sums of a register block are out of the reach of their pointer")
        if self.pixels % mr:
            raise BackendError(f"register blocks of {mr} pixels do not divide a tile of {self.pixels}")
        held = Counter(i for _, i in self._held)
        if len(self._held) < self.nest.held.get("windows", 0):
            raise BackendError(f"a tile reads no more than {len(self._held)} vectors of its windows")
        if len(VECTORS) - len(self._held) < max(mr - held[i] for i in range(len(self.vectors))) + 1:
            raise BackendError(f"{len(self._held)} vectors that stay leave no registers")
        if turn.axis == "n":
            pointers = len(self._plan()[0])
            if -(-self.block // nr) % self._repeats:
                raise BackendError(f"{self.block} channels have no turns of {self._repeats} register blocks")
            length = self._code_bytes
            if length > REACH_OF_LOOP:
                raise BackendError(f"a loop of {length} bytes is out of the reach of its end")
        else:
            pointers, step = mr, turn.step // VECTOR
            scattered = [vector.offset for vector in self.vectors] != list(range(0, VECTOR * len(self.vectors), VECTOR))
            if scattered or turn.step % VECTOR or len(self.vectors) % step:
                raise BackendError(f"a depth of {self.what.depth} bytes has no turns of {turn.step}")
            if held:
                raise BackendError("windows stay in registers where the hardware loop goes over the channels")
            if self.nest.loop("sums", "n").step > nr:
                raise BackendError("register blocks are repeated where the hardware loop goes over the channels")
        if pointers > general:
            raise BackendError(f"{pointers} pointers do not fit the registers beside {mr} x {nr} sums")
        finish = self.what.finish
        if finish.form != "wide" and finish.vectors(self.share, self.nest.hoisted.get("out", 0)) > finish.spare_vectors:
            raise BackendError(f"{self.share} pixels cannot be finished together in the vector registers")
        self.verify_windows()

    def verify_distinct(self) -> None:
        """Check that no step does nothing, and prints what other steps print.

        Raises:
            BackendError: one does.
        """
        for stage, loads in self.nest.hoisted.items():
            if loads and self.turns[stage] < 2:
                raise BackendError(f"a loop of `{stage}` has no turns of which loads are executed ahead")

    def verify_windows(self) -> None:
        """Check how weights and windows are read.

        Raises:
            BackendError: the nest is not legal; the message says why.
        """
        if self._copies_weights and self._shared[0].axis != "n":
            raise BackendError("weights are copied where the loop over blocks of channels stands outside")
        if self.flat and not self.staged and self.geometry.rows * self.geometry.batch > 1:
            raise BackendError("windows in the image cannot be counted through its rows")
        if self._is_padded and (self.geometry.batch > 1 or self._layout["padded"][1] > MOST_PADDED):
            raise BackendError("a padded copy of the image takes too much memory")

    def counts(self) -> dict[str, float]:
        """What the code executes, for the cost model."""
        (mr, nr), vectors = self.tile, len(self.vectors)
        tiles = math.prod(loop.turns for loop in self._shared)
        rows, row_tiles = tiles // self._around("x").turns, self._row_tiles
        calls = rows * sum(-(-pixels // mr) for pixels in row_tiles)
        cells = rows * sum(pixels if self._short else round_up(pixels, mr) for pixels in row_tiles)
        registers = -(-self.block // nr)
        finished = rows * sum(row_tiles) * self.block
        shared = rows * sum(-(-pixels // self.share) for pixels in row_tiles)
        held = self.nest.held.get("windows", 0)
        whole = self.block // VECTOR
        statements = (whole >= self._finish_repeats) + (whole % self._finish_repeats > 0) + (self.block % VECTOR > 0)
        joined = whole // self._finish_repeats * (self._finish_repeats - 1)
        read = self.block_bytes * (self.blocks if self._copies_weights else calls)
        read += self._block_factors * (self.blocks if self._copies_weights else shared)
        counts = {
            "products": registers * vectors * cells * nr,
            "loads": registers * (vectors * (cells + calls * nr) - calls * held),
            "stores": registers * cells * nr,
            "sums": registers * calls,
            "turns": registers * calls / self._repeats * (1 if self._turn.axis == "n" else self._turn.turns),
            "repeats": self._repeats,
            "finish_repeats": self._finish_repeats,
            "finished": finished,
            "factors": shared * self.block,
            "tiles": tiles,
            "entries": calls + shared * statements,
            "finish_joined": shared * joined,
            "code": self._code_bytes * (1 + self._short % mr / mr)
            + sum(self.what.finish.code_bytes(rows, self._finish_repeats) for rows in self._finished_rows),
            "pixels": mr,
            "channels": nr,
            "accumulators": mr * nr,
            "held": calls * held,
            "share": self.share,
            "vectors": vectors,
            "ahead": self.nest.hoisted.get("sums", 0),
            "finish_ahead": self.nest.hoisted.get("out", 0),
            "constants_read": read,
            "streams": 2 * (self.blocks if self._copies_weights else calls),
            **self.window_counts(tiles, read),
        }
        return {name: float(value) for name, value in counts.items()}

    def window_counts(self, tiles: int, read: int) -> dict[str, float]:
        """Of `counts`, what `tiles` tiles copy, given how many bytes of constants are read."""
        runs = sum(-(-size // VECTOR) for _, _, _, size in _runs(self.geometry))
        windows = tiles // self._around("x").turns * sum(self._row_tiles) if self.staged else 0
        copied = windows * (self.geometry.kernel[0] + runs)
        if self._around("x") is not self._shared[-1] and self._around("n") is self._shared[-1]:
            copied //= self.blocks
        return {
            "copied": copied,
            "border": self._border * tiles,
            "padded": self._layout["padded"][1] if self._is_padded else 0,
            "scratch": self.scratch_bytes,
            "weights_outside": self._shared[-1].axis != "n" and self.blocks > 1,
            "constants_copied": read * self._copies_weights,
        }


def _copied(to: str, source: str, size: int) -> list[str]:
    """C that copies a multiple of 16 bytes: four loads, then four stores, as a load right behind a store would wait."""
    quads, rest = divmod(size, 4 * VECTOR)
    turn = [f"vldrw.u32 q{i}, [%[from]], #16" for i in range(4)] + [f"vstrw.32 q{i}, [%[to]], #16" for i in range(4)]
    return [
        "{",
        f"  int8_t *to = (int8_t *){to};",
        f"  const int8_t *from = (const int8_t *)({source});",
        *(
            f"  {line}"
            for line in (assembly((), turn, (), quads, ("to", "from"), (), (), (), VECTORS[:4]) if quads else ())
        ),
        *([f"  copy(to, from, {rest});"] if rest else []),
        "}",
    ]


def _runs(geometry: Geometry) -> list[tuple[int, int, int, int]]:
    """The stretches of a window that lie together: (row, bytes from its start, bytes of the depth before, bytes)."""
    (height, width), (_, right), pixel = geometry.kernel, geometry.dilation, geometry.channels
    columns = 1 if right == 1 else width
    return [
        (ky, kx * right * pixel, (ky * width + kx) * pixel, width // columns * pixel)
        for ky in range(height)
        for kx in range(columns)
    ]
