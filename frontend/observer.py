"""Chooses the range of a quantized activation from what calibration shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchao.quantization.pt2e.observer import ObserverBase

from tosaic.support.quantization import LEAST_SCALE

_BINS = 4096
_CANDIDATES = 65
_LEAST = 0.25
FOLDS = 4
"""Parts of the samples, each of which is fresh data for the others."""
_HEADROOM = (1.0, 1.05, 1.1, 1.2, 1.35, 1.5, 2.0)
_OF_ZEROS = 2.0**-16  # the scale of a tensor that calibration shows as zeros alone
_MUCH = 4096  # values, of which it pays to count those alone that differ from what was seen before
_FEW = 0.25  # of them, that differ in a state which is written by rows


class _Counted(NamedTuple):
    """A tensor, and how many of its values are in each bin of [-2^exponent, 2^exponent]."""

    values: Tensor
    counts: Tensor
    exponent: int


class _HeldBack(NamedTuple):
    """The noise of the folds, each in the range that the others give, with the headroom that leaves least."""

    noise: float
    headroom: float


class RangeObserver(ObserverBase):
    """A histogram of a tensor's values, and the range that loses least, with as much headroom as fresh data ask for.

    The samples are counted in folds; the headroom is the one with which the ranges of all folds but one lose least on
    that one, over all of them (cross-validation). Without folds there is none.

    The bins share [-2^e, 2^e] evenly; a value beyond doubles the range, which joins bins in pairs and loses nothing.
    Exact zeros are left out: every range holds 0 and represents it without error.

    Args:
        dtype: the integer dtype that the tensor is quantized to.
        quant_min, quant_max: least and greatest stored value.
        qscheme: `torch.per_tensor_affine`, or `torch.per_tensor_symmetric` for a zero point of 0.
        eps: the least scale.
        floor, ceiling: limits beyond which the tensor's reader sees no difference.
        depth, axis: it sees none farther below the greatest along an axis, either.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        quant_min: int,
        quant_max: int,
        qscheme: torch.qscheme,
        eps: float = LEAST_SCALE,
        floor: float = -math.inf,
        ceiling: float = math.inf,
        depth: float = math.inf,
        axis: int = -1,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(dtype, is_dynamic)
        self.quant_min, self.quant_max = quant_min, quant_max
        self.qscheme, self.eps = qscheme, eps
        self.floor, self.ceiling = floor, ceiling
        self.depth, self.axis = depth, axis
        self.exponent = 0
        self.low = self.high = 0.0
        self.counts = torch.zeros(_BINS, dtype=torch.float64)
        self.folds = torch.zeros(FOLDS, _BINS, dtype=torch.float64)
        self.fold: int | None = None
        self._before: _Counted | None = None
        self._changes = True  # in small parts, as far as is known
        self._chosen: tuple[float, float] | None = None
        self._known: _HeldBack | None = None

    # torchao's base class returns None where its own observers return these.
    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Count the values of `x`; returns `x`.

        Raises:
            ValueError: it holds NaN or infinity.
        """
        if x.numel():
            seen = self.seen(x).detach()
            if self._changes and seen.numel() >= _MUCH:
                self._count_changes(seen)
            else:
                self._count(self._counted(seen))
        return x

    def seen(self, x: Tensor) -> Tensor:
        """`x` as its reader sees it."""
        if self.depth < math.inf:
            x = x.maximum(x.amax(self.axis, keepdim=True) - self.depth)
        return x.clamp(self.floor, self.ceiling) if self.floor > -math.inf else x

    def _count_changes(self, seen: Tensor) -> None:
        """Count a tensor of which the one before may have the most: of a state, that was written in a few rows."""
        before, self._before = self._before, None
        if before is None or before.values.shape != seen.shape:
            counts = self._counted(seen)
        else:
            places = torch.from_numpy(np.flatnonzero(seen.numpy() != before.values.numpy()))
            self._changes = len(places) < _FEW * seen.numel()
            if self._changes and len(places):
                added = self._counted(seen.flatten()[places])
                gone = self._in_bins(before.values.flatten()[places])
                counts = before.counts - gone + added if self.exponent == before.exponent else self._in_bins(seen)
            else:
                counts = before.counts if self._changes else self._counted(seen)
        if self._changes:
            self._before = _Counted(seen, counts, self.exponent)
        self._count(counts)

    def _counted(self, seen: Tensor) -> Tensor:
        """How many values are in each bin, where all have one."""
        low, high = (value.item() for value in torch.aminmax(seen))
        if not math.isfinite(low + high):
            raise ValueError("it holds NaN or infinity")
        if not (low < 0 or high > 0):
            return torch.zeros_like(self.counts)
        self._widen(max(-low, high))
        if low < self.low or high > self.high:
            self.low, self.high = min(self.low, low), max(self.high, high)
        return self._in_bins(seen)

    def _in_bins(self, seen: Tensor) -> Tensor:
        reach = 2.0**self.exponent
        values = seen.numpy().ravel()
        places = (values if 2**-64 < reach < 2**64 else values.astype(np.float64)) + reach
        bins = np.minimum((places * (_BINS / (2 * reach))).astype(np.int32), _BINS - 1)
        counts = np.bincount(bins, minlength=_BINS)
        counts[_BINS // 2] -= values.size - np.count_nonzero(values)
        return torch.from_numpy(counts)

    def _count(self, counts: Tensor) -> None:
        self.counts.add_(counts)
        if self.fold is not None:
            self.folds[self.fold].add_(counts)
        if self._chosen or self._known:  # a module sets its attributes slowly
            self._chosen = self._known = None

    def forget(self) -> None:
        """Let go of what was seen last."""
        self._before = None

    def lost_db(self) -> float:
        """How much more noise the samples of each fold have in the range that the others give than in that of all."""
        if not self._has_folds:
            return 0.0
        (low, high), (apart, headroom) = self._range(), self._held_back()
        known = self._noise([headroom * low], [headroom * high], self.folds.sum(0)).item()
        return 10 * math.log10(apart / known) if apart and known else 0.0

    @property
    def headroom(self) -> float:
        """The factor of the range that loses least on samples which did not give the range."""
        return self._held_back().headroom if self._has_folds else 1.0

    @property
    def _has_folds(self) -> bool:
        return bool((self.folds.sum(1) > 0).all())

    def _held_back(self) -> _HeldBack:
        if self._known is None:
            noises = []
            for fold in self.folds:
                low, high = self._range(self.counts - fold)
                noises.append(self._noise([h * low for h in _HEADROOM], [h * high for h in _HEADROOM], fold))
            noise = sum(noises[1:], noises[0])
            best = int(noise.argmin())
            self._known = _HeldBack(noise[best].item(), _HEADROOM[best])
        return self._known

    def _noise(self, lows: Sequence[float], highs: Sequence[float], counts: Tensor) -> Tensor:
        """The expected squared error of counted values in each of several ranges."""
        low, high, centers = counts.new_tensor(lows), counts.new_tensor(highs), self._centers()
        clipped = _beyond(centers, counts.flip(0), -low) + _beyond(centers, counts, high)
        step = (high - low) / (self.quant_max - self.quant_min)
        return step**2 / 12 * counts.sum() + clipped

    def _centers(self) -> Tensor:
        """Of the bins."""
        reach = 2.0**self.exponent
        return (torch.arange(_BINS, dtype=torch.float64) + 0.5) * (2 * reach / _BINS) - reach

    def is_zero_or_below(self, limit: float) -> bool:
        """Whether every value that was counted is 0, or at most a limit, as that of a mask."""
        above = self.counts[self._centers() > limit]
        return self.low <= limit and not above.any().item()

    def include(self, other: RangeObserver) -> None:
        """Count what `other` has seen, which is not asked any more."""
        if other.low == other.high:
            return
        if self.low == self.high:
            self.exponent = other.exponent
        while self.exponent < other.exponent:
            self._double()
        while other.exponent < self.exponent:
            other._double()
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.counts += other.counts
        self.folds += other.folds
        self._chosen = self._known = None

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """(scale float32 [1], zero point int32 [1])."""
        low, high = self.range
        if low == high:
            high = _OF_ZEROS * (self.quant_max - self.quant_min)
        if self.qscheme == torch.per_tensor_symmetric:
            scale = max(high / (self.quant_max + 0.5), self.eps)
            return torch.tensor([scale]), torch.zeros(1, dtype=torch.int32)
        scale = max((high - low) / (self.quant_max - self.quant_min), self.eps)
        zero_point = min(max(self.quant_min - round(low / scale), self.quant_min), self.quant_max)
        return torch.tensor([scale]), torch.tensor([zero_point], dtype=torch.int32)

    @property
    def range(self) -> tuple[float, float]:
        """Its low and high end; one that is set holds until something else is counted."""
        self._chosen = self._chosen or self._with_headroom()
        return self._chosen

    @range.setter
    def range(self, ends: tuple[float, float]) -> None:
        self._chosen = ends

    def stretch(self, factor: float) -> None:
        """Choose a range that is larger by a factor; what is counted later chooses anew."""
        low, high = self.range
        self.range = low * factor, high * factor

    def center(self, most: float) -> None:
        """Choose a range with a zero point of 0, where that makes the step larger by a factor of up to `most`."""
        low, high = self.range
        end = max(-low, high * self.quant_min / -self.quant_max)
        if end * (self.quant_max - self.quant_min) <= most * (high - low) * -self.quant_min:
            self.range = -end, -end * self.quant_max / self.quant_min

    def _widen(self, reach: float) -> None:
        if self.low == self.high:
            mantissa, exponent = math.frexp(reach)
            self.exponent = exponent - (mantissa == 0.5)
        while 2.0**self.exponent < reach:
            self._double()

    def _double(self) -> None:
        self.counts, self.folds = _in_pairs(self.counts), _in_pairs(self.folds)
        self.exponent += 1

    def _with_headroom(self) -> tuple[float, float]:
        """The range with its headroom, as far as the tensor's reader sees a difference."""
        (low, high), headroom = self._range(), self.headroom
        return max(headroom * low, min(self.floor, low)), min(headroom * high, max(self.ceiling, high))

    def _range(self, counts: Tensor | None = None) -> tuple[float, float]:
        """The range of least expected squared error: step^2 / 12 for what is inside, its distance for what is not.

        Args:
            counts: a part of what was counted; all of it where None.
        """
        least, most = self.low, self.high
        if counts is None:
            counts = self.counts
        else:
            seen = counts.nonzero()
            width = 2.0 ** (self.exponent + 1) / _BINS
            least = max(least, min(0.0, (seen[0].item() - _BINS // 2) * width)) if len(seen) else 0.0
            most = min(most, max(0.0, (seen[-1].item() + 1 - _BINS // 2) * width)) if len(seen) else 0.0
        shrink = torch.linspace(_LEAST, 1.0, _CANDIDATES, dtype=torch.float64)
        centers = self._centers()
        if self.qscheme == torch.per_tensor_symmetric:
            highs = max(-least, most) * shrink
            lows, clipped = -highs, _beyond(centers, counts, highs) + _beyond(centers, counts.flip(0), highs)
        else:
            lows, highs = (least * shrink)[:, None], (most * shrink)[None, :]
            clipped = _beyond(centers, counts.flip(0), -lows) + _beyond(centers, counts, highs)
        step = (highs - lows) / (self.quant_max - self.quant_min)
        error = step.square() / 12 * counts.sum() + clipped
        best = error.argmin()
        return lows.expand_as(error).flatten()[best].item(), highs.expand_as(error).flatten()[best].item()


def _in_pairs(counts: Tensor) -> Tensor:
    """Counts in bins of twice the width."""
    joined = torch.zeros_like(counts)
    joined[..., _BINS // 4 : 3 * _BINS // 4] = counts.unflatten(-1, (-1, 2)).sum(-1)
    return joined


def _beyond(centers: Tensor, counts: Tensor, limits: Tensor) -> Tensor:
    """For each limit the sum of count * (center - limit)^2 over the ascending centers above it."""
    moments = counts * torch.stack([torch.ones_like(centers), centers, centers**2])
    above = torch.nn.functional.pad(moments.flip(1).cumsum(1).flip(1), (0, 1))
    first = torch.searchsorted(centers, limits.contiguous(), right=True)
    total, mean, square = above[:, first]
    return square - 2 * limits * mean + limits.square() * total
