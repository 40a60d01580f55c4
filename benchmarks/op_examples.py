"""A small example for each ATen op: the tests hold it against PyTorch, and the table of ops is made of it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Function(nn.Module):
    """A module that applies a function."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X = tensor(2, 6, 9, 8)
ROWS = tensor(3, 5, 8)
POSITIVE = X.abs() + 0.1
INDICES = torch.tensor([[3, 0, 7], [1, 1, 2]])
SHARES = torch.linspace(-1, 1, 33)
VOLUME = tensor(2, 4, 5, 6, 7)


PLACES = torch.tensor([5, 0, 3])


def _put(x: torch.Tensor, where: tuple, values: torch.Tensor) -> torch.Tensor:
    result = x.clone()
    result[where] = values
    return result


def _assigned(x: torch.Tensor) -> torch.Tensor:
    x[:, 1] = 0.5
    x[:, :, 2:4] *= 2
    return x


MODULES = {
    "conv": (nn.Conv2d(6, 5, 3, padding=1), X),
    "conv-stride-slices": (nn.Conv2d(6, 5, 1, stride=2), X),
    "conv-stride-pads": (nn.Conv2d(6, 5, (3, 2), stride=(2, 3), padding=1), X),
    "conv-dilated": (nn.Conv2d(6, 5, 3, dilation=2, padding=2, bias=False), X),
    "conv-same": (nn.Conv2d(6, 5, (3, 4), padding="same"), X),
    "conv-groups": (nn.Conv2d(6, 4, 3, groups=2), X),
    "depthwise": (nn.Conv2d(6, 6, 3, padding=1, stride=2, groups=6), X),
    "depthwise-multiplier": (nn.Conv2d(6, 18, 3, groups=6), X),
    "conv1d": (nn.Conv1d(5, 7, 3, stride=2, padding=1), ROWS),
    "conv1d-depthwise": (nn.Conv1d(5, 5, 3, groups=5), ROWS),
    "conv-transpose": (nn.ConvTranspose2d(6, 5, 3, stride=2, padding=1, output_padding=1), X),
    "conv-transpose-cropped": (nn.ConvTranspose2d(6, 5, (2, 3), stride=(1, 2), padding=(2, 4)), X),
    "conv-transpose-groups": (nn.ConvTranspose2d(6, 4, 2, stride=2, groups=2), X),
    "conv-without-batch": (nn.Conv2d(6, 5, 3), X[0]),
    "conv1d-without-batch": (nn.Conv1d(5, 7, 3), ROWS[0]),
    "conv-transpose-dilated": (nn.ConvTranspose2d(6, 5, 3, dilation=(2, 3), padding=2), X),
    "conv-transpose-dilated-groups": (nn.ConvTranspose2d(6, 4, 2, stride=3, dilation=2, groups=2), X),
    "conv3d": (nn.Conv3d(4, 5, 3, stride=(2, 1, 1), padding=(1, 0, 1)), VOLUME),
    "conv3d-groups-dilated": (nn.Conv3d(4, 6, 2, dilation=(2, 1, 2), groups=2), VOLUME),
    "conv3d-same": (nn.Conv3d(4, 3, (2, 3, 3), padding="same"), VOLUME),
    "conv-transpose3d": (nn.ConvTranspose3d(4, 5, 3, stride=2, padding=1, output_padding=1), VOLUME),
    "conv-transpose3d-groups": (nn.ConvTranspose3d(4, 6, 2, stride=(3, 1, 2), groups=2, dilation=(2, 1, 1)), VOLUME),
    "max-pool3d": (nn.MaxPool3d(3, 2, 1, ceil_mode=True), VOLUME),
    "avg-pool3d": (nn.AvgPool3d((2, 3, 3), 2, 1), VOLUME),
    "avg-pool3d-uncounted": (nn.AvgPool3d(3, 2, 1, ceil_mode=True, count_include_pad=False), VOLUME),
    "avg-pool3d-divisor": (nn.AvgPool3d(2, divisor_override=3), VOLUME),
    "adaptive-avg-pool3d": (nn.AdaptiveAvgPool3d((2, 1, 3)), VOLUME),
    "adaptive-max-pool3d": (nn.AdaptiveMaxPool3d((2, None, 3)), VOLUME),
    "max-pool-dilated": (nn.MaxPool2d((2, 3), 2, 1, dilation=2), X),
    "max-pool-dilated-ceil": (nn.MaxPool2d(2, 3, dilation=(2, 1), ceil_mode=True), X),
    "linear": (nn.Linear(8, 4), ROWS),
    "linear-no-bias": (nn.Linear(8, 4, bias=False), ROWS),
    "batch-norm": (nn.BatchNorm2d(6), X),
    "batch-norm-1d": (nn.BatchNorm1d(6), tensor(2, 6)),
    "layer-norm": (nn.LayerNorm(8), ROWS),
    "layer-norm-two-axes": (nn.LayerNorm([5, 8]), ROWS),
    "layer-norm-plain": (nn.LayerNorm(8, elementwise_affine=False), ROWS),
    "embedding": (nn.Embedding(9, 4), INDICES),
    "max-pool": (nn.MaxPool2d(3, 2, 1), X),
    "max-pool-ceil": (nn.MaxPool2d(2, 2, ceil_mode=True), X),
    "avg-pool": (nn.AvgPool2d(2), X),
    "avg-pool-padded": (nn.AvgPool2d(3, 2, 1), X),
    "avg-pool-padding-uncounted": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), X),
    "avg-pool-ceil": (nn.AvgPool2d(2, 2, ceil_mode=True), X),
    "adaptive-avg-pool": (nn.AdaptiveAvgPool2d(1), X),
    "adaptive-avg-pool-grid": (nn.AdaptiveAvgPool2d((3, 4)), X),
    "adaptive-max-pool": (nn.AdaptiveMaxPool2d((3, 2)), X),
    "adaptive-avg-pool-uneven": (nn.AdaptiveAvgPool2d((4, 3)), X),
    "adaptive-max-pool-uneven": (nn.AdaptiveMaxPool2d((2, 5)), X),
    "hardswish-in-place": (nn.Sequential(nn.Conv2d(6, 3, 1), nn.Hardswish(inplace=True)), X),
    "dropout": (nn.Sequential(nn.Dropout(0.5), nn.ReLU6()), X),
    "upsample-nearest": (nn.Upsample(scale_factor=2), X),
    "upsample-bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), X),
    "upsample-bilinear-corners": (nn.Upsample(size=(17, 15), mode="bilinear", align_corners=True), X),
}

