"""The sketch of products for cores with vectors whose weights stay: schedules of CONV2D whose windows are one pixel.

A hardware loop goes over the pixels, and makes results of four sums at a time in registers. Names are those of
`program.algorithms`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tosaic.backends.cortex_m.program.sketches.activations import column_terms, pixel_terms
from tosaic.backends.cortex_m.program.sketches.four_bytes import bytes_of_four
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES, RowResult


@dataclass(frozen=True)
class WeightStationary:
    """The numbers of a schedule whose weights stay in vectors while a hardware loop goes over the pixels.

    Args:
        row: pixels in a row.
        channels: of the output, which four divides.
        depth: bytes of a window.
        held: of the first four vectors of weights of a group of channels.
        factors: whether those of a group stay, too.
        unroll: groups of four sums in an iteration.
    """

    row: int
    channels: int
    depth: int
    result: RowResult
    held: int
    factors: bool
    unroll: int

    @property
    def whole(self) -> int:
        """Whole vectors of a window."""
        return self.depth // LANES

    @property
    def short(self) -> int:
        """Bytes of its last vector where that is not whole."""
        return self.depth % LANES

    @property
    def vectors(self) -> int:
        return self.whole + (self.short > 0)

    @property
    def rest(self) -> int:
        """The last pixels, behind whole iterations: at least those whose short vectors are the last of the image."""
        least = -(-(LANES - self.short) // self.depth) if self.short else 0
        rest = self.row % self.unroll
        return rest + max(0, -(-(least - rest) // self.unroll)) * self.unroll

    @property
    def bounds(self) -> tuple[str, ...]:
        """The constants that are the least and the greatest result."""
        return ("least", "most") if self.result.clamped else ()

    @property
    def staying(self) -> int:
        """Vectors that stay in registers."""
        whole = self.result.uniform and self.result.form == "rounded"
        return self.held + len(self.result.factors) * self.factors + len(self.bounds) + whole

    @property
    def cost(self) -> float:
        """About its cycles: as far as the pipes tell that four sums and their epilogue hold."""
        factors, table, terms = len(self.result.factors), self.result.table, self.result.terms
        loads = self.vectors * 5 - self.held + factors * (not self.factors) + 1 + 2 * table
        operations = len(self.result.scale) + 1
        less = self.result.form != "rounded" or self.result.fits
        issued = 4 * self.vectors + loads + 3 + 2 * operations - less + 2 * table + 2 * terms
        iteration = max(2 * (4 * self.vectors + 2), 2 * loads, issued) + 2 / self.unroll
        return self.channels / FOUR * (self.row * iteration + 30 + (30 + 15 * self.rest) * (self.rest > 0))

    @property
    def last(self) -> WeightStationary:
        """The schedule of the last pixels."""
        return replace(self, row=self.rest, held=0, factors=False, unroll=1)


def weight_stationary(s: WeightStationary) -> Iterator[str]:
    """The steps of a schedule whose weights stay in vectors."""
    yield from s.result.fitted
    if s.result.column_terms:
        yield "compute_at(Z, v)"
    elif not s.result.terms:
        yield from ("inline(P)", "drop(ky)", "drop(kx)", "postpone(S)")
    yield f"rewrite(out, {s.result.form})"
    if not s.result.fits:
        yield f"rewrite(out, {'bounded' if s.result.clamped else 'lanes'})"
    if s.result.table:
        yield "rewrite(out, indexed)"
    names = {"zero": "z", **{name: f"z{name}" for name in s.bounds}}
    names |= {"a_zero": "az"} if s.result.column_terms else {}
    names |= {name: f"{name}_g" for name in s.result.scale if s.result.uniform}
    around = "v" if s.result.terms else "b"
    yield from (f"stage({name}, {around}, {new}, r{s.result.widened(name)})" for name, new in names.items())
    yield f"split(n, ni, {FOUR})"
    if s.rest:
        yield from (f"cut(x, {s.row - s.rest}, e)", "reorder(x_e, n_e)", "compute_at(S, x_e, e)")
    yield from ("reorder(x, n)", "compute_at(S, x)")
    yield from _scheduled(s, "")
    if s.rest:
        yield from _scheduled(s.last, "_e")
    if s.unroll > 1:
        yield f"split(x, xu, {s.unroll})"
    if s.result.terms:
        yield from pixel_terms(s.depth, s.row)
    if s.result.column_terms:
        yield from column_terms(s.depth, s.channels, "b", "zn")
    yield "select(n, mve)"
    if s.short:
        yield "unmask(x)"
    yield from ("hardware_loop(x)", "pipeline(x, v0)", "block(n)")
    if s.rest:
        yield "select(n_e, mve)"
        if s.rest > FOUR:
            yield "hardware_loop(x_e)"
        yield "block(n_e)"


def _scheduled(s: WeightStationary, own: str) -> Iterator[str]:
    """The sums of four channels, and their epilogue; names end in `own`."""
    yield from (f"place(S{own}, r)", f"distribute(sn{own})")
    yield from _windows(s, own)
    yield from _weights(s, own)
    yield from (f"spread(z{name}, n{own}, q{name}{own}, q, i32, ni{own})" for name in s.bounds)
    if s.result.uniform and s.result.form == "rounded":
        yield f"spread(whole_g, n{own}, qwhole{own}, q, i32, ni{own})"
    if s.result.terms:
        yield f"stage(T, x{own}, tr{own}, r)"
    if s.result.fits:
        yield from bytes_of_four(f"x{own}", own)
    yield f"unfold({f'E{own}0' if s.result.fits else f'ni{own}'}, v{own}, q)"


def _windows(s: WeightStationary, own: str) -> Iterator[str]:
    """The vectors of a window, each for four channels."""
    k, each = f"k{own}", f"sn{own}b"
    if s.whole and s.short:
        yield from (f"cut({k}, {LANES * s.whole})", f"distribute({each})")
    if s.whole:
        yield from (f"split({k}, kl{own}, {LANES})", f"reorder({each}, {k})")
    if s.vectors == 1 and s.whole:
        yield f"drop({k})"
    if s.factors:
        yield from (f"stage({factor}, n{own}, v{factor}, q)" for factor in s.result.factors)
    if s.short:
        last = f"{k}_t" if s.whole else k
        within = f", i8, {last}" if s.whole else ""
        yield f"stage(a, x{own}, vs{own}, q{within})"
        if not s.result.terms:
            yield f"pad({last}, {LANES})"
    if s.whole:
        yield f"stage(a, {f'x{own}' if s.vectors == 1 else k}, va{own}, q)"
    if s.whole > 1:
        yield f"write_out({k})"


def _weights(s: WeightStationary, own: str) -> Iterator[str]:
    """Those that stay, and those that an iteration reads."""
    first = each = f"sn{own}b"
    w = "b" if s.result.terms else "w"
    if 0 < s.held < FOUR:
        yield f"cut({each}, {s.held})"
        first = f"{each}_t"
    if s.held == FOUR and s.vectors == 1:
        yield f"stage({w}, n{own}, vw{own}, q)"
    elif s.held:
        yield f"stage({w}, n{own}, vw{own}, q, i8, {each})"
    if s.held < FOUR:
        yield f"stage({w}, {first}, vx{own}, q)"
    for number in range(1, s.whole):
        yield f"stage({w}, {each}_{number}, vx{chr(ord('a') + number)}{own}, q)"
    if s.whole and s.short:
        yield f"stage({w}, {each}b, vz{own}, q)"
