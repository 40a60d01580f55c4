"""What lies behind constants that loads run ahead of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tosaic.backends.cortex_m.program.memory import params_of
from tosaic.backends.cortex_m.program.text import parse_program
from tosaic.backends.cortex_m.program.tree import For

PROGRAM = """
a: i8[64] in in
out: i8[64] in out
k: i8[64] in const
for i < 64:
  out[i] = a[i] + k[{where}]
"""


@pytest.mark.parametrize(("ahead", "where", "slack"), [(0, "i", 0), (1, "i", 16), (1, "3", 0), ("a", "i", 16)])
def test_slack_lies_behind_constants_where_each_iteration_reads_others(ahead, where, slack):
    program = parse_program(PROGRAM.format(where=where))
    assert isinstance(program.body, For)
    program = replace(program, body=replace(program.body, kind="hardware_loop", ahead=ahead))
    assert params_of(program, {"k": np.arange(64)}) == bytes(range(64)) + bytes(slack)
