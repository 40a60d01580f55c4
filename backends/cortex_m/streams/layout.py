"""Where the windows of a stream and the working memory of its stages lie: what is in use at different stages of a step
shares memory."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tosaic.backends.cortex_m.kernels.mve import VECTOR, round_up
from tosaic.backends.cortex_m.streams.plan import Plan

_ROUNDS = 150
"""Orders tried from the best one on."""


@dataclass(frozen=True)
class WindowPlace:
    """Where a window lies.

    All its rows lie there while stages make and read them. Those that the next step still needs lie there from the last
    reader of a step to the first row made in the next.
    """

    at: int
    kept_at: int


@dataclass(frozen=True)
class ScratchLayout:
    """Offsets in scratch memory.

    Args:
        windows: by the name of the tensor.
        working: of each stage's working memory.
        size: bytes of it all.
    """

    windows: Mapping[str, WindowPlace]
    working: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class _ScratchBlock:
    """`size` bytes that are in use at some moments, a bit each, and the first `kept` of them at all.

    Args:
        mate: the number of a block that may begin with this one, as what lies in one goes to the other.
    """

    size: int
    moments: int
    kept: int = 0
    mate: int | None = None


_MOMENTS = 3
"""Moments of a stage: its kernel runs, rows that it has read go to where they are kept, and rows that the next stage
goes on with come back."""


def least_bytes(plan: Plan, working: Sequence[int]) -> int:
    """The most that is in use at once, which no layout can do without."""
    return _least(_blocks(plan, working), len(plan.units))


def lay_out(plan: Plan, working: Sequence[int]) -> ScratchLayout:
    """A small layout of a plan.

    Args:
        working: bytes that each stage needs for itself.
    """
    blocks = _blocks(plan, working)
    starts, size = _packed(blocks, _least(blocks, len(plan.units)))
    windows, rest = dict[str, WindowPlace](), iter(starts)
    for name, window in plan.windows.items():
        at = next(rest)
        windows[name] = WindowPlace(at, next(rest) if plan.is_split(window) else at)
    return ScratchLayout(windows, tuple(rest), size)


def _blocks(plan: Plan, working: Sequence[int]) -> list[_ScratchBlock]:
    """The windows, each that is split with a block for the rows that it keeps behind it, and the working memory."""
    blocks, count = list[_ScratchBlock](), _MOMENTS * len(plan.units)
    for window in plan.windows.values():
        begin, end = _MOMENTS * window.first, _MOMENTS * window.last + 1
        size, kept = (round_up(rows * window.bytes, VECTOR) for rows in (window.rows, window.kept))
        if plan.is_split(window):
            blocks.append(_ScratchBlock(size, _bits(begin - 1, end, count), mate=len(blocks) + 1))
            blocks.append(_ScratchBlock(kept, _bits(end, begin - 1 + count, count), mate=len(blocks) - 1))
        else:
            blocks.append(_ScratchBlock(size, _bits(begin, end, count), kept))
    stages = (_bits(_MOMENTS * stage, _MOMENTS * stage, count) for stage in range(len(plan.units)))
    return blocks + [_ScratchBlock(round_up(size, VECTOR), bits) for size, bits in zip(working, stages, strict=True)]


def _bits(first: int, last: int, count: int) -> int:
    """A bit for each moment from `first` to `last`, where behind the last of `count` comes the first."""
    return sum({1 << moment % count for moment in range(first, last + 1)})


def _least(blocks: Sequence[_ScratchBlock], stages: int) -> int:
    moments = range(0, _MOMENTS * stages, _MOMENTS)
    return max(sum(b.size if b.moments >> moment & 1 else b.kept for b in blocks) for moment in moments)


def _packed(blocks: Sequence[_ScratchBlock], bound: int) -> tuple[list[int], int]:
    """Where each block begins, and where the last ends: by size, then in orders near the best one."""
    rng, numbers = random.Random(0), range(len(blocks))
    best: tuple[int, list[int], list[int]] | None = None
    for order in _orders(blocks):
        starts = _first_fit(blocks, order)
        end = _end(blocks, starts)
        if best is None or end < best[0]:
            best = end, order, starts
    assert best is not None
    for _ in range(_ROUNDS):
        end, order, starts = best
        if end <= bound:
            break
        top = max(numbers, key=lambda number: starts[number] + blocks[number].size)
        moved = rng.choice([top, rng.choice([n for n in numbers if blocks[n].moments & blocks[top].moments])])
        trial = [number for number in order if number != moved]
        trial.insert(rng.randrange(len(blocks)), moved)
        starts = _first_fit(blocks, trial)
        if (reached := _end(blocks, starts)) <= end:
            best = reached, trial, starts
    return best[2], best[0]


def _orders(blocks: Sequence[_ScratchBlock]) -> Iterator[list[int]]:
    numbers = range(len(blocks))
    yield sorted(numbers, key=lambda number: -blocks[number].size)
    yield sorted(numbers, key=lambda number: (-blocks[number].kept, -blocks[number].size))
    yield sorted(numbers, key=lambda number: -blocks[number].size * blocks[number].moments.bit_count())


def _end(blocks: Sequence[_ScratchBlock], starts: Sequence[int]) -> int:
    return max((start + block.size for start, block in zip(starts, blocks, strict=True)), default=0)


def _first_fit(blocks: Sequence[_ScratchBlock], order: Sequence[int]) -> list[int]:
    """Each block in turn at the lowest offset at which it disturbs none before it."""
    starts: dict[int, int] = {}
    for number in order:
        block = blocks[number]
        spans = {other: list(_disturbed(block, blocks[other], at, other == block.mate)) for other, at in starts.items()}
        begin = 0
        for low, high in sorted(span for each in spans.values() for span in each):
            if low >= begin:
                break
            begin = max(begin, high)
        if block.mate in starts:
            del spans[block.mate]
            beside = starts[block.mate]
            if not any(low < beside < high for each in spans.values() for low, high in each):
                begin = beside
        starts[number] = begin
    return [starts[number] for number in range(len(blocks))]


def _disturbed(block: _ScratchBlock, other: _ScratchBlock, at: int, is_mate: bool) -> Iterator[tuple[int, int]]:
    """Between which offsets a block may not begin, since it would lie over what is in use of another, at `at`."""
    if is_mate or block.moments & other.moments:
        yield at - block.size, at + other.size
        return
    if other.kept:
        yield at - block.size, at + other.kept
    if block.kept:
        yield at - block.kept, at + other.size
