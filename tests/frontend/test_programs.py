"""Programs, not only functions: nested arguments, keywords, constants, named results, half precision, dynamic sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tosaic.backends.reference import evaluate
from tosaic.frontend import Capture, capture, import_program, load_float, quantize, run_float, save_float
from tosaic.passes import run_phases
from tosaic.support.errors import ModelError

SOURCE = """
from collections import namedtuple
import torch
from torch import nn

x = torch.linspace(-1, 1, 12).reshape(3, 4)
Pair = namedtuple("Pair", "scores states")

class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)

    def forward(self, x, extra, factor=1, mask=None, *, flip=False, scale=None):
        y = self.layer(x) * factor + extra["a"] - extra["b"][0] * extra["b"][1]
        y = y if scale is None else y * scale
        y = y if mask is None else y + mask
        return {"logits": -y if flip else y, "past": (x * 2, None, [extra["a"]])}

class Ways(nn.Module):
    def forward(self, x):
        return Pair(x + 1, (x * 2, x * 3))

class Half(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.dtype = nn.Linear(4, 4).to(dtype), dtype
        self.register_buffer("offset", torch.ones(4, dtype=dtype))

    def forward(self, x):
        return torch.relu(self.layer(x.to(self.dtype)) + self.offset).to(torch.float32)

def nested():
    return Nested(), (x, {"a": x + 1, "b": [x - 1, 2.0]}, 3)

def keywords():
    inputs = {"x": x, "extra": {"a": x + 1, "b": [x - 1, 2.0]}, "flip": True, "scale": x * 0.5, "mask": None}
    other = {"scale": x, "x": -x, "extra": {"a": x, "b": [x, 2.0]}, "mask": None, "flip": True}
    return Nested(), inputs, [inputs, other]

def other_constant():
    return Nested(), (x, {"a": x, "b": [x, 2.0]}, 3), [(x, {"a": x, "b": [x, 2.0]}, 4)]

def other_nesting():
    return Nested(), (x, {"a": x, "b": [x, 2.0]}, 3), [(x, {"a": x}, 3)]

def other_leaf():
    return Nested(), (x, {"a": x, "b": [x, 2.0]}, 3), [(x, {"a": 1.0, "b": [x, 2.0]}, 3)]

def mixed():
    return Nested(), {"scale": x[:1], "extra": {"b": [x[:, :1], 2.0], "a": x[0]}, "x": x, "mask": x * 2, "factor": 2.0}

def ways():
    return Ways(), x

def half():
    return Half(torch.float16), (x.half(),)

def bfloat():
    return Half(torch.bfloat16), (x,)
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "models.py"
    path.write_text(SOURCE)
    return lambda name: f"{path}:{name}"


def results(captured: Capture) -> list[np.ndarray]:
    """In float and in int8 close to PyTorch's program."""
    want = run_float(captured, captured.inputs)
    got = evaluate(import_program(captured.program), [x.numpy() for x in captured.inputs])
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
    run_phases(import_program(quantize(captured)))
    return want


def test_nested_arguments_are_tensors_in_order_and_constants(model):
    captured = capture(model("nested"))
    assert captured.input_names == ["x", "extra_a", "extra_b_0"]
    assert captured.result_names == ("logits", "past_0", "past_2_0")
    logits, *_ = results(captured)
    x = captured.inputs[0]
    layer = {name: tensor.detach() for name, tensor in captured.program.state_dict.items()}
    want = nn.functional.linear(x, layer["layer.weight"], layer["layer.bias"]) * 3 + x + 1 - (x - 1) * 2
    np.testing.assert_allclose(logits, want.numpy(), rtol=1e-5, atol=1e-5)


def test_keywords_have_the_order_of_the_example(model):
    captured = capture(model("keywords"))
    assert captured.input_names == ["x", "extra_a", "extra_b_0", "scale"]
    assert [float(tensor[0, 0]) for tensor in captured.calibration[1]] == [1.0, -1.0, -1.0, -1.0]
    results(captured)


def test_keywords_may_come_in_any_order(model):
    captured = capture(model("mixed"))
    shapes = dict(zip(captured.input_names, (tuple(tensor.shape) for tensor in captured.inputs), strict=True))
    assert shapes == {"x": (3, 4), "extra_a": (4,), "extra_b_0": (3, 1), "mask": (3, 4), "scale": (1, 4)}
    results(captured)


@pytest.mark.parametrize(
    "name, what",
    [
        ("other_constant", "has 4 for the constant 3"),
        ("other_nesting", "nested otherwise"),
        ("other_leaf", "has a float where the example has a Tensor"),
    ],
)
def test_samples_are_calls_like_the_example(model, name, what):
    with pytest.raises(ModelError, match=what):
        capture(model(name))


def test_fields_are_names(model):
    captured = capture(model("ways"))
    assert captured.result_names == ("scores", "states_0", "states_1")
    assert len(results(captured)) == 3


@pytest.mark.parametrize("name", ["half", "bfloat"])
def test_half_precision_is_float32(model, name):
    captured = capture(model(name))
    dtypes = {value.dtype for node in captured.program.graph.nodes for value in pytree.tree_leaves(node.meta.get("val"))
              if isinstance(value, Tensor)}  # fmt: skip
    assert dtypes == {torch.float32}
    results(captured)


def test_a_nested_program_is_kept_beside_the_build(model, tmp_path):
    captured = capture(model("nested"))
    save_float(captured, tmp_path / "float.pt2")
    for one, other in zip(
        run_float(load_float(tmp_path / "float.pt2"), captured.inputs),
        run_float(captured, captured.inputs),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_a_saved_program_with_dynamic_sizes_is_fixed(tmp_path):
    path, sizes = tmp_path / "model.pt2", {"x": {0: torch.export.Dim("rows"), 2: torch.export.Dim("length", min=4)}}

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv1d(3, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).mean(-1)

    torch.export.save(torch.export.export(Net(), (torch.randn(2, 3, 8),), dynamic_shapes=sizes), path)
    with pytest.raises(ModelError, match="dynamic shape") as error:
        capture(str(path))
    assert "--shape x=" in error.value.hint
    captured = capture(str(path), shapes={"x": (1, 3, 20)})
    assert captured.inputs[0].shape == (1, 3, 20)
    assert [result.shape for result in results(captured)] == [(1, 4)]
    with pytest.raises(ModelError, match="there is no input `y`"):
        capture(str(path), shapes={"y": (1, 3, 20)})
