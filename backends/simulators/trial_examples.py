"""What the kernels of a task are tried on, and what the reference makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tosaic.backends import reference
from tosaic.support.errors import BackendError
from tosaic.support.functions import body_of
from tosaic.support.kernels import repeats_indices
from tosaic.support.mlir import element_type, functions, ir, numpy_dtype, parse, shape_of, walk
from tosaic.support.random_arrays import random_array
from tosaic.support.values import is_argument, producer

_SHIFTS = ("tosa.arithmetic_right_shift", "tosa.logical_left_shift", "tosa.logical_right_shift")
_ENOUGH = 64  # elements: a kernel that rounds every other one wrongly passes with a chance of 2^-64
_MOST_HALVED = 8
_DRAWN = 256  # of which those are taken that tell most
_DRAWN_BYTES = 2**19
_DRAWN_ITERATIONS = 2**11  # of loops, each of which takes the reference model a millisecond
_FURTHER_BYTES = 2**16  # also of a board's memory


class Example(NamedTuple):
    """Inputs of a TOSA module, and its outputs on `tosa_reference_model`."""

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]

    @property
    def telling(self) -> int:
        """How many elements of the outputs depend on how they are rounded: those that no saturation hides."""
        return sum(map(_unsaturated, self.outputs))


@lru_cache(maxsize=256)
def examples(module: str | bytes, seed: int, data: tuple[bytes, ...] = ()) -> tuple[Example, ...]:
    """Inputs of a TOSA module, `data` or random ones, with its outputs; the first is what trials are measured on.

    Random integers span their whole range, or as much of it as TOSA defines results for. Floats are standard normal;
    indices and shifts stay within bounds. Sums of such integers may all saturate, and some kernels have few outputs.
    Then there are further examples, until enough elements tell a wrong rounding. Their integers are from a part of
    their range, or of the values that `data` holds.
    """
    rng = np.random.default_rng(seed)
    parsed = parse(module)
    main = functions(parsed)["main"]
    kinds = [(shape_of(a), numpy_dtype(element_type(a))) for a in body_of(main).arguments]
    given: tuple[np.ndarray, ...] = ()
    if data:
        given = tuple(np.frombuffer(d, dtype).reshape(shape) for d, (shape, dtype) in zip(data, kinds, strict=True))
    bounds, prepared = _bounds(main), reference.prepare(parsed)

    def draw(free: Callable[[int], np.ndarray]) -> tuple[np.ndarray, ...]:
        return tuple(
            _below(rng, *kind, bounds[number]) if number in bounds else free(number)
            for number, kind in enumerate(kinds)
        )

    def another(number: int) -> np.ndarray:
        return rng.choice(given[number].ravel(), kinds[number][0]) if given else _narrow(rng, *kinds[number])

    def within(bits: int) -> tuple[np.ndarray, ...]:
        return draw(lambda number: _halved(random_array(rng, *kinds[number]), bits))

    chosen = [_first(prepared, [given] if given else map(within, range(_MOST_HALVED)))]
    first = chosen[0].inputs
    missing = _ENOUGH - chosen[0].telling
    if missing <= 0:
        return tuple(chosen)
    size = sum(array.nbytes for array in (*first, *chosen[0].outputs))
    drawn = [
        draw(another)
        for _ in range(min(_DRAWN, _DRAWN_BYTES // size, _DRAWN_ITERATIONS // max(1, prepared.iterations)))
    ]
    further = _defined(prepared, drawn)
    for example in sorted(further, key=lambda example: -example.telling)[: _FURTHER_BYTES // size]:
        if missing <= 0 or not example.telling:
            break
        chosen.append(example)
        missing -= example.telling
    return tuple(chosen)


def _first(prepared: reference.Executable, drawn: Iterable[tuple[np.ndarray, ...]]) -> Example:
    """An example of the first inputs for which TOSA defines the results.

    Raises:
        BackendError: it defines them for none.
    """
    refusal: BackendError | None = None
    for inputs in drawn:
        try:
            return Example(inputs, tuple(reference.evaluate(prepared, inputs)))
        except BackendError as error:
            refusal = error.with_traceback(None)
    assert refusal is not None
    raise refusal


def _halved(array: np.ndarray, times: int) -> np.ndarray:
    """Integers in a range that is halved so many times; the last times zeros are left."""
    if times == 0 or array.dtype == np.bool_ or not np.issubdtype(array.dtype, np.integer):
        return array
    return array >> times if times < _MOST_HALVED - 1 else np.zeros_like(array)


def _defined(prepared: reference.Executable, drawn: Sequence[tuple[np.ndarray, ...]]) -> list[Example]:
    """Examples of those inputs for which TOSA defines the results: data may belong together in ways unknown here."""
    try:
        outputs = reference.evaluate_each(prepared, drawn)
    except BackendError:
        middle = len(drawn) // 2
        return _defined(prepared, drawn[:middle]) + _defined(prepared, drawn[middle:]) if middle else []
    return [Example(inputs, tuple(made)) for inputs, made in zip(drawn, outputs, strict=True)]


def _unsaturated(array: np.ndarray) -> int:
    if array.dtype == np.bool_ or not np.issubdtype(array.dtype, np.integer):
        return array.size
    limits = np.iinfo(array.dtype)
    return int(((array > limits.min) & (array < limits.max)).sum())


def _bounds(main: ir.Operation) -> dict[int, int]:
    """By the number of an argument that indexes a gather or scatter, or shifts: what it must stay below."""
    bounds = {}
    for op in walk(main):
        if op.name not in ("tosa.gather", "tosa.scatter", *_SHIFTS):
            continue
        first, second, *_ = op.operands
        tile = producer(second, "tosa.tile")
        second = tile.operands[0] if tile is not None and repeats_indices(tile, op) else second
        if is_argument(second):
            bound = 8 * numpy_dtype(element_type(first)).itemsize if op.name in _SHIFTS else shape_of(first)[1]
            bounds[ir.BlockArgument(second).arg_number] = bound
    return bounds


def _below(rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype, bound: int) -> np.ndarray:
    return np.resize(rng.permutation(bound), shape).astype(dtype)


def _narrow(rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Integers from a part of their range, of a random size and place; else as `random_array`."""
    if not np.issubdtype(dtype, np.integer):
        return random_array(rng, shape, dtype)
    limits = np.iinfo(dtype)
    width = 2 ** int(rng.integers(1, limits.bits))
    low = int(rng.integers(limits.min, limits.max - width, endpoint=True))
    return rng.integers(low, low + width, shape, dtype, endpoint=True)
