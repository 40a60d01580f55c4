"""Primitives: what the tree is behind each, that outputs stay what they were, and what is refused for which reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import trees
from trees import body_of, stepped

from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, parse_steps, print_steps, replayed
from tosaic.backends.cortex_m.program.text import listing, parse_program
from tosaic.backends.cortex_m.program.tree import RefusedError

CASES = Path(__file__).with_name("steps.txt").read_text().split("\n\n")
"""Each the name of a program of `trees`, steps, and the listing behind them."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.partition("\n")[0])
def test_steps_make_that_tree(case):
    head, _, want = case.partition("\n")
    name, _, steps = head.partition(": ")
    assert body_of(stepped(getattr(trees, name), steps.replace("; ", "\n"))).strip() == want.strip()


def test_every_primitive_has_a_case():
    used = {step.primitive for case in CASES for step in parse_steps(_steps_of(case))}
    assert used == set(PRIMITIVES.known())


def _steps_of(case: str) -> str:
    return case.partition("\n")[0].partition(": ")[2].replace("; ", "\n")


REFUSED = {
    "COPY: split(z, zi, 2)": "there is no loop `z`",
    "COPY: lanes(y, x, 3)": "`x` of 8 by 1 is no vectors of 3 lanes",
    "COPY: lanes(x, y, 4)": "`y` of 6 by 1 is no vectors of 4 lanes",
    "COPY: lanes(x, x, 8)": "`x` does not stand in `x`",
    "SUMS: lanes(y, n, 4)": "an iteration of `n` does more than assign numbers",
    "SUMS: lanes(n, k, 8)": "an iteration of `k` does more than assign numbers",
    "BIASED: split(on, oi, 3); lanes(on, oi, 16)": "S[oi + 3 * on] has no 16 elements in vectors of 4",
    "HALVED: split(x, xi, 4); lanes(y, x, 4)": "an iteration of `x` does more than assign numbers",
    "COPY: split(x, y, 2)": "`y` is taken, or no name",
    "COPY: split(x, t0, 4)": "`t0` is taken, or no name",
    "COPY: split(x, short, 4)": "`short` is taken, or no name",
    "COPY: split(x, xi, 3)": "3 does not divide 8",
    "COPY: split(x, xi, 9)": "`x` of 8 by 1 is not split by 9",
    "COPY: split(x, xi, 4, early)": "4 divides 8: no iteration is early",
    "COPY: split(x, xi, 4, late)": "`late` is none of exact, early",
    "COPY: split(x, xi)": "`split` takes 3 to 4 arguments: variable, name, number, word",
    "COPY: split(x, 4, xi)": "`4` is no name",
    "COPY: unroll(x); split(x, xi, 4)": "`x` is no plain loop",
    "COPY: words(x)": "`x` is no loop over 16 bytes and more, one element after the other",
    "COPY: reorder(y, x); words(y)": "`y` copies elements that are no neighbors",
    "APART: split(x, xi, 15, early); words(x)": "`x` does more than to copy",
    "APART: words(x); words(x)": "`x` is no plain loop",
    "SUMS: words(k)": "`k` does more than to copy",
    "SUMS: stage(a, y, u, r, i32); words(u0)": "`u0` copies from no other buffer in memory of the same type",
    "SUMS: split(k, ki, 3, early)": "an iteration of `k` adds to, or reads, what it did not begin of out",
    "COPY: reorder(x, y)": "`y` does not stand right inside of `x`",
    "SUMS: reorder(n, k)": "`k` does not stand right inside of `n`",
    "COPY: distribute(x)": "`x` does not hold several statements",
    "PADDED: distribute(k)": "a condition in `k` is on its iterations",
    "PADDED: in_place(P, i)": "P never lies in a",
    "SUMS: in_place(out, i)": "out is not made in one place",
    "PIXELS: in_place(S, i)": "S is no copy",
    "COPIED: widen(P, i16); in_place(P, i)": "P holds i16, a i8",
    "COPIED: compute_at(P, ox); in_place(P, i)": "what lies side by side in P does not in a",
    "PIXELS: distribute(sn, 3)": "2 statements in `sn` have no first 3",
    "PADDED: distribute(x, 2)": "`x` does not hold several statements",
    "COPIED: expand(P, ox)": "P does not live right in `ox`, of iterations that are apart",
    "SUMS: apart(a, u, n)": "a is no constant that loops read",
    "SUMS: apart(w, u, n)": "`n` reads all, or nothing, of w",
    "TABLE: split(x, xi, 2); apart(table, u, xi)": "table is no constant that loops read",
    "PIXELS: spread(S, sx, u, q, i32, sn)": "S is no number that stays in `sx` and fills registers `q`",
    "PIXELS: spread(multiplier, x, u, q, i32, n)": "`n` reads more of multiplier than one number that stays in `x`",
    "PIXELS: spread(zero, x, u, q, i32, sn)": "`sn` does not count lanes in `x`",
    "PIXELS: spread(zero, sx, u, q, i32, sn)": "`sn` does not read zero",
    "PIXELS: spread(zero, x, u, q, i8, n); spread(zero, x, v, q, i8, n)": "`n` does not read zero",
    "SUMS: cut(k, 5); stage(a, y, u, q, i8, k); pad(k, 16)": "`k` does not reach the end of a dimension of w",
    "COPY: gather(y, x, a, t)": "`x` does more than add up",
    "WINDOWS: gather(x, k, a, t)": "`k` does not stand right inside of `x`",
    "WINDOWS: split(x, xi, 2); distribute(xi); gather(xib, k, w, t)": "`xib` and `k` do not both move on in w",
    "WINDOWS: split(x, xi, 2); distribute(xi); gather(xib, k, a, y)": "`y` is taken, or no name",
    "WINDOWS: line_up(x, k, a)": "an iteration of `k` does not begin with a copy to registers a",
    "WINDOWS: line_up(k, x, a)": "`x` does not stand in `k`",
    "WINDOWS: stage(w, k, vw, r, i32); line_up(x, k, vw)": "more than loops and conditions stands around `k`",
    "COPY: stage(a, x, va, r, i32); line_up(y, x, va)": "`x` does more than add up",
    "WINDOWS: distribute(x); stage(w, k, vw, r, i32); cut(xb, 1); line_up(xb, k_t, vw)": "`k_t` does not stand in `xb`",
    "SUMS: fuse(y, n)": "a does not lie so that `y` and `n` count as one",
    "COPY: space(a, 2)": "a[6, 8] in in is not spaced by 2",
    "POOLED: narrow(out, i8)": "out of i8 in out is not narrowed to `i8`",
    "PIXELS: narrow(bias, i32)": "bias of i32 in const is not narrowed to `i32`",
    "CENTERED: narrow(S, i8)": "S may hold what `i8` does not",
    "CENTERED: uniform(zero, ox, o)": "zero is no constant of several numbers",
    "CENTERED: uniform(offset, x, o)": "`x` does not read offset",
    "WINDOWS: begin(S)": "no constant alone is taken from S",
    "POOLED: share(S, S)": "`S` is taken, or no name",
    "WINDOWS: share(S, T)": "S[y, x] += mul(a[y, k + x], w[k]) reduces more than what is read",
    "PIXELS: share(S, T)": "vectors of S do not begin with a number",
    "COPY: tell(x, y)": "conditions in `x` are not on iterations of `y` alone",
    "STRIPS: tell(y, x)": "`y` does not stand in `x`",
    "STRIPS: once(x, y)": "iterations of `y` differ in what `x` does",
    "COPY: once(x, y)": "out does not live right in `y`",
    "WINDOWS: skip(x, S)": "the last iteration of `x` does not start early, with S of its own",
    "FILLED: slide(x, 4, 1)": "vectors of edge have no groups of 4",
    "WINDOWS: slide(y, 4, 1)": "`y` does not copy vectors",
    "CHANNELS: overlay(w, 0, 1)": "dimension 0 of w[2, 3] counts no vectors",
    "FACTORS: interleave(f, u, u)": "u, u are not of one shape",
    "COPY: push(y, a, 1)": "`y` does not add up products of a",
    "COPY: drop(x)": "`x` has 8 iterations",
    "COPY: cut(x, 8)": "`x` of 8 by 1 is not cut at 8",
    "COPY: split(y, yi, 6); write_out(y)": "`y` has 1 iterations",
    "COPY: block(x)": "`x` holds what is no instruction: select some first",
    "COPY: stage(a, y, u, x)": "a is not staged in `x` as `i8`",
    "PIXELS: stage(w, sx, u, q, i8, sn)": "`sn` reads all, or nothing, of w",
    "PIXELS: stage(S, sx, u, q, i32, sn)": "S is not read alone in `sn` inside of `sx`",
    "SUMS: stage(out, y, u, r, i16)": "out is not staged in `r` as `i16`",
    "COPY: split(x, xi, 2); stage(a, x, u, r)": "[2] of i8 is no whole register `r`",
    "WINDOWS: stage(out, y, u, r)": "an iteration of `y` does not touch out",
    "PADDED: stage(a, x, u, scratch)": "a window of `x` reaches outside of a[6]",
    "TABLE: stage(table, x, u, q)": "values say what is read of table",
    "TABLE: split(x, xi, 2); spread(table, x, u, q, i32, xi)": "values say what is read of table",
    "TABLE: pack(table)": "values say what is read of table",
    "COPY: place(a, r)": "a in in is not placed in `r`",
    "WINDOWS: place(S, r)": "S[6, 6] takes more registers `r` than any core has",
    "COPY: compute_at(out, y)": "out is not computed beside what reads it",
    "WINDOWS: compute_at(S, y)": "`y` is not in the statement that reads S",
    "PADDED: inline(P)": "P is no plain copy",
    "SUMMED: inline(P)": "more than copies reads P, which is made under conditions",
    "SUMS: pack(a)": "a is no constant that one statement reads",
    "SUMS: pack(w)": "w lies in that order",
    "SUMS: pad(k, 3)": "a ends where it ends",
    "SUMS: pad(n, 3)": "`n` counts what is written",
    "SUMS: pad(k, 4)": "`k` of 8 is not padded to a multiple of 4",
    "COPY: skew(y, x, t)": "`x` does not add up inside of `y`",
    "COPY: assume(x, s)": "`x` holds no condition on its iterations",
    "SUMS: extend(k, 12)": "`k` writes what it does not count",
    "SUMS: extend(n, 6)": "`n` ends where out ends",
    "BIASED: extend(on, 4)": "`on` ends where out ends",
    "BIASED: extend(n, 3)": "`n` of 3 by 1 is not extended to 3",
    "SUMS: skew(n, k, t)": "`k` does not count one dimension of w alone",
    "COPY: merge_dims(out, 1)": "out has no dimension behind 1",
    "COPY: divide_dim(out, 1, 3)": "3 does not divide dimension 1 of out[6, 8]",
    "COPY: divide_dim(out, 1, 4)": "out is read across its parts of 4: x",
    "COPY: reorder_dims(a, d10)": "a lies as others want it",
    "WINDOWS: reorder_dims(S, d11)": "`11` is no order of the dimensions of S[6, 6]",
    "WINDOWS: reorder_dims(S, d01)": "`01` moves nothing in S[6, 6]",
    "WINDOWS: lengthen(S, 2, 8)": "S has no dimension 2",
    "COPY: lengthen(out, 1, 9)": "out ends where it ends",
    "COPY: widen(a, i16)": "a of i8 in in is not widened to `i16`",
    "COPY: rewrite(out, high)": "`high` finds nothing in out",
    "COPY: rewrite(out, low)": "there is no rule `low`",
    "COPY: select(x, dsp)": "no instruction of dsp does out[y, x] = a[y, x]",
    "COPY: select(x, mmx)": "there is no instruction set `mmx`",
    "SHORT: stage(a, y, u, q); unmask(y)": "no mask keeps lanes from a load in `y`",
    "COPY: stage(a, y, u, q); select(y, mve); unmask(y)": (
        "behind vldrb.i8(u[0], a[y, 0]) for 8 lanes there is nothing to read"
    ),
    "DOT: select(k, dsp); select(k, dsp)": "`k` holds instructions already",
    "DOT: select(k, dsp); block(k); unroll(k)": "`k` is no plain loop",
    "DOT: select(k, dsp); stage(a, k, u, r)": "instructions hold a as it lies",
    "DOT: select(k, scalar)": "no instruction of scalar does x[0] = a[2 * k]",
    "VECTORS: hardware_loop(y)": "`y` holds what is no instruction: select some first",
    "VECTORS: split(y, yi, 3, early); stage(a, yi, va, q); select(yi, mve); hardware_loop(y)": (
        "the last iteration of `y` starts early, and pointers move on by as much each iteration"
    ),
    "VECTORS: hoist(y, 1)": "`y` is no hardware loop of several iterations of which nothing runs ahead",
    "VECTORS: stage(a, y, va, q); select(y, mve); hardware_loop(y); hoist(y, 0)": "0 loads are none",
    "VECTORS: stage(a, y, va, q); select(y, mve); hardware_loop(y); hardware_loop(y)": "`y` is no plain loop",
    "VECTORS: stage(a, y, va, q); select(y, mve); hardware_loop(y); pipeline(y, a)": (
        "an iteration of `y` makes no vectors a"
    ),
    "PIXELS: postpone(out)": "out of i8 in out holds no sums",
    "PIXELS: postpone(S); postpone(S)": "S does not begin with a constant",
    "PIXELS: unfold(k, v, q)": "`k` does not assign the lanes of a register `q`",
    "PIXELS: unfold(n, v, r)": "`n` does not assign the lanes of a register `r`",
    "PIXELS: part(S, mul, n, u, scratch, i32)": "an iteration of `n` does not assign S once",
    "PIXELS: part(out, sat16, x, u, scratch, i16)": "no one `sat16` makes out",
    "PIXELS: part(out, scale32, x, u, scratch, i16)": "`i16` in `scratch` does not hold a `scale32`",
    "PIXELS: stage(S, n, u, scratch); part(out, scale32, x, v, scratch, i32)": (
        "what `scale32` takes is made in an iteration of `x`"
    ),
    "DENSE: carry(c, V, h)": "`c` does not add up an even number of products",
    "DENSE: nibbles(c, 32, 16)": "`c` does not add up products",
    "DENSE: nibbles(k, 48, 16)": "a group of 48 weights is no whole number of 16 bytes",
    "DENSE: inline(P); nibbles(k, 32, 16)": "a ends within a group",
    "DENSE: fit(out)": "out saturates no one scaled sum to 16 bits",
    "DENSE: bind(low, k, t, r, i16)": "an iteration of `k` computes no `low` of one element",
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_step_is_refused_with_its_reason(case):
    name, _, steps = case.partition(": ")
    with pytest.raises(RefusedError, match="is not legal") as error:
        replayed(parse_program(getattr(trees, name)), parse_steps(steps.replace("; ", "\n")))
    assert error.value.why == REFUSED[case]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.partition("\n")[0])
def test_programs_and_steps_parse_as_they_print(case):
    program = parse_program(getattr(trees, case.partition(":")[0]))
    assert parse_program(listing(program)) == program
    steps = parse_steps(_steps_of(case))
    assert parse_steps(print_steps(steps)) == steps
