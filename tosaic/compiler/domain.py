"""Integers that a module of TOSA takes: for others some ops have no result, a shift by 40, say, or a sum beyond i32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tosaic.backends.reference import Executable, evaluate_each, prepare
from tosaic.support.errors import BackendError, Error
from tosaic.support.functions import body_of
from tosaic.support.mlir import constant_value, element_type, functions, ir, numpy_dtype, shape_of
from tosaic.support.random_arrays import random_array

_WIDTHS = {"i4": 4, "i8": 8, "i16": 16, "i32": 32, "i48": 48}


class Range(NamedTuple):
    """Both ends are in it. Of distinct integers none stands twice along the last axis, as SCATTER asks of indices."""

    low: int
    high: int
    distinct: bool = False


def input_ranges(module: ir.Module, states: Sequence[np.ndarray], seed: int) -> list[Range | None]:
    """The widest range of each input that the reference model takes, at its ends and at random between them.

    Args:
        states: the last arguments of `main`, which are these.

    Returns:
        None for what is no integer.

    Raises:
        Error: it takes not even zeros.
    """
    main = functions(module)["main"]
    inputs = list(body_of(main).arguments)[: -len(states) or None]
    domain = _Domain(prepare(module), inputs, states, seed)
    choices = [_choices(value) for value in inputs]
    levels = range(max(map(len, choices), default=1))
    ranges = domain.first([tuple(some[min(level, len(some) - 1)] for some in choices) for level in levels])
    if ranges is None:
        raise Error(
            "the module takes no integers that tosaic knows of",
            why="the reference model refuses every range that was tried, zeros too",
            hint="--calibration with inputs that it takes",
        )
    for index, some in enumerate(choices):
        wider = domain.first([(*ranges[:index], one, *ranges[index + 1 :]) for one in some])
        assert wider is not None
        ranges = wider
    return list(ranges)


_Ranges = tuple[Range | None, ...]
"""One for each input."""


@dataclass
class _Domain:
    """Which ranges the reference model takes. It dies of what it refuses, and starts again slowly: what holds a range
    that it refused is not tried."""

    prepared: Executable
    inputs: Sequence[ir.Value]
    states: Sequence[np.ndarray]
    seed: int
    known: dict[_Ranges, bool] = field(default_factory=dict)

    def first(self, choices: Sequence[_Ranges]) -> _Ranges | None:
        """The first that is taken. After the first one those are tried that no narrower one follows."""
        if self.takes(choices[0]):
            return choices[0]
        for ranges, after in pairwise(choices):
            if not _hold(ranges, after):
                self.takes(ranges)
        self.takes(choices[-1])
        return next(filter(self.takes, choices), None)

    def takes(self, ranges: _Ranges) -> bool:
        """Whether the model does, as far as some samples tell."""
        if ranges not in self.known:
            refused = (other for other, taken in self.known.items() if not taken)
            self.known[ranges] = not any(_hold(ranges, other) for other in refused) and self._runs(ranges)
        return self.known[ranges]

    def _runs(self, ranges: _Ranges) -> bool:
        samples = [[*sample, *self.states] for sample in _tried(self.inputs, ranges, self.seed)]
        try:
            evaluate_each(self.prepared, samples)
        except BackendError:
            return False
        return True


def _hold(wide: _Ranges, narrow: _Ranges) -> bool:
    """Whether each range holds all that the other has."""
    return all(
        one == other or (one and other and one.low <= other.low and other.high <= one.high and not one.distinct)
        for one, other in zip(wide, narrow, strict=True)
    )


def sample_within(module: ir.Module, ranges: Sequence[Range | None], seed: int) -> list[np.ndarray]:
    """Random inputs."""
    rng = np.random.default_rng(seed)
    return [_drawn(rng, value, one) for value, one in zip(_arguments(module), ranges, strict=False)]


def _arguments(module: ir.Module) -> list[ir.Value]:
    return list(body_of(functions(module)["main"]).arguments)


def _choices(value: ir.Value) -> list[Range | None]:
    """Ranges of an element type, the widest first."""
    if (width := _WIDTHS.get(str(element_type(value)))) is None:
        return [None]
    signed = [Range(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in range(width, 1, -1)]
    small = [Range(0, (1 << bits) - 1) for bits in range(5, -1, -1)]
    indices = [Range(0, shape_of(value)[-1] - 1, distinct=True)] if width == 32 and shape_of(value) else []
    return [*signed, *small, *indices, *(one for zero in _zero_points(value) for one in _around(zero, width))]


def _zero_points(value: ir.Value) -> list[int]:
    """Those of the rescales that read a value: how far it may be from them is what they take."""
    known = [constant_value(use.owner.operands[3]) for use in value.uses if use.owner.name == "tosa.rescale"]
    return sorted({int(one.item()) for one in known if one is not None})


def _around(zero: int, width: int) -> list[Range]:
    low, high = -(1 << width - 1), (1 << width - 1) - 1
    return [Range(max(low, zero - (1 << bits)), min(high, zero + (1 << bits) - 1)) for bits in range(width - 1, -1, -1)]


def _tried(inputs: Sequence[ir.Value], ranges: Sequence[Range | None], seed: int) -> list[list[np.ndarray]]:
    """Random elements, ends at random, and all at one end."""
    rng = np.random.default_rng(seed)
    pairs = list(zip(inputs, ranges, strict=True))
    ends = [
        [
            _drawn(rng, value, one)
            if one is None or one.distinct
            else _filled(rng.choice(choice(one), shape_of(value)), value)
            for value, one in pairs
        ]
        for choice in (lambda one: one[:2], lambda one: one[:1], lambda one: one[1:2])
    ]
    return [[_drawn(rng, value, one) for value, one in pairs], *ends]


def _drawn(rng: np.random.Generator, value: ir.Value, one: Range | None) -> np.ndarray:
    if one is None:
        return random_array(rng, shape_of(value), numpy_dtype(element_type(value)))
    if one.distinct:
        rows = np.broadcast_to(np.arange(one.low, one.high + 1), shape_of(value))
        return _filled(rng.permuted(rows, axis=-1), value)
    return _filled(rng.integers(one.low, one.high, shape_of(value), np.int64, endpoint=True), value)


def _filled(array: np.ndarray, value: ir.Value) -> np.ndarray:
    return np.asarray(array).astype(numpy_dtype(element_type(value)))
