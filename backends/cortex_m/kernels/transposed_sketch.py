"""TRANSPOSE_CONV2D as calls of a convolution: each makes a row of the result of some rows of the input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tosaic.backends.cortex_m.kernels.mve import VECTOR
from tosaic.backends.cortex_m.phases import Axis
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.calls import call_of, kernel, with_scratch
from tosaic.backends.cortex_m.program.kernel import Built, scheduled
from tosaic.backends.cortex_m.program.movement import FILL
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import nested, seq
from tosaic.backends.cortex_m.program.schedule import parse_steps
from tosaic.backends.cortex_m.program.sketches.copies import copied_elements
from tosaic.backends.cortex_m.program.tree import BYTES, Access, Alloc, Assign, Buffer, Callee, If, Statement
from tosaic.backends.target import Core

_NOTHING = seq()


class TransposedAxis(Axis):
    """One axis of a TRANSPOSE_CONV2D (TOSA 1.0, 2.3), whose convolution also reads inputs that make no result."""

    @property
    def pad(self) -> tuple[int, int]:
        """Of the convolution that makes groups, before the first input and behind the last."""
        before = self.taps - 1 - self.first
        return before, max(0, self.groups - self.size - before + self.taps - 1)

    @property
    def made(self) -> int:
        """Groups that the convolution makes."""
        return self.size + sum(self.pad) - self.taps + 1

    def weight(self, phase: int, tap: int) -> int | None:
        """The weight by which a tap of the convolution counts for a pixel of a group; None where it does not."""
        at = phase + (self.taps - 1 - tap) * self.stride
        return at if at < self.kernel else None


@dataclass(frozen=True)
class TransposedRows:
    """The calls of a TRANSPOSE_CONV2D.

    Args:
        channels: of the input; `results` are those of the result.
        types: of an element of the input, and of the result.
        zero_point: what lies around the image.
    """

    batch: int
    down: TransposedAxis
    along: TransposedAxis
    channels: int
    results: int
    types: tuple[str, str]
    zero_point: int

    @property
    def rows(self) -> int:
        """Rows of the result, each a call of a convolution."""
        return self.batch * self.down.result

    @property
    def _row(self) -> int:
        """Elements of a row of the input."""
        return self.along.size * self.channels

    @property
    def _out_row(self) -> int:
        return self.along.result * self.results

    @property
    def _made_row(self) -> int:
        """Elements of what a call makes."""
        return self.along.made * self.along.stride * self.results

    @property
    def _whole_rows(self) -> bool:
        """Whether rows of the input are aligned, so that a call may read them where they lie."""
        return self._row * BYTES[self.types[0]] % VECTOR == 0

    @property
    def _copies_rows(self) -> bool:
        """Whether some calls read copies, with zero points around them."""
        down = self.down
        return not self._whole_rows or down.first < down.taps - 1 or down.first + down.groups > down.size

    @property
    def _copies_results(self) -> bool:
        """Whether what a call makes is no aligned row of the result."""
        return self._out_row != self._made_row or self._out_row * BYTES[self.types[1]] % VECTOR > 0

    def built(self, name: str, params: int, scratch: int, core: Core) -> Built:
        """The calls, scheduled."""
        return scheduled(self.program(name, params, scratch), parse_steps("\n".join(self.steps(core))), core)

    def program(self, name: str, params: int, scratch: int) -> Program:
        """The calls, given the kernel of a row, bytes of its params for a group and of its working memory.

        Of group `m`, row `p` is made of rows `t` of the input.
        """
        down, (given, made) = self.down, self.types
        rows, results = (
            Buffer("rows", given, (down.taps, self._row), "scratch"),
            Buffer("made", made, (self._made_row,), "scratch"),
        )
        tensors = replace(rows, memory="in"), replace(results, memory="out")
        body = self._made(kernel(name, tensors, params // down.stride, scratch))
        if self._copies_rows:
            staged = Alloc(rows, seq(self._staged(), nested(body, p=down.stride)))
            filled = seq(Assign(Access(FILL), self.zero_point), nested(staged, n=self.batch, m=down.groups))
            body = Alloc(Buffer(FILL, "i32", (), "scratch"), filled)
        else:
            body = nested(body, n=self.batch, m=down.groups, p=down.stride)
        arguments = [
            Buffer("x", given, (self.batch, down.size, self._row), "in"),
            Buffer("y", made, (self.batch, down.result, self._out_row), "out"),
            *([Buffer("kernels", "i8", (down.stride, params // down.stride), "const")] if params else []),
        ]
        return Program(tuple(arguments), body)

    def steps(self, core: Core) -> Iterator[str]:
        """The steps that copy rows by vectors, or by words."""
        if self._copies_rows:
            yield f"place({FILL}, r)"
            yield from copied_elements("x", "c", self._row, BYTES[self.types[0]], core)
        if self._copies_results:
            yield from copied_elements("made", "r", self._out_row, BYTES[self.types[1]], core)

    def _made(self, row: Callee) -> Statement:
        """A row of the result, made where it shall lie, or copied to there."""
        n, zero = Affine.of("n"), Affine()
        y = Affine.of("m") * self.down.stride + "p" + (self.down.first * self.down.stride + self.down.before)
        target = Access("made", (zero,)) if self._copies_results else Access("y", (n, y, zero))
        here, copy = (
            call_of(row, (rows, target), Access("kernels", (Affine.of("p"), zero)), "own")
            for rows in (Access("x", (n, self._first, zero)), Access("rows", (zero, zero)))
        )
        made = with_scratch(row, "own", self._where(self._inside, here, copy) if self._whole_rows else copy)
        if self._copies_results:
            results, r = row.arguments[1], Affine.of("r")
            moved = Assign(Access("y", (n, y, r)), Access("made", (r + self.along.cropped * self.results,)))
            made = Alloc(replace(results, memory="scratch"), seq(made, nested(moved, r=self._out_row)))
        return self._where((y, y * -1 + (self.down.result - 1)), made)

    def _staged(self) -> Statement:
        """The rows that a call reads, with zero points around the image; none where they lie in the image."""
        row, n = self._first + "t", Affine.of("n")
        copy = Assign(Access("rows", (Affine.of("t"), Affine.of("c"))), Access("x", (n, row, Affine.of("c"))))
        fill = Assign(Access("rows", (Affine.of("t"), Affine.of("f"))), Access(FILL))
        lies = row, row * -1 + (self.down.size - 1)
        found = If(lies, nested(copy, c=self._row), nested(fill, f=self._row))
        rows = nested(found, t=self.down.taps)
        return self._where(self._inside, seq(), rows) if self._whole_rows else rows

    @property
    def _first(self) -> Affine:
        """The first row of the input that group `m` reads."""
        return Affine.of("m") + (self.down.first - self.down.taps + 1)

    @property
    def _inside(self) -> tuple[Affine, ...]:
        """What holds where all rows lie in the image."""
        return self._first, self._first * -1 + (self.down.size - self.down.taps)

    def _where(self, conditions: Sequence[Affine], then: Statement, otherwise: Statement = _NOTHING) -> Statement:
        """`then`, where conditions hold, but for those that always do."""
        last = {"m": self.down.groups - 1, "p": self.down.stride - 1}
        open = tuple(condition for condition in conditions if condition.bounds(last)[0] < 0)
        return If(open, then, otherwise) if open else then
