"""What kernels compute of windows, a channel apart from all others: depthwise convolutions and pools, read from TOSA
functions where the image lies.

Names are those of `algorithms`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import nested, seq
from tosaic.backends.cortex_m.program.strips import padded_image
from tosaic.backends.cortex_m.program.text import parse_access
from tosaic.backends.cortex_m.program.touches import without_unread
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    If,
    Op,
    Reduce,
    Seq,
    Statement,
    Value,
)

_NOTHING: Statement = Seq(())
TOTAL = parse_access("S[sb, sy, sx, sn]")
"""A sum."""


def depthwise(geometry: Geometry, epilogue: Epilogue, element: str) -> Program:
    """DEPTHWISE_CONV2D without an input's zero point, a result a channel (TOSA 1.0, 2.3.4), to the epilogue's type.

    Weights (rows, columns, channels) are int8, and sums fit int32.

    Args:
        element: the type of the input.
    """
    g = geometry
    image = Buffer("a", element, (g.batch, g.height, g.width, g.channels), "in")
    arguments, body = _depthwise(g, epilogue, window_of(g, _product(pixel_of(g, "sn"))))
    return without_unread(Program((image, *arguments), body))


def padded_depthwise(geometry: Geometry, epilogue: Epilogue) -> Program:
    """The same of bytes, read from `P` as in `strips.conv2d`: the zero point lies outside of the image, and `bias` has
    it folded in."""
    g, c = geometry, geometry.channels
    row = Affine.of("sy") * g.stride[0] + Affine.of("ky") * g.dilation[0]
    column = Affine.of("sx") * (g.stride[1] * c) + Affine.of("kx") * (g.dilation[1] * c) + "sn"
    window = nested(_product(Access("P", (Affine.of("sb"), row, column))), ky=g.kernel[0], kx=g.kernel[1])
    arguments, body = _depthwise(g, epilogue, window)
    image, edge = Buffer("a", "i8", (g.batch, g.height, g.width * c), "in"), Buffer("edge", "i32", (), "const")
    return without_unread(Program((image, *arguments, edge), padded_image(g, "i8", body)))


def _product(element: Access) -> Statement:
    return Reduce(TOTAL, Op("mul", (element, parse_access("w[ky, kx, sn]"))))


def _depthwise(g: Geometry, epilogue: Epilogue, window: Statement) -> tuple[Sequence[Buffer], Statement]:
    """Sums over a window, and their results; and what these take beside the image."""
    shape = shape_of(g)
    sums = sums_of(shape, parse_access("bias[sn]"), window)
    result = Assign(parse_access("out[b, y, x, n]"), epilogue.of("S[b, y, x, n]", "[n]"))
    written = nested(result, **dict(zip(("b", "y", "x", "n"), shape, strict=True)))
    arguments = (
        Buffer("out", epilogue.element, shape, "out"),
        Buffer("w", "i8", (*g.kernel, g.channels), "const"),
        Buffer("bias", "i32", (g.channels,), "const"),
        *epilogue.constants((g.channels,)),
    )
    return arguments, Alloc(Buffer("S", "i32", shape, "scratch"), seq(sums, written))


def pool(geometry: Geometry, dtypes: tuple[str, str], average: bool, by_place: bool) -> Program:
    """MAX_POOL2D and AVG_POOL2D (TOSA 1.0, 2.3.1 and 2.3.7) of what windows have inside of the image.

    An average is the sum less `offset`, times `multiplier` / 2^`shift`, and `zero`.

    Args:
        dtypes: of the input and the output.
        average: whether it is one, or the greatest element.
        by_place: whether the constants of an average differ by row and column of the output.
    """
    g, (dtype, result) = geometry, dtypes
    shape = shape_of(g)
    pixel = pixel_of(g, "sn")
    add = Reduce(TOTAL, pixel) if average else Assign(TOTAL, Op("max", (TOTAL, pixel)))
    sums = sums_of(shape, 0 if average else -(1 << (8 * BYTES[dtype] - 1)), window_of(g, add))
    value: Value = parse_access("S[b, y, x, n]")
    if average:
        factors = (
            parse_access(f"{name}[y, x]") if by_place else Access(name) for name in ("offset", "multiplier", "shift")
        )
        offset, multiplier, shift = factors
        scaled = Op("scale32", (Op("sub", (value, offset)), multiplier, shift))
        value = Op("sat8" if result == "i8" else "sat16", (Op("add", (scaled, Access("zero"))),))
    written = nested(
        Assign(parse_access("out[b, y, x, n]"), value), **dict(zip(("b", "y", "x", "n"), shape, strict=True))
    )
    places = (g.rows, g.columns) if by_place else ()
    arguments = (
        Buffer("a", dtype, (g.batch, g.height, g.width, g.channels), "in"),
        Buffer("out", result, shape, "out"),
        *(Buffer(name, "i32", places, "const") for name in ("offset", "multiplier", "shift")),
        Buffer("zero", "i32", (), "const"),
    )
    return without_unread(Program(arguments, Alloc(Buffer("S", "i32", shape, "scratch"), seq(sums, written))))


def shape_of(g: Geometry) -> tuple[int, int, int, int]:
    """Of the output."""
    return g.batch, g.rows, g.columns, g.channels


def sums_of(shape: tuple[int, ...], first: Value, *parts: Statement) -> Statement:
    """Sums of a shape that begin with a number, and what is done to each then."""
    loops = dict(zip(("sb", "sy", "sx", "sn"), shape, strict=True))
    return nested(seq(Assign(TOTAL, first), *parts), **loops)


def window_of(g: Geometry, add: Statement) -> Statement:
    """A statement for what windows have inside of the image."""
    row = For("kx", g.kernel[1], inside(add, place_of(g, 1), g.width, g.pad[2:]))
    return For("ky", g.kernel[0], inside(row, place_of(g, 0), g.height, g.pad[:2]))


def pixel_of(g: Geometry, channel: str) -> Access:
    """An element of a window."""
    return Access("a", (Affine.of("sb"), place_of(g, 0), place_of(g, 1), Affine.of(channel)))


def place_of(g: Geometry, axis: int, output: str = "s", tap: str = "k") -> Affine:
    """The row, or the column, of an element of a window; names of loops over outputs and windows begin as given."""
    first, further = (Affine.of(name + "yx"[axis]) for name in (output, tap))
    return first * g.stride[axis] + further * g.dilation[axis] - g.pad[2 * axis]


def inside(
    body: Statement, at: Affine, extent: int, pads: tuple[int, ...], otherwise: Statement = _NOTHING
) -> Statement:
    """A statement where a row or a column lies inside of the image."""
    return If((at, at * -1 + (extent - 1)), body, otherwise) if any(pads) else body
