"""The table of ATen ops is what compiling the examples gives."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from benchmarks.op_examples import EXAMPLES
from benchmarks.op_table import row
from tosaic.cli import main
from tosaic.frontend.lowerings.registry import registered
from tosaic.frontend.ops import COLUMNS, ops

TABLE = {one["op"]: one for one in ops()}
# Ops that only decomposed programs hold, or that another overload of the same function stands for.
WITHOUT_ROW = {
    "aten._adaptive_avg_pool2d.default",
}


@pytest.mark.parametrize("name", ["conv", "sort", "atan", "grid-sample", "remainder", "embedding", "conv3d"])
def test_rows_are_current(name):
    found, words = row(*EXAMPLES[name])
    for op in found if len(found) == 1 else ():
        assert [TABLE[op][column] for column in COLUMNS[1:]] == words


def test_the_command_prints_the_table():
    printed = CliRunner().invoke(main, ["ops", "--json"])
    assert json.loads(printed.stdout)["ops"] == ops()
    assert "aten.conv2d.default" in CliRunner().invoke(main, ["ops"]).stdout


def test_every_lowering_has_a_row():
    assert sorted({str(op) for op in registered()} - set(TABLE) - WITHOUT_ROW) == []
