"""Models for the driver's tests: one that everything takes, and one for each way in which a model can be refused."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SHAPE = (1, 3, 12, 12)


class Net(nn.Module):
    """A residual block, a depthwise convolution and a classifier: f32[1, 3, 12, 12] -> f32[1, 5]."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8)
        self.classifier = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x) + x)
        x = torch.relu(self.depthwise(x))
        return self.classifier(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def _made(module: nn.Module) -> tuple[nn.Module, tuple[Tensor], list[tuple[Tensor]]]:
    batches = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(1))
    return module.eval(), (batches[0],), [(batch,) for batch in batches]


def net():
    torch.manual_seed(0)
    return _made(Net())


class Doubled(nn.Module):
    """A result that is the input in steps of twice the size: no op computes it."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def doubled():
    return _made(Doubled())


class Tall(nn.Module):
    """Convolutions of a tall image, a block with a shortcut among them: f32[1, 3, 20, 16] -> f32[1, 5]."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.expand = nn.Conv2d(16, 48, 1)
        self.filter = nn.Conv2d(48, 48, 3, padding=1, groups=48)
        self.project = nn.Conv2d(48, 16, 1)
        self.down = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.classifier = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = x + self.project(torch.relu(self.filter(torch.relu(self.expand(x)))))
        x = torch.relu(self.down(x))
        return self.classifier(x.mean((2, 3)))


def tall():
    torch.manual_seed(0)
    batches = torch.randn(4, 1, 3, 20, 16, generator=torch.Generator().manual_seed(1))
    return Tall().eval(), (batches[0],), [(batch,) for batch in batches]


class Hourglass(nn.Module):
    """Half the size and back in three ways, joined with what was before: f32[1, 3, 20, 12] -> f32[1, 8, 10, 6]."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.inner = nn.Conv2d(16, 16, 3, padding=1)
        self.wider = nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.last = nn.Conv2d(64, 8, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        small = torch.relu(self.inner(nn.functional.max_pool2d(x, 2)))
        repeated = nn.functional.interpolate(small, scale_factor=2.0)
        blended = nn.functional.interpolate(small, scale_factor=2.0, mode="bilinear")
        return self.last(torch.cat([repeated, blended, torch.relu(self.wider(small)), x], 1))


def hourglass():
    torch.manual_seed(0)
    batches = torch.randn(4, 1, 3, 20, 12, generator=torch.Generator().manual_seed(1))
    return Hourglass().eval(), (batches[0],), [(batch,) for batch in batches]


def crowned():
    """36 pixels of 256 channels that go into one: f32[1, 3, 12, 12] -> f32[1, 5]."""
    torch.manual_seed(0)
    body = [nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 256, 1), nn.ReLU6()]
    return _made(nn.Sequential(*body, nn.MaxPool2d(6), nn.Flatten(), nn.Linear(256, 5)))


def broad():
    """Two convolutions of a low image: f32[1, 3, 16, 96] -> f32[1, 8, 8, 48]."""
    torch.manual_seed(0)
    batches = torch.randn(4, 1, 3, 16, 96, generator=torch.Generator().manual_seed(1))
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 3, stride=2, padding=1))
    return net.eval(), (batches[0],), [(batch,) for batch in batches]


def odd():
    """Rows of 33, 55 and 42 bytes: f32[1, 3, 21, 11] -> f32[1, 7, 10, 6]."""
    torch.manual_seed(0)
    batches = torch.randn(4, 1, 3, 21, 11, generator=torch.Generator().manual_seed(1))
    net = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 7, 3, stride=2, padding=(0, 1)))
    return net.eval(), (batches[0],), [(batch,) for batch in batches]


class Listener(nn.Module):
    """Convolutions in time without padding, a shortcut, a stride of two: 22 frames f32[1, 22, 8] -> f32[1, 5]."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(8, 16, 3)
        self.second = nn.Conv1d(16, 16, 3, dilation=2)
        self.third = nn.Conv1d(16, 24, 4, stride=2)
        self.classifier = nn.Linear(24, 5)

    def forward(self, frames: Tensor) -> Tensor:
        x = torch.relu(self.first(frames.transpose(1, 2)))
        x = torch.relu(self.second(x)) + x[:, :, 4:]
        return self.classifier(torch.relu(self.third(x))[:, :, -1])


def listener():
    torch.manual_seed(0)
    batches = torch.randn(4, 1, 22, 8, generator=torch.Generator().manual_seed(1))
    return Listener().eval(), (batches[0],), [(batch,) for batch in batches]


