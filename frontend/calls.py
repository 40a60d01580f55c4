"""Calls of a model that keeps states, one behind the other: of the states is held what each call changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, overload

import torch
from torch import Tensor

from tosaic.frontend.interface import Batch

T = TypeVar("T")


class OnDemand(Sequence[T]):
    """Elements that are made when they are asked for; those of a slice, too."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: Any) -> Any:
        numbers = range(len(self))[index]
        return Picked(self, numbers) if isinstance(numbers, range) else self._made(numbers)

    @abstractmethod
    def _made(self, number: int) -> T:
        """The element of a number from 0 on."""


class Picked(OnDemand[T]):
    """Some of a sequence."""

    def __init__(self, whole: Sequence[T], numbers: Sequence[int]) -> None:
        self._whole, self._numbers = whole, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def _made(self, number: int) -> T:
        return self._whole[self._numbers[number]]


class StateHistory(OnDemand[Tensor]):
    """What a tensor is at each of several times: the first value, what changes from one to the next, and the value that
    was asked for last. So they are read fastest in order."""

    def __init__(self) -> None:
        self._changes = list[tuple[Tensor, Tensor]]()
        self._at, self._value = -1, torch.empty(0)

    def __len__(self) -> int:
        return len(self._changes)

    def append(self, value: Tensor) -> None:
        """The value at one time more, of one shape and dtype with those before."""
        places = torch.arange(value.numel())
        if self._changes:
            places = (value != self[len(self) - 1]).flatten().nonzero().squeeze(1)
        self._changes.append((places, value.flatten()[places]))
        self._at, self._value = len(self) - 1, value

    def _made(self, number: int) -> Tensor:
        if number != self._at:
            begin = self._at + 1 if self._at < number else 0
            flat = self._value.flatten().clone()
            for places, values in self._changes[begin : number + 1]:
                flat[places] = values
            self._at, self._value = number, flat.reshape(self._value.shape)
        return self._value


class StatefulCalls(OnDemand[Batch]):
    """Calls one behind the other, each with the states that it finds."""

    def __init__(self, calls: Iterable[Sequence[Tensor]], states: int) -> None:
        """
        Args:
            calls: what each takes, states last.
            states: how many there are.
        """
        self._inputs = list[Batch]()
        self._states = [StateHistory() for _ in range(states)]
        for taken in calls:
            self._inputs.append(tuple(taken[: len(taken) - states]))
            for history, value in zip(self._states, taken[len(taken) - states :], strict=True):
                history.append(value)

    @property
    def columns(self) -> list[Sequence[Tensor]]:
        """Each argument at all calls."""
        return [*zip(*self._inputs, strict=True), *self._states]

    def __len__(self) -> int:
        return len(self._inputs)

    def _made(self, number: int) -> Batch:
        return (*self._inputs[number], *(history[number] for history in self._states))


def columns_of(batches: Sequence[Batch]) -> Sequence[Sequence[Tensor]]:
    """Each argument in all batches."""
    return batches.columns if isinstance(batches, StatefulCalls) else list(zip(*batches, strict=True))
