"""What kernels compute, read from TOSA functions: scalar statements in loops, written once for all cores."""

from __future__ import annotations

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.rewriting import seq
from tosaic.backends.cortex_m.program.text import parse_statement
from tosaic.backends.cortex_m.program.tree import Access, Alloc, Assign, Buffer, For, If, Op, Program, Statement, Value


def loops(body: Statement, **extents: int) -> Statement:
    """Loops around a statement, outermost first."""
    for var, extent in reversed(extents.items()):
        body = For(var, extent, body)
    return body


def conv2d(geometry: Geometry, channels: int, *, clamped: bool, table: bool) -> Program:
    """CONV2D of int8 with constant weights, RESCALE to int8, CLAMP and TABLE (TOSA 1.0, 2.3.2).

    `P` is the window of each output; the host folds the input's zero point into the bias.

    Args:
        channels: of the output.
        clamped, table: whether there is a CLAMP, and a TABLE behind it.
    """
    g, (rows, columns) = geometry, geometry.kernel
    window = {"ky": rows, "kx": columns, "c": g.channels}
    outputs = {"b": g.batch, "y": g.rows, "x": g.columns}
    windows = loops(_windowed(g, "P[b, y, x, ky, kx, c]"), **outputs, ky=rows, kx=columns)
    add = parse_statement("S[sb, sy, sx, sn] += P[sb, sy, sx, sky, skx, sc] * w[sn, sky, skx, sc]")
    each = seq(parse_statement("S[sb, sy, sx, sn] = bias[sn]"), loops(add, **{f"s{n}": e for n, e in window.items()}))
    sums = loops(each, **{f"s{n}": e for n, e in outputs.items()}, sn=channels)
    finish = loops(
        Assign(_index("out[ob, oy, ox, n]"), _finished("S[ob, oy, ox, n]", "n", clamped, table)),
        **{f"o{n}": e for n, e in outputs.items()},
        n=channels,
    )
    shape = (g.batch, g.rows, g.columns)
    arguments = (
        Buffer("a", "i8", (g.batch, g.height, g.width, g.channels), "in"),
        Buffer("out", "i8", (*shape, channels), "out"),
        Buffer("w", "i8", (channels, rows, columns, g.channels), "const"),
        *_factors(channels, clamped, table),
    )
    inner = Alloc(Buffer("S", "i32", (*shape, channels), "scratch"), seq(sums, finish))
    copy = Alloc(Buffer("P", "i8", (*shape, rows, columns, g.channels), "scratch"), seq(windows, inner))
    return Program(arguments, copy)


def _windowed(g: Geometry, target: str) -> Statement:
    """The copy of a pixel of a window, which is the input's zero point outside of the image."""
    y = Affine.of("y") * g.stride[0] + Affine.of("ky") * g.dilation[0] - g.pad[0]
    x = Affine.of("x") * g.stride[1] + Affine.of("kx") * g.dilation[1] - g.pad[2]
    pixel = Access("a", (Affine.of("b"), y, x, Affine.of("c")))
    copy = For("c", g.channels, Assign(_index(target), pixel))
    if not any(g.pad):
        return copy
    fill = For("f", g.channels, Assign(_index(target.replace("c]", "f]")), Access("edge")))
    inside = [y, y * -1 + (g.height - 1)] if g.pad[0] or g.pad[1] else []
    inside += [x, x * -1 + (g.width - 1)] if g.pad[2] or g.pad[3] else []
    return If(tuple(inside), copy, fill)


def _factors(channels: int, clamped: bool, table: bool) -> tuple[Buffer, ...]:
    """The constants of a RESCALE by channel, the bounds of a CLAMP, a TABLE."""
    by_channel = [Buffer(name, "i32", (channels,), "const") for name in ("bias", "multiplier", "shift")]
    single = ["zero", "edge", *(["low", "upper"] if clamped else [])]
    tables = [Buffer("table", "i8", (256,), "const")] if table else []
    return (*by_channel, *(Buffer(name, "i32", (), "const") for name in single), *tables)


def _finished(total: str, channel: str, clamped: bool, table: bool) -> Value:
    """RESCALE of a sum, CLAMP, TABLE."""
    scaled = Op("scale32", (_index(total), _index(f"multiplier[{channel}]"), _index(f"shift[{channel}]")))
    value: Value = Op("sat8", (Op("add", (scaled, Access("zero"))),))
    if clamped:
        value = Op("clamp", (value, Access("low"), Access("upper")))
    return Op("lookup", (Access("table", (Affine.of(128),)), value)) if table else value


def _index(text: str) -> Access:
    """`S[x, n]` as an access."""
    return parse_statement(f"{text} = 0").target
