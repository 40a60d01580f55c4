"""Bilinear RESIZE as a program: two rows are blended, then two columns of what results, by tables of the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import nested, seq
from tosaic.backends.cortex_m.program.text import parse_access, parse_statement
from tosaic.backends.cortex_m.program.tree import Access, Alloc, Assign, Buffer, For, Op, Statement, Value

MOST_WEIGHT = 255
"""Sums of int8 with weights of so much in all fit into int16."""


@dataclass(frozen=True)
class ResizedAxis:
    """`count` rows or columns made of `extent` (TOSA 1.0, 2.9 RESIZE).

    Args:
        numerator, denominator, offset: a result lies at `(number * denominator + offset) / numerator`.
    """

    count: int
    extent: int
    numerator: int
    denominator: int
    offset: int

    @property
    def neighbors(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(count,) each: both neighbors of a result, and the weight of the second, of `numerator`."""
        floor, weight = np.divmod(np.arange(self.count) * self.denominator + self.offset, self.numerator)
        first, second = ((floor + step).clip(0, self.extent - 1) for step in (0, 1))
        return first, second, weight

    @property
    def nearest(self) -> np.ndarray:
        """(count,): the nearer neighbor of a result, the second where both are as near."""
        first, second, weight = self.neighbors
        return np.where(2 * weight >= self.numerator, second, first)


@dataclass(frozen=True)
class NarrowScale:
    """`(sum * factor + added) >> bits`, in 32 bits."""

    factor: int
    added: int
    bits: int

    @staticmethod
    def found(multiplier: int, shift: int, zero: int, sums: range, results: range) -> NarrowScale | None:
        """What gives the results of a RESCALE (TOSA 1.0, apply_scale_32) of all `sums`; None where some lie outside of
        `results`, or none is known."""

        def scaled(values: np.ndarray, factor: int, bits: int) -> np.ndarray:
            return ((values * factor + (1 << (bits - 1))) >> bits) + zero

        ends, power = np.array([sums[0], sums[-1]]), multiplier.bit_count() == 1
        inside = all(int(end) in results for end in scaled(ends, multiplier, shift))
        if not inside or (len(sums) > _MOST_SUMS and not power):
            return None
        tried = ends if power else np.arange(sums.start, sums.stop)
        wanted = scaled(tried, multiplier, shift)
        for bits in range(1, min(shift, 30) + 1):
            added, floor = (1 << (bits - 1)) + (zero << bits), multiplier >> (shift - bits)
            for factor in (floor,) if power else (floor, floor + 1):
                fits = factor * int(np.abs(ends).max()) + abs(added) < 1 << 31
                if factor and fits and (scaled(tried, factor, bits) == wanted).all():
                    return NarrowScale(factor, added, bits)
        return None

    def of(self, total: Value) -> Value:
        """The result of a sum."""
        product = total if self.factor == 1 else Op("mul", (total, self.factor))
        return Op("asr", (Op("add", (product, self.added)), self.bits))


_MOST_SUMS = 1 << 17
"""That are all tried, where the multiplier is no power of two."""


@dataclass(frozen=True)
class Resizing:
    """Bilinear RESIZE of images.

    Args:
        element: the type of the input.
        epilogue: how the sum of four weighted pixels becomes a result; None of floats, whose weights have a sum of 1.
        narrow: what does the same of all sums that there may be, if known.
    """

    batch: int
    rows: ResizedAxis
    columns: ResizedAxis
    channels: int
    element: str
    epilogue: Epilogue | None
    narrow: NarrowScale | None = None

    @property
    def row(self) -> int:
        """Elements of a row of the image."""
        return self.columns.extent * self.channels

    @property
    def shared(self) -> bool:
        """Whether results share blended pixels: they are not fewer than these."""
        return self.columns.count >= self.columns.extent

    @property
    def tables(self) -> Mapping[str, np.ndarray]:
        """The constants that say in which elements a result's neighbors begin, and what the second one weighs."""
        found = dict[str, np.ndarray]()
        for name, axis, stride in (("y", self.rows, self.row), ("x", self.columns, self.channels)):
            *neighbors, weight = axis.neighbors
            found |= {f"{name}{number}": _narrowed(each * stride) for number, each in enumerate(neighbors)}
            shares = (weight / axis.numerator).astype(np.float32)
            found[f"w{name}"] = shares if self.epilogue is None else weight.astype(np.int16)
        return found

    def program(self) -> Program:
        """`V` is a row of blended pixels, `S` the sum of a result. Pixels not shared are blended in the sum."""
        tall, wide = (1 if self.epilogue is None else axis.numerator for axis in (self.rows, self.columns))
        total = "f32" if self.epilogue is None else "i32"
        pixel = f"(lookup(a[b, c], y0[y] + {{0}}) * ({tall} - wy[y]) + lookup(a[b, c], y1[y] + {{0}}) * wy[y])"
        first, second = (("lookup(V[c], {0})" if self.shared else pixel).format(f"{x}[x]") for x in ("x0", "x1"))
        add = parse_statement(f"S = {first} * ({wide} - wx[x]) + {second} * wx[x]")
        made = seq(add, Assign(parse_access("out[b, y, x, c]"), self._result()))
        results = nested(Alloc(Buffer("S", total, (), "scratch"), made), x=self.columns.count, c=self.channels)
        shape = (self.batch, self.rows.count, self.columns.count, self.channels)
        arguments = (
            Buffer("a", self.element, (self.batch, self.rows.extent * self.row), "in"),
            Buffer("out", total if self.epilogue is None else self.epilogue.element, shape, "out"),
            *_buffers(self.tables),
            *(() if self.epilogue is None or self.narrow is not None else self.epilogue.constants(())),
        )
        iteration = self._behind_blend(results, total, tall) if self.shared else results
        return Program(arguments, nested(iteration, b=self.batch, y=self.rows.count))

    def _behind_blend(self, results: Statement, total: str, tall: int) -> Statement:
        """What reads `V` behind what makes it."""
        blended = "i16" if self.element == "i8" and tall <= MOST_WEIGHT else total
        blend = parse_statement(f"V[i] = lookup(a[b, i], y0[y]) * ({tall} - wy[y]) + lookup(a[b, i], y1[y]) * wy[y]")
        return Alloc(Buffer("V", blended, (self.row,), "scratch"), seq(For("i", self.row, blend), results))

    def _result(self) -> Value:
        if self.epilogue is None:
            return Access("S")
        if self.narrow is not None:
            return self.narrow.of(Access("S"))
        return self.epilogue.of("S", "")


