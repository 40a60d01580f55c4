"""Depthwise convolutions of floats as nests: four channels a vector, some columns at a time.

    out[y, x, c] = clamp(bias[c] + sum over the window of strip[...][c] * weights[...][c])

A strip holds the input rows of some output rows, for four channels, between zeros: so all of its reads lie in reach of
one pointer a row.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels.mve import VECTOR
from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.nest.block import Instruction, advance
from tosaic.backends.cortex_m.nest.floats import LANES, MOST_SUMS, block
from tosaic.backends.cortex_m.nest.nest import Nest
from tosaic.backends.cortex_m.nest.rows import F32
from tosaic.backends.cortex_m.nest.sketches import assigned, beginning_with
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Choice, Schedule, Variant

_FEW_STRIP_BYTES = 8192
_MOST_INSTRUCTIONS = 1000


@dataclass(frozen=True)
class Taps:
    """What is computed: one output a channel, at least four channels.

    Args:
        geometry: of the window.
        clamped: whether there are bounds.
    """

    geometry: Geometry
    clamped: bool

    def scheduled(self, knobs: Mapping[str, Choice]) -> Nest:
        """The trace with its numbers filled in, applied."""
        geometry = self.geometry
        axes = {"y": geometry.batch * geometry.rows, "c": geometry.channels, "x": geometry.columns}
        nest = Nest.of(strip={"y": axes["y"]}, out=axes)
        nest = nest.apply("split", "out", "y", "yi", int(knobs["rows"])).apply("split", "out", "c", "ci", LANES)
        nest = nest.apply("split", "out", "x", "xi", int(knobs["columns"]))
        nest = nest.apply("order", "out", "y", "c", "yi", "x", "xi", "ci")
        nest = nest.apply("lanes", "out", "ci").apply("unroll", "out", "xi")
        return nest.apply("compute_at", "strip", "out", "c")


@dataclass(frozen=True)
class TapsKernel:
    """A scheduled depthwise convolution, ready to print.

    Args:
        what: the problem.
        nest: stage `strip` at the channels of `out`.
        pipeline: timings of the core; None leaves instructions in the order of their meaning.
    """

    what: Taps
    nest: Nest
    pipeline: Pipeline | None

    @property
    def rows(self) -> int:
        """Output rows of a strip."""
        return self.nest.loop("out", "y").step

    @property
    def columns(self) -> int:
        """Output columns that are computed together."""
        return self.nest.loop("out", "xi").extent

    @property
    def _groups(self) -> list[int]:
        """The first channel of each vector; the last one starts early."""
        channels = self.what.geometry.channels
        return [min(c, channels - LANES) for c in range(0, channels, LANES)]

    @property
    def _taps(self) -> int:
        return self.what.geometry.kernel[0] * self.what.geometry.kernel[1]

    @property
    def _pitch(self) -> int:
        """Elements of a row of the strip."""
        geometry = self.what.geometry
        return LANES * (geometry.pad[2] + geometry.width + geometry.pad[3])

    @property
    def _rows_in(self) -> int:
        return (self.rows - 1) * self.what.geometry.stride[0] + self.what.geometry.span[0]

    @property
    def _strip_bytes(self) -> int:
        return F32.element * self._rows_in * self._pitch

    @property
    def scratch_bytes(self) -> int:
        """A strip, and the weights of its channels."""
        return self._strip_bytes + VECTOR * self._taps

    def pack_weights(self, weights: np.ndarray) -> np.ndarray:
        """f32 (vectors, taps, 4) of weights (rows, columns, channels)."""
        flat = weights.reshape(self._taps, -1)
        return np.stack([flat[:, c : c + LANES] for c in self._groups])

    def pack_bias(self, bias: np.ndarray) -> np.ndarray:
        """f32 (vectors, 4) of the bias of every channel."""
        return np.stack([bias[c : c + LANES] for c in self._groups])

    # The code.

    def text(self, weights: str, bias: str) -> list[str]:
        """C of the kernel, whose params begin with {lowest, highest}.

        Args:
            weights, bias: C of where the packed weights and biases (f32) lie.
        """
        geometry, channels = self.what.geometry, self.what.geometry.channels
        last_row, last_column = geometry.rows - self.rows, geometry.columns - self.columns
        image_in = geometry.height * geometry.width * channels
        image_out = geometry.rows * geometry.columns * channels
        down, right = geometry.stride
        at = f"strip + yi * {down * self._pitch} + x * {LANES * right}"
        to = f"out + ((y + yi) * {geometry.columns} + x) * {channels} + c"
        return [
            *self._pack_function(),
            *self._block_function(),
            "void @SYMBOL@(const float *restrict in, float *restrict out, const int8_t *restrict params,",
            "              int8_t *restrict scratch)",
            "{",
            "  const float *range = (const float *)params;",
            "  float *strip = (float *)scratch;",
            f"  for (int image = 0; image < {geometry.batch}; image++, in += {image_in}, out += {image_out})",
            f"  for (int y_ = 0; y_ < {geometry.rows}; y_ += {self.rows}) {{",
            f"    const int y = y_ < {last_row} ? y_ : {last_row};",
            f"    for (int g = 0; g < {len(self._groups)}; g++) {{",
            f"      const int c = {LANES} * g < {channels - LANES} ? {LANES} * g : {channels - LANES};",
            f"      pack(strip, in + c, y * {down} - {geometry.pad[0]});",
            f"      const int8_t *w = (const int8_t *)({weights} + g * {LANES * self._taps});",
            f"      copy(scratch + {self._strip_bytes}, w, {VECTOR * self._taps});",
            f"      for (int yi = 0; yi < {self.rows}; yi++)",
            f"        for (int x_ = 0; x_ < {geometry.columns}; x_ += {self.columns}) {{",
            f"          const int x = x_ < {last_column} ? x_ : {last_column};",
            f"          block({at}, (const float *)(scratch + {self._strip_bytes}), {bias} + {LANES} * g,",
            f"                {to}, range[0], range[1]);",
            "        }",
            "    }",
            "  }",
            "}",
            "",
        ]

    def _pack_function(self) -> list[str]:
        """C of `pack`: rows `y` and on of four channels, between zeros."""
        geometry = self.what.geometry
        row, left, right = geometry.width * geometry.channels, geometry.pad[2], geometry.pad[3]
        return [
            "INLINE void zeros(float *to, int columns)",
            "{",
            f"  for (int i = 0; i < columns; i++) vstrwq_f32(to + {LANES} * i, vdupq_n_f32(0));",
            "}",
            "INLINE void pack(float *to, const float *in, int y)",
            "{",
            f"  for (int r = 0; r < {self._rows_in}; r++, y++, to += {self._pitch}) {{",
            f"    if ((unsigned)y >= {geometry.height}) {{",
            f"      zeros(to, {self._pitch // LANES});",
            "      continue;",
            "    }",
            f"    zeros(to, {left});",
            f"    zeros(to + {LANES * (left + geometry.width)}, {right});",
            f"    const float *from = in + y * {row};",
            f"    for (int i = 0; i < {geometry.width}; i++)",
            f"      vstrwq_f32(to + {LANES} * ({left} + i), vldrwq_f32(from + {geometry.channels} * i));",
            "  }",
            "}",
        ]

    def _block_function(self) -> list[str]:
        """C of `block`: some columns of a row, four channels of each."""
        columns, channels = range(self.columns), self.what.geometry.channels
        sums = [f"s{t}" for t in columns]
        statement = block(self._code(), (), 1, ["x", "w"], sums, {}, self.pipeline)
        return [
            "INLINE void block(const float *x, const float *w, const float *t, float *o, float low, float high)",
            "{",
            "  float32x4_t s0 = vldrwq_f32(t);",
            *(f"  float32x4_t s{t} = s0;" for t in columns[1:]),
            *(f"  {line}" for line in statement),
            *(
                f"  vstrwq_f32(o + {t * channels}, {f'clamped(s{t}, low, high)' if self.what.clamped else f's{t}'});"
                for t in columns
            ),
            "}",
        ]

    def _code(self) -> list[Instruction]:
        """Every tap: its weights, and each column's input with them."""
        geometry, code = self.what.geometry, list[Instruction]()
        for ky in range(geometry.kernel[0]):
            if ky:
                code += advance("x", F32.element * geometry.dilation[0] * self._pitch)
            for kx in range(geometry.kernel[1]):
                code.append(Instruction(F32.load[0], f"{{k}}, [{{w}}], #{VECTOR}", ("k", "w"), ("w",)))
                for t in range(self.columns):
                    at = VECTOR * (kx * geometry.dilation[1] + t * geometry.stride[1])
                    code.append(Instruction(F32.load[0], f"{{v}}, [{{x}}, #{at}]", ("v",)))
                    code.append(Instruction(F32.more, f"{{s{t}}}, {{v}}, {{k}}", (f"s{t}",), (f"s{t}",)))
        return code

    # What must hold.

    def verify(self) -> None:
        """Check what the printed code takes for granted.

        Raises:
            BackendError: the nest is not legal; the message says why.
        """
        geometry = self.what.geometry
        if self.columns > MOST_SUMS:
            raise BackendError(f"{self.columns} sums do not fit the registers")
        if VECTOR * (geometry.span[1] - 1 + (self.columns - 1) * geometry.stride[1]) > F32.load[1]:
            raise BackendError("the columns of a window are out of the reach of their pointer")
        if self._taps * (2 * self.columns + 1) > _MOST_INSTRUCTIONS:
            raise BackendError(f"a window of {self._taps} is too long to unroll")

    def counts(self) -> dict[str, float]:
        """What the code executes, for the cost model."""
        geometry = self.what.geometry
        strips = geometry.batch * -(-geometry.rows // self.rows) * len(self._groups)
        blocks = strips * self.rows * -(-geometry.columns // self.columns)
        packed = strips * self._rows_in * self._pitch // LANES
        products = blocks * self._taps * self.columns
        counts = {
            "cycles": 2 * (products + blocks * self._taps) + blocks * (20 + 3 * self.columns) + 5 * packed,
            "products": products,
            "blocks": blocks,
            "packed": packed,
            "constants_read": strips * VECTOR * self._taps,
            "streams": strips,
            "scratch": self.scratch_bytes,
        }
        return {name: float(value) for name, value in counts.items()}


@lru_cache(maxsize=256)
def sketch(what: Taps, site: Site, pipeline: Pipeline | None) -> Variant | None:
    """The sketch of a depthwise convolution, whose first schedule promises the fewest cycles at its site; None where no
    schedule is legal.

    Knobs: `rows` of output in a strip; `columns` that are computed together.
    """
    geometry = what.geometry
    knobs: dict[str, tuple[Choice, ...]] = {
        "rows": tuple(sorted({geometry.rows, *(n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24) if n < geometry.rows)})),
        "columns": tuple(range(1, min(MOST_SUMS, geometry.columns) + 1)),
    }
    found = []
    for rows, columns in itertools.product(*knobs.values()):
        guess = {"rows": rows, "columns": columns}
        with suppress(BackendError):
            counts = _verified(what, assigned(guess)).counts()
            most = _FEW_STRIP_BYTES if site.most_scratch is None else site.most_scratch
            price = counts["cycles"] + site.waits(counts, pipeline)
            found.append((counts["scratch"] > most, price, counts["scratch"], guess))
    if not found:
        return None
    *_, best = min(found, key=lambda each: each[:3])
    return beginning_with(best, "taps", knobs, partial(_verified, what))


def scheduled(what: Taps, schedule: Schedule, pipeline: Pipeline | None) -> TapsKernel:
    """The kernel of a schedule out of `sketch`.

    Raises:
        BackendError: it is not legal.
    """
    return TapsKernel(what, _verified(what, schedule.knobs).nest, pipeline)


@lru_cache(maxsize=4096)
def _verified(what: Taps, knobs: tuple[tuple[str, Choice], ...]) -> TapsKernel:
    kernel = TapsKernel(what, what.scheduled(dict(knobs)), None)
    kernel.verify()
    return kernel
