"""What CONV2D computes where windows are several pixels, read from an image between its padding.

Names are those of `algorithms`.
"""

from __future__ import annotations

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.algorithms import Epilogue, deep, products, summed
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import nested, seq
from tosaic.backends.cortex_m.program.text import parse_access, parse_statement
from tosaic.backends.cortex_m.program.tree import Access, Alloc, Assign, Buffer, For, If, Statement


def conv2d(geometry: Geometry, channels: int, epilogue: Epilogue, element: str, by_element: bool = False) -> Program:
    """CONV2D of int8 weights (TOSA 1.0, 2.3.2), to the epilogue's type.

    `P` is the image between its padding, which is `edge`; pixels of a row of it, of `a` and of `w` are one dimension.

    Args:
        channels: of the output.
        element: the type of the input.
        by_element: whether a condition says of each element of `P` where it comes from.
    """
    g, c = geometry, geometry.channels
    y = Affine.of("sy") * g.stride[0] + Affine.of("ky") * g.dilation[0]
    x = Affine.of("sx") * (g.stride[1] * c) + "k"
    window = {"ky": g.kernel[0], "k": g.kernel[1] * c}
    if has_gaps(g):
        x = x + Affine.of("kx") * (g.dilation[1] * c)
        window = {"ky": g.kernel[0], "kx": g.kernel[1], "k": c}
    read = Access("P", (Affine.of("sb"), y, x))
    body = summed(g, channels, epilogue, read, ", ".join(window), **window)
    return _program(g, channels, epilogue, element, body, tuple(window.values()), by_element)


def has_gaps(g: Geometry) -> bool:
    """Whether pixels of a row of a window lie apart."""
    return g.dilation[1] > 1 and g.kernel[1] > 1


def gathered(geometry: Geometry, channels: int, epilogue: Epilogue, element: str, by_element: bool = False) -> Program:
    """The same, where `Q` are all windows of `P` side by side."""
    g, c = geometry, geometry.channels
    # A row of a window without gaps is one run.
    runs = (g.kernel[1], c) if has_gaps(g) else (1, g.kernel[1] * c)
    y = Affine.of("qy") * g.stride[0] + Affine.of("qky") * g.dilation[0]
    x = Affine.of("qx") * (g.stride[1] * c) + Affine.of("qkx") * (g.dilation[1] * c) + "qk"
    place = Affine.of("qky") * (g.kernel[1] * c) + Affine.of("qkx") * c + "qk"
    target = Access("Q", (*map(Affine.of, ("qb", "qy", "qx")), place))
    window = nested(Assign(target, Access("P", (Affine.of("qb"), y, x))), qky=g.kernel[0], qkx=runs[0], qk=runs[1])
    windows = nested(window, qb=g.batch, qy=g.rows, qx=g.columns)
    depth = deep(g.depth, epilogue)
    sums = summed(g, channels, epilogue, parse_access(f"Q[sb, sy, sx, {depth.place}]"), "k", k=depth.part)
    copies = Buffer("Q", element, (g.batch, g.rows, g.columns, g.depth), "scratch")
    return _program(g, channels, epilogue, element, Alloc(copies, seq(windows, sums)), (depth.part,), by_element)


def _program(
    g: Geometry,
    channels: int,
    epilogue: Epilogue,
    element: str,
    body: Statement,
    window: tuple[int, ...],
    by_element: bool,
) -> Program:
    """What reads the padded image, given the shape of a window of weights."""
    argument = Buffer("a", element, (g.batch, g.height, g.width * g.channels), "in")
    return products(g, channels, epilogue, argument, window, padded_image(g, element, body, by_element))


def padded_image(g: Geometry, element: str, body: Statement, by_element: bool = False) -> Statement:
    """The copy of an image between its padding, and what reads it."""
    height = (g.rows - 1) * g.stride[0] + g.span[0]
    image = nested((_padded_elements if by_element else _padded_row)(g), cb=g.batch, cy=height)
    return Alloc(Buffer("P", element, (g.batch, height, sum(row_elements(g))), "scratch"), seq(image, body))


def row_elements(g: Geometry) -> tuple[int, int, int]:
    """Elements of a row of the padded image that windows reach: of its left padding, of the image, and behind that."""
    width = (g.columns - 1) * g.stride[1] + g.span[1]
    left = min(g.pad[2], width)
    whole = min(g.width, width - left)
    return left * g.channels, whole * g.channels, (width - left - whole) * g.channels


def _padded_row(g: Geometry) -> Statement:
    """A row of the padded image: where some of its columns are padding, all are first."""
    left, whole, right = row_elements(g)
    y = Affine.of("cy") - g.pad[0]
    source = Access("a", (Affine.of("cb"), y, Affine.of("cx")))
    copy = nested(Assign(parse_access(f"P[cb, cy, cx + {left}]"), source), cx=whole) if whole else seq()
    fill = For("f", left + whole + right, parse_statement("P[cb, cy, f] = edge"))
    beside = left > 0 or right > 0
    if any(g.pad[:2]):
        copy = If((y, y * -1 + (g.height - 1)), copy, seq() if beside else fill)
    return seq(fill, copy) if beside else copy


def _padded_elements(g: Geometry) -> Statement:
    """A row of the padded image, element by element."""
    left, whole, right = row_elements(g)
    y, x = Affine.of("cy") - g.pad[0], Affine.of("cx") - left
    target = parse_access("P[cb, cy, cx]")
    element: Statement = Assign(target, Access("a", (Affine.of("cb"), y, x)))
    inside = [y, y * -1 + (g.height - 1)] if any(g.pad[:2]) else []
    inside += [x] * (left > 0) + [x * -1 + (whole - 1)] * (right > 0)
    if inside:
        element = If(tuple(inside), element, Assign(target, Access("edge")))
    return For("cx", left + whole + right, element)