class Spotter(nn.Module):
    """A keyword spotter with a GRU of 64 over 49 frames: f32[1, 49, 10] -> f32[1, 12]."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.GRU(10, 64, batch_first=True)
        self.classifier = nn.Linear(64, 12)

    def forward(self, frames: Tensor) -> Tensor:
        return self.classifier(self.recurrent(frames)[0][:, -1])


def spotter():
    torch.manual_seed(0)
    batches = torch.randn(4, 1, 49, 10, generator=torch.Generator().manual_seed(1))
    return Spotter().eval(), (batches[0],), [(batch,) for batch in batches]


class Causal(nn.Module):
    """A convolution over the last four rows of an image that comes row by row, and how often it was called:
    f32[1, 16, 1, 12] -> f32[1, 8, 1, 12], i64[1]."""

    rows_past: Tensor
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Conv2d(16, 32, (4, 3), padding=(0, 1))
        self.project = nn.Conv2d(32, 8, 1)
        self.register_buffer("rows_past", torch.zeros(1, 16, 3, 12), persistent=False)
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

    def forward(self, row: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.cat([self.rows_past, row], 2)
        self.rows_past = rows[:, :, 1:]
        self.calls += 1
        return self.project(torch.relu(self.filter(rows))), self.calls.clone()


def causal():
    torch.manual_seed(0)
    batches = torch.randn(12, 1, 16, 1, 12, generator=torch.Generator().manual_seed(1))
    return Causal().eval(), (batches[0],), [(batch,) for batch in batches]


class Camera(nn.Module):
    """Pixels as a camera gives them: u8[1, 32, 32, 3] -> f32[1, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.classifier = nn.Linear(16, 4)

    def forward(self, pixels: Tensor) -> Tensor:
        x = torch.relu(self.first(pixels.permute(0, 3, 1, 2) / 255 - 0.5))
        return self.classifier(torch.relu(self.second(x)).mean((2, 3)))


def camera():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    batches = torch.randint(0, 256, (4, 1, 32, 32, 3), dtype=torch.uint8, generator=generator)
    return Camera().eval(), (batches[0],), [(batch,) for batch in batches]


class Decomposed(nn.Module):
    """Layers that no lowering takes whole, and a recurrent one behind them: f32[1, 3, 12, 12] -> f32[1, 5]."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Mish())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, stride=2), nn.PReLU(8), nn.PixelShuffle(2))
        self.recurrent = nn.GRU(8, 5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.pad(self.second(self.first(x)), (1, 1, 1, 1), mode="reflect")
        return self.recurrent(x.mean(1)[:, :6, :8])[1][0]


def decomposed():
    torch.manual_seed(0)
    return _made(Decomposed())


def nan_weight():
    module, *rest = net()
    with torch.no_grad():
        module.get_parameter("second.weight")[0, 0, 0, 0] = float("nan")
    return module, *rest


class Determinant(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.det(x @ x.mT)


def without_lowering():
    return _made(Determinant())


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0]


def data_dependent():
    return _made(Branching())


class Small(nn.Module):
    """One layer, for runs in a process of their own: f32[1, 16] -> f32[1, 24]."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 24)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x))


class SumOfTwo(nn.Module):
    """f32[1, 16] -> f32[1, 16]."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) + x


def sum_of_two():
    return SumOfTwo().eval(), (torch.linspace(-2, 2, 16)[None],)


def small():
    torch.manual_seed(0)
    return Small().eval(), (torch.randn(1, 16),)


class Pyramid(nn.Module):
    """A convolution of one pixel and one of 3x3 that see an image at two sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, stride=2, padding=1)
        self.head, self.wide = nn.Conv2d(32, 32, 1), nn.Conv2d(32, 32, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        sizes = [torch.relu(self.wide(torch.relu(self.head(each)))) for each in (x, nn.functional.max_pool2d(x, 2))]
        return sizes[0].mean((2, 3)) + sizes[1].mean((2, 3))


def pyramid():
    torch.manual_seed(3)
    return Pyramid().eval(), (torch.randn(1, 3, 32, 32),)


class Tied(nn.Module):
    """A table of embeddings that is the matrix of the head, too: i32[1, 8] -> f32[1, 8, 256]."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(256, 32)
        self.inside = nn.Linear(32, 32)

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.relu(self.inside(self.table(tokens))) @ self.table.weight.T


def tied():
    torch.manual_seed(4)
    batches = torch.randint(0, 256, (4, 1, 8), generator=torch.Generator().manual_seed(1))
    return Tied().eval(), (batches[0],), [(batch,) for batch in batches]


class Decoder(nn.Module):
    """The scores of the next of 24 tokens by the mean of the 12 places so far: i64[1, 1], i64[1] -> f32[1, 1, 24]."""

    past: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(24, 16), nn.Linear(16, 24)
        self.register_buffer("past", torch.zeros(1, 12, 16))

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        x = self.embedding(token)
        self.past.index_copy_(1, position, x)
        return self.head(torch.tanh(x + self.past.sum(1, keepdim=True)))


def decoder():
    torch.manual_seed(0)
    tokens = torch.randint(0, 24, (12, 1, 1), generator=torch.Generator().manual_seed(1))
    return Decoder().eval(), (tokens[0], torch.zeros(1, dtype=torch.int64)), [
        (token, torch.tensor([place])) for place, token in enumerate(tokens)
    ]  # fmt: skip


class Attention(nn.Module):
    """Two heads of attention over 12 of 24 tokens, and a layer behind them: i64[1, 12] -> f32[1, 12, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.heads = nn.Embedding(24, 16), nn.MultiheadAttention(16, 2, batch_first=True)
        self.behind = nn.Linear(16, 16)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        return torch.tanh(self.behind(x + self.heads(x, x, x, need_weights=False)[0]))


def attention():
    torch.manual_seed(0)
    batches = [(torch.randint(0, 24, (1, 12)),) for _ in range(4)]
    return Attention().eval(), batches[0], batches
