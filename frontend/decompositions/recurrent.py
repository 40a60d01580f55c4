"""Recurrent layers: one op for each layer and direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from tosaic.frontend.decompositions.registry import decomposes
from tosaic.frontend.recurrent import LAYERS

aten = torch.ops.aten


@decomposes(aten.lstm.input)
def _lstm(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """A layer with projections has other steps, which torch writes one by one."""
    if states[0].shape[-1] != states[1].shape[-1]:
        steps = decomposition_table[aten.lstm.input]
        return steps(x, states, weights, has_biases, layers, dropout, train, bidirectional, batch_first)
    return _layers("lstm", x, states[0], states[1], weights, has_biases, bidirectional, batch_first)


def _one_state(
    kind: str,
    x: Tensor,
    state: Tensor,
    weights: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    return _layers(kind, x, state, state, weights, has_biases, bidirectional, batch_first)[:2]


_KINDS: dict[str, Callable] = {"gru": aten.gru.input, "rnn_tanh": aten.rnn_tanh.input, "rnn_relu": aten.rnn_relu.input}
for _kind, _op in _KINDS.items():
    decomposes(_op)(partial(_one_state, _kind))


def _layers(
    kind: str,
    x: Tensor,
    states: Tensor,
    cells: Tensor,
    weights: Sequence[Tensor],
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Every layer reads what the one before it gave, in both directions where there are two."""
    count, directions = (4 if has_biases else 2), (2 if bidirectional else 1)
    if not batch_first:
        x = x.transpose(0, 1)
    last_states, last_cells = [], []
    for layer in range(len(states) // directions):
        results = []
        for number in range(layer * directions, (layer + 1) * directions):
            own = list(weights[number * count : (number + 1) * count])
            if not has_biases:
                own += [torch.zeros(len(own[0]))] * 2
            backward = number % directions == 1
            result, cell = LAYERS[kind](x.flip(1) if backward else x, states[number], cells[number], *own)
            last_states.append(result[:, -1])
            last_cells.append(cell)
            results.append(result.flip(1) if backward else result)
        x = torch.cat(results, -1) if bidirectional else results[0]
    result = x if batch_first else x.transpose(0, 1)
    return result, _stacked(last_states), _stacked(last_cells)


def _stacked(states: Sequence[Tensor]) -> Tensor:
    """One state alone keeps its format."""
    return torch.stack(list(states)) if len(states) > 1 else states[0].unsqueeze(0)
