"""Drop channels that are constant, or that nothing reads: what they leave goes into the next bias."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import numpy as np

from tosaic.passes.integers import RANGES, clamp_limits, scaled, unary_function
from tosaic.passes.module_pass import ModulePass, register
from tosaic.support.attributes import bool_of, enum_of, int_of, ints_of
from tosaic.support.functions import Dropped, body_of, note_dropped
from tosaic.support.mlir import (
    constant,
    constant_shape,
    constant_value,
    element_type,
    functions,
    ir,
    numpy_dtype,
    shape_of,
)
from tosaic.support.tosa_builder import rebuild, tensor
from tosaic.support.values import multiplications, users

_CONV, _DEPTHWISE = "tosa.conv2d", "tosa.depthwise_conv2d"
_BY_CHANNEL = {"tosa.rescale", "tosa.clamp", "tosa.table", "tosa.identity", "tosa.max_pool2d", "tosa.avg_pool2d",
               "tosa.add", "tosa.sub", "tosa.mul", "tosa.maximum", "tosa.minimum"}  # fmt: skip
"""Ops of which each channel of the result is made of that channel of what they read, and of no other."""
_QUANTUM = 4  # channels: what is left is a multiple, as vectors and blocks are


@register
@dataclass(frozen=True)
class DropDeadChannels(ModulePass):
    """Drop channels that are constant or unread through chains of convolutions and what lies between, exactly."""

    name: ClassVar[str] = "drop-dead-channels"
    phase: ClassVar[str] = "fuse"

    def run(self, module: ir.Module) -> None:
        for function in functions(module).values():
            while dropped := _Channels(body_of(function)).drop():
                note_dropped(function, dropped)


@dataclass(frozen=True)
class _Known:
    """Which channels of a tensor have one value everywhere, and which: bool [C], int64 [C]."""

    mask: np.ndarray
    values: np.ndarray

    @staticmethod
    def nothing(channels: int) -> _Known:
        return _Known(np.zeros(channels, bool), np.zeros(channels, np.int64))


Known: TypeAlias = Callable[[ir.Value], _Known]


@dataclass
class _Channels:
    """The channels of a block's tensors, their last axes.

    Args:
        numbers: for each tensor the numbers of its channels, by which `parents` joins those that stay or go together.
    """

    block: ir.Block
    known: dict[ir.Value, _Known] = field(default_factory=dict)
    numbers: dict[ir.Value, np.ndarray] = field(default_factory=dict)
    parents: list[int] = field(default_factory=list)

    def drop(self) -> Dropped | None:
        """Drop what is dead; None where nothing is."""
        ops = [op.operation for op in self.block.operations]
        for op in ops:
            for result in op.results:
                self.known[result] = _known(op, self.of)
        spared = {op: self._spared(op) for op in ops if op.name == _CONV and _is_plain(op)}
        if not any(mask.any() for mask in spared.values()):
            return None
        keep = self._kept(ops, spared)
        if all(mask.all() for mask in keep.values()):
            return None
        return self._rebuilt([op for op in ops if any(value in keep for value in (*op.operands, *op.results))], keep)

    def of(self, value: ir.Value) -> _Known:
        return self.known.get(value) or _Known.nothing(_channels(value))

    def _spared(self, op: ir.Operation) -> np.ndarray:
        """Of which of the channels that it reads a convolution needs no more than a constant: bool [C]."""
        weights, x = _weights(op), self.of(op.operands[0])
        return ~weights.any((0, 1, 2)) | _foldable(op, x)

    def _kept(self, ops: Sequence[ir.Operation], spared: dict[ir.Operation, np.ndarray]) -> dict[ir.Value, np.ndarray]:
        """The channels that stay, of each tensor that has a part in it: bool [C]."""
        stays: set[int] = set()
        for op in ops:
            for one, other in _joined(op):
                self._join(one, other)
        for op in ops:
            reads = [value for value in op.operands if _is_image(value) and constant_value(value) is None]
            if op in spared:
                stays.update(self._numbers(op.operands[0])[~spared[op]].tolist())
                reads = reads[1:] if reads[:1] == [op.operands[0]] else reads
            elif _follows(op):
                continue
            elif op.name == _CONV:
                reads = [*reads, op.results[0]]
            else:
                reads = [*reads, *filter(_is_image, op.results)]
            for value in reads:
                stays.update(self._numbers(value).tolist())
        inside = set(ops)
        elsewhere = [value for value in self.numbers if not inside.issuperset(users(value))]  # in a loop, say
        for value in (*filter(_is_image, self.block.arguments), *elsewhere):
            stays.update(self._numbers(value).tolist())
        roots = {self._root(number) for number in stays}
        classes = {
            value: np.array([self._root(n) for n in numbers.tolist()]) for value, numbers in self.numbers.items()
        }
        while True:
            keep = {value: np.isin(own, list(roots)) for value, own in classes.items()}
            more = {number for value, own in classes.items() for number in _filling(own, keep[value])}
            if not more:
                return keep
            roots |= more

    def _rebuilt(self, ops: Sequence[ir.Operation], keep: dict[ir.Value, np.ndarray]) -> Dropped:
        channels = weights = products = 0
        plans = [(op, _Plan.of(op, keep, self.of)) for op in ops]
        for op, plan in plans:
            if plan is None or not len(op.results):
                continue
            before = multiplications(op), _weight_count(op)
            with ir.InsertionPoint(op), op.location:
                made = plan.build(op)
            op.results[0].replace_all_uses_with(made)
            if op.name in (_CONV, _DEPTHWISE):
                after = multiplications(made.owner), _weight_count(made.owner)
                channels += _channels(op.results[0]) - _channels(made)
                products, weights = products + before[0] - after[0], weights + before[1] - after[1]
        for op, plan in reversed(plans):
            if plan is not None and not any(users(result) for result in op.results):
                op.erase()
        return Dropped(channels, weights, products)

    def _numbers(self, value: ir.Value) -> np.ndarray:
        if value not in self.numbers:
            first = len(self.parents)
            self.parents += range(first, first + _channels(value))
            self.numbers[value] = np.arange(first, len(self.parents))
        return self.numbers[value]

    def _root(self, number: int) -> int:
        while self.parents[number] != number:
            self.parents[number] = number = self.parents[self.parents[number]]
        return number

    def _join(self, one: tuple[ir.Value, np.ndarray], other: tuple[ir.Value, np.ndarray]) -> None:
        pairs = zip(self._numbers(one[0])[one[1]].tolist(), self._numbers(other[0])[other[1]].tolist(), strict=True)
        for a, b in pairs:
            self.parents[self._root(a)] = self._root(b)


@dataclass(frozen=True)
class _Plan:
    """What is left of an op.

    Args:
        read, given: the channels that stay of what it reads and gives.
        offset: what dropped channels leave in each sum: int64 [C].
    """

    read: Sequence[np.ndarray | None]
    given: np.ndarray
    offset: np.ndarray | int

    @staticmethod
    def of(op: ir.Operation, keep: dict[ir.Value, np.ndarray], known: Known) -> _Plan | None:
        read = [keep.get(value) for value in op.operands]
        if not len(op.results) or all(mask is None or mask.all() for mask in (*read, keep.get(op.results[0]))):
            return None
        given = keep.get(op.results[0], np.ones(_channels(op.results[0]), bool))
        offset: np.ndarray | int = 0
        if op.name == _CONV and read[0] is not None:
            x = known(op.operands[0])
            gone = np.where(~read[0] & x.mask, x.values - _zero_point(op), 0)
            offset = (_weights(op).sum((1, 2)) * gone).sum(1)
        return _Plan(read, given, offset)

    def build(self, op: ir.Operation) -> ir.Value:
        """The op on what stays."""
        operands, name = list(op.operands), op.name
        if name in (_CONV, _DEPTHWISE):
            weights, bias = (constant_value(operand) for operand in operands[1:3])
            assert weights is not None and bias is not None
            whole = np.broadcast_to(bias, self.given.shape).astype(np.int64) + self.offset
            some = weights[self.given] if name == _CONV else weights
            if self.read[0] is not None:
                some = some[..., self.read[0]] if name == _CONV else some[:, :, self.read[0]]
            kind = element_type(operands[2])
            operands[1] = constant(np.ascontiguousarray(some), element_type(operands[1]))
            operands[2] = constant(whole[self.given].astype(numpy_dtype(kind)), kind)
        elif name == "tosa.reshape":
            operands[1] = constant_shape([*shape_of(op.results[0])[:-1], int(self.given.sum())])
        elif name != "tosa.table":
            operands = [_some(operand, self.given) for operand in operands]
        shape = (*shape_of(op.results[0])[:-1], int(self.given.sum()))
        return rebuild(op, operands, tensor(shape, element_type(op.results[0])))


def _some(operand: ir.Value, kept: np.ndarray) -> ir.Value:
    """What stays of a constant that has something for each channel."""
    values = constant_value(operand)
    if values is None or values.ndim == 0 or values.shape[-1] != len(kept) or len(kept) == 1:
        return operand
    return constant(np.ascontiguousarray(values[..., kept]), element_type(operand))


def _filling(own: np.ndarray, kept: np.ndarray) -> Iterator[int]:
    """The dropped channels that must stay for a multiple of what is computed at once, and for a channel at all."""
    dropped = own[~kept]
    missing = min(len(dropped), -int(kept.sum()) % _QUANTUM or (0 if kept.any() else _QUANTUM))
    return iter(dropped[:missing].tolist())


def _joined(op: ir.Operation) -> Iterator[tuple[tuple[ir.Value, np.ndarray], tuple[ir.Value, np.ndarray]]]:
    """The channels of what an op reads, with those of its result that are made of them."""
    if not _follows(op):
        return
    (result,) = op.results
    everything = np.arange(_channels(result))
    if op.name == _DEPTHWISE:
        times = shape_of(op.operands[1])[3]
        yield (op.operands[0], everything // times), (result, everything)
    elif op.name == "tosa.concat" and int_of(op, "axis") == len(shape_of(result)) - 1:
        start = 0
        for part in op.operands:
            own = np.arange(_channels(part))
            yield (part, own), (result, own + start)
            start += len(own)
    else:
        for operand in _images(op):
            yield (operand, everything), (result, everything)


def _follows(op: ir.Operation) -> bool:
    """Whether each channel of an op's result is made of one channel of each tensor that it reads."""
    if len(op.results) != 1 or not _is_image(op.results[0]):
        return False
    if op.name == _DEPTHWISE:
        return _is_plain(op)
    images, result = _images(op), op.results[0]
    if not images:
        return False
    if op.name == "tosa.concat":
        return len(images) == len(op.operands)
    if op.name == "tosa.reshape":
        return _channels(images[0]) == _channels(result) and len(images) == 1
    return op.name in _BY_CHANNEL and all(_channels(one) == _channels(result) for one in images)


