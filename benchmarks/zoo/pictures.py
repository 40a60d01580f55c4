"""Rendered pictures with their classes: what the trained networks for images learned, and fresh ones of the kind.

A picture is a scene of smooth colors with clutter, noise and one thing: a shape of ten, or a figure with head, body and
limbs. All of it comes from a seeded generator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

_MEAN, _DEVIATION = 0.5, 0.25

SHAPES: Sequence[Callable[[Tensor, Tensor], Tensor]] = (
    lambda x, y: x.hypot(y) < 0.9,  # disc
    lambda x, y: (x.hypot(y) - 0.75).abs() < 0.2,  # ring
    lambda x, y: torch.maximum(x.abs(), y.abs()) < 0.8,  # square
    lambda x, y: (torch.maximum(x.abs(), y.abs()) - 0.65).abs() < 0.2,  # frame
    lambda x, y: (y < 0.65) & (y > 1.8 * x.abs() - 0.95),  # triangle
    lambda x, y: (torch.minimum(x.abs(), y.abs()) < 0.28) & (torch.maximum(x.abs(), y.abs()) < 0.95),  # cross
    lambda x, y: (x.abs() < 1) & (y.abs() < 0.35),  # bar
    lambda x, y: x.hypot(y) < 0.6 + 0.4 * torch.cos(5 * torch.atan2(y, x)),  # star
    lambda x, y: (x.hypot(y) < 0.95) & ((x - 0.55).hypot(y) > 0.8),  # crescent
    lambda x, y: (x.abs() - 0.55).hypot(y) < 0.42,  # two discs
)
"""Whether a point of the plane is in a shape of radius 1 about the origin."""


class _Canvas:
    """Pictures f32[count, 3, size, size] in 0..1 that are painted together."""

    def __init__(self, count: int, size: int, seed: int) -> None:
        self.count, self.size = count, size
        self.generator = torch.Generator().manual_seed(seed)
        self.pictures = self._scene()

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """f32[count, *shape]"""
        return low + (high - low) * torch.rand(self.count, *shape, generator=self.generator)

    def classes(self, number: int) -> Tensor:
        """int64[count]"""
        return torch.randint(number, (self.count,), generator=self.generator)

    def plane(self, radius: Tensor, rotation: float, reach: float) -> tuple[Tensor, Tensor]:
        """Coordinates x and y of each pixel, f32[count, size, size], about a place within `reach` of the middle, in
        units of `radius` (f32[count], of half a picture), turned by up to `rotation` radians."""
        line = torch.linspace(-1, 1, self.size)
        middle, angle = self.uniform(-reach, reach, 2, 1, 1), self.uniform(-rotation, rotation)[:, None, None]
        y, x = (line[:, None] - middle[:, 0]), (line - middle[:, 1])
        scale = radius[:, None, None]
        return (x * angle.cos() + y * angle.sin()) / scale, (y * angle.cos() - x * angle.sin()) / scale

    def paint(self, mask: Tensor, opacity: float | Tensor = 1.0) -> None:
        """One color for each picture, where its mask (bool[count, size, size]) is set."""
        strength = (mask * opacity)[:, None]
        color = self.uniform(0, 1, 3)[:, :, None, None] + 0.1 * self._smooth(6)
        self.pictures = self.pictures + strength * (color - self.pictures)

    def shapes(self, chosen: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The masks of the shapes with the numbers `chosen`."""
        masks = torch.zeros(x.shape, dtype=torch.bool)
        for number, inside in enumerate(SHAPES):
            those = chosen == number
            masks[those] = inside(x[those], y[those])
        return masks

    def clutter(self, pieces: int, least: float, most: float, opacity: float | Tensor) -> None:
        for _ in range(pieces):
            plane = self.plane(self.uniform(least, most), torch.pi, 1.0)
            self.paint(self.shapes(self.classes(len(SHAPES)), *plane), opacity)

    def seen(self, noise: float) -> Tensor:
        """The pictures as a camera gives them, normalized."""
        grain = torch.randn(self.pictures.shape, generator=self.generator)
        light = self.uniform(0.6, 1.1)[:, None, None, None]
        return ((self.pictures * light + noise * grain).clamp(0, 1) - _MEAN) / _DEVIATION

    def _scene(self) -> Tensor:
        base = self.uniform(0.1, 0.9, 3, 1, 1)
        return base + 0.15 * self._smooth(3) + 0.08 * self._smooth(9)

    def _smooth(self, cells: int) -> Tensor:
        grid = torch.randn(self.count, 3, cells, cells, generator=self.generator)
        return functional.interpolate(grid, size=(self.size, self.size), mode="bilinear", align_corners=False)


def shapes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Pictures of ten shapes, turned, cluttered and noisy: f32[count, 3, 32, 32], classes int64[count]."""
    canvas = _Canvas(count, 32, seed)
    canvas.clutter(2, 0.15, 0.3, 0.7)
    chosen = canvas.classes(len(SHAPES))
    masks = canvas.shapes(chosen, *canvas.plane(canvas.uniform(0.35, 0.75), torch.pi, 0.3))
    canvas.paint(masks, canvas.uniform(0.4, 1.0, 1, 1))
    canvas.clutter(1, 0.1, 0.2, 0.8)
    return canvas.seen(0.08), chosen


def figures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Scenes in which a figure stands or not: f32[count, 3, 96, 96], int64[count] of 1 where it does.

    Where none stands there is clutter, and in half of these pictures a figure's parts in other places.
    """
    canvas = _Canvas(count, 96, seed)
    canvas.clutter(4, 0.1, 0.45, canvas.uniform(0.5, 1.0, 1, 1))
    there = canvas.classes(2)
    x, y = canvas.plane(canvas.uniform(0.3, 0.85), 0.25, 0.45)
    parts = (canvas.classes(2) == 1)[:, None, None]
    stands = (there == 1)[:, None, None]
    apart = torch.where(stands, 0.0, canvas.uniform(0.5, 1.4, 1, 1))
    limbs = ((x.abs() - 0.14).abs() < 0.1) & (y > 0.15 - apart) & (y < 0.95 - apart)
    arms = ((x.abs() - 0.38).abs() < 0.08) & (y.add(0.2).abs() < 0.3)
    body = (x.abs() < 0.29) & (y.add(0.18).abs() < 0.34)
    head = (x - 0.5 * apart).hypot(y + 0.73 - apart) < 0.2
    for part in (limbs, arms, body, head):
        canvas.paint(part & (stands | parts))
    canvas.clutter(2, 0.05, 0.2, 1.0)
    return canvas.seen(0.06), there
