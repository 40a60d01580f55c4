"""Weights of four bits in groups: what a user names, what torchao quantized, and what is refused with its reason."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    MappingType,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup
from torchao.utils import unwrap_tensor_subclass

from tosaic.frontend import Capture, capture, quantize
from tosaic.support.errors import ModelError


class Layers(nn.Module):
    """Linear layers, a convolution of single pixels, and one of windows."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(80)
        self.first, self.second = nn.Linear(80, 48), nn.Linear(48, 40, bias=False)
        self.pixels, self.windows = nn.Conv1d(32, 16, 1), nn.Conv1d(32, 16, 3)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.second(torch.relu(self.first(self.norm(x)))), self.pixels(y), self.windows(y)


DTYPES = {bits: getattr(torch, f"int{bits}") for bits in (2, 4, 6)}  # which torch does not declare


def captured(net: nn.Module | None = None) -> Capture:
    torch.manual_seed(0)
    net = net or Layers()
    samples = [(torch.randn(1, 80), torch.randn(1, 32, 9)) for _ in range(24)]
    return capture(net.eval(), samples, samples[0])


def integers(program: torch.export.ExportedProgram, shape: tuple[int, ...]) -> np.ndarray:
    """The int8 weights of a shape, [outputs, inputs]."""
    (found,) = (one for one in program.state_dict.values() if one.dtype == torch.int8 and one.shape == shape)
    return found.numpy().astype(int).reshape(len(found), -1)


def of_four_bits(weights: np.ndarray, group: int) -> bool:
    """Whether all of a group are -8 to 7 times one number."""
    for first in range(0, weights.shape[1], group):
        part = weights[:, first : first + group]
        factor = np.maximum(1, np.gcd.reduce(part, axis=1))[:, None]
        if (part < -8 * factor).any() or (part > 7 * factor).any():
            return False
    return True


@pytest.mark.parametrize("group", [32, 64])
def test_named_layers_have_four_bits_and_others_eight(group):
    model = captured()
    program = quantize(model, int4=["first", "conv1d"], group_size=group)
    found = {shape: of_four_bits(integers(program, shape), group) for shape in ((48, 80), (40, 48), (16, 32, 1))}
    assert found == {(48, 80): True, (40, 48): False, (16, 32, 1): True}
    assert not of_four_bits(integers(program, (16, 32, 3)), 32)


