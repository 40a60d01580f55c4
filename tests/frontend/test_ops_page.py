"""What docs/ops.md tells its reader to do works as it says: ops of PyTorch and ONNX from another package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from pages import named_blocks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ops.md").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The page's files as an installed package."""
    folder = tmp_path_factory.mktemp("ops")
    for name, text in named_blocks(PAGE, "python").items():
        (folder / name).write_text(text)
    information = folder / "mine-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (groups,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    groups = re.sub(r'project\.entry-points\."(.*?)"', r"\1", groups).replace('"', "")
    (information / "entry_points.txt").write_text(groups)
    return folder


def _compiled(folder: Path, model: str) -> dict:
    """The manifest of a build whose runs are exact, with what it lost against float."""
    paths = [str(folder), str(ROOT)]
    settings = {"PYTHONPATH": os.pathsep.join(paths), "XDG_DATA_HOME": str(folder / "data"), "PYTHONFAULTHANDLER": "1"}
    environment = os.environ | settings
    for words in (["compile", model, "--target", "corstone-300", "-o", "build"], ["run", "build", "--random", "2"]):
        command = [sys.executable, "-m", "tosaic", *words, "--json"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["exact"]
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
