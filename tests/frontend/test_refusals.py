"""Models that no firmware can be: each is refused by name, with the line where there is one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tosaic.frontend import capture, import_program, load_float, quantize, run_float, save_float
from tosaic.support.errors import ModelError

x = torch.linspace(-1, 1, 16).reshape(2, 8)


class Model(nn.Module):
    """A function of tensors, beside a layer and a buffer."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function, self.layer = function, nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def cut(weight: Tensor) -> Tensor:
    return weight[None, None, :1, :1]


class Pair(NamedTuple):
    scores: Tensor
    states: tuple[Tensor, ...]
    loss: Tensor | None = None


class Cache:
    """As Hugging Face's models return one."""


MODELS: dict[str, tuple[Callable, tuple]] = {
    "strided_view": (lambda m, x: (x * 2).t().as_strided((2, 2), (1, 1)), (x,)),
    "empty_result": (lambda m, x: x[:, 8:], (x,)),
    "cropped_away": (
        lambda m, x: F.conv_transpose2d(x[None, None, :, :2], cut(m.layer.weight), stride=3, padding=1),
        (x,),
    ),
    "rank_7_input": (lambda m, x: x + 1, (x.reshape(2, 1, 2, 1, 2, 1, 2),)),
    "rank_7": (lambda m, x: x.reshape(2, 1, 2, 1, 2, 1, 2) * 2, (x,)),
    "random": (lambda m, x: x + torch.rand(2, 8), (x,)),
    "random_like": (lambda m, x: x + torch.rand_like(x), (x,)),
    "complex": (lambda m, x: torch.fft.rfft(x).tanh().real, (x,)),
    "complex_result": (lambda m, x: torch.fft.rfft(x), (x,)),
    "complex_input": (lambda m, x: x.real, (x.to(torch.complex64),)),
    "writes_in_place": (lambda m, x: (x * 1).copy_(torch.linalg.det(x[:, :2])), (x,)),
    "empty_input": (lambda m, x: x + 1, (x[:0],)),
    "no_input": (lambda m: torch.ones(2), ()),
    "no_result": (lambda m, x: (), (x,)),
    "training": (lambda m, x: x + m.layer.bias.detach().add_(1), (x,)),
    "cache": (lambda m, x: (m.layer(x), Cache()), (x,)),
    "in_a_class": (lambda m, x: Pair(m.layer(x), (x * 2,)), (x,)),
}


@pytest.fixture
def factory(monkeypatch):
    """The name of a model as a factory of this file."""

    def named(name: str) -> str:
        function, inputs = MODELS[name]
        monkeypatch.setattr(sys.modules[capture.__module__], "_call_factory", lambda *_: (Model(function), inputs, ()))
        return f"{__file__}:{name}"

    return named


@pytest.mark.parametrize(
    "name, what, where",
    [
        ("strided_view", "as_strided of a view cannot be compiled", ""),
        ("empty_result", "the result of `aten.slice.Tensor` has no elements", "test_refusals.py:"),
        ("cropped_away", "a transposed convolution that crops all that it computes", "test_refusals.py:"),
        ("rank_7", "the result of `aten.view.default` has 7 axes", "test_refusals.py:"),
        ("rank_7_input", "the input `inputs_0` has 7 axes", ""),
        ("random", "no lowering for aten.rand.default", "test_refusals.py:"),
        ("random_like", "no lowering for aten.rand_like.default", "test_refusals.py:"),
        ("complex", "no lowering for aten.tanh.default of complex numbers", "test_refusals.py:"),
        ("complex_result", "a result is complex", "test_refusals.py:"),
        ("complex_input", "the input `inputs_0` is complex", ""),
        ("writes_in_place", "no lowering for aten.linalg_det.default", "test_refusals.py:"),
        ("empty_input", "the input `inputs_0` has no elements", ""),
        ("no_input", "the model takes no inputs", ""),
        ("no_result", "the model gives no tensor", ""),
        ("training", "the model writes to its parameter `layer.bias`", ""),
        ("cache", "the model returns a Cache", ""),
    ],
)
def test_a_model_is_refused(factory, name, what, where):
    with pytest.raises(ModelError) as error:
        import_program(quantize(capture(factory(name))))
    assert error.value.what.startswith(what)
    assert where in error.value.where


def test_results_in_a_class_of_the_model_are_kept_beside_the_build(factory, tmp_path):
    captured = capture(factory("in_a_class"))
    save_float(captured, tmp_path / "float.pt2")
    got, expected = (run_float(model, (x,)) for model in (load_float(tmp_path / "float.pt2"), captured))
    assert len(got) == 2 and all(np.array_equal(one, other) for one, other in zip(got, expected, strict=True))
