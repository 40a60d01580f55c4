"""An op that tosaic does not know is added by one file: how it is lowered, and how it is quantized."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from drop_in import describe
from torch import nn

from tosaic.backends.reference import evaluate
from tosaic.frontend import Capture, decompositions, import_program, lowerings, quantize, run_float
from tosaic.frontend.canonical import QUANTIZE
from tosaic.frontend.decomposition import decomposed
from tosaic.frontend.decompositions import registry as takes_apart
from tosaic.frontend.lowerings import registry
from tosaic.passes import run_phases
from tosaic.support.discovery import modules_of
from tosaic.support.errors import Error, ModelError
from tosaic.support.mlir import walk

BESSEL = """
import torch
from torch.fx import Node

from tosaic.frontend.builder import Builder
from tosaic.frontend.lowerings.op_quantization import OneToOne
from tosaic.frontend.lowerings.registry import lowers
from tosaic.support.mlir import ir


@lowers(torch.ops.aten.special_spherical_bessel_j0.default, quantized=OneToOne(QUANTIZED))
def spherical_bessel_j0(b: Builder, node: Node, x: ir.Value) -> ir.Value:
    size = b.pointwise("add", b.pointwise("abs", x), 1e-6)
    return b.pointwise("mul", b.pointwise("sin", size), b.pointwise("reciprocal", size))
"""


MADE_OF_OTHERS = """
import torch

from tosaic.frontend.decompositions.registry import decomposes


@decomposes(torch.ops.aten.special_spherical_bessel_j0.default)
def spherical_bessel_j0(x: torch.Tensor) -> torch.Tensor:
    size = x.abs() + 1e-6
    return size.sin() / size
"""


class Model(nn.Module):
    """f32[1, 3, 8, 8] -> f32[1, 4, 8, 8]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layer = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.spherical_bessel_j0(self.layer(x))


@pytest.fixture
def afresh(monkeypatch):
    """The table of lowerings is filled again, and nothing that a test adds stays in it."""
    monkeypatch.setattr(registry, "_LOWERINGS", dict(registry.registered()))
    for known in (registry.registered, modules_of):
        known.cache_clear()
    yield
    for known in (registry.registered, modules_of):
        known.cache_clear()
    for name in ("theirs", f"{lowerings.__name__}.newcomer"):
        sys.modules.pop(name, None)


@pytest.fixture
def drop(afresh, monkeypatch, tmp_path):
    """Put a file into the package."""
    monkeypatch.setattr(lowerings, "__path__", [*lowerings.__path__, str(tmp_path)])
    return lambda source: (tmp_path / "newcomer.py").write_text(source)


@pytest.fixture
def install(afresh, monkeypatch, tmp_path):
    """Put a distribution of one module on the path, as pip leaves it."""
    describe("theirs", "[tosaic.lowerings]\nbessel = theirs\n", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return lambda source: (tmp_path / "theirs.py").write_text(source)


def captured() -> Capture:
    x = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    return Capture("model", decomposed(torch.export.export(Model(), (x,))), (x,), ((x,),))


def test_the_op_is_unknown():
    with pytest.raises(ModelError, match=r"no lowering for aten\.special_spherical_bessel_j0\.default"):
        captured()


@pytest.mark.parametrize("way", ["drop", "install"])
def test_a_file_adds_an_op(way, request):
    request.getfixturevalue(way)(BESSEL.replace("QUANTIZED", ""))
    model = captured()
    (want,) = run_float(model, model.inputs)
    (got,) = evaluate(import_program(model.program), [model.inputs[0].numpy()])
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)

    program = quantize(model)
    (rounded,) = run_float(program, model.inputs)
    assert 10 * np.log10((want.astype(np.float64) ** 2).sum() / ((want - rounded) ** 2).sum()) > 34
    module = import_program(program)
    run_phases(module)
    assert "tosa.table" in [op.name for op in walk(module)]
    assert not [op.name for op in walk(module) if any("f32" in str(result.type) for result in op.results)]


def test_a_file_takes_an_op_apart(monkeypatch, tmp_path):
    monkeypatch.setattr(decompositions, "__path__", [*decompositions.__path__, str(tmp_path)])
    monkeypatch.setattr(takes_apart, "_OWN", dict(takes_apart._OWN))
    (tmp_path / "newcomer.py").write_text(MADE_OF_OTHERS)
    for known in (takes_apart._known, modules_of):
        known.cache_clear()
    try:
        model = captured()
    finally:
        for known in (takes_apart._known, modules_of):
            known.cache_clear()
        sys.modules.pop(f"{decompositions.__name__}.newcomer", None)
    (got,) = evaluate(import_program(model.program), [model.inputs[0].numpy()])
    np.testing.assert_allclose(got, Model()(*model.inputs).detach().numpy(), rtol=2e-5, atol=2e-6)
    assert {"sin.default", "abs.default"} <= {
        str(node.target).removeprefix("aten.") for node in model.program.graph.nodes
    }


def test_its_quantization_is_what_the_file_says(drop):
    drop(BESSEL.replace("QUANTIZED", "result=(0.0, 0.5)"))
    casts = [node for node in quantize(captured()).graph.nodes if node.target is QUANTIZE[0]]
    assert [cast.args[1] for cast in casts if "bessel" in str(cast.args[0])] == [pytest.approx(0.5 / 255)]


def test_a_file_that_does_not_import_is_named(drop):
    drop("import no_such_module\n")
    with pytest.raises(Error, match=r"`tosaic\.frontend\.lowerings\.newcomer` does not import") as caught:
        captured()
    assert "No module named 'no_such_module'" in str(caught.value)


def test_an_op_has_one_lowering(install):
    install(BESSEL.replace("QUANTIZED", "").replace("special_spherical_bessel_j0", "tanh"))
    with pytest.raises(ModelError, match=r"`aten\.tanh\.default` has two lowerings") as caught:
        captured()
    assert "tosaic.frontend.lowerings.elementwise, theirs" in str(caught.value)
