"""Convolutions and matrix products of floats as nests: outer products of pixels and channels.

    out[x, n] = clamp(bias[n] + sum over k of window of x[k] * weights[k, n])

A vector holds four channels of a pixel's sum. Each `k` loads an element of every pixel to a general register and the
weights of the channels to vectors, and multiplies each with each.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels.mve import VECTOR, round_up
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.nest.block import BlockInstruction
from tosaic.backends.cortex_m.nest.floats import LANES, MOST_SUMS, block
from tosaic.backends.cortex_m.nest.nest import Nest, NestLoop
from tosaic.backends.cortex_m.nest.rows import F32
from tosaic.backends.cortex_m.nest.sketches import assigned, beginning_with
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Choice, Schedule, Variant

_SCALARS = ("r0", "r2", "r4", "r8", "r10", "r12")
_ELEMENT = F32.element
_BLOCKS = (8, 12, 16, 24, 32, 48, 64, 96, 128)


@dataclass(frozen=True)
class OuterProduct:
    """What is computed.

    Args:
        geometry: of the window.
        channels: output channels.
        clamped: whether there are bounds.
    """

    geometry: Geometry
    channels: int
    clamped: bool

    @property
    def depth(self) -> int:
        """Elements of a window."""
        return self.geometry.depth

    @property
    def nest(self) -> Nest:
        """The unscheduled stages: the windows of all pixels are one row of them."""
        axes = {"x": self.geometry.pixels, "n": self.channels, "k": self.depth}
        return Nest.of(windows={"x": self.geometry.pixels, "k": self.depth}, out=axes)

    def scheduled(self, knobs: Mapping[str, Choice]) -> Nest:
        """The trace with its numbers filled in, applied."""
        pixels, channels = map(int, str(knobs["tile"]).split("x"))
        nest = self.nest.apply("place", "windows", "image" if self.geometry.dense else "scratch")
        nest = nest.apply("place", "weights", str(knobs["weights"]))
        nest = nest.apply("split", "out", "x", "xi", pixels)
        nest = nest.apply("split", "out", "n", "nb", min(int(knobs["block"]), self.channels))
        nest = nest.apply("split", "out", "nb", "ni", min(channels, int(knobs["block"]), self.channels))
        nest = nest.apply("split", "out", "k", "ki", min(int(knobs["unroll"]), self.depth))
        nest = nest.apply("order", "out", "n", "x", "nb", "k", "ki", "xi", "ni")
        nest = nest.apply("lanes", "out", "ni").apply("unroll", "out", "ki", "xi").apply("turn", "out", "k")
        return nest.apply("compute_at", "windows", "out", "x")


@dataclass(frozen=True)
class OuterKernel:
    """A scheduled product, ready to print.

    Args:
        what: the problem.
        nest: stage `windows` at the pixels of `out`; operand `windows` is read in the `image` where they lie side by
            side, else copied to `scratch`, `weights` from `params` or a copy of a block in `scratch`.
        pipeline: timings of the core; None leaves instructions in the order of their meaning.
    """

    what: OuterProduct
    nest: Nest
    pipeline: Pipeline | None

    def _loop(self, name: str) -> NestLoop:
        return self.nest.loop("out", name)

    @property
    def tile(self) -> tuple[int, int]:
        """Pixels and vectors of channels of the register block."""
        return self._loop("xi").extent, -(-self._loop("ni").extent // LANES)

    @property
    def _width(self) -> int:
        """Channels that a register block computes."""
        return self.tile[1] * LANES

    @property
    def block(self) -> int:
        """Channels whose weights are read together by all pixels."""
        return self._loop("n").step

    @property
    def _padded(self) -> int:
        """Channels that are computed: whole register blocks."""
        whole, rest = divmod(self.what.channels, self.block)
        return whole * round_up(self.block, self._width) + round_up(rest, self._width)

    @property
    def _copies_weights(self) -> bool:
        return self.nest.places["weights"] == "scratch"

    @property
    def _stages_windows(self) -> bool:
        return self.nest.places["windows"] == "scratch"

    @property
    def _window_bytes(self) -> int:
        return round_up(_ELEMENT * self.what.depth * self.tile[0], VECTOR) if self._stages_windows else 0

    @property
    def scratch_bytes(self) -> int:
        """The windows of a tile of pixels, and the weights of a block."""
        return self._window_bytes + self._copies_weights * _ELEMENT * self.what.depth * self.block

    @property
    def weight_bytes(self) -> int:
        return _ELEMENT * self.what.depth * self._padded

    def channel_order(self) -> np.ndarray:
        """The channel behind each that is computed, past the end for padding: int32 (computed,)."""
        order = []
        for first in range(0, self.what.channels, self.block):
            last = min(first + self.block, self.what.channels)
            order += [*range(first, last), *[self.what.channels] * (-(last - first) % self._width)]
        return np.array(order, np.int32)

    def pack_weights(self, weights: np.ndarray) -> np.ndarray:
        """f32 (register blocks, depth, their channels) of weights (channels, depth)."""
        padded = np.pad(weights, ((0, 1), (0, 0)))[self.channel_order()]
        return padded.reshape(-1, self._width, self.what.depth).transpose(0, 2, 1)

    def pack_bias(self, bias: np.ndarray) -> np.ndarray:
        """f32 (computed,) of the bias of every channel."""
        return np.pad(bias, (0, 1))[self.channel_order()]

    # The code.

    def functions(self) -> list[str]:
        """C of the functions that `body` calls."""
        return [*self._block_function(), *(self._window_function() if self._stages_windows else [])]

    def body(self, weights: str, bias: str) -> list[str]:
        """C that computes all of `out` from `in`; `range` is {lowest, highest}.

        Args:
            weights, bias: C of where the packed weights and biases (f32) lie.
        """
        what, (mr, _) = self.what, self.tile
        pixels, depth, last = what.geometry.pixels, what.depth, what.geometry.pixels - mr
        whole = round_up(self.block, self._width)
        at = f"{weights} + n / {self.block} * {whole * depth}"
        inside = f"{what.channels} - n < {self.block} ? {what.channels} - n : {self.block}"
        computed = f"(channels + {self._width - 1}) / {self._width} * {self._width}"
        copied = f"copy(scratch + {self._window_bytes}, (const int8_t *)({at}), {_ELEMENT * depth} * ({computed}));"
        return [
            f"for (int n = 0; n < {what.channels}; n += {self.block}) {{",
            f"  const int channels = {inside};",
            *([f"  {copied}"] if self._copies_weights else []),
            f"  const float *w = {f'(const float *)(scratch + {self._window_bytes})' if self._copies_weights else at};",
            f"  const float *t = {bias} + n / {self.block} * {whole};",
            f"  for (int x_ = 0; x_ < {pixels}; x_ += {mr}) {{",
            f"    const int x = {f'x_ < {last} ? x_ : {last}' if pixels % mr else 'x_'};",
            *(f"    {line}" for line in self._read()),
            f"    float *o = out + x * {what.channels} + n;",
            f"    for (int j = 0; j < channels; j += {self._width})",
            f"      block(p, w + j * {depth}, t + j, o + j, channels - j, range[0], range[1]);",
            "  }",
            "}",
        ]

    def _read(self) -> list[str]:
        """C that lets `p` point to the windows of a tile of pixels."""
        if not self._stages_windows:
            return [f"const float *p = in + x * {self.what.depth};"]
        copied = f"window((float *)scratch + r * {self.what.depth}, in, x + r);"
        return [f"for (int r = 0; r < {self.tile[0]}; r++) {copied}", "const float *p = (const float *)scratch;"]

    def _window_function(self) -> list[str]:
        """C of `window`: the window of a pixel, with zeros outside of the image."""
        geometry = self.what.geometry
        (height, width), (down, right), (tall, wide) = geometry.kernel, geometry.stride, geometry.dilation
        run = width if wide == 1 else 1
        row, channels = geometry.width * geometry.channels, geometry.channels
        return [
            "INLINE void window(float *to, const float *in, int pixel)",
            "{",
            f"  const int column = pixel % {geometry.columns}, row = pixel / {geometry.columns};",
            f"  const float *image = in + row / {geometry.rows} * {geometry.height * row};",
            f"  int iy = row % {geometry.rows} * {down} - {geometry.pad[0]};",
            f"  for (int ky = 0; ky < {height}; ky++, iy += {tall}) {{",
            f"    int ix = column * {right} - {geometry.pad[2]};",
            f"    for (int kx = 0; kx < {width}; kx += {run}, ix += {run * wide}, to += {run * channels}) {{",
            "      const int first = ix < 0 ? -ix : 0;",
            f"      const int end = {geometry.width} - ix < {run} ? {geometry.width} - ix : {run};",
            f"      const int inside = (unsigned)iy < {geometry.height} && first < end;",
            f"      if (!inside || end - first < {run})",
            f"        for (int i = 0; i < {run * channels}; i++) to[i] = 0;",
            "      if (inside)",
            f"        copy((int8_t *)(to + first * {channels}),",
            f"             (const int8_t *)(image + iy * {row} + (ix + first) * {channels}),",
            f"             (end - first) * {_ELEMENT * channels});",
            "    }",
            "  }",
            "}",
        ]

    def _block_function(self) -> list[str]:
        """C of `block`: a tile of pixels times the channels of a register block, of which `left` exist."""
        (mr, groups), depth, channels = self.tile, self.what.depth, self.what.channels
        sums = [f"s{r}_{g}" for r in range(mr) for g in range(groups)]
        lines = [
            "INLINE void block(const float *p, const float *w, const float *t, float *o, int left,",
            "                  float low, float high)",
            "{",
            *(f"  const float *x{r} = p + {r * depth};" for r in range(mr)),
            *(f"  float32x4_t s0_{g} = vldrwq_f32(t + {LANES * g});" for g in range(groups)),
            *(f"  float32x4_t s{r}_{g} = s0_{g};" for r in range(1, mr) for g in range(groups)),
            *(f"  {line}" for line in self._statement(sums)),
        ]
        for r, g in itertools.product(range(mr), range(groups)):
            value = f"clamped(s{r}_{g}, low, high)" if self.what.clamped else f"s{r}_{g}"
            at, first = r * channels + LANES * g, LANES * g
            if self.block % self._width or channels % self.block % self._width:
                lanes = f"vctp32q(left > {first} ? left - {first} : 0)"
                lines.append(f"  vstrwq_p_f32(o + {at}, {value}, {lanes});")
            else:
                lines.append(f"  vstrwq_f32(o + {at}, {value});")
        return [*lines, "}"]

    def _statement(self, sums: list[str]) -> list[str]:
        mr, unroll, depth = self.tile[0], self._loop("k").step, self.what.depth
        whole, rest = divmod(depth, unroll)
        names = [f"e{r}_{i}" for r in range(mr) for i in range(1 + self._pairs)]
        scalars = dict(zip(names, _SCALARS, strict=False))
        pointers = ["w", *(f"x{r}" for r in range(mr))]
        turn, after = self._products(unroll), self._products(rest)
        return block(turn, after, whole, pointers, sums, scalars, self.pipeline)

    @property
    def _pairs(self) -> bool:
        """Whether elements are loaded two at a time."""
        return 2 * self.tile[0] <= len(_SCALARS)

    def _products(self, count: int) -> list[BlockInstruction]:
        """The next `count` elements of the depth: every pixel with every channel."""
        (mr, groups), code = self.tile, list[BlockInstruction]()
        for i in range(count):
            second = self._pairs and i % 2
            both = self._pairs and not second and i + 1 < count
            for g in range(groups):
                step = F32.lanes * F32.element
                code.append(BlockInstruction(F32.load[0], f"{{w{g}}}, [{{w}}], #{step}", (f"w{g}", "w"), ("w",)))
                for r in range(mr):
                    if g == 0 and not second:
                        target = (f"e{r}_0", f"e{r}_1") if both else (f"e{r}_0",)
                        values = ", ".join(f"{{{name}}}" for name in target)
                        address = f"[{{x{r}}}], #{_ELEMENT * len(target)}"
                        load = F32.pair if both else F32.scalar
                        code.append(BlockInstruction(load, f"{values}, {address}", (*target, f"x{r}"), (f"x{r}",)))
                    total, element = f"s{r}_{g}", f"e{r}_{1 if second else 0}"
                    code.append(BlockInstruction(F32.more, f"{{{total}}}, {{w{g}}}, {{{element}}}", (total,), (total,)))
        return code

    # What must hold.

    def verify(self) -> None:
        """Check what the printed code takes for granted.

        Raises:
            BackendError: the nest is not legal; the message says why.
        """
        mr, groups = self.tile
        if mr * groups > MOST_SUMS or mr > len(_SCALARS) - 1:
            raise BackendError(f"{mr} x {self._width} sums do not fit the registers")
        if self.block % self._width and self.block < self.what.channels:
            raise BackendError(f"blocks of {self.block} channels do not end at whole register blocks")

    def walks(self) -> Sequence[Walk]:
        """The loops over memory: blocks of channels, tiles of pixels, register blocks."""
        (mr, _), geometry, depth = self.tile, self.what.geometry, _ELEMENT * self.what.depth
        tiles, parts = -(-geometry.pixels // mr), -(-self.what.channels // self.block)
        width = min(self._width, self.block)
        block, group, row = depth * self.block, depth * width, _ELEMENT * self.what.channels
        windows = (
            [ArrayAccess("image", "input", mr * depth, (0, mr * depth)),
             ArrayAccess("windows", "scratch", mr * depth, (0, 0), writes=True)]
            if self._stages_windows
            else [ArrayAccess("image", "input", depth, (0, mr * depth, 0), inner=((mr, depth),))]
        )  # fmt: skip
        weights = (
            [ArrayAccess("weights", "params", block, (block,)),
             ArrayAccess("copy", "scratch", block, (0,), writes=True),
             ArrayAccess("copy", "scratch", group, (0, 0, group))]
            if self._copies_weights
            else [ArrayAccess("weights", "params", group, (block, 0, group))]
        )  # fmt: skip
        out = ArrayAccess(
            "out", "output", _ELEMENT * width, (_ELEMENT * self.block, mr * row, _ELEMENT * width), True, ((mr, row),)
        )
        return [Walk((parts, tiles, -(-self.block // width)), (*windows, *weights, out))]

    def counts(self) -> dict[str, float]:
        """What the code executes, for the cost model."""
        (mr, groups), depth = self.tile, self.what.depth
        tiles = -(-self.what.geometry.pixels // mr)
        blocks = self._padded // self._width
        parts = -(-self.what.channels // self.block)
        unroll = self._loop("k").step
        issued = mr * groups + groups + (mr / 2 if self._pairs else mr)
        counts = {
            "cycles": tiles * blocks * (depth * max(2 * mr * groups, issued) + 4 * (depth // unroll) + 8 * mr * groups)
            + (2 * tiles * mr * depth * parts if self._stages_windows else 0)
            + (self.weight_bytes / 4 if self._copies_weights else 0),
            "products": tiles * blocks * depth * mr * groups,
            "loads": tiles * blocks * depth * groups,
            "turns": tiles * blocks * (depth // unroll),
            "copied": tiles * mr * depth * parts * self._stages_windows,
            "constants_read": self.weight_bytes * (1 if self._copies_weights else tiles),
            "scratch": self.scratch_bytes,
        }
        return {name: float(value) for name, value in counts.items()}


@lru_cache(maxsize=256)
def sketch(what: OuterProduct, site: Site, pipeline: Pipeline | None) -> Variant:
    """The sketch of a product, whose first schedule is the one that promises the fewest cycles at its site.

    Knobs: `tile`, pixels x channels of the register block; `unroll`, elements of the depth in a turn; `block`, channels
    whose weights all pixels read together; `weights`, where they read them.
    """
    most = what.geometry.pixels
    tiles = [(r, g) for r in range(1, MOST_SUMS) for g in range(1, MOST_SUMS + 1) if r * g <= MOST_SUMS and r <= most]
    knobs: dict[str, tuple[Choice, ...]] = {
        "tile": tuple(f"{r}x{LANES * g}" for r, g in tiles if LANES * (g - 1) < what.channels),
        "unroll": (8, 4, 2, 12, 16),
        "block": (what.channels, *(n for n in _BLOCKS if n < what.channels)),
        "weights": ("params", "scratch") if what.geometry.pixels > 1 and site.waits_for_memory else ("params",),
    }
    first = {name: choices[0] for name, choices in knobs.items()}
    found = []
    for tile, block_, weights in itertools.product(knobs["tile"], knobs["block"], knobs["weights"]):
        guess = {**first, "tile": tile, "block": block_, "weights": weights}
        with suppress(BackendError):
            kernel = _verified(what, assigned(guess))
            counts = kernel.counts()
            if site.holds(counts):
                found.append((counts["cycles"] + site.waits(kernel.walks(), pipeline), counts["scratch"], guess))
    *_, best = min(found, key=lambda each: each[:2])
    return beginning_with(best, "outer", knobs, partial(_verified, what))


def scheduled(what: OuterProduct, schedule: Schedule, pipeline: Pipeline | None) -> OuterKernel:
    """The kernel of a schedule out of `sketch`.

    Raises:
        BackendError: it is not legal.
    """
    return OuterKernel(what, _verified(what, schedule.knobs).nest, pipeline)


@lru_cache(maxsize=4096)
def _verified(what: OuterProduct, knobs: tuple[tuple[str, Choice], ...]) -> OuterKernel:
    kernel = OuterKernel(what, what.scheduled(dict(knobs)), None)
    kernel.verify()
    return kernel
