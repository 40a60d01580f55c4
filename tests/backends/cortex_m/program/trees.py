"""Small programs for tests: texts of them, steps on them, and what they put out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tosaic.backends.cortex_m.program.interpret import host_constants, interpreted
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.schedule import parse_steps, replayed
from tosaic.backends.cortex_m.program.text import listing, parse_program

COPY = """
a: i8[6, 8] in in
out: i8[6, 8] in out
for y < 6:
  for x < 8:
    out[y, x] = a[y, x]
"""
SHORT = """
a: i8[6, 12] in in
out: i8[5, 5] in out
for y < 5:
  for x < 5:
    out[y, x] = a[y, x]
"""
APART = """
a: i8[8, 16] in in
out: i8[4, 16] in out
for z < 2:
  for y < 2:
    for x < 16:
      out[2 * z + y, x] = a[4 * z + 2 * y, x]
"""
NAMED_ROWS = """
w: i8[48, 64] in const
indices: i32[9] in in
out: i8[9, 64] in out
for y < 9:
  let at < 48 be indices[y]:
    for x < 64:
      out[y, x] = w[at, x]
"""
HALVED = """
a: i8[6, 8] in in
out: i8[6, 8] in out
k: i32[2] in const
for y < 6:
  for x < 8:
    v0: i32[] in scratch
    v1: i8[] in scratch
    v0 = add(mul(a[y, x], k[0]), k[1])
    v1 = sat8(v0)
    out[y, x] = v1
"""
SUMS = """
a: i8[6, 8] in in
out: i32[6, 4] in out
w: i8[4, 8] in const
for y < 6:
  for n < 4:
    out[y, n] = 3
    for k < 8:
      out[y, n] += a[y, k] * w[n, k]
"""
WINDOWS = """
a: i8[6, 8] in in
out: i32[6, 6] in out
w: i8[3] in const
S: i32[6, 6] in scratch
for y < 6:
  for x < 6:
    S[y, x] = 0
    for k < 3:
      S[y, x] += a[y, x + k] * w[k]
for oy < 6:
  for ox < 6:
    out[oy, ox] = S[oy, ox]
"""
STRIPS = """
a: i8[6, 4] in in
out: i32[6, 4] in out
w: i8[3] in const
edge: i8[] in const
for y < 6:
  P: i8[3, 5] in scratch
  for c < 3:
    P[c, 4] = edge
  for x < 4:
    for k < 3:
      if y + k - 1 >= 0 and 6 - y - k >= 0:
        P[k, x] = a[y + k - 1, x]
      else:
        P[k, x] = edge
  for n < 4:
    out[y, n] = P[0, n + 1]
    for t < 3:
      out[y, n] += P[t, n] * w[t]
"""
CHANNELS = """
a: i8[2, 8] in in
out: i32[2, 6] in out
w: i8[2, 3] in const
for n < 2:
  for x < 6:
    out[n, x] = 0
    for k < 3:
      out[n, x] += a[n, x + k] * w[n, k]
"""
FACTORS = """
a: i8[6] in in
out: i32[6] in out
u: i8[6] in const
v: i8[6] in const
for x < 6:
  out[x] = a[x] * u[x] + v[x]
"""
BIASED = """
out: i32[3] in out
bias: i32[3] in const
S: i32[3] in scratch
for n < 3:
  S[n] = bias[n]
for on < 3:
  out[on] = S[on]
"""
SHORT_BEFORE_LONG = """
out: i32[4] in out
last: i32[2] in const
each: i32[4] in const
for x < 4:
  out[x] = add(each[x], last[1])
"""
FILLED = """
out: i32[8] in out
edge: i32[] in const
for x < 2:
  for xi < 4:
    out[4 * x + xi] = edge
"""
TRANSPOSED = """
out: i32[4] in out
bias: i32[4] in const
S: i32[2, 2] in scratch
for n < 2:
  for m < 2:
    S[n, m] = bias[n + 2 * m]
for on < 2:
  for om < 2:
    out[on + 2 * om] = S[on, om]
"""
PADDED = """
a: i8[6] in in
out: i8[6] in out
P: i8[6, 3] in scratch
for x < 6:
  for k < 3:
    if x + k - 1 >= 0 and 6 - x - k >= 0:
      P[x, k] = a[x + k - 1]
    else:
      P[x, k] = 5
for ox < 6:
  out[ox] = 0
  for ok < 3:
    out[ox] += P[ox, ok]
"""
BRANCHES = """
a: i8[4, 6, 3] in in
out: i8[6, 6, 3] in out
for n < 3:
  for y < 6:
    if y - 1 >= 0 and 4 - y >= 0:
      for x < 6:
        out[y, x, n] = a[y - 1, x, n]
    else:
      for f < 6:
        out[y, f, n] = 7
"""
FRAMED = """
a: i8[3, 8] in in
out: i8[5, 12] in out
for y < 5:
  for x < 12:
    if y - 1 >= 0 and 3 - y >= 0 and x - 2 >= 0 and 9 - x >= 0:
      out[y, x] = a[y - 1, x - 2]
    else:
      out[y, x] = 7
