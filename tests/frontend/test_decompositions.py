"""Ops without a lowering of their own: exact in float; quantized, integers throughout and close to the float model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tosaic.backends.reference import evaluate
from tosaic.frontend import Capture, import_program, quantize
from tosaic.frontend.canonical import canonical
from tosaic.frontend.decomposition import decomposed
from tosaic.passes import run_phases
from tosaic.support.mlir import functions, ir, walk

IMAGE, ROWS, SEQUENCE = (1, 8, 6, 10), (2, 8), (1, 5, 8)
MASK = torch.arange(10) % 3 == 0
GRID = F.affine_grid(torch.tensor([[[0.8, 0.2, 0.1], [-0.2, 0.7, 0.0]]]), [1, 8, 5, 7], align_corners=False)
WINDOW, ITERATIONS = torch.hann_window(16), (torch.ones(5), torch.arange(5.0))
BILINEAR = torch.linspace(-20, 30, 3 * 10 * 5).sin().reshape(3, 10, 5)
STEPS = 16.0  # dB: one rounding before a step moves whole steps


class Function(nn.Module):
    """A function behind a convolution, whose result is quantized."""

    def __init__(self, function) -> None:
        super().__init__()
        self.layer, self.function = nn.Conv2d(8, 8, 3, padding=1), function

    def forward(self, x):
        return self.function(self.layer(x))


class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


FUNCTIONS = {
    "bilinear": (lambda y: F.bilinear(y, y[..., :5], BILINEAR, torch.arange(3.0)), 30),
    "flip": (lambda y: torch.flip(y, (2, 3)), 34),
    "roll": (lambda y: torch.roll(y, (1, -2), (1, 3)), 34),
    "pixel-shuffle": (lambda y: F.pixel_shuffle(y, 2), 34),
    "pixel-unshuffle": (lambda y: F.pixel_unshuffle(y, 2), 34),
    "channel-shuffle": (lambda y: F.channel_shuffle(y, 4), 34),
    "index": (lambda y: y[:, [0, 2, 2, 1]], 34),
    "index-two-axes": (lambda y: y[:, :, [[0], [3]], [1, 9, 4]], 34),
    "unfold": (lambda y: F.unfold(y, 2, stride=2), 34),
    "cat-of-nothing": (lambda y: torch.cat([y[:, :0], torch.cat([y[:, 1:], y[:, :0], y], 1)], 1), 30),
    "slice-scatter": (lambda y: torch.slice_scatter(y, y[:, :3] * 2, 1, 2, 8, 2), 30),
    "pad-reflect": (lambda y: F.pad(y, (2, 1, 0, 3), mode="reflect"), 34),
    "pad-replicate-all-but-ends": (lambda y: F.pad(y, (2, -11, -5, 3), mode="replicate"), 34),
    "pad-replicate": (lambda y: F.pad(y, (2, 1, 0, 3), mode="replicate"), 34),
    "pad-circular": (lambda y: F.pad(y, (2, 1, 0, 3), mode="circular"), 34),
    "avg-pool1d": (lambda y: F.avg_pool1d(y[:, 0], 2), 30),
    "max-pool1d": (lambda y: F.max_pool1d(y[:, 0], 3, 2), 30),
    "cumsum": (lambda y: torch.cumsum(y, 2), 30),
    "einsum": (lambda y: torch.einsum("bchw,bdhw->bcd", y, y), 30),
    "std": (lambda y: y.std(1), 28),
    "normalize": (lambda y: F.normalize(y, dim=1), 28),
    "cosine": (lambda y: F.cosine_similarity(y, y.flip(1) + 1, dim=1), 20),
    "glu": (lambda y: F.glu(y, 1), 30),
    "mish": (F.mish, 34),
    "softplus": (F.softplus, 34),
    "softplus-with-a-step": (lambda y: F.softplus(y, 3, 0.2), STEPS),
    "selu": (F.selu, 34),
    "logsigmoid": (F.logsigmoid, 34),
    "softsign": (F.softsign, 34),
    "softshrink": (F.softshrink, 28),
    "hardshrink": (F.hardshrink, STEPS),
    "threshold": (lambda y: F.threshold(y, 0.2, -0.1), STEPS),
    "hard-swish-by-hand": (lambda y: y * F.relu6(y + 3) / 6, 34),
    "where": (lambda y: torch.where(y > 0.3, y * y, y * 0.5), 28),
    "sin": (torch.sin, 34),
    "tan": (torch.tan, 26),
    "erf": (torch.erf, 34),
    "log1p": (lambda y: torch.log1p(y.abs()), 34),
    "expm1": (torch.expm1, 30),
    "sinh": (torch.sinh, 30),
    "sign": (torch.sign, STEPS),
    "round": (lambda y: torch.round(y * 4), STEPS),
    "remainder": (lambda y: torch.remainder(y, 0.7), STEPS),
    "fmod": (lambda y: torch.fmod(y, 0.7), STEPS),
    "lerp": (lambda y: torch.lerp(y, y.flip(1), 0.3), 30),
    "asin": (lambda y: torch.asin(torch.tanh(y)), 34),
    "acos": (lambda y: torch.acos(torch.tanh(y)), 34),
    "atan": (torch.atan, 34),
    "asinh": (torch.asinh, 34),
    "acosh": (lambda y: torch.acosh(y.abs() + 1), 30),
    "atanh": (lambda y: torch.atanh(0.9 * torch.tanh(y)), 34),
    "erfinv": (lambda y: torch.erfinv(0.9 * torch.tanh(y)), 34),
    "round-decimals": (lambda y: torch.round(y, decimals=1), STEPS),
    "floor-divide": (lambda y: torch.div(y, 0.3, rounding_mode="floor"), STEPS),
    "trunc-divide": (lambda y: torch.div(y, 0.3, rounding_mode="trunc"), STEPS),
    "sort": (lambda y: torch.sort(y, 3)[0], 34),
    "topk": (lambda y: torch.topk(y, 2, 1)[0], 34),
    "median": (lambda y: y.median(3)[0], 28),
    "least": (lambda y: y.min(2)[0], 30),
    "prod": (lambda y: y.prod(1), 20),
    "cumprod": (lambda y: y[:, :3].cumprod(1), 26),
    "tril": (torch.tril, 34),
    "any": (lambda y: torch.where(F.relu(y - 1).any(1, keepdim=True), y, -y), STEPS),
    "all": (lambda y: torch.where(F.relu(y + 0.5).all(1, keepdim=True), y, -y), STEPS),
    "masked-fill": (lambda y: y.masked_fill(MASK, 0.0), 34),
    "index-put": (lambda y: torch.index_copy(y, 1, torch.tensor([5, 1]), y[:, :2] * 0.5), 30),
    "scatter": (lambda y: y.scatter(1, torch.zeros(1, 1, 6, 10, dtype=torch.int64), y[:, 1:2] * 0.5), 30),
    "scatter-add": (lambda y: y[0, 0].scatter_add(0, torch.zeros(2, 10, dtype=torch.int64), y[0, 1, :2]), 30),
    "gather": (lambda y: y.gather(2, torch.zeros(1, 8, 1, 10, dtype=torch.int64)), 34),
    "diagonal": (lambda y: y.diagonal(1, 2, 3), 34),
    "max-pool-dilated": (lambda y: F.max_pool2d(y, 2, dilation=2, padding=1), 34),
    "avg-pool-divisor": (lambda y: F.avg_pool2d(y, 2, divisor_override=3), 30),
    "max-pool3d": (lambda y: F.max_pool3d(y, 2), 34),
    "avg-pool3d": (lambda y: F.avg_pool3d(y, 2), 30),
    "grid-sample": (lambda y: F.grid_sample(y, GRID, align_corners=False), 28),
    "rfft": (lambda y: torch.view_as_real(torch.fft.rfft(y)), 30),
    "power-spectrum": (lambda y: torch.fft.rfft(y, norm="ortho").abs().square(), 28),
    "irfft": (lambda y: torch.fft.irfft(torch.fft.rfft(y) * torch.exp(torch.arange(6) * 0.5j), n=9), 28),
    "fft-of-images": (lambda y: torch.fft.ifft2(torch.fft.fft2(y).conj() * 2).real, 26),
    "stft": (lambda y: torch.stft(y.flatten(), 16, 8, window=WINDOW, return_complex=True).abs(), 28),
    "parts-as-results": (lambda y: torch.fft.fft(y).real, 30),
    "complex-product": (
        lambda y: torch.view_as_complex(y.reshape(1, 8, 6, 5, 2)).mul(torch.polar(*ITERATIONS)).imag,
        30,
    ),
    "complex-quotient": (lambda y: (y / (3 + torch.fft.fft(y) * 0.1)).imag, 24),
    "complex-matrices": (lambda y: (torch.fft.fft(y[0]).mT @ y[0].to(torch.complex64)).real, 28),
    "resize-line": (lambda y: F.interpolate(y[:, 0], scale_factor=1.7, mode="linear"), 30),
    "resize-volume": (lambda y: F.interpolate(y[None], (5, 9, 4), mode="trilinear", align_corners=True), 30),
    "resize-cubic": (lambda y: F.interpolate(y, (9, 7), mode="bicubic"), 30),
    "resize-smooth": (lambda y: F.interpolate(y, (4, 13), mode="bilinear", antialias=True), 30),
    "resize-smooth-cubic": (lambda y: F.interpolate(y, (4, 13), mode="bicubic", antialias=True), 30),
    "divide": (lambda y: y / (y.flip(1).abs() + 1), 30),
}
MODULES = {
    "prelu": (nn.Sequential(nn.Conv2d(8, 8, 3), nn.PReLU(8)), IMAGE, 30),
    "prelu-of-one-slope": (nn.Sequential(nn.Conv2d(8, 8, 3), nn.PReLU()), IMAGE, 34),
    "group-norm": (nn.Sequential(nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8)), IMAGE, 30),
    "instance-norm": (nn.Sequential(nn.Conv2d(8, 8, 3), nn.InstanceNorm2d(8, affine=True)), IMAGE, 30),
    "rms-norm": (nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8)), SEQUENCE, 28),
    "batch-norm-first": (nn.Sequential(nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3)), IMAGE, 30),
    "batch-norm-after-linear": (nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU()), ROWS, 30),
    "batch-norm-of-rows": (nn.Sequential(nn.BatchNorm1d(5), nn.Linear(8, 6)), SEQUENCE, 30),
    "conv-transpose1d": (nn.ConvTranspose1d(5, 4, 3, stride=2), SEQUENCE, 30),
    "conv3d": (nn.Conv3d(2, 3, 3, padding=1), (1, 2, 4, 5, 6), 30),
    "conv-transpose3d": (nn.ConvTranspose3d(2, 3, 3, stride=2), (1, 2, 3, 3, 4), 30),
    "conv-transpose-dilated": (nn.ConvTranspose2d(8, 3, 3, dilation=2), IMAGE, 30),
    "conv-without-batch": (nn.Conv2d(8, 3, 3), IMAGE[1:], 30),
    "lstm": (Recurrent(nn.LSTM(8, 6, batch_first=True)), SEQUENCE, 26),
    "gru": (Recurrent(nn.GRU(8, 6, batch_first=True)), SEQUENCE, 26),
    "rnn": (Recurrent(nn.RNN(8, 6, batch_first=True)), SEQUENCE, 26),
}
CASES = {name: (Function(function), IMAGE, least) for name, (function, least) in FUNCTIONS.items()} | MODULES


def seeded(module: nn.Module) -> nn.Module:
    torch.manual_seed(11)
    for layer in module.modules():
        reset = getattr(layer, "reset_parameters", None)
        if reset:
            reset()
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.GroupNorm | nn.InstanceNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.uniform_(layer.bias, -0.5, 0.5)
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            assert layer.running_mean is not None and layer.running_var is not None
            nn.init.uniform_(layer.running_mean, -0.5, 0.5)
            nn.init.uniform_(layer.running_var, 0.5, 1.5)
    return module.eval()


@pytest.mark.parametrize("name", CASES)
def test_decomposed(name):
    module, shape, least = CASES[name]
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(3))
    program = decomposed(torch.export.export(seeded(module), (x,)))
    want = module(x).detach().numpy()
    np.testing.assert_allclose(evaluate(import_program(program), [x.numpy()])[0], want, rtol=1e-4, atol=2e-5)

    quantized = import_program(quantize(Capture("model", program, (x,), ((x,),))))
    run_phases(quantized)
    assert not [op.name for op in walk(quantized) if any("f32" in str(result.type) for result in op.results)]
    main = functions(quantized)["main"]
    (given,), (result,) = (ir.ArrayAttr(main.attributes[kind]) for kind in ("arg_attrs", "res_attrs"))
    stored = np.clip(np.rint(x.numpy() / scale(given)) + zero_point(given), -128, 127).astype(np.int8)
    got = (evaluate(quantized, [stored])[0].astype(np.float64) - zero_point(result)) * scale(result)
    assert 10 * np.log10((want**2).sum() / ((want - got) ** 2).sum()) >= least


def scale(attributes: ir.Attribute) -> float:
    return ir.FloatAttr(attributes["tosaic.scale"]).value


def zero_point(attributes: ir.Attribute) -> int:
    return ir.IntegerAttr(attributes["tosaic.zero_point"]).value


def test_copies_of_views_are_views():
    """The ops that ExecuTorch's passes leave in a program."""
    aten = torch.ops.aten

    class Copies(nn.Module):
        def forward(self, x):
            y = aten.permute_copy.default(aten.view_copy.default(x, [2, 3, 4]), [0, 2, 1])
            z = aten.slice_copy.Tensor(y, 1, 1, 3)
            first, second = aten.split_copy.Tensor(z, 1, 1)
            wide = aten.expand_copy.default(aten.unsqueeze_copy.default(aten.unbind_copy.int(z, 1)[0], 0), [2, 2, 3])
            narrow = aten.squeeze_copy.dim(second, 1).sum() + aten.diagonal_copy.default(y).sum()
            return wide + first + narrow + aten.select_copy.int(aten.alias_copy.default(y), 1, 0)

    x = torch.randn(2, 12, generator=torch.Generator().manual_seed(0))
    program = canonical(torch.export.export(Copies(), (x,)))
    assert not [node for node in program.graph.nodes if "_copy" in str(node.target)]
    torch.testing.assert_close(program.module()(x), Copies()(x))
