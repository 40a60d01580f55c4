"""`tosaic npu verify`, LiteRT played by its recorded answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from compiled_by_vela import FILES
from compiled_by_vela import compiled as made_by_vela


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Path:
    return made_by_vela("conv", "ethos-u55-128", tmp_path_factory.mktemp("vela"))


@pytest.fixture
def litert(monkeypatch):
    """A LiteRT that answers with a convolution's recorded results; `litert.error` is added to one element of each."""
    with np.load(FILES / "conv.npz") as arrays:
        x, y = arrays["x"][0], arrays["y"][0]
    played = SimpleNamespace(error=0)

    class Interpreter:
        def __init__(self, **_: object) -> None:
            pass

        def allocate_tensors(self) -> None: ...
        def set_tensor(self, index: int, array: np.ndarray) -> None: ...
        def invoke(self) -> None: ...

        def get_input_details(self) -> list[dict]:
            return [{"index": 0}]

        get_output_details = get_input_details

        def get_tensor(self, index: int) -> np.ndarray:
            answer = y.copy()
            answer.flat[7] ^= played.error
            return answer

    module = ModuleType("ai_edge_litert.interpreter")
    module.Interpreter, module.OpResolverType = Interpreter, SimpleNamespace(BUILTIN_REF=0)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ai_edge_litert", ModuleType("ai_edge_litert"))
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", module)
    monkeypatch.setattr("tosaic.runs.npu_verified._random", lambda draw, value: x)
    return played


def test_equal_files(tosaic, compiled, litert):
    result = tosaic("npu", "verify", compiled, "--against", FILES / "conv.tflite", "--inputs", 2)
    assert result.exit_code == 0, result.output
    assert "1 region for ethos-u55-128" in result.stdout and "equal to the bit" in result.stdout


def test_a_step_is_seen(tosaic, compiled, litert):
    litert.error = 1
    result = tosaic("npu", "verify", compiled, "--against", FILES / "conv.tflite", "--inputs", 2, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1 and not found["equal"]
    assert [(one["elements"], one["different"], one["most"]) for one in found["outputs"]] == [(2 * 1296, 2, 1)]


def test_without_litert(tosaic, compiled, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    result = tosaic("npu", "verify", compiled, "--against", FILES / "conv.tflite")
    assert result.exit_code == 1 and "LiteRT is not installed" in result.stderr
    assert "pip install tosaic[litert]" in result.stderr
