"""The table of ATen ops is what compiling the examples gives."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from benchmarks.op_rows import faults
from benchmarks.op_table import row
from tosaic.cli import main
from tosaic.frontend.lowerings.registry import registered
from tosaic.frontend.methods import ENTER
from tosaic.frontend.ops import COLUMNS, ops
from tosaic.frontend.recurrent import LAYERS
from tosaic.frontend.rows import WRITE_ROWS

TABLE = {one["op"]: one for one in ops()}
# Of programs that were decomposed already, or which capture takes out; the ops that recurrent layers and writes become.
WITHOUT_ROW = {
    *map(str, (*LAYERS.values(), ENTER, WRITE_ROWS)),
    "aten.alias.default", "aten.clone.default", "aten.constant_pad_nd.default", "aten.contiguous.default",
    "aten.detach.default", "aten.dropout.default", "aten.lift_fresh_copy.default",
    "aten.native_layer_norm.default", "aten.upsample_bilinear2d.default",
    "aten.upsample_nearest2d.default",
}  # fmt: skip


@pytest.mark.parametrize("name", ["conv", "sort", "atan", "grid-sample", "remainder", "embedding", "conv3d"])
def test_rows_are_current(name):
    found, words = row(name)
    for op in found if len(found) == 1 else ():
        assert [TABLE[op][column] for column in COLUMNS[1:]] == words


def test_examples_are_right_on_the_board():
    """A sample of what `python benchmarks/op_rows.py` runs."""
    assert list(faults(["conv", "atan", "remainder", "embedding"], "cortex-m55")) == []


def test_the_command_prints_the_table():
    printed = CliRunner().invoke(main, ["ops", "--json"])
    assert json.loads(printed.stdout)["ops"] == ops()
    assert "aten.conv2d.default" in CliRunner().invoke(main, ["ops"]).stdout


def test_every_lowering_has_a_row():
    assert sorted({str(op) for op in registered()} - set(TABLE) - WITHOUT_ROW) == []