def _is_plain(op: ir.Operation) -> bool:
    """Whether a convolution of integers has constants for all but its image."""
    integers = isinstance(element_type(op.results[0]), ir.IntegerType)
    return integers and all(constant_value(operand) is not None for operand in list(op.operands)[1:])


def _images(op: ir.Operation) -> list[ir.Value]:
    return [value for value in op.operands if _is_image(value) and constant_value(value) is None]


def _is_image(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and len(shape_of(value)) > 0


def _channels(value: ir.Value) -> int:
    return shape_of(value)[-1]


def _weights(op: ir.Operation) -> np.ndarray:
    """Of a convolution, less their zero point: int64 if there is one. What NumPy adds up is int64 in any case."""
    weights, zero = constant_value(op.operands[1]), constant_value(op.operands[4])
    assert weights is not None and zero is not None
    return weights.astype(np.int64) - int(zero.reshape(-1)[0]) if zero.any() else weights


def _weight_count(op: ir.Operation) -> int:
    return int(np.prod(shape_of(op.operands[1]))) if op.name in (_CONV, _DEPTHWISE) else 0


def _zero_point(op: ir.Operation) -> int:
    zero = constant_value(op.operands[3])
    assert zero is not None
    return int(zero.reshape(-1)[0])


def _foldable(op: ir.Operation, x: _Known) -> np.ndarray:
    """Which known channels add the same to every sum of a convolution: padding holds zero points."""
    return x.mask if not any(ints_of(op, "pad")) else x.mask & (x.values == _zero_point(op))


def _known(op: ir.Operation, of: Known) -> _Known:
    """What is known of an op's result."""
    result = op.results[0]
    if not _is_image(result):
        return _Known.nothing(0)
    nothing = _Known.nothing(_channels(result))
    if str(element_type(result)) not in RANGES:
        return nothing
    reads = [of(value) for value in _images(op)]
    if op.name in (_CONV, _DEPTHWISE):
        return _known_sums(op, reads[0]) if reads and _is_plain(op) else nothing
    if not reads or not _follows(op):
        return nothing
    if op.name == "tosa.concat":
        along = int_of(op, "axis") == len(shape_of(result)) - 1
        masks, values = [one.mask for one in reads], [one.values for one in reads]
        return _Known(np.concatenate(masks), np.concatenate(values)) if along else nothing
    rule = _VALUES.get(op.name)
    return rule(op, reads[0]) if rule and len(reads) == 1 and reads[0].mask.any() else nothing


def _known_sums(op: ir.Operation, x: _Known) -> _Known:
    weights, bias = _weights(op), constant_value(op.operands[2])
    assert bias is not None
    foldable = _foldable(op, x)
    reals = np.where(foldable, x.values - _zero_point(op), 0)
    if op.name == _CONV:
        mask = ~weights[..., ~foldable].any((1, 2, 3))
        sums = (weights.sum((1, 2)) * reals).sum(1)
    else:
        mask = (~weights.any((0, 1)) | foldable[:, None]).reshape(-1)
        sums = (weights.sum((0, 1)) * reals[:, None]).reshape(-1)
    return _Known(mask, np.broadcast_to(bias, mask.shape).astype(np.int64) + sums)


def _rescaled(op: ir.Operation, x: _Known) -> _Known:
    numbers = [constant_value(operand) for operand in list(op.operands)[1:]]
    unsigned = bool_of(op, "input_unsigned") or bool_of(op, "output_unsigned")
    if any(one is None for one in numbers) or enum_of(op, "rounding_mode") != "SINGLE_ROUND" or unsigned:
        return _Known.nothing(len(x.mask))
    multiplier, shift, before, after = (one.astype(np.int64).reshape(-1) for one in numbers if one is not None)
    products = np.where(x.mask, x.values - before, 0) * multiplier
    return _Known(x.mask, scaled(products, shift, after, str(element_type(op.results[0]))))


def _looked_up(op: ir.Operation, x: _Known) -> _Known:
    entries = unary_function(op)
    if entries is None:
        return _Known.nothing(len(x.mask))
    return _Known(x.mask, entries.reshape(-1)[np.where(x.mask, x.values, 0) + 128].astype(np.int64))


_VALUES = {
    "tosa.rescale": _rescaled,
    "tosa.table": _looked_up,
    "tosa.clamp": lambda op, x: _Known(x.mask, np.clip(x.values, *clamp_limits(op))),
    "tosa.identity": lambda op, x: x,
    "tosa.reshape": lambda op, x: x,
}
