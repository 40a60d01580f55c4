"""Random PyTorch modules by seed: `tosaic compile benchmarks/campaigns/random_modules.py:seed_17` compiles one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_BATCHES = 4


class Net(nn.Module):
    """Steps in a row; each gives a tensor, which the next one takes, and may read the inputs."""

    def __init__(self, steps: list[nn.Module], results: str) -> None:
        super().__init__()
        self.steps, self.results = nn.ModuleList(steps), results
        self.register_buffer("constant", torch.linspace(-1, 1, 6))

    def forward(self, x: Tensor, *others: Tensor) -> Any:
        first = x
        for step in self.steps:
            x = step(x, *others)
        match self.results:
            case "twice":
                return x, x
            case "with input":
                return x, first
            case "with constant":
                return {"x": x, "constant": self.get_buffer("constant")}
            case "two":
                return x, (x * 0.5 + 1,)
        return x


class Apply(nn.Module):
    """A function of a tensor, and the layers that it calls."""

    def __init__(self, function: Callable, *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        return self.function(x, *self.layers)


class With(nn.Module):
    """A function of a tensor and of the other inputs."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        return self.function(x, *others)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "silu": F.silu,
    "gelu": F.gelu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "leaky": lambda x: F.leaky_relu(x, 0.1),
    "elu": F.elu,
    "softplus": F.softplus,
    "hardsigmoid": F.hardsigmoid,
    "mish": F.mish,
    "abs": torch.abs,
    "clamp": lambda x: x.clamp(-0.7, 1.1),
    "exp": lambda x: torch.exp(-x.abs()),
    "square": lambda x: x * x,
    "rsqrt": lambda x: torch.rsqrt(x * x + 0.5),
    "sin": torch.sin,
    "negate": lambda x: 1 - x,
}


