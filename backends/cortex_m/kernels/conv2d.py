"""CONV2D (and with it fully connected layers) to int8 on MVE: a register-blocked GEMM, direct or over im2col."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.gemm import DenseRows, Gemm, Tile
from tosaic.backends.cortex_m.kernels.mve import PRELUDE, VECTOR, round_up, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import (
    Geometry,
    constants_after_first,
    fold_zero_point,
    is_chain,
    match_epilogue,
    match_window,
    number,
    workload,
)
from tosaic.backends.target import Core
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir
from tosaic.tuner.space import Schedule, Variant


@FAMILIES.register
class Conv2d(KernelFamily):
    """CONV2D, int8 times constant int8, RESCALE to int8, optional CLAMP and TABLE.

    Variants: `gemm` where the input is the GEMM's matrix as it lies (1x1, or a window that covers the image), `im2col`
    elsewhere: the windows of `mr` pixels are copied to scratch memory and multiplied with all channels.
    """

    name = "conv2d"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or ops[0].name != "tosa.conv2d" or not is_chain(ops, function):
            return None
        geometry = match_window(ops[0])
        if geometry is None:
            return None
        operands = constants_after_first(ops[0])
        if operands is None:
            return None
        weights, bias, input_zero_point, _ = operands
        epilogue = match_epilogue(ops[1:], len(weights))
        if epilogue is None:
            return None
        attributes = {**vars(geometry), "out_channels": len(weights), **epilogue.attributes}
        constants = {
            "weights": weights,
            "bias": np.broadcast_to(bias, (len(weights),)),
            "input_zero_point": input_zero_point,
            **epilogue.constants,
        }
        return workload(self.name, attributes, constants)

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        if not core.mve:
            return ()
        gemm = _gemm(workload)
        return (Variant("gemm" if Geometry.of(workload.attributes).dense else "im2col", gemm.knobs, gemm.legal),)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        geometry, gemm = Geometry.of(workload.attributes), _gemm(workload)
        write = direct if schedule.variant == "gemm" else im2col
        tile, body, scratch = write(geometry, gemm, schedule)
        symbol, text = with_symbol("conv2d", PRELUDE + tile.text + body)
        constants = workload.constants
        params = tile.pack(
            constants["weights"].reshape(gemm.channels, gemm.depth),
            fold_zero_point(constants["bias"], constants["weights"], int(constants["input_zero_point"].item())),
            constants["multiplier"],
            constants["shift"],
            np.append(constants["range"], constants["input_zero_point"]),
            constants.get("table"),
        )
        return KernelSource(symbol, "c", text, params, scratch)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        gemm = _gemm(workload)
        tile = Tile(gemm, schedule, gemm.depth)
        copied = tile.counts["tiles"] * tile.mr * gemm.depth * (schedule.variant == "im2col")
        return {**tile.counts, **tile.choices, "copied": copied}


def _gemm(workload: Workload) -> Gemm:
    geometry = Geometry.of(workload.attributes)
    channels, left, table = (number(workload, name) for name in ("out_channels", "left", "table"))
    return Gemm(geometry.pixels, geometry.depth, channels, bool(left), bool(table))


_ENTRY = """\
void @SYMBOL@(const int8_t *restrict in, int8_t *restrict out, const int8_t *restrict params,
              int8_t *restrict scratch)"""


def direct(geometry: Geometry, gemm: Gemm, schedule: Schedule) -> tuple[Tile, str, int]:
    """(tile, C of the kernel but for the tile's, bytes of scratch memory) where the input is the matrix."""
    tile = gemm.tile(schedule, gemm.depth)
    rows = DenseRows(tile, tile.accumulator_bytes)
    call = tile.call("rows", "scratch", f"out + row * {gemm.result_bytes}")
    lines = [*rows.functions, _ENTRY, "{", *(f"  {line}" for line in rows.loop("in", [call])), "}", ""]
    return tile, "\n".join(lines), tile.accumulator_bytes + rows.scratch_bytes


def im2col(geometry: Geometry, gemm: Gemm, schedule: Schedule) -> tuple[Tile, str, int]:
    """The same over windows of `mr` pixels side by side in scratch memory, the input's zero point outside the image.

    The channels of `geometry` count bytes.
    """
    padded = gemm.vectors * VECTOR
    tile = gemm.tile(schedule, padded)
    last = gemm.rows - tile.mr
    y, x, image = _position(geometry, last)
    top, _, left, _ = geometry.pad
    lines = [
        _window(geometry),
        _ENTRY,
        "{",
        f"  int8_t *windows = scratch + {tile.accumulator_bytes};",
        f"  int y = {-top}, x = {-left};",
        "  const int8_t *image = in;",
        "  const int8x16_t zero = vdupq_n_s8(((const int32_t *)params)[3]);",
        f"  for (int p = 0; p < {round_up(gemm.rows, tile.mr)}; p += {tile.mr}) {{",
        "    int row = p;",
        f"    if (row > {last}) {{ row = {last}; y = {y}; x = {x}; image = in + {image}; }}",
        *(f"    {line}" for line in _whole_tile(geometry, tile)),
        f"    for (int r = 0; r < {tile.mr}; r++) {{",
        f"      window(windows + r * {padded}, image, y, x, zero);",
        f"      x += {geometry.stride[1]};",
        *(f"      {line}" for line in _wrap(geometry)),
        "    }",
        f"    {tile.call('windows', 'scratch', f'out + row * {gemm.result_bytes}')}",
        "  }",
        "}",
        "",
    ]
    return tile, "\n".join(lines), tile.accumulator_bytes + tile.mr * padded + VECTOR


def _wrap(geometry: Geometry) -> list[str]:
    """C that moves from the end of a row of outputs to the next, and from the last row to the next image."""
    (top, _, left, _), (down, right) = geometry.pad, geometry.stride
    return [
        f"if (x == {geometry.columns * right - left}) {{",
        f"  x = {-left}; y += {down};",
        f"  if (y == {geometry.rows * down - top}) {{",
        f"    y = {-top}; image += {geometry.height * geometry.width * geometry.channels};",
        "  }",
        "}",
    ]


def _runs(geometry: Geometry) -> list[tuple[int, int, int]]:
    """(offset in the window's copy, offset in the image, bytes) of the stretches of one window that lie together."""
    (height, width), (down, right), channels = geometry.kernel, geometry.dilation, geometry.channels
    columns = 1 if right == 1 else width
    return [
        (
            (ky * width + kx) * channels,
            (ky * down * geometry.width + kx * right) * channels,
            width // columns * channels,
        )
        for ky in range(height)
        for kx in range(columns)
    ]


def _whole_tile(geometry: Geometry, tile: Tile) -> list[str]:
    """C of the common case of `im2col`: the windows of a tile lie in the image, in one row, and not at its very end.

    Then they are copied by whole vectors. It ends in an `else`, or is empty where the case cannot occur.
    """
    right, row_bytes = geometry.stride[1], geometry.width * geometry.channels
    fits = (geometry.height - geometry.span[0], geometry.width - geometry.span[1] - (tile.mr - 1) * right)
    if min(fits) < 0:
        return []
    runs = _runs(geometry)
    first = [r * right * geometry.channels for r in range(tile.mr)]
    reach = first[-1] + max(source + round_up(count, VECTOR) for _, source, count in runs)
    conditions = []
    if any(geometry.pad):
        conditions += [f"(unsigned)y <= {fits[0]}", f"(unsigned)x <= {fits[1]}"]
    else:
        conditions += [f"x <= {fits[1]}"]
    last = geometry.height * row_bytes - reach
    if last < fits[0] * row_bytes + fits[1] * geometry.channels:
        conditions.append(f"y * {row_bytes} + x * {geometry.channels} <= {last}")
    lines = [
        f"if ({' && '.join(conditions)}) {{",
        f"  const int8_t *from = image + y * {row_bytes} + x * {geometry.channels};",
    ]
    for r, start in enumerate(first):
        for target, source, count in runs:
            for at in range(0, count, VECTOR):
                to = r * tile.row_stride + target + at
                lines.append(f"  vstrbq_s8(windows + {to}, vldrbq_s8(from + {start + source + at}));")
    return [*lines, f"  x += {tile.mr * right};", *(f"  {line}" for line in _wrap(geometry)), "} else"]


def _position(geometry: Geometry, pixel: int) -> tuple[int, int, int]:
    """Top row and left column of a pixel's window, and the byte offset of its image."""
    image, within = divmod(pixel, geometry.rows * geometry.columns)
    row, column = divmod(within, geometry.columns)
    offset = image * geometry.height * geometry.width * geometry.channels
    return row * geometry.stride[0] - geometry.pad[0], column * geometry.stride[1] - geometry.pad[2], offset


def _window(geometry: Geometry) -> str:
    """C of `window`, which copies one window. A copied run may spill over its end: what follows is copied later."""
    row_bytes = geometry.width * geometry.channels
    (height, width), (down, right) = geometry.kernel, geometry.dilation
    inside = [
        line for target, source, count in _runs(geometry) for line in _run(f"to + {target}", f"from + {source}", count)
    ]
    lines = [
        "INLINE void window(int8_t *to, const int8_t *image, int y, int x, int8x16_t zero)",
        "{",
        f"  const int8_t *from = image + y * {row_bytes} + x * {geometry.channels};",
    ]
    if not any(geometry.pad):
        return "\n".join([*lines, *(f"  {line}" for line in inside), "}"])
    fits = (geometry.height - geometry.span[0], geometry.width - geometry.span[1])
    if min(fits) >= 0:
        lines.append(f"  if ((unsigned)y <= {fits[0]} && (unsigned)x <= {fits[1]}) {{")
        lines += [f"    {line}" for line in [*inside, "return;"]]
        lines.append("  }")
    whole_row = []
    if right == 1 and fits[1] >= 0:
        whole_row = [
            f"if ((unsigned)x <= {fits[1]}) {{",
            *(f"  {line}" for line in _run("to", "from", width * geometry.channels)),
            f"  to += {width * geometry.channels};",
            "  continue;",
            "}",
        ]
    lines += [
        f"  for (int ky = 0; ky < {height}; ky++, y += {down}, from += {down * row_bytes}) {{",
        f"    if ((unsigned)y >= {geometry.height}) {{",
        *(f"      vstrbq_s8(to + {at}, zero);" for at in range(0, width * geometry.channels, VECTOR)),
        f"      to += {width * geometry.channels};",
        "      continue;",
        "    }",
        *(f"    {line}" for line in whole_row),
        "    const int8_t *pixel = from;",
        f"    for (int kx = 0; kx < {width}; kx++, pixel += {right * geometry.channels}) {{",
        f"      if ((unsigned)(x + kx * {right}) < {geometry.width}) {{",
        *(f"        {line}" for line in _run("to", "pixel", geometry.channels)),
        "      } else {",
        *(f"        vstrbq_s8(to + {at}, zero);" for at in range(0, geometry.channels, VECTOR)),
        "      }",
        f"      to += {geometry.channels};",
        "    }",
        "  }",
        "}",
    ]
    return "\n".join(lines)


def _run(to: str, source: str, count: int) -> list[str]:
    """Copy `count` bytes; stores whole vectors, never reads past the run."""
    lines = [f"vstrbq_s8({to} + {at}, vldrbq_s8({source} + {at}));" for at in range(0, count - VECTOR + 1, VECTOR)]
    if rest := count % VECTOR:
        at = count - rest
        lines.append(f"vstrbq_s8({to} + {at}, vldrbq_z_s8({source} + {at}, vctp8q({rest})));")
    return lines
