"""Decode compressed weight streams.

`decode_stream` reads the Golomb-Rice streams of all generations. They are slices of up to 32768 weights. Each has a
header, an optional palette, quotients in unary and remainders in binary, and zero runs between the weights.
`decode_fast` reads the fixed-width streams of Ethos-U85's fast weight decoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tosaic.backends.npu import EmulationError

_NO_ZERO_RUNS, _END_OF_STREAM = 6, 7  # values of a slice's zero-run divisor
_UNCOMPRESSED = 7  # value of its weight divisor
_CHUNK = 12  # unary bits of the weights in one chunk
_SLACK = 64  # bytes beyond the end that a chunk may look at before its length is checked
_POPCOUNT = [bin(value).count("1") for value in range(1 << _CHUNK)]


class _Bits:
    """A little-endian bit stream. `windows[i]` is the 64-bit word that starts at byte i."""

    def __init__(self, data: bytes) -> None:
        octets = np.frombuffer(data + bytes(_SLACK), np.uint8)
        self.words = np.lib.stride_tricks.sliding_window_view(octets, 8).copy().view("<u8").ravel()
        self.windows = self.words.tolist()
        self.length = 8 * len(data)
        self.position = 0

    def take(self, count: int) -> int:
        start = self.position
        self.position = start + count
        if self.position > self.length:
            raise EmulationError("a weight stream ends inside a slice")
        return self.windows[start >> 3] >> (start & 7) & (1 << count) - 1

    def gather(self, positions: np.ndarray, count: int) -> np.ndarray:
        """The `count` bits at each of `positions`."""
        found = self.words[positions >> 3] >> (positions & 7).astype(np.uint64)
        return (found & np.uint64((1 << count) - 1)).astype(np.int64)


@dataclass
class _Palette:
    """Values by index; indices beyond `values` stand for themselves plus `offset`."""

    values: np.ndarray
    offset: int
    bits: int

    def look_up(self, indices: np.ndarray) -> np.ndarray:
        size = len(self.values)
        folded = indices - size + self.offset
        if size:
            folded = np.where(indices < size, self.values[np.minimum(indices, size - 1)], folded)
        return np.where(folded & 1, -(folded >> 1), folded >> 1)


@lru_cache(maxsize=256)
def decode_stream(data: bytes) -> np.ndarray:
    """All weights of a Golomb-Rice coded stream, int64, read-only.

    Raises:
        EmulationError: the stream is damaged or cut short.
    """
    bits = _Bits(data)
    palette = _Palette(np.zeros(0, np.int64), 0, 0)
    slices = []
    while bits.length - bits.position >= 3:
        zero_divisor = bits.take(3)
        if zero_divisor == _END_OF_STREAM:
            bits.position = -(-bits.position // 8) * 8
            continue
        if zero_divisor in (4, 5):
            raise EmulationError(f"a weight slice has zero-run divisor {zero_divisor}")
        slices.append(_decode_slice(bits, palette, zero_divisor))
    weights = np.concatenate(slices) if slices else np.zeros(0, np.int64)
    weights.flags.writeable = False
    return weights


def _decode_slice(bits: _Bits, palette: _Palette, zero_divisor: int) -> np.ndarray:
    count = bits.take(15) + 1
    divisor, truncated, new_palette = bits.take(3), bits.take(1), bits.take(1)
    if new_palette:
        palette.offset = bits.take(5)
        size = bits.take(5)
        palette.bits = bits.take(3) + 2
        palette.values = np.array([bits.take(palette.bits) for _ in range(size + 1 if size else 0)], np.int64)
    uncompressed = divisor == _UNCOMPRESSED
    if uncompressed:
        divisor = (len(palette.values) - 1).bit_length() if len(palette.values) else palette.bits
    elif divisor == 6:
        raise EmulationError("a weight slice has weight divisor 6")
    if uncompressed and zero_divisor == _NO_ZERO_RUNS:
        start = bits.position
        bits.position += count * divisor
        if bits.position > bits.length:
            raise EmulationError("a weight stream ends inside a slice")
        return palette.look_up(bits.gather(start + divisor * np.arange(count), divisor))
    chunks = _read_chunks(bits, count, divisor, uncompressed, bool(truncated), zero_divisor, new_palette)
    indices = chunks.weights(bits, count, divisor, uncompressed, bool(truncated))
    if indices.max(initial=0) >= 512:
        raise EmulationError("a weight beyond nine bits in a weight stream")
    weights = palette.look_up(indices)
    if zero_divisor == _NO_ZERO_RUNS:
        return weights
    runs = chunks.zero_runs(bits, count + new_palette, zero_divisor)
    before = runs if new_palette else np.concatenate([[0], runs])
    spread = np.zeros(count + int(runs.sum()), np.int64)
    spread[np.arange(count) + np.cumsum(before[:count])] = weights
    return spread


class _Chunks:
    """Where the parts of a slice lie, chunk by chunk: unary bits, and positions of the remainders."""

    def __init__(self) -> None:
        self.unary0: list[int] = []
        self.unary1: list[int] = []
        self.symbols: list[int] = []
        self.remainders: list[int] = []
        self.zero_unary: list[int] = []
        self.zero_symbols: list[int] = []
        self.zero_remainders: list[int] = []

    def weights(self, bits: _Bits, count: int, divisor: int, uncompressed: bool, truncated: bool) -> np.ndarray:
        remainders = _remainders(bits, self.remainders, self.symbols, divisor)[:count]
        if uncompressed:
            return remainders
        ones = np.array(self.unary0)[:, None] >> np.arange(_CHUNK) & 1
        rank = np.cumsum(ones, 1) - ones
        codes = (ones * (1 + (np.array(self.unary1)[:, None] >> rank & 1))).ravel()
        ends = np.arange(len(codes)) if truncated else np.flatnonzero(codes < 2)
        quotients = np.diff(np.cumsum(codes)[ends[:count]], prepend=0)
        return (quotients << divisor) + remainders

    def zero_runs(self, bits: _Bits, count: int, divisor: int) -> np.ndarray:
        width = _CHUNK if divisor < 3 else 8
        codes = (np.array(self.zero_unary)[:, None] >> np.arange(width) & 1).ravel()
        ends = np.flatnonzero(codes == 0)[:count]
        quotients = np.diff(np.cumsum(codes)[ends], prepend=0)
        return (quotients << divisor) + _remainders(bits, self.zero_remainders, self.zero_symbols, divisor)[:count]


def _remainders(bits: _Bits, starts: list[int], counts: list[int], width: int) -> np.ndarray:
    """`counts[i]` numbers of `width` bits from position `starts[i]` on, for all i, in a row."""
    number = np.array(counts, np.int64)
    within = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
    return bits.gather(np.repeat(np.array(starts, np.int64), number) + width * within, width)


def _read_chunks(bits, count, divisor, uncompressed, truncated, zero_divisor, new_palette) -> _Chunks:
    """Walk the chunks of a slice. Each holds unary parts, then the remainders that belong to the chunk before it."""
    chunks = _Chunks()
    zero_count = count + new_palette
    with_zeros = zero_divisor != _NO_ZERO_RUNS
    zero_width = _CHUNK if zero_divisor < 3 else 8
    most = 8 if uncompressed and divisor > 5 else _CHUNK
    weights = zeros = pending = zero_pending = 0
    windows, position = bits.windows, bits.position
    while True:
        balance = weights - zeros if with_zeros else 0
        want_weights = balance < 8 and weights < count
        want_zeros = with_zeros and balance >= 0 and zeros < zero_count
        symbols = zero_symbols = unary0 = unary1 = 0
        if want_weights and not uncompressed:
            unary0 = windows[position >> 3] >> (position & 7) & 0xFFF
            position += _CHUNK
        if want_zeros:
            unary = windows[position >> 3] >> (position & 7) & (1 << zero_width) - 1
            position += zero_width
            chunks.zero_unary.append(unary)
            zero_symbols = min(zero_width - _POPCOUNT[unary], zero_count - zeros)
            zeros += zero_symbols
        if want_weights:
            if unary0:
                ones = _POPCOUNT[unary0]
                unary1 = windows[position >> 3] >> (position & 7) & (1 << ones) - 1
                position += ones
            symbols = min(most if truncated else most - _POPCOUNT[unary1], count - weights)
            weights += symbols
            chunks.unary0.append(unary0)
            chunks.unary1.append(unary1)
        if pending:
            chunks.remainders.append(position)
            chunks.symbols.append(pending)
            position += pending * divisor
        if zero_pending:
            chunks.zero_remainders.append(position)
            chunks.zero_symbols.append(zero_pending)
            position += zero_pending * zero_divisor
        if position > bits.length:
            raise EmulationError("a weight stream ends inside a slice")
        pending, zero_pending = symbols, zero_symbols
        if not want_weights and not want_zeros:
            break
    bits.position = position
    if weights < count or (with_zeros and zeros < zero_count):
        raise EmulationError("a weight slice and its zero runs do not fit together")
    return chunks


_FAST_HEADER = 32  # bytes


@lru_cache(maxsize=256)
def decode_fast(data: bytes) -> np.ndarray:
    """All symbols of a fast-decoder stream, int64, read-only: a 256-bit header, then symbols of 2, 4 or 8 bits.

    Raises:
        EmulationError: the stream is shorter than its header.
    """
    if len(data) < _FAST_HEADER:
        raise EmulationError("a fast weight stream shorter than its header")
    header = int.from_bytes(data[:_FAST_HEADER], "little")
    body = np.frombuffer(data, np.uint8, offset=_FAST_HEADER)
    if header & 1:
        adjust = (header >> 104 & 0xFF ^ 0x80) - 0x80
        weights = body.view(np.int8).astype(np.int64) - adjust
    else:
        folded = np.array([header >> 112 + 9 * i & 0x1FF for i in range(16)], np.int64)
        table = np.where(folded & 1, -(folded >> 1), folded >> 1)
        width = 2 if header >> 1 & 1 else 4
        weights = table[(body[:, None] >> np.arange(0, 8, width) & (1 << width) - 1).ravel()]
    weights.flags.writeable = False
    return weights