def _pointwise(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    return Apply(_ACTIVATIONS[rng.choice(sorted(_ACTIVATIONS))])


def _convolution(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    channels = shape[1]
    kernel = min(rng.choice((1, 1, 3, 3, 5)), shape[2]), min(rng.choice((1, 1, 3, 3, 5)), shape[3])
    groups = rng.choice((1, 1, 1, channels, 2 if channels % 2 == 0 else 1))
    wide = groups * rng.randint(1, max(1, 24 // groups))
    padding = rng.randint(0, kernel[0] // 2), rng.randint(0, kernel[1] // 2)
    stride = rng.choice((1, 1, 1, 2, (2, 1)))
    layer = nn.Conv2d(channels, wide, kernel, stride, padding, groups=groups, bias=rng.random() < 0.8)
    return nn.Sequential(layer, nn.BatchNorm2d(wide)) if rng.random() < 0.4 else layer


def _transposed(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    kernel, stride = rng.choice(((2, 2), (3, 1), (3, 2)))
    return nn.ConvTranspose2d(shape[1], rng.randint(1, 12), kernel, stride, padding=rng.randint(0, kernel // 2))


def _pool(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    size = min(3, *shape[2:])
    kind = rng.choice((nn.MaxPool2d, nn.AvgPool2d))
    return kind(size, rng.randint(1, 2), padding=rng.randint(0, size // 2))


def _resize(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    mode, factor = rng.choice(("nearest", "bilinear")), rng.choice((2, 1.5, 0.5))
    return Apply(lambda x: F.interpolate(x, scale_factor=factor, mode=mode))


def _residual(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    kind = rng.choice(("add", "sub", "mul", "cat", "max"))
    join = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "max": torch.maximum}
    layer = nn.Conv2d(shape[1], shape[1], 3, padding=1)
    if kind == "cat":
        return Apply(lambda x, layer: torch.cat((layer(x), x), 1), layer)
    return Apply(lambda x, layer: join[kind](layer(x), x), layer)


def _gate(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    layer = nn.Conv2d(shape[1], shape[1], 1)
    return Apply(lambda x, layer: x * torch.sigmoid(layer(x.mean((2, 3), keepdim=True))), layer)


def _move(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    axis = rng.randrange(len(shape))
    size = shape[axis]
    return Apply(
        rng.choice(
            (
                lambda x: x.transpose(1, -1).contiguous().transpose(1, -1) * 1.5,
                lambda x: x.flip(axis),
                lambda x: x.narrow(axis, 0, (size + 1) // 2),
                lambda x: torch.cat((x, x.flip(axis)), axis) if x.numel() < 4000 else x,
                lambda x: F.pad(x, (1, 2)),
                lambda x: torch.roll(x, 1, axis),
                lambda x: x.reshape(-1).reshape(x.shape),
                lambda x: torch.stack((x, -x), -1).sum(-1) + x,
            )
        )
    )


def _reduce(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    axis = rng.randrange(1, len(shape))
    function = rng.choice((torch.mean, torch.sum, torch.amax, torch.amin))
    return Apply(lambda x: function(x, axis, keepdim=True))


def _flatten(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(rng.randint(1, 2)), nn.Flatten(1))


def _tokens(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    return Apply(lambda x: x.flatten(2).transpose(1, 2))


def _linear(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    return nn.Linear(shape[-1], rng.randint(1, 24), bias=rng.random() < 0.8)


def _norm(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    return rng.choice((nn.LayerNorm(shape[-1]), nn.Softmax(-1), nn.Softmax(1), nn.LogSoftmax(-1)))


def _attention(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    layers = [nn.Linear(shape[-1], 8) for _ in range(3)]
    return Apply(lambda x, q, k, v: F.scaled_dot_product_attention(q(x), k(x), v(x)), *layers)


def _recurrent(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    kind, size, steps = rng.choice((nn.GRU, nn.LSTM, nn.RNN)), rng.choice((3, 6, 16)), rng.choice((1, 4, 9))
    layer = kind(shape[-1], size, batch_first=True, bidirectional=rng.random() < 0.3, num_layers=rng.choice((1, 1, 2)))
    return Apply(lambda x, layer: layer(x[:, :steps])[0], layer)


class Keep(nn.Module):
    """A running mean of what comes, and the tensor before it, which are added to it."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("before", torch.full(shape, 0.25), persistent=False)

    def forward(self, x: Tensor, *_: Tensor) -> Tensor:
        result = x + self.mean * 0.5 - self.before
        self.mean = self.mean * 0.75 + x * 0.25
        self.before = x.clone()
        return result


def _stateful(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    return Keep(shape)


_STEPS: dict[int, tuple[Callable[[random.Random, tuple[int, ...]], nn.Module], ...]] = {
    4: (_convolution, _convolution, _convolution, _pointwise, _pointwise, _pool, _residual, _gate, _move, _resize,
        _transposed, _reduce, _flatten, _tokens, _stateful),
    3: (_linear, _linear, _pointwise, _norm, _attention, _move, _reduce, _recurrent, _stateful),
    2: (_linear, _linear, _pointwise, _norm, _move, _stateful),
}  # fmt: skip


def _first_step(rng: random.Random) -> tuple[list[nn.Module], Callable[[], tuple[Tensor, ...]]]:
    """What reads the inputs, and what makes them."""
    batch = rng.choice((1, 1, 1, 2, 3))
    image = (batch, rng.choice((1, 2, 3, 4, 8, 17)), rng.choice((1, 5, 8, 13)), rng.choice((1, 6, 8, 11)))
    match rng.choice(("image", "image", "image", "tokens", "vector", "words", "mask", "unused", "two")):
        case "tokens":
            shape = (batch, rng.choice((1, 4, 9)), rng.choice((1, 8, 16)))
            return [], lambda: (torch.randn(shape),)
        case "vector":
            shape = (batch, rng.choice((1, 8, 33)))
            return [], lambda: (torch.randn(shape),)
        case "words":
            return [nn.Embedding(10, 8)], lambda: (torch.randint(0, 10, (batch, 5)),)
        case "mask":
            return [With(lambda x, mask: torch.where(mask, x, -0.5 * x))], lambda: (
                torch.randn(image),
                torch.rand(image) > 0.5,
            )
        case "unused":
            return [], lambda: (torch.randn(image), torch.randn(3))
        case "two":
            return [With(lambda x, y: x * y + y)], lambda: (torch.randn(image), 3 * torch.randn(image))
    return [], lambda: (torch.randn(image),)


class _First(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        return self.layer(x)


def make(seed: int) -> tuple[nn.Module, tuple[Tensor, ...], list[tuple[Tensor, ...]]]:
    """A module, example inputs and calibration batches; the same ones for the same seed."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    steps, inputs = _first_step(rng)
    example = inputs()
    for _ in range(rng.randint(1, 7)):
        steps = [*steps, _step(rng, steps, example)]
    net = Net([_First(step) if isinstance(step, _PLAIN) else step for step in steps], rng.choice(
        ("", "", "", "", "twice", "with input", "with constant", "two")))  # fmt: skip
    _scale(rng, net)
    return net.eval(), example, [example, *(inputs() for _ in range(_BATCHES - 1))]


_PLAIN = (nn.Conv2d, nn.ConvTranspose2d, nn.MaxPool2d, nn.AvgPool2d, nn.Linear, nn.LayerNorm, nn.Softmax, nn.LogSoftmax,
          nn.Sequential, nn.Embedding)  # fmt: skip


def _step(rng: random.Random, steps: list[nn.Module], example: tuple[Tensor, ...]) -> nn.Module:
    """A further step that its input allows."""
    net = Net([_First(step) if isinstance(step, _PLAIN) else step for step in steps], "").eval()
    with torch.no_grad():
        x = net(*example)
        while True:
            step = rng.choice(_STEPS.get(x.ndim, (_pointwise,)))(rng, tuple(x.shape)).eval()
            try:
                found = step(x)
            except (RuntimeError, ValueError, IndexError):
                continue
            if found.numel() and found.numel() <= 20000 and torch.isfinite(found).all():
                return step


def _scale(rng: random.Random, net: nn.Module) -> None:
    """Now and then extreme weights, channels of zeros, and statistics of a trained normalization."""
    for name, parameter in net.named_parameters():
        with torch.no_grad():
            if "norm" not in name and rng.random() < 0.03:
                parameter *= 10.0 ** rng.uniform(-30, 30)
            if parameter.ndim > 1 and rng.random() < 0.05:
                parameter[0] = 0
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None and module.running_var is not None:
            module.running_mean.normal_()
            module.running_var.uniform_(0.2, 3)


def __getattr__(name: str) -> Callable:
    """`seed_N`: the factory of module N."""
    if not name.startswith("seed_"):
        raise AttributeError(name)
    return lambda: make(int(name.removeprefix("seed_")))
