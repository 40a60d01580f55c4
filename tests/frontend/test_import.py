"""Each lowering computes in float what PyTorch computes: the imported module under the TOSA reference model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from benchmarks.op_examples import EXAMPLES, INDICES, ROWS, Function, X, tensor
from tosaic.backends.reference import evaluate
from tosaic.frontend import import_program
from tosaic.support.errors import ModelError
from tosaic.support.mlir import functions, ir, walk


def seeded(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(7)
    for value in module.state_dict().values():
        if value.is_floating_point():
            value.copy_(torch.rand(value.shape, generator=generator) + 0.1)
    return module.eval()


def check(module: nn.Module, *inputs: torch.Tensor, tolerance: float = 2e-5) -> ir.Module:
    imported = import_program(torch.export.export(module.eval(), inputs))
    arrays = [x.numpy().astype(np.int32) if x.dtype == torch.int64 else x.numpy() for x in inputs]
    for got, want in zip(evaluate(imported, arrays), tree_leaves(module(*inputs)), strict=True):
        assert got.shape == tuple(want.shape)
        np.testing.assert_allclose(got, want.detach().numpy(), rtol=tolerance, atol=tolerance)
    return imported


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_computes_what_pytorch_computes(name):
    module, inputs = EXAMPLES[name]
    check(seeded(module), *inputs)


def test_more_tensors_than_tosa_joins_are_joined_in_parts():
    module = check(Function(lambda x: torch.cat([x * i for i in range(130)], 1)), ROWS)
    joins = [len(op.operands) for op in walk(module) if op.name == "tosa.concat"]
    assert sorted(joins) == [2, 3, 64, 64]


def test_int64_inputs_become_int32():
    main = functions(check(Function(lambda i: i + 1), INDICES))["main"]
    assert "(tensor<2x3xi32>) -> tensor<2x3xi32>" in str(main.attributes["function_type"])


def test_softmax_is_one_shared_composite():
    module = check(Function(lambda x: F.softmax(F.softmax(x, -1), -1)), ROWS)
    (softmax,) = [op for name, op in functions(module).items() if name != "main"]
    assert str(softmax.attributes["tosaic.composite"]) == '"softmax"'
    assert str(softmax.attributes["tosaic.axis"]) == "2 : i64"
    assert str(softmax.attributes["sym_visibility"]) == '"private"'


def test_layer_norm_takes_weight_and_bias():
    module = check(seeded(nn.LayerNorm(8)), ROWS)
    (norm,) = [op for name, op in functions(module).items() if name != "main"]
    assert "(tensor<3x5x8xf32>, tensor<8xf32>, tensor<8xf32>)" in str(norm.attributes["function_type"])
    assert str(norm.attributes["tosaic.epsilon"]) == "1.000000e-05 : f64"


def test_locations_name_the_users_line_module_and_op():
    class Inner(nn.Module):
        def forward(self, x):
            return torch.tanh(x)  # the line

    module = import_program(torch.export.export(nn.Sequential(Inner(), nn.ReLU()), (X,)))
    (tanh,) = [op for op in walk(module) if op.name == "tosa.tanh"]
    line = Inner.forward.__code__.co_firstlineno + 1
    assert str(tanh.location) == (
        f'loc(fused<{{aten = "aten.tanh.default", nn_module_stack = "0"}}>["{__file__}":{line}:0])'
    )


def test_every_unknown_op_is_named_with_its_line():
    class Model(nn.Module):
        def forward(self, x):
            y = torch.linalg.inv(x)
            return y + torch.linalg.det(x)

    with pytest.raises(ModelError) as caught:
        import_program(torch.export.export(nn.Sequential(Model()), (tensor(4, 4),)))
    line = Model.forward.__code__.co_firstlineno
    assert f"{__file__}:{line + 1} aten.linalg_inv.default in module `0`" in str(caught.value)
    assert f"{__file__}:{line + 2} aten.linalg_det.default in module `0`" in str(caught.value)
    assert "tosaic/frontend/lowerings" in str(caught.value)


def test_an_int64_constant_that_does_not_fit_is_refused():
    with pytest.raises(ModelError, match="does not fit int32") as caught:
        import_program(torch.export.export(Function(lambda i: i + torch.tensor([2**40])), (INDICES,)))
    assert "aten.add.Tensor" in str(caught.value)


def test_half_precision_is_refused():
    with pytest.raises(ModelError, match=r"torch\.float16"):
        import_program(torch.export.export(Function(F.relu), (X.half(),)))
