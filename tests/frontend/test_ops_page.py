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


@pytest.fixture(scope="module")
def manifests(folder) -> list[dict]:
    """Of builds of the page's model and of a graph of ONNX, whose runs are exact."""
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Gate", ["x"], ["y"], domain="mine", steepness=1.5)
    graph = onnx.helper.make_graph([node], "g", [value("x", 1, [1, 16])], [value("y", 1, [1, 16])])
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("mine", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / "gate.onnx")
    models = {"net": "mine.py:net", "gate": "gate.onnx"}
    compiling = [("compile", model, "--target", "corstone-300", "-o", name) for name, model in models.items()]
    running = [("run", name, "--random", 2, "--json") for name in models]
    _, _, *ran = tosaic_in(folder, *compiling, *running)
    assert all(json.loads(report)["exact"] for report in ran)
    return [json.loads((folder / name / "manifest.json").read_text()) for name in models]


def test_the_ops_of_the_model_are_integers(manifests):
    manifest, _ = manifests
    assert {op["op"] for op in manifest["ops"]} <= {"CONV2D", "TABLE", "RESCALE", "TRANSPOSE", "RESHAPE", "MUL", "ADD"}
    assert min(one["sqnr_db"] for one in manifest["accuracy"]) > 25


def test_an_op_of_onnx(manifests):
    _, manifest = manifests
    assert "TABLE" in {op["op"] for op in manifest["ops"]}
