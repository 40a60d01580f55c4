"""Contractions tile by tile: the loops around a tile of pixels and a block of channels, what lies in memory, and what
the host packs. How the sums of a tile are made and finished, a kind of kernel says (`sums.py`, `resident.py`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernel import KernelSource, weights_at
from tosaic.backends.cortex_m.kernels.mve import COPY, PRELUDE, VECTOR, round_up, with_symbol
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.nest.assembly import VECTORS, assembly
from tosaic.backends.cortex_m.nest.contraction import Contraction
from tosaic.backends.cortex_m.nest.nest import Nest, NestLoop
from tosaic.backends.cortex_m.nest.window_reader import Vector, WindowReader, runs
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

REACH_OF_LOOP = 4000
"""Bytes that LE can jump back."""


@dataclass(frozen=True)
class Tiled(ABC):
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
    @abstractmethod
    def shared(self) -> list[NestLoop]:
        """The loops around both stages, outermost first."""

    @cached_property
    @abstractmethod
    def tile(self) -> tuple[int, int]:
        """Pixels and channels of the register block."""

    def _around(self, axis: str) -> NestLoop:
        return next(loop for loop in self.shared if loop.axis == axis)

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
    def _count(self) -> str:
        """C of the pixels of a tile."""
        return "pixels" if self._short else str(self.pixels)

    @cached_property
    def block(self) -> int:
        """Channels whose sums lie in scratch memory at a time."""
        return self._around("n").step

    @property
    def blocks(self) -> int:
        """Blocks of channels."""
        return self._around("n").turns

    @property
    def _copies_weights(self) -> bool:
        """Whether a block's weights and factors are copied to scratch memory, where all pixels then read them."""
        return self.nest.places["weights"] == "scratch"

    @property
    def flat(self) -> bool:
        """Whether pixels are counted through all rows."""
        return all(loop.axis != "y" for loop in self.shared)

    @cached_property
    def reader(self) -> WindowReader:
        """How windows are read."""
        places = self.nest.places
        padded, staged = places["image"] == "padded", places["windows"] == "scratch"
        return WindowReader(self.what, padded, staged, self.flat, self.pixels, self._count)

    @property
    def vectors(self) -> list[Vector]:
        """The vectors of a window in the order in which they are multiplied."""
        return self.reader.vectors

    @property
    def turns(self) -> dict[str, int]:
        """The most turns of a hardware loop of each stage whose loads may be executed ahead."""
        return {}

    # Sizes of what lies in memory.

    @property
    @abstractmethod
    def sums_bytes(self) -> int:
        """Bytes of the sums of a tile."""

    @cached_property
    def _layout(self) -> dict[str, tuple[int, int]]:
        """Offset and size of the parts of scratch memory."""
        sizes = {"sums": self.sums_bytes, **self.reader.sizes}
        if self._copies_weights:
            sizes["weights"] = self.block_bytes + VECTOR * self.nest.hoisted.get("sums", 0)
            sizes["factors"] = self.block_factors + VECTOR * self.nest.hoisted.get("out", 0)
        offsets, end = {}, 0
        for name, size in sizes.items():
            offsets[name] = (end, size)
            end = round_up(end + size, VECTOR)
        return offsets

    @property
    def _offsets(self) -> dict[str, int]:
        """Where the parts of scratch memory begin."""
        return {name: offset for name, (offset, _) in self._layout.items()}

    @property
    def scratch_bytes(self) -> int:
        """Bytes of all of scratch memory."""
        offset, size = list(self._layout.values())[-1]
        return round_up(offset + size, VECTOR)

    @property
    def block_bytes(self) -> int:
        """Bytes of the packed weights of a block of channels."""
        nr = self.tile[1]
        return round_up(self.block, nr) * len(self.vectors) * self.what.dot.lanes

    @property
    def weight_bytes(self) -> int:
        """Bytes of all packed weights, and of what loads that are ahead read behind them."""
        return self.blocks * self.block_bytes + VECTOR * self.nest.hoisted.get("sums", 0)

    @property
    def factor_bytes(self) -> int:
        """Bytes of `pack_factors`."""
        return self.blocks * self.block_factors + VECTOR * self.nest.hoisted.get("out", 0)

    # What the host packs.

    @abstractmethod
    def channel_order(self) -> np.ndarray:
        """The channel behind each sum of a block, past the end for padding: int32 (round_up(block, nr),)."""

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

    @abstractmethod
    def pack_factors(self, bias: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """int32: the factors of all channels in the order in which they are read."""

    @property
    @abstractmethod
    def block_factors(self) -> int:
        """Bytes of the factors of a block of channels."""

    # The code.

    @abstractmethod
    def functions(self) -> list[str]:
        """C of the functions that `body` calls."""

    @abstractmethod
    def _tile(self) -> list[str]:
        """The sums and results of one tile of pixels and one block of channels."""

    def _with_copies(self, lines: list[str]) -> list[str]:
        """C of the functions that copy, where they are needed, and of others."""
        copies = self.reader.border or self.reader.padded or self._copies_weights
        copy, strip = COPY.splitlines() if copies else [], self.reader.strip_function() if self.reader.border else []
        return [*copy, *lines, *strip]

    @property
    def _result_stride(self) -> int:
        return self.what.channels * self.what.finish.element

    def body(self, weights: str, factors: str) -> list[str]:
        """C that computes all of `out` from `in`; `range` is {zero point, low, high, input's zero point, ...}.

        Args:
            weights, factors: C of where the packed weights (int8) and factors (int32) lie.
        """
        lines = [
            "const int32_t low = range[1], high = range[2];",
            *(["const int8x16_t zero = vdupq_n_s8(range[3]);"] if self.reader.border or self.reader.padded else []),
            *self.reader.padding(self._offsets),
        ]
        unbound = {loop.axis for loop in self.shared} & {"x", "y"}
        for depth, loop in enumerate(self.shared):
            lines += ["  " * depth + line for line in self._open(loop, weights, factors)]
            if unbound == {loop.axis}:
                lines += ["  " * (depth + 1) + line for line in self._located()]
            unbound.discard(loop.axis)
        depth = len(self.shared)
        lines += ["  " * depth + line for line in self._tile()]
        return [*lines, *("  " * d + "}" for d in reversed(range(depth)))]

    def _open(self, loop: NestLoop, weights: str, factors: str) -> list[str]:
        if loop.axis == "n":
            block = f"{weights} + n / {self.block} * {self.block_bytes}"
            group = f"{factors} + n / {self.block} * {self.block_factors // 4}"
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

    def _located(self) -> list[str]:
        """C that sets the pointers of a tile."""
        return self.reader.located(self._offsets)

    def source(self, kind: str, header: np.ndarray, weights: np.ndarray, factors: np.ndarray) -> KernelSource:
        """The kernel on constant weights.

        Args:
            kind: prefix of its symbol.
            header: int32 (4,): the output's zero point, lowest and highest value, the input's zero point.
            weights, factors: as `pack_weights` and `pack_factors` pack them.
        """
        params = Params()
        _, rest = (params.add(array) for array in (header, factors))
        last = params.add(weights)
        lines = [
            *self.functions(),
            "void @SYMBOL@(const int8_t *restrict in, int8_t *restrict out, const int8_t *restrict params,",
            "              int8_t *restrict scratch)",
            "{",
            "  const int32_t *range = (const int32_t *)params;",
            weights_at(last),
            *(f"  {line}" for line in self.body("packed", f"(const int32_t *)(params + {rest})")),
            "}",
            "",
        ]
        symbol, text = with_symbol(kind, PRELUDE + "\n".join(lines))
        return KernelSource(symbol, "c", text, bytes(params), self.scratch_bytes, weights=last)

    # What must hold.

    @abstractmethod
    def verify(self) -> None:
        """Check what the printed code takes for granted.

        Raises:
            BackendError: the nest is not legal; the message says why.
        """

    @abstractmethod
    def verify_sizes(self) -> None:
        """As far as sizes tell, which takes no time.

        Raises:
            BackendError: the nest is not legal; the message says why.
        """

    @abstractmethod
    def counts(self) -> dict[str, float]:
        """What the code executes, for the cost model."""

    # What is read and written where.

    @abstractmethod
    def walks(self) -> Sequence[Walk]:
        """The loops over memory."""

    def _moving(self, **position: float) -> tuple[float, ...]:
        """Bytes by which an address moves in each of the shared loops, given those of one position of an axis."""
        return tuple(loop.step * position.get(loop.axis, 0.0) for loop in self.shared)

    @cached_property
    def _window_step(self) -> float:
        """Bytes of the image from a pixel's window to that of the next."""
        geometry = self.reader.geometry
        if self.flat:
            return geometry.batch * geometry.height * geometry.width * geometry.channels / geometry.pixels
        return geometry.stride[1] * geometry.channels

    def _image_accesses(self, pixels: int, *inside: float) -> list[ArrayAccess]:
        """How windows are read, `pixels` of them at a time.

        Args:
            inside: bytes by which those move in each loop inside of the shared ones, as multiples of a window.
        """
        geometry = self.reader.geometry
        row = geometry.width * geometry.channels
        moved = self._moving(y=geometry.stride[0] * row, x=self._window_step)
        size = geometry.span[1] * geometry.channels
        window = (geometry.kernel[0], geometry.dilation[0] * row)
        if not self.reader.staged:
            strides = (*moved, *(step * self._window_step for step in inside))
            return [ArrayAccess("image", "input", size, strides, inner=((pixels, self._window_step), window))]
        outside = moved[: self.shared.index(self._around("x")) + 1]
        pitch, still = self.reader.pitch, (0.0,) * len(self.shared)
        return [
            ArrayAccess("image", "input", size, outside, inner=((self.pixels, self._window_step), window)),
            ArrayAccess("windows", "scratch", self.pixels * pitch, (0.0,) * len(outside), writes=True),
            ArrayAccess(
                "windows", "scratch", pitch, (*still, *(step * pitch for step in inside)), inner=((pixels, pitch),)
            ),
        ]

    def _weight_accesses(self, group: float, *inside: float) -> list[ArrayAccess]:
        """How weights and factors are read, `group` bytes at a time, which move by so many groups in each loop inside
        of the shared ones."""
        block = self.block_bytes + self.block_factors
        moved = self._moving(n=block / self.block)
        steps = tuple(step * group for step in inside)
        if not self._copies_weights:
            return [ArrayAccess("weights", "params", group, (*moved, *steps))]
        outside = moved[: self.shared.index(self._around("n")) + 1]
        return [
            ArrayAccess("weights", "params", block, outside),
            ArrayAccess("copy", "scratch", block, (0.0,) * len(outside), writes=True),
            ArrayAccess("copy", "scratch", group, ((0.0,) * len(moved)) + steps),
        ]

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
        if self._copies_weights and self.shared[0].axis != "n":
            raise BackendError("weights are copied where the loop over blocks of channels stands outside")
        self.reader.verify()

    def window_counts(self, tiles: int, read: int) -> dict[str, float]:
        """Of `counts`, what `tiles` tiles copy, given how many bytes of constants are read."""
        stretches = sum(-(-size // VECTOR) for _, _, _, size in runs(self.reader.geometry))
        windows = tiles // self._around("x").turns * sum(self._row_tiles) if self.reader.staged else 0
        copied = windows * (self.reader.geometry.kernel[0] + stretches)
        if self._around("x") is not self.shared[-1] and self._around("n") is self.shared[-1]:
            copied //= self.blocks
        return {
            "copied": copied,
            "border": self.reader.border * tiles,
            "padded": self.reader.sizes.get("padded", 0),
            "scratch": self.scratch_bytes,
            "weights_outside": self.shared[-1].axis != "n" and self.blocks > 1,
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