FUNCTIONS = {
    "add": (lambda x, y: x + y, X, tensor(6, 1, 8)),
    "add-scalar": (lambda x: x + 2, X),
    "add-alpha": (lambda x, y: torch.add(x, y, alpha=3), X, X),
    "add-constant": (lambda x: x + torch.arange(8), X),
    "sub": (lambda x, y: x - y, X, tensor(9, 8)),
    "rsub": (lambda x: 1 - x, X),
    "mul": (lambda x, y: x * y, X, tensor(2, 6, 1, 1)),
    "div": (lambda x, y: x / y, X, POSITIVE),
    "div-scalar": (lambda x: x / 3, X),
    "floor-div": (lambda x: torch.div(x, 0.5, rounding_mode="floor"), X),
    "integer-arithmetic": (lambda i: i * 3 - 1, INDICES),
    "integer-plus-float": (lambda i: i + 0.5, INDICES),
    "maximum": (torch.maximum, X, -X),
    "minimum": (torch.minimum, X, -X),
    "square": (lambda x: x**2, X),
    "cube": (lambda x: x**3, X),
    "power": (lambda x: x**1.5, POSITIVE),
    "sqrt": (torch.sqrt, POSITIVE),
    "rsqrt": (torch.rsqrt, POSITIVE),
    "reciprocal": (torch.reciprocal, POSITIVE),
    "log": (torch.log, POSITIVE),
    "exp": (torch.exp, X),
    "abs": (torch.abs, X),
    "neg": (torch.neg, X),
    "floor": (torch.floor, X),
    "ceil": (torch.ceil, X),
    "erf": (torch.erf, X),
    "sin": (torch.sin, X),
    "cos": (torch.cos, X),
    "sigmoid": (torch.sigmoid, X),
    "tanh": (torch.tanh, X),
    "relu": (F.relu, X),
    "relu6": (F.relu6, 4 * X),
    "hardtanh": (lambda x: F.hardtanh(x, -0.5, 0.7), X),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), X),
    "clamp-min": (lambda x: x.clamp(min=0.25), X),
    "leaky-relu": (lambda x: F.leaky_relu(x, 0.1), X),
    "elu": (F.elu, X),
    "gelu": (F.gelu, X),
    "gelu-tanh": (lambda x: F.gelu(x, approximate="tanh"), X),
    "silu": (F.silu, X),
    "hardswish": (F.hardswish, 4 * X),
    "hardsigmoid": (F.hardsigmoid, 4 * X),
    "softmax": (lambda x: F.softmax(x, 1), X),
    "log-softmax": (lambda x: F.log_softmax(x, -1), X),
    "mean-hw": (lambda x: x.mean((2, 3)), X),
    "mean-last": (lambda x: x.mean(-1, keepdim=True), X),
    "mean-apart": (lambda x: x.mean((0, 2)), X),
    "mean-all": (lambda x: x.mean(), X),
    "sum": (lambda x: x.sum((1, 3)), X),
    "amax": (lambda x: x.amax((1, 2)), X),
    "amin": (lambda x: x.amin(-1, keepdim=True), X),
    "max": (lambda x: x.max(), X),
    "min": (lambda x: x.min(), X),
    "any": (lambda x: (x > 1.5).any(0), X),
    "any-kept": (lambda x: (x > 1.5).any(-1, keepdim=True), X),
    "any-of-all": (lambda x: (x > 9).any(), X),
    "all": (lambda x: (x > -1.5).all(2), X),
    "all-of-all": (lambda x: (x > -9).all(), X),
    "max-with-index": (lambda x: x.max(2), X),
    "argmax": (lambda x: x.argmax(1), X),
    "argmin": (lambda x: x.argmin(-1, keepdim=True), X),
    "matmul": (torch.matmul, ROWS, tensor(3, 8, 4)),
    "matmul-broadcast": (torch.matmul, tensor(2, 1, 4, 5), tensor(3, 5, 6)),
    "matmul-vector": (torch.matmul, ROWS, tensor(8)),
    "bmm": (torch.bmm, ROWS, tensor(3, 8, 2)),
    "addmm": (torch.addmm, tensor(4), tensor(5, 8), tensor(8, 4)),
    "attention": (F.scaled_dot_product_attention, tensor(1, 2, 6, 4), tensor(1, 2, 6, 4, seed=1), tensor(1, 2, 6, 4)),
    "attention-causal": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), tensor(1, 2, 6, 4)),
    "cat": (lambda x, y: torch.cat([x, y], -1), X, X),
    "stack": (lambda x, y: torch.stack([x, y], 1), X, X),
    "split": (lambda x: x.split(4, 1), X),
    "chunk": (lambda x: x.chunk(3, 2), X),
    "unbind": (lambda x: x.unbind(0), X),
    "slice": (lambda x: x[:, 1:4], X),
    "slice-step": (lambda x: x[:, :, 1::3], X),
    "select": (lambda x: x[:, -1], X),
    "index-select": (lambda x: torch.index_select(x, 1, torch.tensor([4, 0, 4])), X),
    "index-select-dynamic": (lambda x, i: torch.index_select(x, 3, i), X, torch.tensor([7, 0, 1])),
    "gather": (lambda x, i: torch.gather(x, 1, i), tensor(2, 9), INDICES),
    "view": (lambda x: x.view(12, 72), X),
    "flatten": (lambda x: x.flatten(1), X),
    "permute": (lambda x: x.permute(3, 0, -2, 1), X),
    "transpose": (lambda x: x.transpose(-1, 1), X),
    "squeeze": (lambda x: x.unsqueeze(-1).squeeze(-1), X),
    "expand": (lambda x: x[:, :1].expand(2, 6, 9, 8), X),
    "repeat": (lambda x: x.repeat(1, 2, 1, 1), X),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 3), value=0.5), X),
    "crop": (lambda x: F.pad(x, (-1, 2)), X),
    "where": (lambda x: torch.where(x > 0, x, torch.tensor(0.1)), X),
    "masked-fill": (lambda x: x.masked_fill(x < 0, -5.0), X),
    "eq": (lambda i: i == 1, INDICES),
    "ne": (lambda i: i != 1, INDICES),
    "gt": (torch.gt, X, -X),
    "ge": (lambda x: x >= 0.5, X),
    "lt": (lambda x: x < 0.5, X),
    "le": (torch.le, X, -X),
    "logical": (lambda x: (x > 0) & ~(x > 1) | (x < -1), X),
    "to-float": (lambda x: (x > 0).float(), X),
    "to-int": (lambda x: (3 * x).int(), X),
    "to-type-of": (lambda x, i: x.type_as(i), 3 * X, INDICES),
    "integer-to-float": (lambda i: i.float(), INDICES),
    "atan": (torch.atan, 3 * X),
    "atan-of-much": (torch.atan, torch.tensor([-1e30, -1e5, 0.0, 1e5, 1e30])),
    "asin": (torch.asin, SHARES),
    "acos": (torch.acos, SHARES),
    "asinh": (torch.asinh, 30 * X),
    "acosh": (torch.acosh, POSITIVE + 1),
    "atanh": (torch.atanh, 0.99 * SHARES),
    "erfinv": (torch.erfinv, 0.9999 * SHARES),
    "atan2": (torch.atan2, torch.tensor([0.0, 0, 1, -1, 2, -3]), torch.tensor([1.0, -1, 0, 0, -1, -2])),
    "trunc": (torch.trunc, 3 * X),
    "trunc-div": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), 9 * X, POSITIVE),
    "integer-div": (lambda i: torch.div(i - 3, 2, rounding_mode="trunc"), INDICES),
    "integer-floor-div": (lambda i: (i - 3) // -2, INDICES),
    "integer-remainder": (lambda i: (i - 3) % 2, INDICES),
    "remainder": (torch.remainder, 9 * X, POSITIVE),
    "fmod": (torch.fmod, 9 * X, POSITIVE),
    "round-decimals": (lambda x: torch.round(x, decimals=1), X),
    "prod": (lambda x: x.prod(2), X),
    "prod-of-all": (lambda x: x.prod(), ROWS),
    "cumprod": (lambda x: x.cumprod(1), X),
    "integer-cumsum": (lambda i: i.cumsum(1), INDICES),
    "sort": (lambda x: torch.sort(x, 2, descending=True), X),
    "sort-with-equals": (lambda i: torch.sort(i, dim=1, stable=True), INDICES),
    "argsort": (lambda x: torch.argsort(x, 1), X),
    "topk": (lambda x: torch.topk(x, 3), X),
    "smallest-k": (lambda x: torch.topk(x, 2, 1, largest=False), X),
    "kthvalue": (lambda x: torch.kthvalue(x, 3, 2, keepdim=True), X),
    "median": (torch.median, X),
    "median-with-index": (lambda x: x.median(1), X),
    "min-with-index": (lambda x: x.min(2, keepdim=True), X),
    "gather-along-1": (lambda x, i: torch.gather(x, 1, i), X, PLACES.reshape(1, 3, 1, 1).expand(2, 3, 9, 8)),
    "index-dynamic-axes": (lambda x, i: x[:, i, i], X, torch.tensor([5, 0, -3])),
    "index-apart": (lambda x, i: x[i, :, [3, 1]], X, torch.tensor([1, 0])),
    "index-put": (lambda x, i: _put(x, (slice(None), i), x[:, :2] * 2), X, torch.tensor([5, -6])),
    "index-put-two-axes": (lambda x, i: _put(x, (slice(None), i, i), torch.tensor(7.0)), X, torch.tensor([5, 2])),
    "index-put-accumulate": (lambda x, i: x.index_put((i,), x[0], accumulate=True), X, torch.tensor([1, 1])),
    "index-put-mask": (lambda x: torch.index_put(x, (x > 0.5,), torch.tensor(0.25)), X),
    "index-copy": (lambda x, i: x.index_copy(2, i, x[:, :, :2]), X, torch.tensor([8, 0])),
    "index-add": (lambda x, i: x.index_add(1, i, x[:, :3]), X, torch.tensor([4, 4, 0])),
    "index-fill": (lambda x, i: x.index_fill(1, i, 0.5), X, torch.tensor([4, 0])),
    "in-place-slice": (lambda x: x.clone().index_fill_(3, torch.tensor([1]), -1.0), X),
    "assignment": (lambda x: _assigned(x.clone()), X),
    "scatter": (lambda x, i: x.scatter(1, i, x[:2, :3] + 1), tensor(2, 9), INDICES % 3 + 3 * torch.arange(3)),
    "scatter-number": (lambda x, i: x.scatter(1, i, 5.0), tensor(2, 9), INDICES),
    "scatter-add": (lambda x, i: x.scatter_add(1, i, x[:, :3]), tensor(2, 9), INDICES),
    "scatter-amax": (lambda x, i: x.scatter_reduce(1, i, x[:, :3], "amax"), tensor(2, 9), INDICES),
    "masked-scatter": (lambda x: x.masked_scatter(x > 0, torch.arange(32.0)), tensor(4, 8)),
    "diagonal": (lambda x: x.diagonal(1, 2, 3), X),
    "as-strided": (lambda x: x.as_strided((3, 4), (8, 2), 5), X),
    "tril": (torch.tril, X),
    "triu": (lambda x: torch.triu(x, 2), X),
    "one-hot": (lambda i: F.one_hot(i, 9), INDICES),
    "copy": (lambda x: torch.zeros_like(x).copy_(x[:, :1]), X),
    "fill": (lambda x: x + torch.empty_like(x).fill_(2.0), X),
    "avg-pool-divisor": (lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5), X),
    "avg-pool-divisor-ceil": (lambda x: F.avg_pool2d(x, 2, 3, ceil_mode=True, divisor_override=5), X),
    "grid-sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), X, 0.6 * tensor(2, 4, 5, 2)),
    "embedding-bag": (lambda i, w: F.embedding_bag(i, w), INDICES, tensor(9, 4)),
    "embedding-bag-max": (lambda i, w: F.embedding_bag(i, w, mode="max"), INDICES, tensor(9, 4)),
    "embedding-bag-offsets": (
        lambda i, w, o: F.embedding_bag(i, w, o, mode="sum"),
        INDICES.reshape(-1),
        tensor(9, 4),
        torch.tensor([0, 2]),
    ),
    "logical-xor": (lambda x: torch.logical_xor(x > 0, x > 1), X),
    "logical-of-numbers": (lambda x, y: torch.logical_and(x, y), X.round(), X),
    "integer-clamp": (lambda i: i.clamp(1, 3), INDICES),
    "addmm-scaled": (lambda x, y, z: torch.addmm(x, y, z, beta=0.5, alpha=2), tensor(4), tensor(5, 8), tensor(8, 4)),
    "full": (lambda x: x + torch.full((8,), 2.0) + torch.zeros(9, 1), X),
}  # fmt: skip

EXAMPLES: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    **{name: (module, tuple(inputs)) for name, (module, *inputs) in MODULES.items()},
    **{name: (Function(function), tuple(inputs)) for name, (function, *inputs) in FUNCTIONS.items()},
}
