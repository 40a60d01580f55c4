"""Params that a kernel unpacks: what `unpack` writes on the simulated boards is what was packed."""

from __future__ import annotations

import numpy as np
import pytest
from board import M4, M55, Case, run_cases

from tosaic.backends.cortex_m.kernels import dense

_RNG = np.random.default_rng(3)
_NOISE = _RNG.integers(1, 255, 16 * 40, np.uint8).tobytes()


def _rows(stored: int, rows: int) -> bytes:
    """Rows of bytes with zeros up to 16."""
    return np.pad(_RNG.integers(1, 255, (rows, stored), np.uint8), ((0, 0), (0, 16 - stored))).tobytes()


def _words(bits: int, below: int, groups: int) -> np.ndarray:
    """int32 (groups, 4) of so many bits, sign included, above so many zeros."""
    return _RNG.integers(-(1 << (bits - 1)), 1 << (bits - 1), (groups, 4)).astype(np.int32) << below


CASES = {
    "nothing but noise": (_NOISE, 644),
    "zeros": (bytes(1000), 4),
    "padded rows between noise": (_NOISE + _rows(10, 30) + _NOISE[:160], 640 + 300 + 4 * 3),
    "small numbers": (_words(16, 0, 50).tobytes(), 404),
    "high halves": (_words(16, 16, 50).tobytes(), 404),
    "numbers and factors in turn": (np.stack([_words(24, 0, 9), _words(16, 16, 9)], 1).tobytes(), 4 + 9 * (12 + 8)),
    "an odd number of groups": (_words(8, 8, 7).tobytes(), 4 + 7 * 4),
    "the same again": (_NOISE + bytes(64) + _NOISE, 640 + 4 * 3),
    "equal vectors": (_NOISE[:16] * 20, 16 + 4 * 2),
    "no whole vector": (_NOISE[:21], 21 + 4 * 2),
}


@pytest.mark.parametrize("name", CASES)
def test_what_says_nothing_takes_no_room(name):
    params, most = CASES[name]
    assert len(dense.dense(params)[0]) <= most


@pytest.mark.parametrize("bench", [M55, M4], ids=["M55", "M4"])
def test_what_is_unpacked_is_what_was_packed(bench, tmp_path):
    cases = []
    for params, _ in CASES.values():
        whole = np.frombuffer(params + bytes(-len(params) % 16), np.int8)
        cases.append(Case(dense.unpacking(params, bench.core), [], [whole]))
    outcomes = run_cases(cases, tmp_path, bench=bench)
    assert all(outcome.exact for outcome in outcomes), [outcome for outcome in outcomes if not outcome.exact]
