"""What kernels compute, read from TOSA functions: scalar statements in loops, written once for all cores.

Names: `a` and `b` are inputs, `w` weights, `P` and `Q` copies of inputs that loops read, `S` sums, `out` the output.
Variables of the loops that write results are `b`, `y`, `x`, `n`; those of sums begin with `s`, those of copies
with `c`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tosaic.backends.cortex_m.kernels.mve_match import Geometry
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import nested, seq
from tosaic.backends.cortex_m.program.text import parse_access, parse_statement
from tosaic.backends.cortex_m.program.touches import without_unread
from tosaic.backends.cortex_m.program.tree import Access, Alloc, Assign, Buffer, For, If, Op, Reduce, Statement, Value


@dataclass(frozen=True)
class Epilogue:
    """How a sum becomes a result: RESCALE by channel, and of int8 perhaps CLAMP, and perhaps TABLE.

    Its constants are `multiplier` and `shift` by channel, `zero`, `low` and `upper`, and a `table` of 256 entries; of
    sums of 48 bits the bias in two numbers: `bias_low` is its lowest byte, `bias_high` what is above.

    Args:
        element: the type of the result: i8, i16, or i32, which has no zero point.
        parts: int32 parts of a sum of 48 bits, which are joined here, to i16; 0 of one that fits int32.
    """

    clamped: bool
    table: bool
    element: str = "i8"
    parts: int = 0

    def constants(self, shape: tuple[int, ...]) -> tuple[Buffer, ...]:
        """The buffers of its constants; `shape` is that of the channels."""
        single = [*([] if self.parts else ["zero"]), *(["low", "upper"] if self.clamped else [])]
        bias = ["bias_low", "bias_high"] if self.parts else []
        return (
            *(Buffer(name, "i32", shape, "const") for name in ("multiplier", "shift", *bias)),
            *(Buffer(name, "i32", (), "const") for name in single),
            *([Buffer("table", "i8", (256,), "const")] if self.table else []),
        )

    def of(self, total: str, channel: str) -> Value:
        """The result of a sum, e.g. `S[x, n]` with the constants of `[n]`."""
        if self.parts:
            return self._bounded(self._joined(total, channel))
        scaled = parse_statement(f"out = scale32({total}, multiplier{channel}, shift{channel})").value
        if self.element == "i32":
            return scaled
        value = self._bounded(Op("sat8" if self.element == "i8" else "sat16", (Op("add", (scaled, Access("zero"))),)))
        return Op("lookup", (Access("table", (Affine.of(128),)), value)) if self.table else value

    def _bounded(self, value: Value) -> Value:
        return Op("clamp", (value, Access("low"), Access("upper"))) if self.clamped else value

    def _joined(self, total: str, channel: str) -> Value:
        """The result of the parts of a sum, of which each is its lowest byte and what is above."""
        high, low = f"bias_high{channel}", f"bias_low{channel}"
        for part in range(self.parts):
            each = total.replace("[", f"[{part}, ", 1)
            high, low = f"add({high}, asr({each}, 8))", f"add({low}, bit_and({each}, 255))"
        return parse_statement(f"out = sat16(scale48({high}, {low}, multiplier{channel}, shift{channel}))").value


def conv2d(geometry: Geometry, channels: int, epilogue: Epilogue, element: str = "i8") -> Program:
    """CONV2D of int8 weights (TOSA 1.0, 2.3.2), to the epilogue's type.

    `bias` has the input's zero point folded in; `edge` is that zero point, which lies outside of the image.

    Args:
        channels: of the output.
        element: the type of the input.
    """
    g = geometry
    outer, window = (g.batch, g.rows, g.columns), (*g.kernel, g.channels)
    windows = nested(_window(g), cb=g.batch, cy=g.rows, cx=g.columns, cky=g.kernel[0], ckx=g.kernel[1])
    depth = deep(g.channels, epilogue)
    read = parse_access(f"P[sb, sy, sx, ky, kx, {depth.place}]")
    body = summed(g, channels, epilogue, read, "ky, kx, k", ky=g.kernel[0], kx=g.kernel[1], k=depth.part)
    copy = Alloc(Buffer("P", element, (*outer, *window), "scratch"), seq(windows, body))
    image = Buffer("a", element, (g.batch, g.height, g.width, g.channels), "in")
    return products(g, channels, epilogue, image, (*g.kernel, depth.part), copy)


class Depth(NamedTuple):
    """Elements of a window that lie together: how many go into a part of a sum, and where element `k` of that is."""

    part: int
    place: str


def deep(size: int, epilogue: Epilogue) -> Depth:
    """So many elements in the parts of a sum."""
    if epilogue.parts < 2:
        return Depth(size, "k")
    return Depth(size // epilogue.parts, f"{size // epilogue.parts} * sp + k")


def summed(g: Geometry, channels: int, epilogue: Epilogue, read: Access, place: str, **window: int) -> Statement:
    """Sums of products of what is `read` and weights, which lie at a `place` of a window, and what they become."""
    outer = (g.batch, g.rows, g.columns)
    parts, each = ((epilogue.parts,), "sp, ") if epilogue.parts else ((), "")
    total = parse_access(f"S[{each}sb, sy, sx, sn]")
    add = Reduce(total, Op("mul", (read, parse_access(f"w[{each}sn, {place}]"))))
    begun = 0 if epilogue.parts else parse_access("bias[sn]")
    loops = dict(zip(("sp", "sb", "sy", "sx", "sn")[not parts :], (*parts, *outer, channels), strict=True))
    sums = nested(seq(Assign(total, begun), nested(add, **window)), **loops)
    result = Assign(parse_access("out[b, y, x, n]"), epilogue.of("S[b, y, x, n]", "[n]"))
    written = nested(result, **dict(zip(("b", "y", "x"), outer, strict=True)), n=channels)
    return Alloc(Buffer("S", "i32", (*parts, *outer, channels), "scratch"), seq(sums, written))


def products(
    g: Geometry, channels: int, epilogue: Epilogue, image: Buffer, window: tuple[int, ...], body: Statement
) -> Program:
    """The program of an `image` and weights in the shape of a window."""
    parts = (epilogue.parts,) if epilogue.parts else ()
    arguments = (
        image,
        Buffer("out", epilogue.element, (g.batch, g.rows, g.columns, channels), "out"),
        Buffer("w", "i8", (*parts, channels, *window), "const"),
        Buffer("bias", "i32", (channels,), "const"),
        Buffer("edge", "i32", (), "const"),
        *epilogue.constants((channels,)),
    )
    return without_unread(Program(arguments, body))


def depthwise(
    geometry: Geometry, multiples: int, epilogue: Epilogue, element: str = "i8", *, by_element: bool = False
) -> Program:
    """DEPTHWISE_CONV2D of int8 weights (channels, multiples, rows, columns) (TOSA 1.0, 2.3.4) and sums that fit int32,
    to the epilogue's type.

    `P` is the image with its padding, a channel after the other.

    Args:
        element: the type of the input.
        by_element: whether each element of the copy, not each row, is told whether it lies above or below the image.
    """
    g = geometry
    height = (g.rows - 1) * g.stride[0] + g.span[0]
    width = (g.columns - 1) * g.stride[1] + g.span[1]
    results = {"b": g.batch, "n": g.channels, "m": multiples, "y": g.rows, "x": g.columns}
    row, column = Affine.of("sy") * g.stride[0], Affine.of("sx") * g.stride[1]
    row, column = row + Affine.of("ky") * g.dilation[0], column + Affine.of("kx") * g.dilation[1]
    read = Access("P", (Affine.of("sb"), Affine.of("sn"), row, column))
    total = parse_access("S[sb, sn, sm, sy, sx]")
    add = Reduce(total, Op("mul", (read, parse_access("w[sn, sm, ky, kx]"))))
    each = seq(Assign(total, parse_access("bias[sn, sm]")), nested(add, ky=g.kernel[0], kx=g.kernel[1]))
    sums = nested(each, **{f"s{name}": extent for name, extent in results.items()})
    result = Assign(parse_access("out[b, y, x, n, m]"), epilogue.of("S[b, n, m, y, x]", "[n, m]"))
    written = nested(result, **results)
    image = nested(padded_row(g, width, Access("edge"), by_element=by_element), cb=g.batch, cn=g.channels, cy=height)
    arguments = (
        Buffer("a", element, (g.batch, g.height, g.width, g.channels), "in"),
        Buffer("out", epilogue.element, (g.batch, g.rows, g.columns, g.channels, multiples), "out"),
        Buffer("w", "i8", (g.channels, multiples, *g.kernel), "const"),
        Buffer("bias", "i32", (g.channels, multiples), "const"),
        Buffer("edge", "i32", (), "const"),
        *epilogue.constants((g.channels, multiples)),
    )
    body = Alloc(Buffer("S", "i32", tuple(results.values()), "scratch"), seq(sums, written))
    copy = Buffer("P", element, (g.batch, g.channels, height, width), "scratch")
    return without_unread(Program(arguments, Alloc(copy, seq(image, body))))


def reduction(op: str, dtype: str, rows: int, length: int, first: int) -> Program:
    """REDUCE_SUM, REDUCE_MAX and REDUCE_MIN along the last axis (TOSA 1.0, 2.9), from a number on: `first`.

    Args:
        op: `add`, whose results are int32, `max` or `min`.
        dtype: of the input.
    """
    total, element = parse_access("S[sy]"), parse_access("a[sy, k]")
    before = Op(_LOW[dtype], (total,)) if dtype in _LOW else total
    add = Reduce(total, element) if op == "add" else Assign(total, Op(op, (before, element)))
    sums = nested(seq(Assign(total, Access("first")), For("k", length, add)), sy=rows)
    written = nested(parse_statement("out[y] = S[y]"), y=rows)
    arguments = (
        Buffer("a", dtype, (rows, length), "in"),
        Buffer("out", "i32" if op == "add" else dtype, (rows,), "out"),
    )
    body = Alloc(Buffer("S", "i32", (rows,), "scratch"), seq(sums, written))
    number = Buffer("first", "i32", (), "scratch")
    return Program(arguments, Alloc(number, seq(Assign(Access("first"), first), body)))


_LOW = {"i8": "low", "i16": "low_half"}
"""Of an int32 that fits a type, the operation that says so."""


def _window(g: Geometry) -> Statement:
    """The copy of a pixel of a window, where it lies in the image."""
    y = Affine.of("cy") * g.stride[0] + Affine.of("cky") * g.dilation[0] - g.pad[0]
    x = Affine.of("cx") * g.stride[1] + Affine.of("ckx") * g.dilation[1] - g.pad[2]
    copy = For(
        "c",
        g.channels,
        Assign(parse_access("P[cb, cy, cx, cky, ckx, c]"), Access("a", (Affine.of("cb"), y, x, Affine.of("c")))),
    )
    inside = [y, y * -1 + (g.height - 1)] if g.pad[0] or g.pad[1] else []
    inside += [x, x * -1 + (g.width - 1)] if g.pad[2] or g.pad[3] else []
    fill = For("f", g.channels, parse_statement("P[cb, cy, cx, cky, ckx, f] = edge"))
    return If(tuple(inside), copy, fill) if inside else copy


def padded_row(g: Geometry, width: int, edge: Value, *, by_element: bool = False) -> Statement:
    """A row of the padded image of a channel; `edge` lies outside of the image.

    Args:
        by_element: whether each element, not the row, is told whether it lies above or below the image.
    """
    left = min(g.pad[2], width)
    whole = min(g.width, width - left)
    y, start, above_or_below = Affine.of("cy") - g.pad[0], left + whole, g.pad[0] or g.pad[1]
    inside, target = (y, y * -1 + (g.height - 1)), parse_access(f"P[cb, cn, cy, cx + {left}]")
    pixel: Statement = Assign(target, Access("a", (Affine.of("cb"), y, Affine.of("cx"), Affine.of("cn"))))
    if by_element and above_or_below:
        pixel = If(inside, pixel, Assign(target, edge))
    parts: list[Statement] = []
    if left:
        parts.append(For("cl", left, Assign(parse_access("P[cb, cn, cy, cl]"), edge)))
    if whole:
        parts.append(For("cx", whole, pixel))
    if width - start:
        parts.append(For("cr", width - start, Assign(parse_access(f"P[cb, cn, cy, cr + {start}]"), edge)))
    if by_element or not above_or_below:
        return seq(*parts)
    fill = For("f", width, Assign(parse_access("P[cb, cn, cy, f]"), edge))
    return If(inside, seq(*parts), fill)
