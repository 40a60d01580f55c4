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
from tosa_graphs import Graph

from tosaic.api import Build
from tosaic.backends.reference import serialize
from tosaic.compiler.executorch_export import delegate_payload, delegate_regions
from tosaic.support.functions import functions_on, standalone


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


@pytest.fixture(scope="module")
def pte(net, tmp_path_factory) -> tuple[Path, Path]:
    """A `.pte` file with a delegate, as far as is read of it, and the TOSA flatbuffer that its region was made of."""
    build, folder = Build.load(net), tmp_path_factory.mktemp("pte")
    (region,) = delegate_regions(build).values()
    (function,) = functions_on("npu", build.placed).values()
    program, meaning = folder / "net.pte", folder / "region.tosa"
    program.write_bytes(b"\x20\0\0\0ET12" + bytes(24) + delegate_payload(region) + b"what stands behind")
    meaning.write_bytes(serialize(standalone(function)))
    return program, meaning


def test_a_region_of_a_pte_equals_its_tosa(tosaic, pte):
    result = tosaic("npu", "verify", pte[0], "--against", pte[1], "--inputs", 2)
    assert result.exit_code == 0, result.output
    assert "1 region for ethos-u55-128" in result.stdout and "equal to the bit" in result.stdout
    assert "output 0 of region 0" in result.stdout


def test_other_weights_in_a_pte_are_seen(tosaic, pte, tmp_path, net):
    (region,) = delegate_regions(Build.load(net)).values()
    content = bytearray(pte[0].read_bytes())
    at = content.index(region.constants)
    biases = content[at : at + 10]
    content[at : at + 10] = bytes(number ^ 0x10 for number in biases)
    (tmp_path / "other.pte").write_bytes(content)
    result = tosaic("npu", "verify", tmp_path / "other.pte", "--against", pte[1], "--inputs", 2, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["outputs"][0]["different"] > 0


def test_what_a_pte_is_compared_with_is_one_file_for_each_region(refused, pte, tmp_path):
    program, meaning = pte
    message = refused("npu", "verify", program, "--against", meaning, "--against", meaning)
    assert "each of 1 NPU regions needs a TOSA file" in message and "2 are given" in message
    message = refused("npu", "verify", program, "--against", program)
    assert f"cannot read `{program}`" in message and "it is no TOSA flatbuffer" in message
    (tmp_path / "short.pte").write_bytes(program.read_bytes()[:400])
    message = refused("npu", "verify", tmp_path / "short.pte", "--against", meaning)
    assert "it is damaged, or not as Vela writes it" in message


def test_the_meaning_of_another_region_is_told(refused, pte, tmp_path):
    graph = Graph()
    other = tmp_path / "other.tosa"
    other.write_bytes(serialize(graph.module(graph.binary("add", *(graph.input((1, 3), "i32") for _ in range(2))))))
    message = refused("npu", "verify", pte[0], "--against", other)
    assert f"the region was not made of `{other}`" in message and "inputs of 12, 12 B there" in message
