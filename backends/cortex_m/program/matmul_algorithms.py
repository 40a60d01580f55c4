"""What products of two tensors compute, read from MATMUL: scalar statements in loops, written once for all cores."""

from __future__ import annotations

from collections.abc import Sequence

from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import nested, seq
from tosaic.backends.cortex_m.program.text import parse_access, parse_statement
from tosaic.backends.cortex_m.program.touches import without_unread
from tosaic.backends.cortex_m.program.tree import Alloc, Assign, Buffer, For, Statement


def matmul(batch: int, rows: int, depth: int, columns: int, epilogue: Epilogue, transposed: bool = False) -> Program:
    """MATMUL of int8 (batch, rows, depth) by int8 (batch, depth, columns) (TOSA 1.0, 2.3.8), to the epilogue's type.

    `P` and `Q` are the factors less their zero points, `a_zero` and `b_zero`; `Q` lies by columns. So does `b` where it
    is `transposed`, and is the first argument then.
    """
    place, operands = _operands("i8", batch, rows, depth, columns, transposed)
    left = nested(parse_statement("P[cb, cx, ck] = a[cb, cx, ck] - a_zero"), cb=batch, cx=rows, ck=depth)
    right = nested(parse_statement(f"Q[db, dn, dk] = b[{place}] - b_zero"), db=batch, dn=columns, dk=depth)
    add = For("k", depth, parse_statement("S[sb, sx, sn] += P[sb, sx, k] * Q[sb, sn, k]"))
    sums = nested(seq(parse_statement("S[sb, sx, sn] = 0"), add), sb=batch, sx=rows, sn=columns)
    result = Assign(parse_access("out[v, x, n]"), epilogue.of("S[v, x, n]", "[n]"))
    written = nested(result, v=batch, x=rows, n=columns)
    arguments = (
        *operands,
        Buffer("out", epilogue.element, (batch, rows, columns), "out"),
        Buffer("a_zero", "i32", (), "const"),
        Buffer("b_zero", "i32", (), "const"),
        *epilogue.constants((columns,)),
    )
    body = Alloc(Buffer("S", "i32", (batch, rows, columns), "scratch"), seq(sums, written))
    body = Alloc(Buffer("Q", "i16", (batch, columns, depth), "scratch"), seq(right, body))
    return without_unread(
        Program(arguments, Alloc(Buffer("P", "i16", (batch, rows, depth), "scratch"), seq(left, body)))
    )


def _operands(
    element: str, batch: int, rows: int, depth: int, columns: int, transposed: bool
) -> tuple[str, Sequence[Buffer]]:
    """Where column `dn` of the second operand of a MATMUL has its element `dk`, and both operands as arguments."""
    place, shape = ("db, dn, dk", (batch, columns, depth)) if transposed else ("db, dk, dn", (batch, depth, columns))
    operands = [Buffer("a", element, (batch, rows, depth), "in"), Buffer("b", element, shape, "in")]
    return place, operands[::-1] if transposed else operands


def matmul_by_terms(
    batch: int,
    rows: int,
    depth: int,
    columns: int,
    epilogue: Epilogue,
    *,
    uniform: bool,
    centered: bool,
    transposed: bool,
    b_first: bool,
) -> Program:
    """MATMUL as `matmul`, of factors as they are: `Z` by column, and `T` by row, are what zero points add to products.

    Args:
        uniform: whether all columns have one multiplier and one shift.
        centered: whether the zero point of `a` is 0, so that there is no `Z`.
        b_first: whether `b` is the first argument.
    """
    place, shape = ("{0}b, {0}n, {1}k", (batch, columns, depth))
    if not transposed:
        place, shape = ("{0}b, {1}k, {0}n", (batch, depth, columns))
    row_sums = _total("A[ab, ax]", "a[ab, ax, ak]", "ak", depth)
    whole = "0" if centered else f"mul(a_zero, {depth})"
    terms = parse_statement(f"T[tb, tx] = mul(b_zero, sub({whole}, A[tb, tx]))")
    column_sums = _total("Z[zb, zn]", f"mul(b[{place.format('z', 'z')}], a_zero)", "zk", depth)
    sums = _total("S[sb, sx, sn]", f"mul(a[sb, sx, k], b[{place.format('s', '')}])", "k", depth)
    of_column = "S[v, x, n]" if centered else "sub(S[v, x, n], Z[v, n])"
    total = epilogue.of(f"add({of_column}, T[v, x])", "" if uniform else "[n]")
    written = nested(Assign(parse_access("out[v, x, n]"), total), v=batch, x=rows, n=columns)
    operands = [Buffer("a", "i8", (batch, rows, depth), "in"), Buffer("b", "i8", shape, "in")]
    arguments = (
        *(reversed(operands) if b_first else operands),
        Buffer("out", epilogue.element, (batch, rows, columns), "out"),
        *(Buffer(name, "i32", (), "const") for name in ("a_zero", "b_zero")),
        *epilogue.constants(() if uniform else (columns,)),
    )
    made = [
        ("A", nested(row_sums, ab=batch, ax=rows)),
        ("T", nested(terms, tb=batch, tx=rows)),
        *([] if centered else [("Z", nested(column_sums, zb=batch, zn=columns))]),
        ("S", nested(sums, sb=batch, sx=rows, sn=columns)),
    ]
    shapes = {"A": (batch, rows), "T": (batch, rows), "Z": (batch, columns), "S": (batch, rows, columns)}
    body: Statement = written
    for name, statement in reversed(made):
        body = Alloc(Buffer(name, "i32", shapes[name], "scratch"), seq(statement, body))
    return without_unread(Program(arguments, body))


