"""How often conditions hold, and what loops read in either branch."""

from __future__ import annotations

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.branches import share_of
from tosaic.backends.cortex_m.program.text import parse_program
from tosaic.backends.cortex_m.program.tree import For, Seq
from tosaic.backends.cortex_m.program.walks import walks

BRANCHES = """
a: i8[8, 64] in in
out: i32[8] in out
w: i8[64] in const
for y < 8:
  if y + -6 >= 0:
    for k < 64:
      out[y] += a[y, k] * w[k]
  else:
    for j < 64:
      out[y] += a[y, j] * w[j]
"""


def test_a_condition_on_several_loops_holds_in_the_share_that_is_counted():
    loops = {name: For(name, extent, Seq(())) for name, extent in (("y", 4), ("x", 8), ("z", 5))}
    y, x, z = map(Affine.of, "yxz")
    assert share_of([y - 1], loops) == 0.75
    assert share_of([y - 1, x * -1 + 5], loops) == 0.75 * 0.75
    assert share_of([y + z - 1], loops) == 19 / 20
    assert share_of([y + z - 1, z * -1], loops) == 3 / 20
    assert share_of([y + Affine.of("other")], loops) == 1


def test_what_both_branches_read_of_constants_is_read_once():
    (walk,) = walks(parse_program(BRANCHES))
    assert walk.loops == (8.0, 64.0)
    params = next(access for access in walk.accesses if access.place == "params")
    assert params.strides == (0.0, 1.0)
    assert params.accessed == 8 * 64
