"""Spectra of made sounds with what they are: what the trained networks for sound learned, and fresh ones of the kind.

Words are rows of phones with formants; machines hum, and some rattle or whine. All of it comes from a seeded generator,
in decibels of mel bands.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

_WORDS, _PHONES, _LENGTH, _FRAMES, _BANDS, _COEFFICIENTS = 10, 9, 3, 49, 40, 10
_MACHINES, _CLIP, _MELS, _SEEN, _HARMONICS = 4, 24, 128, 5, 10


def words(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Cepstra of ten words, of silence (10) and of other words (11): f32[count, 1, 49, 10], classes int64[count].

    A word is three phones of a speaker whose formants are high or low, at some time of the second, behind noise.
    """
    generator = torch.Generator().manual_seed(seed)
    uniform = partial(_uniform, generator, count)
    language = torch.Generator().manual_seed(0)
    formants = torch.rand(_PHONES, 3, generator=language) * torch.tensor([9.0, 12, 10]) + torch.tensor([2.0, 12, 26])
    rows = torch.randperm(_PHONES**_LENGTH, generator=language)
    chosen = torch.randint(_WORDS + 2, (count,), generator=generator)
    others = torch.randint(_WORDS, len(rows), (count,), generator=generator)
    row = rows[torch.where(chosen < _WORDS, chosen, others)]
    phones = torch.stack([row // _PHONES**place % _PHONES for place in range(_LENGTH)], 1)

    ends = uniform(2, 20, 1) + uniform(6, 12, _LENGTH).cumsum(1)
    begins = torch.cat([ends[:, :1] - 8, ends[:, :-1]], 1)
    frame = torch.arange(_FRAMES)[None, None]
    spoken = torch.sigmoid(1.5 * (frame - begins[:, :, None])) * torch.sigmoid(1.5 * (ends[:, :, None] - frame))
    centers = formants[phones] * uniform(0.88, 1.12, 1, 1) + torch.randn(count, _LENGTH, 3, generator=generator) * 0.5
    band = torch.arange(_BANDS)
    peaks = torch.exp(-(((band - centers[..., None]) / 1.8) ** 2)).mul(uniform(0.4, 1, 1, 3, 1)).sum(2)
    voice = torch.einsum("npf,npb->nfb", spoken, peaks) * (chosen != _WORDS)[:, None, None]
    hiss = uniform(0.002, 0.03, 1, 1) / (torch.rand(count, _FRAMES, _BANDS, generator=generator) + 0.1)
    decibels = 10 * torch.log10(uniform(0.5, 2, 1, 1) * voice + hiss + 1e-3)
    return _cepstra((decibels + 18) / 12)[:, None], chosen


def _cepstra(decibels: Tensor) -> Tensor:
    """The first ten cosine coefficients over the bands, f32[..., 10]."""
    number = torch.arange(_COEFFICIENTS)
    waves = torch.cos(math.pi * (torch.arange(_BANDS)[:, None] + 0.5) * number / _BANDS)
    return decibels @ waves * math.sqrt(2 / _BANDS)


def machines(count: int, seed: int, broken: float = 0.0) -> tuple[Tensor, Tensor]:
    """Clips of machines' hum, and whether they are broken: f32[count, 20, 640], int64[count].

    A clip is 24 frames of 128 mel bands, 640 numbers are five frames that follow each other. Of each clip the share
    `broken` rattles, whines, has lost a harmonic or rubs.
    """
    generator = torch.Generator().manual_seed(seed)
    uniform = partial(_uniform, generator, count)
    kinds = torch.Generator().manual_seed(1)
    pitches = torch.linspace(7, 13, _MACHINES)
    gains = torch.rand(_MACHINES, _HARMONICS, generator=kinds)
    floors = _smooth(torch.rand(_MACHINES, 1, 12, generator=kinds), _MELS)[:, 0]
    kind = torch.randint(_MACHINES, (count,), generator=generator)
    faulty = torch.rand(count, generator=generator) < broken
    fault = torch.where(faulty, torch.randint(4, (count,), generator=generator), -1)[:, None, None]

    frame, band = torch.arange(_CLIP)[None, :, None], torch.arange(_MELS)[None, None]
    speed = pitches[kind][:, None] * uniform(0.95, 1.05, 1)
    wobble = 1 + 0.02 * torch.sin(uniform(0.2, 0.8, 1, 1) * frame + uniform(0, 6, 1, 1))
    loud = gains[kind] * uniform(0.7, 1.3, _HARMONICS)
    lost = torch.randint(1, 5, (count, 1), generator=generator) == torch.arange(_HARMONICS)
    loud = torch.where(lost & (fault[:, 0] == 2), 0.02 * loud, loud)
    power = 0.05 * floors[kind][:, None].square() * uniform(0.5, 1.5, 1, 1)
    for harmonic in range(_HARMONICS):
        center = speed[:, :, None] * (harmonic + 1) * wobble
        power = power + loud[:, harmonic, None, None] * torch.exp(-(((band - center) / 1.5) ** 2))
    whine = torch.exp(-(((band - uniform(20, 120, 1, 1)) / 1.2) ** 2)) * uniform(0.03, 0.3, 1, 1)
    knock = (frame + uniform(0, 6, 1, 1)).remainder(uniform(4, 8, 1, 1)) < 1
    rub = torch.sigmoid((band - uniform(60, 100, 1, 1)) / 6) * uniform(0.01, 0.05, 1, 1)
    power = power + (fault == 0) * knock * uniform(0.02, 0.12, 1, 1) + (fault == 1) * whine + (fault == 3) * rub
    speckle = torch.rand(count, _CLIP, _MELS, 4, generator=generator).clamp_min(1e-6).log().neg().mean(3)
    decibels = (10 * torch.log10(power * speckle + 1e-3) + 15) / 8
    return decibels.unfold(1, _SEEN, 1).transpose(2, 3).flatten(2), faulty.long()


def _uniform(generator: torch.Generator, count: int, low: float, high: float, *shape: int) -> Tensor:
    """f32[count, *shape]"""
    return low + (high - low) * torch.rand(count, *shape, generator=generator)


def _smooth(coarse: Tensor, size: int) -> Tensor:
    return functional.interpolate(coarse, size=size, mode="linear", align_corners=True)