def _total(target: str, value: str, var: str, extent: int) -> Statement:
    """The sum of a value over a loop."""
    add = For(var, extent, parse_statement(f"{target} += {value}"))
    return seq(parse_statement(f"{target} = 0"), add)


def matmul_i16(
    batch: int, rows: int, depth: int, columns: int, multiplier: int, shift: int, transposed: bool = False
) -> Program:
    """MATMUL of int16 by int16 to int16 without zero points, as `matmul`; the RESCALE is of one multiplier and shift.

    `Q` holds each column twice: its low bytes, then its high ones, so that both sums fit int32.
    """
    place, operands = _operands("i16", batch, rows, depth, columns, transposed)
    left = nested(parse_statement("P[cb, cx, ck] = a[cb, cx, ck]"), cb=batch, cx=rows, ck=depth)
    low = parse_statement(f"Q[db, 2 * dn, dk] = bit_and(b[{place}], 255)")
    high = parse_statement(f"Q[db, 2 * dn + 1, dk] = asr(b[{place}], 8)")
    right = nested(seq(low, high), db=batch, dn=columns, dk=depth)
    add = For("k", depth, parse_statement("S[sb, sx, sn] += P[sb, sx, k] * Q[sb, sn, k]"))
    sums = nested(seq(parse_statement("S[sb, sx, sn] = 0"), add), sb=batch, sx=rows, sn=2 * columns)
    scaled = f"sat16(scale48(S[v, x, 2 * n + 1], S[v, x, 2 * n], {multiplier}, {shift}))"
    written = nested(parse_statement(f"out[v, x, n] = {scaled}"), v=batch, x=rows, n=columns)
    arguments = (
        *operands,
        Buffer("out", "i16", (batch, rows, columns), "out"),
    )
    body = Alloc(Buffer("S", "i32", (batch, rows, 2 * columns), "scratch"), seq(sums, written))
    body = Alloc(Buffer("Q", "i16", (batch, 2 * columns, depth), "scratch"), seq(right, body))
    return Program(arguments, Alloc(Buffer("P", "i16", (batch, rows, depth), "scratch"), seq(left, body)))


def matmul_long(batch: int, rows: int, depth: int, columns: int, transposed: bool = False) -> Program:
    """The same of any depth, with sums of 64 bits; `multiplier` and `shift` are constants."""
    place, operands = _operands("i16", batch, rows, depth, columns, transposed)
    left = nested(parse_statement("P[cb, cx, ck] = a[cb, cx, ck]"), cb=batch, cx=rows, ck=depth)
    right = nested(parse_statement(f"Q[db, dn, dk] = b[{place}]"), db=batch, dn=columns, dk=depth)
    sums = _total("S[sb, sx, sn]", "P[sb, sx, k] * Q[sb, sn, k]", "k", depth)
    sums = nested(sums, sb=batch, sx=rows, sn=columns)
    result = parse_statement("out[v, x, n] = sat16(scale64(S[v, x, n], multiplier, shift))")
    arguments = (
        *operands,
        Buffer("out", "i16", (batch, rows, columns), "out"),
        *(Buffer(name, "i32", (), "const") for name in ("multiplier", "shift")),
    )
    body = seq(sums, nested(result, v=batch, x=rows, n=columns))
    body = Alloc(Buffer("S", "i64", (batch, rows, columns), "scratch"), body)
    body = Alloc(Buffer("Q", "i16", (batch, columns, depth), "scratch"), seq(right, body))
    return Program(arguments, Alloc(Buffer("P", "i16", (batch, rows, depth), "scratch"), seq(left, body)))
