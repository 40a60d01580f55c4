"""What kernels compute of windows, a channel apart from all others: depthwise convolutions and pools, read from TOSA
functions where the image lies.

Names are those of `algorithms`.
"""

from __future__ import annotations

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.rewriting import nested, seq, without_unread
from tosaic.backends.cortex_m.program.text import parse_access
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    If,
    Op,
    Program,
    Reduce,
    Seq,
    Statement,
    Value,
)

_TOTAL = parse_access("S[sb, sy, sx, sn]")


def depthwise(geometry: Geometry, epilogue: Epilogue, element: str) -> Program:
    """DEPTHWISE_CONV2D without an input's zero point, a result a channel (TOSA 1.0, 2.3.4), of int8 weights (rows,
    columns, channels) and sums that fit int32, to the epilogue's type.

    Args:
        element: the type of the input.
    """
    g, shape = geometry, _shape(geometry)
    sums = _sums(g, parse_access("bias[sn]"), Reduce(_TOTAL, Op("mul", (_pixel(g), parse_access("w[ky, kx, sn]")))))
    result = Assign(parse_access("out[b, y, x, n]"), epilogue.of("S[b, y, x, n]", "[n]"))
    finish = nested(result, **dict(zip(("b", "y", "x", "n"), shape, strict=True)))
    arguments = (
        Buffer("a", element, (g.batch, g.height, g.width, g.channels), "in"),
        Buffer("out", epilogue.element, shape, "out"),
        Buffer("w", "i8", (*g.kernel, g.channels), "const"),
        Buffer("bias", "i32", (g.channels,), "const"),
        *epilogue.constants((g.channels,)),
    )
    return without_unread(Program(arguments, Alloc(Buffer("S", "i32", shape, "scratch"), seq(sums, finish))))


def depthwise_f32(geometry: Geometry, clamped: bool) -> Program:
    """DEPTHWISE_CONV2D of floats, a result a channel (TOSA 1.0, 2.3.4), between `low` and `upper` where it is clamped.

    A result that is no number stays that.
    """
    g, shape = geometry, _shape(geometry)
    add = Reduce(_TOTAL, Op("mul", (_pixel(g), parse_access("w[ky, kx, sn]"))))
    bounds = [("at_least", "low"), ("at_most", "upper")] if clamped else []
    sums = _sums(g, parse_access("bias[sn]"), add, *(Assign(_TOTAL, Op(op, (_TOTAL, Access(b)))) for op, b in bounds))
    result = Assign(parse_access("out[b, y, x, n]"), parse_access("S[b, y, x, n]"))
    finish = nested(result, **dict(zip(("b", "y", "x", "n"), shape, strict=True)))
    arguments = (
        Buffer("a", "f32", (g.batch, g.height, g.width, g.channels), "in"),
        Buffer("out", "f32", shape, "out"),
        Buffer("w", "f32", (*g.kernel, g.channels), "const"),
        Buffer("bias", "f32", (g.channels,), "const"),
        *(Buffer(name, "f32", (), "const") for _, name in bounds),
    )
    return Program(arguments, Alloc(Buffer("S", "f32", shape, "scratch"), seq(sums, finish)))


def pool(geometry: Geometry, dtypes: tuple[str, str], average: bool, by_place: bool) -> Program:
    """MAX_POOL2D and AVG_POOL2D (TOSA 1.0, 2.3.1 and 2.3.7) of what windows have inside of the image.

    An average is the sum less `offset`, times `multiplier` / 2^`shift`, and `zero`.

    Args:
        dtypes: of the input and the output.
        average: whether it is one, or the greatest element.
        by_place: whether the constants of an average differ by row and column of the output.
    """
    g, (dtype, result) = geometry, dtypes
    shape = _shape(g)
    add = Reduce(_TOTAL, _pixel(g)) if average else Assign(_TOTAL, Op("max", (_TOTAL, _pixel(g))))
    sums = _sums(g, 0 if average else -(1 << (8 * BYTES[dtype] - 1)), add)
    value: Value = parse_access("S[b, y, x, n]")
    if average:
        factors = (
            parse_access(f"{name}[y, x]") if by_place else Access(name) for name in ("offset", "multiplier", "shift")
        )
        offset, multiplier, shift = factors
        scaled = Op("scale32", (Op("sub", (value, offset)), multiplier, shift))
        value = Op("sat8" if result == "i8" else "sat16", (Op("add", (scaled, Access("zero"))),))
    finish = nested(
        Assign(parse_access("out[b, y, x, n]"), value), **dict(zip(("b", "y", "x", "n"), shape, strict=True))
    )
    places = (g.rows, g.columns) if by_place else ()
    arguments = (
        Buffer("a", dtype, (g.batch, g.height, g.width, g.channels), "in"),
        Buffer("out", result, shape, "out"),
        *(Buffer(name, "i32", places, "const") for name in ("offset", "multiplier", "shift")),
        Buffer("zero", "i32", (), "const"),
    )
    return without_unread(Program(arguments, Alloc(Buffer("S", "i32", shape, "scratch"), seq(sums, finish))))


def _shape(g: Geometry) -> tuple[int, int, int, int]:
    """Of the output."""
    return g.batch, g.rows, g.columns, g.channels


def _sums(g: Geometry, first: Value, add: Statement, *behind: Statement) -> Statement:
    """What windows have inside of the image, joined to a first number; and what is done to the sum then."""
    row = For("kx", g.kernel[1], _inside(add, _at(g, 1), g.width, g.pad[2:]))
    window = For("ky", g.kernel[0], _inside(row, _at(g, 0), g.height, g.pad[:2]))
    loops = dict(zip(("sb", "sy", "sx", "sn"), _shape(g), strict=True))
    return nested(seq(Assign(_TOTAL, first), window, *behind), **loops)


def _pixel(g: Geometry) -> Access:
    """An element of a window."""
    return Access("a", (Affine.of("sb"), _at(g, 0), _at(g, 1), Affine.of("sn")))


def _at(g: Geometry, axis: int) -> Affine:
    """The row, or the column, of an element of a window."""
    output, tap = Affine.of("sy" if axis == 0 else "sx"), Affine.of("ky" if axis == 0 else "kx")
    return output * g.stride[axis] + tap * g.dilation[axis] - g.pad[2 * axis]


def _inside(body: Statement, at: Affine, extent: int, pads: tuple[int, ...]) -> Statement:
    """A statement where a row or a column lies inside of the image."""
    return If((at, at * -1 + (extent - 1)), body, Seq(())) if any(pads) else body