"""
COPIED = """
a: i8[6, 8] in in
out: i8[6, 8] in out
P: i8[6, 8] in scratch
for y < 6:
  for x < 8:
    P[y, x] = a[y, x]
for oy < 6:
  for ox < 8:
    out[oy, ox] = sat8(P[5 - oy, ox] + 100)
"""
BORDERED = """
a: i8[6] in in
out: i8[6, 3] in out
edge: i8[] in const
P: i8[1, 8] in scratch
for x < 8:
  if x - 1 >= 0 and 6 - x >= 0:
    P[0, x] = a[x - 1]
  else:
    P[0, x] = edge
for ox < 6:
  for ok < 3:
    out[ox, ok] = P[0, ox + ok]
"""
SUMMED = BORDERED.replace("= P[", "= 1 + P[")
SCALED = """
a: i32[6] in in
out: i8[6] in out
multiplier: i32[6] in const
shift: i32[6] in const
zero: i32[] in const
for x < 6:
  out[x] = sat8(add(scale32(a[x], multiplier[x], shift[x]), zero))
"""
POOLED = """
a: i8[3, 5, 16] in in
out: i8[2, 2, 16] in out
S: i32[2, 2, 16] in scratch
for sy < 2:
  for sx < 2:
    for sn < 16:
      S[sy, sx, sn] = -128
      for ky < 2:
        for kx < 2:
          S[sy, sx, sn] = max(S[sy, sx, sn], a[sy + ky, sx + kx, sn])
for y < 2:
  for x < 2:
    for n < 16:
      out[y, x, n] = S[y, x, n]
"""
CENTERED = """
a: i8[6, 4] in in
out: i32[6] in out
offset: i32[6] in const
zero: i32[] in const
S: i32[6] in scratch
D: i32[6] in scratch
for x < 6:
  S[x] = 0
  for k < 4:
    S[x] += a[x, k]
for dx < 6:
  D[dx] = sub(S[dx], zero)
for ox < 6:
  out[ox] = D[ox] + offset[ox]
"""
DOT = """
a: i16[8] in in
out: i32[] in out
w: i16[8] in const
S: i32[] in r
S = 0
for k < 4:
  x: i16[2] in r
  for x0 < 2:
    x[x0] = a[2 * k + x0]
  v: i16[2] in r
  for v0 < 2:
    v[v0] = w[2 * k + v0]
  for l < 2:
    S += x[l] * v[l]
out = S
"""
DENSE = """
a: i8[8] in in
out: i8[2] in out
w: i8[2, 8] in const
bias: i32[2] in const
multiplier: i32[2] in const
shift: i32[2] in const
zero: i32[] in const
P: i8[8] in scratch
for c < 8:
  P[c] = a[c]
S: i32[2] in scratch
for sn < 2:
  S[sn] = bias[sn]
  for k < 8:
    S[sn] += P[k] * w[sn, k]
for n < 2:
  out[n] = sat8(scale32(S[n], multiplier[n], shift[n]) + zero)
"""
TABLE = """
a: i8[6] in in
out: i8[6] in out
table: i8[256] in const
for x < 6:
  out[x] = lookup(table[128], a[x])
"""
VECTORS = """
a: i8[4, 16] in in
out: i8[4, 16] in out
for y < 4:
  for x < 16:
    out[y, x] = a[y, x]
"""
PIXELS = """
a: i8[4, 16] in in
out: i8[4, 4] in out
w: i8[4, 16] in const
bias: i32[4] in const
multiplier: i32[4] in const
shift: i32[4] in const
zero: i32[] in const
S: i32[4, 4] in scratch
for sx < 4:
  for sn < 4:
    S[sx, sn] = bias[sn]
    for k < 16:
      S[sx, sn] += a[sx, k] * w[sn, k]
for x < 4:
  for n < 4:
    out[x, n] = sat8(scale32(S[x, n], multiplier[n], shift[n]) + zero)
"""
_LARGE = {"multiplier": (1 << 30, (1 << 31) - 1), "shift": (34, 37), "indices": (0, 40)}
"""What a RESCALE takes, and what names rows."""


def arrays_of(program: Program) -> dict[str, np.ndarray]:
    """Small random numbers, of four bits, for what a program reads."""
    rng = np.random.default_rng(0)
    return {b.name: rng.integers(*_LARGE.get(b.name, (-8, 8)), b.shape) for b in program.arguments if b.memory != "out"}


def outputs(program: Program, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The output, flat, given inputs and the constants of the algorithm."""
    return interpreted(program, host_constants(program, arrays))["out"].ravel()


def stepped(text: str, steps: str) -> Program:
    """A program after steps, which change nothing of what it puts out."""
    before = parse_program(text)
    after = replayed(before, parse_steps(steps))
    arrays = arrays_of(before)
    np.testing.assert_array_equal(outputs(after, arrays), outputs(before, arrays))
    return after


def body_of(program: Program) -> str:
    """The listing without arguments."""
    return "\n".join(listing(program).splitlines()[len(program.arguments) :]) + "\n"
