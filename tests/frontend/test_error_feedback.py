"""Weights that take up each other's roundings: on the grid, nearer to the layer in float than the nearest weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tosaic.frontend import Capture, capture, quantize, run_float
from tosaic.frontend.canonical import DEQUANTIZE, canonical
from tosaic.frontend.error_feedback import round_weights
from tosaic.frontend.lowerings.op_quantization import Weighted
from tosaic.frontend.lowerings.registry import op_quantization

LAYERS = {
    "linear": (nn.Linear(24, 6), (1, 24)),
    "conv2d": (nn.Conv2d(4, 6, 3, stride=2, padding=1), (1, 4, 9, 9)),
    "dilated": (nn.Conv2d(4, 6, 3, dilation=2, padding="same"), (1, 4, 9, 9)),
    "grouped": (nn.Conv2d(8, 6, 3, groups=2), (1, 8, 7, 7)),
    "depthwise": (nn.Conv2d(8, 8, 3, groups=8, padding=1), (1, 8, 7, 7)),
    "conv1d": (nn.Conv1d(5, 6, 4, padding=2), (1, 5, 20)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2), (1, 4, 6, 6)),
    "longer than a block": (nn.Linear(300, 6), (1, 300)),
    "longer than what goes together": (nn.Linear(1500, 6), (1, 1500)),
}


def images(shape: tuple[int, ...], count: int) -> list[Tensor]:
    """Samples whose values go together, as those of a trained network do."""
    generator = torch.Generator().manual_seed(4)
    mixing = torch.randn(shape[1], shape[1], generator=generator) / shape[1] ** 0.5
    mixing += torch.ones(shape[1], 1)
    found = [torch.randn(shape, generator=generator) for _ in range(count)]
    return [_smooth(torch.relu(torch.einsum("ij,bj...->bi...", mixing, one))) for one in found]


def _smooth(image: Tensor) -> Tensor:
    for axis in range(2, image.ndim):
        image = image + image.roll(1, axis) + image.roll(2, axis)
    return image


def exported(module: nn.Module, example: Tensor) -> tuple[torch.fx.Node, Weighted]:
    program = canonical(torch.export.export(module.eval(), (example,)))
    (node,) = [one for one in program.graph.nodes if isinstance(op_quantization(one), Weighted)]
    op = op_quantization(node)
    assert isinstance(op, Weighted)
    return node, op


def scales_of(weight: Tensor, op: Weighted, limit: int) -> Tensor:
    rows = weight.movedim(op.weight_axis, 0)
    return rows.reshape(len(rows), -1).abs().amax(1) / limit


def on_axis(scale: Tensor, weight: Tensor, op: Weighted) -> Tensor:
    return scale.reshape([-1 if axis == op.weight_axis else 1 for axis in range(weight.ndim)])


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("centered", [False, True])
def test_they_lie_on_the_grid_and_change_the_results_less(name, centered):
    module, shape = LAYERS[name]
    torch.manual_seed(1)
    module.reset_parameters()
    taken, limit = images(shape, 48), 7
    node, op = exported(module, taken[0])
    with torch.no_grad():
        weight = module.weight.detach().clone()
        scale = scales_of(weight, op, limit)
        steps = on_axis(scale, weight, op)
        rounded = round_weights(node, op, weight, scale, (-limit, limit), taken, centered)
        assert rounded is not None and rounded.shape == weight.shape
        integers = rounded / steps
        assert integers.sub(integers.round()).abs().max() < 1e-4 and integers.abs().max() < limit + 0.1

        def left(other: Tensor) -> float:
            """The energy of what the results change by."""
            wanted = torch.cat([module(image) for image in taken])
            module.weight.copy_(other)
            error = torch.cat([module(image) for image in taken]) - wanted
            module.weight.copy_(weight)
            axis = [one for one in range(error.ndim) if one != error.ndim + op.result_axis]
            return (error - error.mean(axis, keepdim=True) if centered else error).square().sum().item()

        nearest = (weight / steps).round() * steps
        assert left(rounded) < 0.8 * left(nearest)


def test_a_transposed_convolution_in_groups_is_left_alone():
    module = nn.ConvTranspose2d(4, 4, 3, groups=2)
    example = torch.zeros(1, 4, 5, 5)
    node, op = exported(module, example)
    assert round_weights(node, op, module.weight.detach(), torch.ones(1), (-127, 127), [example], True) is None


def test_samples_of_nothing_give_the_nearest():
    module = nn.Linear(8, 4)
    node, op = exported(module, torch.zeros(1, 8))
    weight = module.weight.detach()
    scale = scales_of(weight, op, 127)
    rounded = round_weights(node, op, weight, scale, (-127, 127), [torch.zeros(1, 8)] * 3, True)
    assert rounded is not None
    assert torch.allclose(rounded, (weight / scale[:, None]).round() * scale[:, None], atol=1e-6)


class Pruned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 8, 3), nn.Conv2d(8, 8, 3)
        with torch.no_grad():
            self.second.weight[:, :3] *= 1e-9  # decayed
            self.second.weight[1, 4] = 0

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


def test_pruned_weights_stay_0():
    torch.manual_seed(0)
    batches = tuple((torch.randn(1, 4, 12, 12),) for _ in range(16))
    model = Pruned().eval()
    program = quantize(Capture("model", canonical(torch.export.export(model, batches[0])), batches[0], batches))
    stored = [*program.state_dict.values(), *program.constants.values()]
    (weights,) = [one for one in stored if one.shape == (8, 8, 3, 3) and one.dtype == torch.int8]
    zeros = (weights == 0).flatten(2).all(-1)
    expected = torch.zeros(8, 8, dtype=torch.bool)
    expected[:, :3] = expected[1, 4] = True
    assert zeros.equal(expected)


def test_quantization_rounds_so():
    """Against the same program with the nearest integers: noise on samples that calibration has not seen."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    every = [one @ (torch.eye(32) + 0.5) for one in torch.randn(160, 1, 32)]
    batches, fresh = tuple((one,) for one in every[:64]), torch.cat(every[64:])
    capture = Capture("model", canonical(torch.export.export(model, batches[0])), batches[0], batches)
    program = quantize(capture, "int16")  # so that the weights are what is lost
    module = program.module()
    with torch.no_grad():
        wanted = model(fresh)
        found = torch.cat([module(one[None]) for one in fresh])
        for layer in model:
            if isinstance(layer, nn.Linear):
                scale = layer.weight.abs().amax(1, keepdim=True) / 127
                layer.weight.copy_((layer.weight / scale).round() * scale)
        nearest = model(fresh)
    assert any(node.target in DEQUANTIZE for node in program.graph.nodes)
    assert (found - wanted).var() < 0.7 * (nearest - wanted).var()


def fresh_db(samples: list[tuple[Tensor]], others: list[tuple[Tensor]]) -> float:
    """Signal to noise of two linear layers, calibrated on samples, on others."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(96, 96, bias=False), nn.SiLU(), nn.Linear(96, 32, bias=False)).eval()
    model = capture(net, samples, samples[0])
    program = quantize(model)
    want, got = (torch.cat([torch.tensor(run_float(one, x)[0]) for x in others]) for one in (model, program))
    return 10 * torch.log10(want.square().sum() / (want - got).square().sum()).item()


def test_layers_that_see_one_row_of_a_sample_are_rounded_on_more_samples():
    generator = torch.Generator().manual_seed(2)
    mixing = torch.randn(24, 96, generator=generator)

    def drawn(count: int) -> list[tuple[Tensor]]:
        parts = [torch.randn(1, size, generator=generator) for _ in range(count) for size in (24, 96)]
        return [(few @ mixing + 0.3 * many,) for few, many in zip(parts[::2], parts[1::2], strict=True)]

    samples, others = drawn(512), drawn(24)
    assert fresh_db(samples, others) > fresh_db(samples[::8], others) + 0.5
