"""MATMUL whose columns are masked, as calls of a product for each block of columns that some row sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.calls import call_of, kernel, with_scratch
from tosaic.backends.cortex_m.program.kernel import Built, scheduled
from tosaic.backends.cortex_m.program.movement import FILL
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import nested, seq
from tosaic.backends.cortex_m.program.schedule import parse_steps
from tosaic.backends.cortex_m.program.sketches.copies import moved
from tosaic.backends.cortex_m.program.tree import REGISTERS, Access, Alloc, Assign, Buffer, Let, Op, Statement
from tosaic.backends.target import Core

_LANES = REGISTERS["q"]
_TOGETHER = 8
"""Elements of a mask that a core without vectors looks at before it knows whether one of them is set."""
_BESIDE = (1, 2, 3, 4)
_SEEN = Access("seen")
"""Whether some row sees some column of a block: 0 or 1, as elements of masks are."""


@dataclass(frozen=True)
class MaskedProduct:
    """Products of matrices, block by block of columns.

    Args:
        batch: matrices that a call multiplies.
        rows, depth, block: of a call's first matrix, and the columns of its second one.
        masks: rows of the mask.
        masked: what masked columns hold.
        align: bytes that matrices begin at a multiple of.
    """

    matrices: int
    blocks: int
    batch: int
    rows: int
    depth: int
    block: int
    masks: int
    masked: int
    align: int

    def built(self, name: str, params: int, scratch: int, core: Core) -> Built:
        """The calls, scheduled."""
        return scheduled(self.program(name, params, scratch, core), parse_steps("\n".join(self.steps(core))), core)

    def program(self, name: str, params: int, scratch: int, core: Core) -> Program:
        """The calls, given the kernel of a block, bytes of its params and of its working memory."""
        rows, pitch = self.batch * self.rows, self.blocks * self.block
        shapes = {"x": (self.batch * pitch, self.depth), "a": (rows, self.depth)}
        tensors = [Buffer(each, "i8", (self.matrices, *shape), "in") for each, shape in shapes.items()]
        tensors += [Buffer("mask", "i8", (self.masks, pitch), "in")]
        tensors += [Buffer("out", "i8", (self.matrices * rows, pitch), "out")]
        known = [Buffer("known", "i8", (params,), "const")] if params else []
        windows = (
            Buffer("columns", "i8", (self.batch * self.block, self.depth), "in"),
            Buffer("rows", "i8", (rows, self.depth), "in"),
            Buffer("made", "i8", (rows, self.block), "out"),
        )
        product = kernel(name, windows, params, scratch, self.align)
        n, zero = Affine.of("n"), Affine()
        places = Access("x", (n, self._first, zero)), Access("a", (n, zero, zero)), Access("made", (zero, zero))
        call = call_of(product, places, Access("known", (zero,)), "own")
        some = nested(seq(call, self._chosen()), n=self.matrices)
        body = seq(
            Assign(_SEEN, 0),
            self._looked_at(core),
            Let("none", Op("sub", (0, _SEEN)), 1, self._filled()),
            Let("some", Op("sub", (_SEEN, 1)), 1, some),
        )
        body = Alloc(Buffer("made", "i8", (rows, self.block), "scratch"), nested(body, b=self.blocks))
        body = seq(Assign(Access(FILL), self.masked), with_scratch(product, "own", body))
        for name in (_SEEN.buffer, FILL):
            body = Alloc(Buffer(name, "i32", (), "scratch"), body)
        return Program((*tensors, *known), body)

    def steps(self, core: Core) -> Iterator[str]:
        """The steps that look at masks, fill and choose by vectors."""
        yield from (f"place({FILL}, r)", "place(most, r)")
        if not core.mve:
            yield f"place({_SEEN.buffer}, r)"
            return
        yield from self._greatest()
        yield from moved("out", "f", "f", self.block, _LANES)
        if self.block >= _LANES:
            yield from self._choices()

    def _greatest(self) -> Iterator[str]:
        """A row of a mask, vector by vector; what is left of it is a short one."""
        whole, rest = self.block // _LANES, self.block % _LANES
        if rest and whole:
            yield f"cut(m, {whole * _LANES})"
        if rest:
            yield f"stage(mask, j, vt, q{', i8, m_t' if whole else ''})"
        if whole:
            yield from (f"split(m, ml, {_LANES})", "stage(mask, m, vm, q)")
        yield "select(j, mve)"
        if whole > 1:
            yield "hardware_loop(m)"
        yield "block(j)"

    def _choices(self) -> Iterator[str]:
        """A row of results, vector by vector; where the row ends in no whole one, the last one starts early."""
        hardware, rest = self.block // _LANES, self.block % _LANES
        if rest:
            hardware -= 1
            last = "c_t" if hardware else "c"
            if hardware:
                yield f"cut(c, {hardware * _LANES})"
            yield from _chosen(last, "t", early=True)
        if hardware:
            yield from _chosen("c", "v", early=False)
        yield "select(g, mve)"
        if hardware > 1:
            yield "hardware_loop(c)"
        yield "block(g)"

    @property
    def _first(self) -> Affine:
        """The first column of block `b`."""
        return Affine.of("b") * self.block

    def _looked_at(self, core: Core) -> Statement:
        """Rows of the mask, in groups of columns, as long as none was seen."""
        group = self.block if core.mve or self.block % _TOGETHER else _TOGETHER
        element, most = Access("mask", (Affine.of("k"), self._first + Affine.of("j") * group + "m")), Access("most")
        more = Op("max", (Op("low", (most,)), element)) if core.mve else Op("bit_or", (most, element))
        found = nested(Assign(most, more), m=group)
        found = Alloc(Buffer(most.buffer, "i32", (), "scratch"), seq(Assign(most, 0), found, Assign(_SEEN, most)))
        unseen = Op("sub", (0, _SEEN))
        if core.mve:
            return nested(Let("unseen", unseen, 1, nested(found, j=1)), k=self.masks)
        return nested(Let("unseen", unseen, 1, found), k=self.masks, j=self.block // group)

    def _filled(self) -> Statement:
        """A block that no row sees."""
        target = Access("out", (Affine.of("r"), self._first + "f"))
        return nested(Assign(target, Access(FILL)), r=self.matrices * self.batch * self.rows, f=self.block)

    def _chosen(self) -> Statement:
        """The results of a call where the mask lets them through."""
        alike, c = self.batch * self.rows // self.masks, Affine.of("c")
        row = (Affine.of("g") * self._beside + "i") * self.masks + "h"
        mask, made = Access("mask", (Affine.of("h"), self._first + c)), Access("made", (row, c))
        target = Access("out", (Affine.of("n") * (self.batch * self.rows) + row, self._first + c))
        each = Assign(target, Op("select", (mask, made, Access(FILL))))
        return nested(each, h=self.masks, g=alike // self._beside, c=self.block, i=self._beside)

    @property
    def _beside(self) -> int:
        """Rows of one mask whose results are chosen together."""
        return max(n for n in _BESIDE if self.batch * self.rows // self.masks % n == 0)


def _chosen(loop: str, own: str, *, early: bool) -> Iterator[str]:
    """The steps of a loop that chooses by vectors, the number for masked columns in all lanes of one."""
    row = "i" + loop[1:]
    yield from (f"split({loop}, {own}l, {_LANES}{', early' * early})", f"reorder({own}l, {row})")
    yield f"stage(mask, {loop}, {own}mask, q)"
    yield from (f"stage({name}, {row}, {own}{name}, q)" for name in ("made", "out"))
    yield f"spread({FILL}, g, {own}f, q, i8, {own}l)"