class Decoder(nn.Module):
    """A table of embeddings, which is the matrix of a linear layer, too."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.table = nn.Embedding(24, width)

    def forward(self, tokens: Tensor) -> Tensor:
        return nn.functional.linear(torch.tanh(self.table(tokens)), self.table.weight)


def decoder(width: int = 64) -> Capture:
    torch.manual_seed(0)
    samples = [(torch.randint(0, 24, (1, 5)),) for _ in range(16)]
    return capture(Decoder(width).eval(), samples, samples[0])


def test_a_table_has_four_bits_and_its_matrix_the_same_integers():
    model = decoder()
    program = quantize(model, int4=["embedding"])
    known = [one.detach() for one in program.state_dict.values() if one.numel() == 24 * 64]
    rows = [one.numpy().astype(int).reshape(24, 64) for one in known if one.equal(one.round())]
    assert len(rows) == 2 and (rows[0] == rows[1]).all() and of_four_bits(rows[0], 32)
    (tokens,) = model.calibration[0]
    exact, found = model.program.module()(tokens), program.module()(tokens)
    assert 10 * math.log10(exact.square().sum().item() / (found - exact).square().sum().item()) > 16


@pytest.mark.parametrize("width, npu", [(16, False), (64, True)])
def test_what_table_has_no_four_bits(width, npu):
    with pytest.raises(ModelError) as caught:
        quantize(decoder(width), int4=["embedding"], npu=npu)
    assert caught.value.why == "a table of embeddings needs rows of 32 numbers at least, and a target without NPU"


def test_they_lose_less_than_the_nearest_ones_would():
    torch.manual_seed(1)
    layer, mixing = nn.Linear(64, 32), torch.randn(8, 64)
    samples = [(torch.randn(1, 8) @ mixing + 0.1 * torch.randn(1, 64),) for _ in range(256)]
    program = quantize(capture(layer, samples[:128], samples[0]), int4=["linear"])
    rows = layer.weight.detach().unflatten(1, (2, 32))
    step = rows.abs().amax(-1, keepdim=True) / 7
    nearest = ((rows / step).round() * step).flatten(1)

    def noise(results: list[Tensor]) -> float:
        return sum((a - layer(x)).square().sum().item() for a, (x,) in zip(results, samples[128:], strict=True))

    of_nearest = noise([nn.functional.linear(x, nearest, layer.bias) for (x,) in samples[128:]])
    assert noise([program.module()(*one) for one in samples[128:]]) < 0.5 * of_nearest


CONFIGS = {
    "weights alone": IntxWeightOnlyConfig(DTYPES[4], PerGroup(16 * 5)),
    "rows": IntxWeightOnlyConfig(DTYPES[4], PerAxis(0)),
    "int2": IntxWeightOnlyConfig(DTYPES[2], PerAxis(0)),
    "int8 by int4": Int8DynamicActivationIntxWeightConfig(weight_dtype=DTYPES[4], weight_granularity=PerAxis(0)),
}


def with_torchao(config, net: nn.Module | None = None, names: tuple[str, ...] = ("first",)) -> nn.Module:
    torch.manual_seed(0)
    net = net or Layers()
    quantize_(net, config, lambda module, name: name in names)
    return net


@pytest.mark.parametrize("unwrapped", [False, True])
@pytest.mark.parametrize("config", CONFIGS)
def test_rows_of_torchao_keep_their_integers(config, unwrapped):
    net = with_torchao(CONFIGS[config])
    want = net.get_parameter("first.weight").qdata.numpy().astype(int)  # pyright: ignore[reportAttributeAccessIssue]
    found = integers(quantize(captured(unwrap_tensor_subclass(net) if unwrapped else net)), (48, 80))
    factors = np.gcd.reduce(found, axis=1)[:, None]
    # Rounding with feedback may move one that is near a half, as activations have other steps.
    assert (found // factors * np.gcd.reduce(want, axis=1)[:, None] == want).mean() > 0.99


def test_groups_of_torchao_have_steps_near_theirs():
    net = with_torchao(IntxWeightOnlyConfig(DTYPES[4], PerGroup(32)), nn.Sequential(nn.Linear(96, 64)), ("0",))
    weight, bias = net.get_parameter("0.weight"), net.get_parameter("0.bias")
    want = weight.dequantize()
    samples = [(torch.randn(1, 96),) for _ in range(64)]
    program = quantize(capture(net, samples, samples[0]))
    assert of_four_bits(integers(program, (64, 96)), 32)
    exact = [nn.functional.linear(x, want, bias) for (x,) in samples]
    noise = sum((program.module()(*one) - y).square().sum().item() for one, y in zip(samples, exact, strict=True))
    assert 10 * math.log10(sum(y.square().sum().item() for y in exact) / noise) > 28


def test_a_norm_before_weights_of_torchao_stays():
    net = Layers()
    with torch.no_grad():
        net.norm.weight.uniform_(0.5, 1.5)
    net = with_torchao(IntxWeightOnlyConfig(DTYPES[4], PerAxis(0)), net)
    assert of_four_bits(integers(quantize(captured(net)), (48, 80)), 96)


REFUSED = {
    "Int8Tensor": (Int8WeightOnlyConfig(), "the weight `first.weight` is a Int8Tensor, which is not compiled"),
    "six bits": (
        IntxWeightOnlyConfig(DTYPES[6], PerGroup(16)),
        "the weight `first.weight` has a scale for each block",
    ),
    "groups of 16": (IntxWeightOnlyConfig(DTYPES[4], PerGroup(16)), r"has a scale for each block of \[1, 16\]"),
    "eight bits": (
        IntxWeightOnlyConfig(torch.int8, PerGroup(32)),
        "the weight `first.weight` has groups of more than four bits",
    ),
    "zero points": (
        IntxWeightOnlyConfig(DTYPES[4], PerAxis(0), MappingType.ASYMMETRIC),
        "the weight `first.weight` has zero points",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_weights_of_torchao_are_refused(case):
    config, message = REFUSED[case]
    torch.manual_seed(0)
    net = Layers()
    net.first, net.norm = nn.Linear(96, 48), nn.LayerNorm(96)
    samples = (torch.randn(1, 96), torch.randn(1, 32, 9))
    with pytest.raises(ModelError, match=message):
        capture(with_torchao(config, net).eval(), inputs=samples)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"int4": ["windows"]}, "`windows` cannot have weights of four bits"),
        ({"int4": ["norm"]}, "`norm` cannot have weights of four bits"),
        ({"int4": ["third"]}, "`third` names no module and no op of the model"),
        ({"int4": ["first"], "activations": "int16"}, "`linear` cannot have weights of four bits"),
    ],
    ids=str,
)
def test_what_cannot_have_four_bits_is_refused(given, message):
    with pytest.raises(ModelError, match=message):
        quantize(captured(), **given)


def test_small_layers_and_shared_weights_say_why():
    net = nn.Sequential(nn.Linear(20, 32), nn.Linear(32, 32), nn.Linear(32, 32))
    net[2].weight = net[1].weight
    model = capture(net, inputs=(torch.randn(1, 20),))
    for name, why in (("0", "it has 20 inputs, and a group has 32 at least"), ("2", "another layer's")):
        with pytest.raises(ModelError) as refused:
            quantize(model, int4=[name])
        assert refused.value.why is not None and why in refused.value.why
