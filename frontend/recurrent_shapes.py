"""The shapes of what recurrent layers give, while torch traces a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

aten = torch.ops.aten
_OPS: tuple[OpOverload, ...] = (aten.gru.input, aten.lstm.input, aten.rnn_tanh.input, aten.rnn_relu.input)
_KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)


@contextmanager
def shapes_without_steps() -> Iterator[None]:
    """Tensors without data go through a recurrent layer at once.

    The layer stays one op in the program, yet torch takes every step of it to learn the shapes of its results. A
    thousand steps take it seconds.
    """
    before = {op: dict(op.py_kernels) for op in _OPS}
    for op, kernels in before.items():
        for key in _KEYS:
            op.py_kernels[key] = partial(_results, kernels[key])
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernels in before.items():
            op.py_kernels.clear()
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


def _results(
    steps: Callable[..., tuple[Tensor, ...]],
    x: Tensor,
    given: Tensor | Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """What the layer gives for float[time, batch, width], or float[batch, time, width] where the batch is first.

    Args:
        steps: torch's own kernel, which takes tensors with data.
        given: the states float[layers * directions, batch, hidden]; those of an LSTM and its cells.
    """
    if not isinstance(x, FakeTensor):
        return steps(x, given, weights, has_biases, layers, dropout, train, bidirectional, batch_first)
    states = (given,) if isinstance(given, Tensor) else tuple(given)
    batch, time = (x.shape[0], x.shape[1]) if batch_first else (x.shape[1], x.shape[0])
    result = x.new_empty(time, batch, states[0].shape[-1] * (2 if bidirectional else 1))
    return result.transpose(0, 1) if batch_first else result, *map(torch.empty_like, states)