@dataclass(frozen=True)
class GatheredResizing(Resizing):
    """Bilinear RESIZE of int8 of which each element of a row of results has its own numbers in tables: where both of
    its neighbors lie, and what they weigh."""

    @property
    def wide(self) -> bool:
        """Whether sums of two columns take more than sixteen bits; those of two rows never do."""
        return self.rows.numerator * self.columns.numerator > MOST_WEIGHT

    @property
    def elements(self) -> int:
        """Of a row of results."""
        return self.columns.count * self.channels

    @property
    def tables(self) -> Mapping[str, np.ndarray]:
        *neighbors, weight = self.columns.neighbors
        found = {name: table for name, table in super().tables.items() if "y" in name}
        for number, (places, weights) in enumerate(
            zip(neighbors, (self.columns.numerator - weight, weight), strict=True)
        ):
            each = places[:, None] * self.channels + np.arange(self.channels)
            found |= {
                f"g{number}": _narrowed(each.ravel()),
                f"u{number}": np.repeat(weights, self.channels).astype(np.int16),
            }
        return found

    def program(self) -> Program:
        """`V` is a row of blended pixels, `L` and `R` are a result's neighbors in it, `S` is its sum."""
        assert self.epilogue is not None
        steps = (
            "L = lookup(V[0], g0[j])",
            "R = lookup(V[0], g1[j])",
            "S = 0",
            "S += mul(L, u0[j])",
            "S += mul(R, u1[j])",
        )
        made: Statement = seq(
            *map(parse_statement, steps), Assign(parse_access("out[b, y, j]"), self.epilogue.of("S", ""))
        )
        for name, dtype in (("S", "i32" if self.wide else "i16"), ("R", "i16"), ("L", "i16")):
            made = Alloc(Buffer(name, dtype, (), "scratch"), made)
        arguments = (
            Buffer("a", "i8", (self.batch, self.rows.extent * self.row), "in"),
            Buffer("out", "i8", (self.batch, self.rows.count, self.elements), "out"),
            *_buffers(self.tables),
            *self.epilogue.constants(()),
        )
        iteration = self._behind_blend(For("j", self.elements, made), "i32", self.rows.numerator)
        return Program(arguments, nested(iteration, b=self.batch, y=self.rows.count))


@dataclass(frozen=True)
class Nearest:
    """RESIZE of images to the nearest of their pixels."""

    batch: int
    rows: ResizedAxis
    columns: ResizedAxis
    channels: int
    element: str

    @property
    def tables(self) -> Mapping[str, np.ndarray]:
        """The constants that say in which elements the rows and the columns of the result begin in the image."""
        row = self.columns.extent * self.channels
        return {"y0": _narrowed(self.rows.nearest * row), "x0": _narrowed(self.columns.nearest * self.channels)}

    def program(self) -> Program:
        """A copy of each pixel."""
        shape = (self.batch, self.rows.count, self.columns.count, self.channels)
        image = (self.batch, self.rows.extent * self.columns.extent * self.channels)
        tensors = (Buffer("a", self.element, image, "in"), Buffer("out", self.element, shape, "out"))
        copy = parse_statement("out[b, y, x, c] = lookup(a[b, c], y0[y] + x0[x])")
        loops = dict(zip("byxc", shape, strict=True))
        return Program((*tensors, *_buffers(self.tables)), nested(copy, **loops))


def _narrowed(places: np.ndarray) -> np.ndarray:
    """Numbers as int16 where that holds them."""
    return places.astype(np.int16 if places.max() <= np.iinfo(np.int16).max else np.int32)


def _buffers(tables: Mapping[str, np.ndarray]) -> Iterator[Buffer]:
    """The constants that tables are."""
    types = {"int16": "i16", "int32": "i32", "float32": "f32"}
    return (Buffer(name, types[str(table.dtype)], table.shape, "const") for name, table in tables.items())
