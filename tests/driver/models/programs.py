"""A program of nested arguments, constants and named results; its ops are those of the whole table."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Program(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer, self.volume = nn.Conv2d(3, 4, 3), nn.Conv3d(1, 2, 3)
        self.up = nn.ConvTranspose2d(4, 2, 3, dilation=2)

    def forward(self, image: Tensor, state: dict[str, Tensor], factor: float = 1.0, *, at: Tensor) -> dict:
        y = self.layer(image) * factor
        curves = torch.atan(y) + torch.asinh(y).index_copy(1, at, state["rows"])
        pools = F.max_pool2d(y, 2, 1, dilation=2) + F.avg_pool2d(y, 3, 1, divisor_override=5)
        least, where = y.flatten(1).min(1)
        return {
            "best": torch.topk(y.flatten(1)[:, :12], 3),
            "maps": (curves, pools, self.up(y)),
            "volume": self.volume(y[:, None]),
            "least": (least, where),
            "lower": torch.tril(y).cumprod(1),
        }


def program() -> tuple[nn.Module, dict, list[dict]]:
    generator = torch.Generator().manual_seed(5)

    def sample() -> dict:
        draw = [torch.randn(*dims, generator=generator) for dims in ((1, 3, 8, 8), (1, 2, 6, 6))]
        return {"image": draw[0], "state": {"rows": draw[1]}, "factor": 1.5, "at": torch.tensor([3, 1])}

    samples = [sample() for _ in range(4)]
    return Program(), samples[0], samples
