"""Recurrent layers: as PyTorch's where they are the same, else step by step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tosaic.frontend.onnx_ops.registry import onnx_op
from tosaic.support.errors import ModelError

_DEFAULTS = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
    "RNN": ("Tanh",),
}


@onnx_op("LSTM", lists="sequence_lens", constant="weight recurrence bias")
def _lstm(
    x: Tensor,
    weight: Tensor,
    recurrence: Tensor,
    bias: Tensor | None = None,
    sequence_lens: Sequence[int] | None = None,
    hidden: Tensor | None = None,
    cell: Tensor | None = None,
    peepholes: Tensor | None = None,
    *,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    **others: object,
) -> tuple[Tensor, ...]:
    if peepholes is not None or input_forget:
        raise ModelError("an LSTM with peepholes, or whose input gate is tied to the other, has no lowering")
    layer = _RecurrentLayer("LSTM", x, weight, recurrence, bias, sequence_lens, direction, layout, others)
    weights = layer.weights((0, 2, 3, 1))
    states = (layer.state(hidden), layer.state(cell))
    out, last, cells = torch.lstm(layer.x, states, weights, True, 1, 0.0, False, layer.is_both, False)
    return layer.results(out, last, cells)


@onnx_op("GRU", lists="sequence_lens", constant="weight recurrence bias")
def _gru(
    x: Tensor,
    weight: Tensor,
    recurrence: Tensor,
    bias: Tensor | None = None,
    sequence_lens: Sequence[int] | None = None,
    hidden: Tensor | None = None,
    *,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    **others: object,
) -> tuple[Tensor, ...]:
    layer = _RecurrentLayer("GRU", x, weight, recurrence, bias, sequence_lens, direction, layout, others)
    weights, state = layer.weights((1, 0, 2)), layer.state(hidden)
    if linear_before_reset:
        return layer.results(*torch.gru(layer.x, state, weights, True, 1, 0.0, False, layer.is_both, False))
    if layer.is_both:
        raise ModelError("a GRU of both directions that resets before its product has no lowering")
    return layer.results(*_reset_before(layer.x, state, *weights))


def _reset_before(
    x: Tensor, state: Tensor, weight: Tensor, recurrence: Tensor, bias: Tensor, inner: Tensor
) -> tuple[Tensor, Tensor]:
    """A GRU that resets its state before the product with it (Cho et al. 2014), step by step."""
    size, h, steps = state.shape[-1], state[0], []
    of_gates, of_state = recurrence[: 2 * size], recurrence[2 * size :]
    given = torch.nn.functional.linear(x, weight, bias + inner)
    for step in given.unbind(0):
        gates = torch.sigmoid(step[:, : 2 * size] + torch.matmul(h, of_gates.t()))
        reset, update = gates[:, :size], gates[:, size:]
        new = torch.tanh(step[:, 2 * size :] + torch.matmul(reset * h, of_state.t()))
        h = new + update * (h - new)
        steps.append(h)
    return torch.stack(steps), h[None]


@onnx_op("RNN", lists="sequence_lens", constant="weight recurrence bias")
def _rnn(
    x: Tensor,
    weight: Tensor,
    recurrence: Tensor,
    bias: Tensor | None = None,
    sequence_lens: Sequence[int] | None = None,
    hidden: Tensor | None = None,
    *,
    activations: Sequence[str] = ("Tanh",),
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    **others: object,
) -> tuple[Tensor, ...]:
    functions = {"Tanh": torch.rnn_tanh, "Relu": torch.rnn_relu}
    if len(set(activations)) > 1 or activations[0] not in functions:
        raise ModelError(f"an RNN with {', '.join(activations)} has no lowering", hint="Tanh or Relu")
    layer = _RecurrentLayer("RNN", x, weight, recurrence, bias, sequence_lens, direction, layout, others)
    compute = functions[activations[0]]
    found = compute(layer.x, layer.state(hidden), layer.weights((0,)), True, 1, 0.0, False, layer.is_both, False)
    return layer.results(*found)


class _RecurrentLayer:
    """What all three have in common: time comes first, and a reverse layer is one over what is turned around."""

    def __init__(
        self,
        kind: str,
        x: Tensor,
        weight: Tensor,
        recurrence: Tensor,
        bias: Tensor | None,
        lengths: Sequence[int] | None,
        direction: str,
        layout: int,
        others: dict[str, object],
    ) -> None:
        self.layout, self.is_both, self.is_reverse = layout, direction == "bidirectional", direction == "reverse"
        x = x.transpose(0, 1) if layout else x
        if lengths is not None and set(lengths) != {x.shape[0]}:
            raise ModelError("sequences of several lengths in a batch have no lowering")
        usual = list(_DEFAULTS[kind]) * weight.shape[0]
        if others.pop("activations", usual) != usual or others:
            raise ModelError(f"a {kind} with its own {', '.join(others) or 'activations'} has no lowering")
        self.x = x.flip(0) if self.is_reverse else x
        self._weight, self._recurrence, self._bias = weight, recurrence, bias

    def weights(self, order: Sequence[int]) -> list[Tensor]:
        """Weights, recurrent weights and both biases of each direction, with their gates in PyTorch's order."""
        directions, rows, _ = self._weight.shape
        size = rows // len(order)
        found = []
        for number in range(directions):
            bias = torch.zeros(2 * rows) if self._bias is None else self._bias[number]
            for part in (self._weight[number], self._recurrence[number], bias[:rows], bias[rows:]):
                found.append(torch.cat([part[gate * size : (gate + 1) * size] for gate in order]))
        return found

    def state(self, given: Tensor | None) -> Tensor:
        """What the layer remembers at first: [directions, batch, size]."""
        if given is None:
            return torch.zeros(self._weight.shape[0], self.x.shape[1], self._recurrence.shape[-1])
        return given.transpose(0, 1) if self.layout else given

    def results(self, out: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """All states, directions as an axis of their own, and the last ones."""
        out = out.flip(0) if self.is_reverse else out
        steps, batch = out.shape[:2]
        by_direction = out.reshape(steps, batch, self._weight.shape[0], -1)
        if self.layout:
            return by_direction.permute(1, 0, 2, 3), *(state.transpose(0, 1) for state in states)
        return by_direction.permute(0, 2, 1, 3), *states
