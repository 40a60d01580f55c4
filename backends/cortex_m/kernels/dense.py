"""Params without the bytes that say nothing, for kernels that copy them to scratch memory before they read them.

Some bytes need no room: padding of rows, the first states of a loop, the upper bytes of a bias, the lower ones of a
factor, and a table that two kernels look up. What is stored are runs of vectors of a kind, and behind these their
bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.kernels.mve import PORTABLE, PRELUDE, VECTOR, with_symbol
from tosaic.backends.target import Core

_RUN = struct.Struct("<hh")
"""How many vectors, and their kind.

A kind below 0 says by how many vectors to go back to equal ones. One of up to 16 says how many bytes of each are
stored, with zeros behind them. Any other has in its lower byte how words of the even vectors are stored, in its upper
byte those of the odd ones: 16 + 4 * size + low for `size` bytes from byte `low` on, with zeros below and the sign
above.
"""
MOST = 2**18
"""Bytes of params: what fewer vectors than an int16 counts."""
_WORDS = [(size, low) for size in range(1, 5) for low in range(5 - size)]

_WITH_VECTORS = """\
INLINE void start(int8_t *to, const int8_t *from, int bytes)
{
  vstrbq_s8(to, vldrbq_z_s8(from, vctp8q(bytes)));
}
"""
_WITHOUT_VECTORS = """\
INLINE void start(int8_t *to, const int8_t *from, int bytes)
{
  memcpy(to, from, bytes);
  memset(to + bytes, 0, 16 - bytes);
}
"""
_UNPACK = """\
INLINE void unpack_words(int8_t *to, const int8_t *from, int size, int low)
{
  for (int i = 0; i < 4; i++) {
    int32_t word;
    __builtin_memcpy(&word, from + size * (i + 1) - 4, 4);
    word = (int32_t)((uint32_t)(word >> (32 - 8 * size)) << (8 * low));
    __builtin_memcpy(to + 4 * i, &word, 4);
  }
}
void @SYMBOL@(int8_t *to, const int8_t *params, int8_t *scratch)
{
  const int16_t *run = (const int16_t *)params;
  const int8_t *from = params + 4 * @RUNS@;
  for (int runs = @RUNS@; runs > 0; runs--, run += 2) {
    const int count = run[0], kind = run[1];
    if (kind > 16) {
      for (int i = 0; i < count; i++, to += 16) {
        const int words = (i & 1 ? kind >> 8 : kind & 255) - 16;
        unpack_words(to, from, words >> 2, words & 3);
        from += words & ~3;
      }
    } else {
      const int8_t *source = kind < 0 ? to + 16 * kind : from;
      const int size = kind < 0 ? 16 : kind;
      for (int i = 0; i < count; i++, to += 16, source += size) start(to, source, size);
      if (kind >= 0) from = source;
    }
  }
}
"""
"""C of a kernel that unpacks, behind one of the two above."""


def unpacking(params: bytes, core: Core) -> KernelSource:
    """A kernel that makes the params, and zeros behind them up to a whole vector, of its own."""
    packed, runs = dense(params)
    prelude = PRELUDE + _WITH_VECTORS if core.mve else PORTABLE + _WITHOUT_VECTORS
    symbol, text = with_symbol("unpack", prelude + _UNPACK.replace("@RUNS@", str(runs)))
    return KernelSource(symbol, "c", text, packed)


def dense(params: bytes) -> tuple[bytes, int]:
    """(bytes, runs) of which `unpack` makes the params, at most `MOST`, and zeros behind them up to a whole vector."""
    vectors = np.frombuffer(params + bytes(-len(params) % VECTOR), np.uint8).reshape(-1, VECTOR)
    runs = list(_runs(vectors))
    return b"".join([*(_RUN.pack(len(run), kind) for run, kind in runs), *(_stored(*run) for run in runs)]), len(runs)


def _runs(vectors: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """The vectors of each run, and their kind: the fewest bytes that runs take of which all but whole vectors go on as
    far as they can."""
    ways = _ways_of(vectors)
    left = [0] * (len(vectors) + 1)  # bytes from a vector on
    steps = list[tuple[int, int]]()  # vectors and kind of the run that begins there, from the last one on
    whole, end = _RUN.size, 0  # bytes with a run of whole vectors there, and where that best ends
    for at in reversed(range(len(vectors))):
        if left[at + 1] + _RUN.size <= whole:
            whole, end = left[at + 1] + _RUN.size, at + 1
        whole += VECTOR
        left[at], count, kind = min([(whole, end - at, VECTOR), *((n + left[at + c], c, k) for n, c, k in ways(at))])
        steps.append((count, kind))
    at = 0
    while at < len(vectors):
        count, kind = steps[len(vectors) - 1 - at]
        yield vectors[at : at + count], kind
        at += count


def _ways_of(vectors: np.ndarray) -> Callable[[int], Iterator[tuple[int, int, int]]]:
    """The kinds of run that save bytes from a vector on, and go on as far as they can: (bytes, vectors, kind)."""
    filled = np.where(vectors.any(1), VECTOR - (vectors[:, ::-1] != 0).argmax(1), 0)
    fitting = {words: _fits(vectors.view("<i4"), *words) for words in _WORDS}
    first = {vector.tobytes(): len(vectors) - 1 - back for back, vector in enumerate(vectors[::-1])}

    def ways(at: int) -> Iterator[tuple[int, int, int]]:
        for size in range(filled[at], VECTOR):
            count = _until(filled[at:] > size)
            yield _RUN.size + count * size, count, size
        if back := at - first[vectors[at].tobytes()]:
            yield _RUN.size, _until((vectors[at:] != vectors[at - back : len(vectors) - back]).any(1)), -back
        for even, odd in product(_WORDS, repeat=2):
            if fitting[even][at] and fitting[odd][at + 1 : at + 2].all() and even[0] + odd[0] < 8:
                count = min(2 * _until(~fitting[even][at::2]), 2 * _until(~fitting[odd][at + 1 :: 2]) + 1)
                size = 4 * (-(-count // 2) * even[0] + count // 2 * odd[0])
                yield _RUN.size + size, count, _word_kind(even) | _word_kind(odd) << 8

    return ways


def _until(ends: np.ndarray) -> int:
    """How many stand before the first that is true."""
    return int(ends.argmax()) if ends.any() else len(ends)


def _fits(words: np.ndarray, size: int, low: int) -> np.ndarray:
    """Which vectors of words (int32, 4 a row) are what `unpack_words` makes of these bytes of theirs."""
    above, below = 32 - 8 * size, 8 * low
    return ((words >> below << above >> above << below) == words).all(1)


def _word_kind(words: tuple[int, int]) -> int:
    return VECTOR + 4 * words[0] + words[1]


def _stored(run: np.ndarray, kind: int) -> bytes:
    """The bytes of a run."""
    if kind <= VECTOR:
        return run[:, : max(0, kind)].tobytes()
    ways = [divmod(byte - VECTOR, 4) for byte in (kind & 255, kind >> 8)]
    parts = [(vector.reshape(4, 4), *ways[number % 2]) for number, vector in enumerate(run)]
    return b"".join(words[:, low : low + size].tobytes() for words, size, low in parts)
