"""Which token comes next: what `tosaic_sampler.c` draws, bit by bit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tosaic.support.quantization import Quantization

_FRACTION, _FARTHEST = 16, 2**21 - 1
_LOG2_OF_E = np.float32(1.44269504)
_TERMS = (2**30, -744256846, 257890763, -59377501, 9890102, -1017428)
"""2^-x for x below 1, a polynomial in steps of 2^-30."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Args:
        temperature: what scores are divided by; 0 takes the likeliest token, the first of equal ones.
        top_k: only the so many likeliest tokens may come; 0: all. Tokens as likely as the last of them may come too.
        top_p: of these, only the likeliest that have so much of the probability together.
        seed: of the random generator, not 0.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1


class Sampler:
    """Draws tokens, as the one of the kit with the same numbers does."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling, self._state = sampling, sampling.seed or 1

    def sample(self, scores: np.ndarray, quantization: Quantization | None) -> int:
        """The next token.

        Args:
            scores: of all tokens, int8, int16 or float32.
            quantization: what integers mean; None for floats.
        """
        scores, asked = scores.ravel(), self._sampling
        best = int(scores.argmax())
        if not asked.temperature > 0:
            return best
        apart = self._distances(scores, quantization)
        weights = _weights(apart)
        limit = _FARTHEST
        if 0 < asked.top_k < scores.size:
            limit = _reach(apart, np.ones(scores.size, np.int64), limit, asked.top_k)
        total = int(weights[apart <= limit].sum())
        if asked.top_p < 1:
            share = int(np.float32(asked.top_p) * np.float32(2**32)) if asked.top_p > 0 else 0
            limit = _reach(apart, weights, limit, (total >> 16) * share >> 16)
            total = int(weights[apart <= limit].sum())
        random = self._random()
        left = ((total >> 16) * random >> 16) + ((total & 0xFFFF) * random >> 32)
        reached = np.flatnonzero(np.cumsum(np.where(apart <= limit, weights, 0)) > left)
        return int(reached[0]) if reached.size else best

    def _distances(self, scores: np.ndarray, quantization: Quantization | None) -> np.ndarray:
        """Of each token from the likeliest: how often it is half as likely, in steps of 2^-16."""
        of_one = _LOG2_OF_E / np.float32(self._sampling.temperature)
        if quantization is None:
            far = (scores.max() - scores) * (of_one * np.float32(2**_FRACTION))
            return np.where(far < _FARTHEST, far, _FARTHEST).astype(np.int64)
        step = of_one * np.float32(quantization.scales[0])
        fixed = int(step * np.float32(2**32)) if step < 2**15 else 2**47
        far = scores.max().astype(np.int64) - scores.astype(np.int64)
        return np.array([min(_FARTHEST, each * fixed >> 32 - _FRACTION) for each in far.tolist()], np.int64)

    def _random(self) -> int:
        state = self._state
        state ^= state << 13 & 0xFFFF_FFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFF_FFFF
        self._state = state
        return state


def _weights(apart: np.ndarray) -> np.ndarray:
    """2^-distance, in steps of 2^-30."""
    fraction = (apart & (1 << _FRACTION) - 1) << 30 - _FRACTION
    total = np.zeros_like(apart)
    for term in reversed(_TERMS):
        total = (total * fraction >> 30) + term
    return total >> (apart >> _FRACTION)


def _reach(apart: np.ndarray, amounts: np.ndarray, limit: int, wanted: int) -> int:
    """The smallest distance within which the tokens, of those within `limit`, have `wanted` together."""
    inside = np.flatnonzero(apart <= limit)
    near = inside[np.argsort(apart[inside], kind="stable")]
    place = int(np.searchsorted(np.cumsum(amounts[near]), wanted))
    return int(apart[near[min(place, near.size - 1)]]) if near.size else limit
