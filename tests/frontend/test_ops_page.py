"""What docs/ops.md tells its reader to do works as it says: ops of PyTorch and ONNX from another package."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx
import pytest
from drop_in import ROOT, describe, tosaic_in
from pages import named_blocks

PAGE = (ROOT / "docs" / "ops.md").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The page's files as an installed package."""
    folder = tmp_path_factory.mktemp("ops")
    for name, text in named_blocks(PAGE, "python").items():
        (folder / name).write_text(text)
    (groups,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    describe("mine", groups, folder)
    return folder


def _compiled(folder: Path, model: str) -> dict:
    """The manifest of a build whose runs are exact, with what it lost against float."""
    tosaic_in(folder, "compile", model, "--target", "corstone-300", "-o", "build")
    assert json.loads(tosaic_in(folder, "run", "build", "--random", 2, "--json"))["exact"]
    return json.loads((folder / "build" / "manifest.json").read_text())


def test_the_ops_of_the_model_are_integers(folder):
    manifest = _compiled(folder, "mine.py:net")
    assert {op["op"] for op in manifest["ops"]} <= {"CONV2D", "TABLE", "RESCALE", "TRANSPOSE", "RESHAPE", "MUL", "ADD"}
    assert min(one["sqnr_db"] for one in manifest["accuracy"]) > 25


def test_an_op_of_onnx(folder):
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Gate", ["x"], ["y"], domain="mine", steepness=1.5)
    graph = onnx.helper.make_graph([node], "g", [value("x", 1, [1, 16])], [value("y", 1, [1, 16])])
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("mine", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / "gate.onnx")
    manifest = _compiled(folder, "gate.onnx")
    assert "TABLE" in {op["op"] for op in manifest["ops"]}
