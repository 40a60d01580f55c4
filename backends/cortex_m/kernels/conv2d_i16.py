"""CONV2D (and with it fully connected layers) on int16 activations: the register-blocked GEMM with lanes of 16 bits.

Rows of pixels are int16, weights stay int8 in the params and are widened as they are loaded. Sums that fit int32
accumulate there by VMLADAVA; where weights and biases do not promise that, in register pairs by VMLALDAVA.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.conv2d import direct, im2col
from tosaic.backends.cortex_m.kernels.gemm import Gemm, Tile
from tosaic.backends.cortex_m.kernels.mve import VECTOR, requantization_table, with_symbol
from tosaic.backends.cortex_m.kernels.mve_i16 import (
    INT16,
    PRELUDE_I16,
    RequantizerI16,
    is_wide,
    match_epilogue_i16,
    widened,
)
from tosaic.backends.cortex_m.kernels.mve_match import (
    Geometry,
    constants_after_first,
    is_chain,
    match_window,
    number,
    workload,
)
from tosaic.backends.target import Core
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir
from tosaic.tuner.space import Choice, Schedule, Variant

# VMLALDAVA accumulates in pairs of general registers; rows, weights and the loop's count need some too.
_PAIRS = 4


@FAMILIES.register
class Conv2dI16(KernelFamily):
    """CONV2D, int16 times constant int8, RESCALE of the i48 sums to int16, optional CLAMP; zero points 0.

    Variants and knobs are those of `Conv2d`.
    """

    name = "conv2d_i16"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or ops[0].name != "tosa.conv2d" or not is_chain(ops, function):
            return None
        geometry, operands = match_window(ops[0], INT16), constants_after_first(ops[0])
        if geometry is None or operands is None or operands[2].any():
            return None
        weights, bias = operands[:2]
        epilogue = match_epilogue_i16(ops[1:], len(weights))
        if epilogue is None:
            return None
        bias = np.broadcast_to(bias, (len(weights),))
        wide = is_wide(weights, bias)
        attributes = {**vars(geometry), "out_channels": len(weights), "left": epilogue.left and not wide, "wide": wide}
        return workload(self.name, attributes, {"weights": weights, "bias": bias, **epilogue.constants})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        if not core.mve:
            return ()
        gemm = _gemm(workload)
        return (Variant("gemm" if Geometry.of(workload.attributes).dense else "im2col", gemm.knobs, gemm.legal),)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        gemm, constants = _gemm(workload), workload.constants
        write = direct if schedule.variant == "gemm" else im2col
        tile, body, scratch = write(_in_bytes(Geometry.of(workload.attributes)), gemm, schedule)
        symbol, text = with_symbol("conv2d_i16", PRELUDE_I16 + tile.text + body)
        weights = constants["weights"].reshape(gemm.channels, -1)
        header = np.append(constants["range"], 0)
        params = tile.pack(weights, constants["bias"], constants["multiplier"], constants["shift"], header, lookup=None)
        return KernelSource(symbol, "c", text, params, scratch)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        gemm = _gemm(workload)
        tile = gemm.tile(schedule, gemm.depth)
        copied = tile.counts["tiles"] * tile.mr * gemm.depth * (schedule.variant == "im2col")
        return {**tile.counts, **tile.choices, "copied": copied, "wide": float(gemm.wide)}


def _in_bytes(geometry: Geometry) -> Geometry:
    """The geometry of int16 pixels taken as twice as many bytes."""
    return replace(geometry, channels=geometry.channels * INT16.itemsize)


def _gemm(workload: Workload) -> GemmI16:
    geometry = _in_bytes(Geometry.of(workload.attributes))
    channels, left, wide = (number(workload, name) for name in ("out_channels", "left", "wide"))
    return GemmI16(geometry.pixels, geometry.depth, channels, bool(left), table=False, wide=bool(wide))


@dataclass(frozen=True)
class GemmI16(Gemm):
    """A `Gemm` of int16 rows; `depth` counts bytes.

    Args:
        wide: whether sums need 64 bits.
    """

    wide: bool

    @property
    def knobs(self) -> dict[str, tuple[Choice, ...]]:
        return {**super().knobs, "mr": (2, 1, 3, 4), "share": (1,)} if self.wide else super().knobs

    def legal(self, knobs: Mapping[str, Choice]) -> bool:
        if self.wide and (knobs["bias"] != "seed" or int(knobs["mr"]) * int(knobs["nr"]) > _PAIRS):
            return False
        return super().legal(knobs)

    @property
    def result_bytes(self) -> int:
        return self.channels * INT16.itemsize

    def tile(self, schedule: Schedule, row_stride: int) -> Tile:
        return (_WideTile if self.wide else _Tile)(self, schedule, row_stride)


class _Tile(Tile):
    """A `Tile` of int16 rows with int32 accumulators."""

    @property
    def weight_vector(self) -> int:
        return VECTOR // INT16.itemsize

    @property
    def order(self) -> np.ndarray:
        return np.arange(self.padded_channels, dtype=np.int32)

    @property
    def counts(self) -> dict[str, float]:
        counts = super().counts
        return {**counts, "macs": counts["macs"] / INT16.itemsize}

    def pack_table(self, multiplier: np.ndarray, shift: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        return requantization_table(*widened(multiplier, shift), self.order, bias, with_left=self.gemm.left)

    @property
    def requantize(self) -> str:
        return RequantizerI16(
            self.gemm.channels,
            self.padded_channels,
            self.mr,
            int(self.schedule["share"]),
            bias=not self.seed_bytes,
            left=self.gemm.left,
            lookup=False,
        ).text

    @property
    def _lanes(self) -> str:
        return "int16x8_t"

    def _dot(self, cell: str, pair: str) -> str:
        return f"vmladavaq_s16({cell}, {pair})" if cell else f"vmladavq_s16({pair})"

    def _load(self, address: str) -> str:
        if self.row_stride % 4:
            return f"vldrhq_s16((const int16_t *)({address}))"
        return f"vreinterpretq_s16_s32(vldrwq_s32((const int32_t *)({address})))"

    def _load_weights(self, address: str) -> str:
        return f"vldrbq_s16({address})"


class _WideTile(_Tile):
    """A `Tile` of int16 rows with int64 accumulators, which the bias seeds."""

    @property
    def accumulator(self) -> np.dtype:
        return np.dtype(np.int64)

    def pack_table(self, multiplier: np.ndarray, shift: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        """int32 (channels, 2): multiplier, shift."""
        return np.stack([multiplier, shift], axis=1).astype(np.int32)

    @property
    def requantize(self) -> str:
        return f"""\
INLINE void requantize(const int64_t *acc, const int32_t *table, const int8_t *lookup, const int32_t *range,
                       int8_t *restrict out)
{{
  const int32_t low = range[1], high = range[2];
  int16_t *o = (int16_t *)out;
  for (int row = 0; row < {self.mr}; row++, acc += {self.padded_channels})
    for (int c = 0; c < {self.gemm.channels}; c++) {{
      const int32_t shift = table[2 * c + 1];
      const int64_t value = (acc[c] * table[2 * c] + (1ll << (shift - 1))) >> shift;
      *o++ = value < low ? low : value > high ? high : value;
    }}
}}
"""

    def _dot(self, cell: str, pair: str) -> str:
        return f"vmlaldavaq_s16({cell}, {pair})"
