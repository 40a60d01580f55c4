"""What CONV2D computes where windows are several pixels, read from an image between its padding.

Names are those of `algorithms`.
"""

from __future__ import annotations

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.rewriting import nested, seq, without_unread
from tosaic.backends.cortex_m.program.text import parse_access, parse_statement
from tosaic.backends.cortex_m.program.tree import (
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    If,
    Op,
    Program,
    Reduce,
    Statement,
)


def conv2d(geometry: Geometry, channels: int, epilogue: Epilogue) -> Program:
    """CONV2D of int8 (TOSA 1.0, 2.3.2) and sums that fit int32, to the epilogue's type; a row of a window has no gaps.

    `P` is the image between its padding, which is `edge`; pixels of a row of it, of `a` and of `w` are one dimension.

    Args:
        channels: of the output.
    """
    g, c = geometry, geometry.channels
    total = parse_access("S[sb, sy, sx, sn]")
    outer, row = (g.batch, g.rows, g.columns), g.kernel[1] * c
    height, width = ((n - 1) * s + span for n, s, span in zip((g.rows, g.columns), g.stride, g.span, strict=True))
    y = Affine.of("sy") * g.stride[0] + Affine.of("ky") * g.dilation[0]
    read = Access("P", (Affine.of("sb"), y, Affine.of("sx") * (g.stride[1] * c) + "k"))
    add = nested(Reduce(total, Op("mul", (read, parse_access("w[sn, ky, k]")))), ky=g.kernel[0], k=row)
    begin = Assign(total, parse_access("bias[sn]"))
    sums = nested(seq(begin, add), **dict(zip(("sb", "sy", "sx"), outer, strict=True)), sn=channels)
    result = Assign(parse_access("out[b, y, x, n]"), epilogue.of("S[b, y, x, n]", "[n]"))
    finish = nested(result, **dict(zip(("b", "y", "x"), outer, strict=True)), n=channels)
    arguments = (
        Buffer("a", "i8", (g.batch, g.height, g.width * c), "in"),
        Buffer("out", epilogue.element, (*outer, channels), "out"),
        Buffer("w", "i8", (channels, g.kernel[0], row), "const"),
        Buffer("bias", "i32", (channels,), "const"),
        Buffer("edge", "i32", (), "const"),
        *epilogue.constants((channels,)),
    )
    image = nested(_padded_row(g), cb=g.batch, cy=height)
    body = Alloc(Buffer("S", "i32", (*outer, channels), "scratch"), seq(sums, finish))
    copy = Buffer("P", "i8", (g.batch, height, width * c), "scratch")
    return without_unread(Program(arguments, Alloc(copy, seq(image, body))))


def row_bytes(g: Geometry) -> tuple[int, int, int]:
    """Bytes of a row of the padded image that windows reach: of its left padding, of the image, and behind that."""
    width = (g.columns - 1) * g.stride[1] + g.span[1]
    left = min(g.pad[2], width)
    whole = min(g.width, width - left)
    return left * g.channels, whole * g.channels, (width - left - whole) * g.channels


def _padded_row(g: Geometry) -> Statement:
    """A row of the padded image: where some of its columns are padding, all are first."""
    left, whole, right = row_bytes(g)
    y = Affine.of("cy") - g.pad[0]
    source = Access("a", (Affine.of("cb"), y, Affine.of("cx")))
    copy = nested(Assign(parse_access(f"P[cb, cy, cx + {left}]"), source), cx=whole) if whole else seq()
    fill = For("f", left + whole + right, parse_statement("P[cb, cy, f] = edge"))
    beside = left > 0 or right > 0
    if any(g.pad[:2]):
        copy = If((y, y * -1 + (g.height - 1)), copy, seq() if beside else fill)
    return seq(fill, copy) if beside else copy
