"""What kernels compute of floats, read from TOSA functions.

Names are those of `algorithms`; the second factor of a MATMUL is `w`. A result that is no number stays that.
"""

from __future__ import annotations

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.algorithms import padded_row
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import nested, seq
from tosaic.backends.cortex_m.program.text import parse_access
from tosaic.backends.cortex_m.program.tree import Access, Alloc, Assign, Buffer, For, Op, Reduce, Statement, Value
from tosaic.backends.cortex_m.program.windows import TOTAL, inside, pixel_of, place_of, shape_of, sums_of, window_of

_BOUNDS = (("at_least", "low"), ("at_most", "upper"))
_BIAS = parse_access("bias[sn]")


def depthwise_f32(geometry: Geometry, clamped: bool) -> Program:
    """DEPTHWISE_CONV2D, a result a channel (TOSA 1.0, 2.3.4), between `low` and `upper` where it is clamped."""
    g, shape = geometry, shape_of(geometry)
    add = window_of(g, _product(pixel_of(g, "sn"), "w[ky, kx, sn]"))
    return _bounded([_image(g), *_weights((*g.kernel, g.channels), g.channels)], shape, _BIAS, add, clamped)


def copied_depthwise_f32(geometry: Geometry, clamped: bool) -> Program:
    """The same of weights (channels, rows, columns) that are numbers, a channel of the padded image `P` at a time."""
    g, (batch, rows, columns, channels) = geometry, shape_of(geometry)
    height, width = ((n - 1) * g.stride[axis] + g.span[axis] for axis, n in enumerate((rows, columns)))
    places = (
        Affine.of(f"s{name}") * g.stride[axis] + Affine.of(f"k{name}") * g.dilation[axis]
        for axis, name in enumerate("yx")
    )
    total = parse_access("S[sb, sn, sy, sx]")
    product = Op("mul", (Access("P", (Affine.of("sb"), Affine.of("sn"), *places)), parse_access("w[sn, ky, kx]")))
    add = nested(Reduce(total, product), ky=g.kernel[0], kx=g.kernel[1])
    loops = {"b": batch, "n": channels, "y": rows, "x": columns}
    sums = nested(
        seq(Assign(total, _BIAS), add, *_bounds(total, clamped)),
        **{f"s{name}": extent for name, extent in loops.items()},
    )
    written = nested(Assign(parse_access("out[b, y, x, n]"), parse_access("S[b, n, y, x]")), **loops)
    image = nested(padded_row(g, width, 0), cb=batch, cn=channels, cy=height)
    factors = (*_weights((channels, *g.kernel), channels), *_numbers(clamped))
    body = Alloc(Buffer("S", "f32", tuple(loops.values()), "scratch"), seq(sums, written))
    copy = Buffer("P", "f32", (batch, channels, height, width), "scratch")
    out = Buffer("out", "f32", (batch, rows, columns, channels), "out")
    return Program((_image(g), out, *factors), Alloc(copy, seq(image, body)))


def conv2d_f32(geometry: Geometry, channels: int, clamped: bool) -> Program:
    """CONV2D (TOSA 1.0, 2.3.2) to so many channels, between `low` and `upper` where it is clamped; weights are
    numbers."""
    g, shape = geometry, (*shape_of(geometry)[:3], channels)
    add = For("k", g.channels, window_of(g, _product(pixel_of(g, "k"), "w[sn, ky, kx, k]")))
    return _bounded([_image(g), *_weights((channels, *g.kernel, g.channels), channels)], shape, _BIAS, add, clamped)


def copied_conv2d_f32(geometry: Geometry, channels: int, clamped: bool) -> Program:
    """The same of windows that are copied to `P` first, with zeros outside of the image."""
    g, shape = geometry, (*shape_of(geometry)[:3], channels)
    line, run = Affine.of("cky") * (g.kernel[1] * g.channels), Affine.of("ckx") * g.channels
    where, (row, column) = tuple(map(Affine.of, ("cb", "cy", "cx"))), (place_of(g, axis, "c", "ck") for axis in (0, 1))
    pixel = Access("a", (where[0], row, column, Affine.of("c")))
    copy = For("c", g.channels, Assign(Access("P", (*where, line + run + "c")), pixel))
    fill = For("f", g.channels, Assign(Access("P", (*where, line + run + "f")), 0))
    copies = For("ckx", g.kernel[1], inside(copy, column, g.width, g.pad[2:], fill))
    fills = For("e", g.kernel[1] * g.channels, Assign(Access("P", (*where, line + "e")), 0))
    lines = inside(copies, row, g.height, g.pad[:2], fills)
    windows = nested(lines, **dict(zip(("cb", "cy", "cx"), shape, strict=False)), cky=g.kernel[0])
    add = nested(_product(parse_access("P[sb, sy, sx, k]"), "w[sn, ky, kx, k]"), k=g.depth, ky=1, kx=1)
    sums = _bounded([_image(g), *_weights((channels, 1, 1, g.depth), channels)], shape, _BIAS, add, clamped)
    copied = Buffer("P", "f32", (*shape[:3], g.depth), "scratch")
    return Program(sums.arguments, Alloc(copied, seq(windows, sums.body)))


def matmul_f32(batch: int, rows: int, depth: int, columns: int, clamped: bool) -> Program:
    """MATMUL of (batch, rows, depth) by (batch, depth, columns) (TOSA 1.0, 2.3.8), between `low` and `upper` where it
    is clamped."""
    product = _product(parse_access("a[sb, sy, sx, k]"), "w[sb, ky, kx, k, sn]")
    factors = [
        Buffer("a", "f32", (batch, 1, rows, depth), "in"),
        Buffer("w", "f32", (batch, 1, 1, depth, columns), "in"),
    ]
    return _bounded(factors, (batch, 1, rows, columns), 0, nested(product, k=depth, ky=1, kx=1), clamped)


def _image(g: Geometry) -> Buffer:
    return Buffer("a", "f32", (g.batch, g.height, g.width, g.channels), "in")


def _weights(shape: tuple[int, ...], channels: int) -> list[Buffer]:
    return [Buffer("w", "f32", shape, "const"), Buffer("bias", "f32", (channels,), "const")]


def _product(element: Access, weight: str) -> Statement:
    return Reduce(TOTAL, Op("mul", (element, parse_access(weight))))


def _bounds(total: Access, clamped: bool) -> list[Statement]:
    """What keeps a sum between the bounds, if there are any."""
    return [Assign(total, Op(op, (total, Access(name)))) for op, name in _BOUNDS] if clamped else []


def _numbers(clamped: bool) -> list[Buffer]:
    """The bounds."""
    return [Buffer(name, "f32", (), "const") for _, name in _BOUNDS] if clamped else []


def _bounded(factors: list[Buffer], shape: tuple[int, ...], first: Value, add: Statement, clamped: bool) -> Program:
    """Sums of a shape, that begin with a number, and have bounds where they are clamped."""
    sums = sums_of(shape, first, add, *_bounds(TOTAL, clamped))
    result = Assign(parse_access("out[b, y, x, n]"), parse_access("S[b, y, x, n]"))
    written = nested(result, **dict(zip(("b", "y", "x", "n"), shape, strict=True)))
    inputs, constants = ([b for b in factors if (b.memory == "in") == is_input] for is_input in (True, False))
    arguments = (*inputs, Buffer("out", "f32", shape, "out"), *constants, *_numbers(clamped))
    return Program(arguments, Alloc(Buffer("S", "f32", shape, "scratch"), seq(sums, written)))
