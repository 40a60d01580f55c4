"""Recurrent layers as one op each, `torch.ops.tosaic.gru` and so on: one direction of one layer, all of its steps.

torch's own ops hold several layers and directions, which `decompositions/recurrent.py` takes apart.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from tosaic.frontend.canonical import QUANTIZE, arguments

_Step = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def _gru(x: Tensor, h: Tensor, state: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Cho et al. 2014, with the reset gate behind the product (as cuDNN and torch have it)."""
    (reset, update, new), (reset_h, update_h, new_h) = x.chunk(3, -1), h.chunk(3, -1)
    reset, update = (reset + reset_h).sigmoid(), (update + update_h).sigmoid()
    new = (new + reset * new_h).tanh()
    return new + update * (state - new), cell


def _lstm(x: Tensor, h: Tensor, state: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000."""
    take, keep, new, give = (x + h).chunk(4, -1)
    cell = keep.sigmoid() * cell + take.sigmoid() * new.tanh()
    return give.sigmoid() * cell.tanh(), cell


def _elman(function: Callable[[Tensor], Tensor]) -> _Step:
    """Elman 1990."""
    return lambda x, h, state, cell: (function(x + h), cell)


def _op(kind: str, step: _Step) -> OpOverload:
    def layer(
        x: Tensor,
        state: Tensor,
        cell: Tensor,
        weight_x: Tensor,
        weight_h: Tensor,
        bias_x: Tensor,
        bias_h: Tensor,
        state_scale: float = 0.0,
        state_zero_point: int = 0,
        state_low: int = 0,
        state_high: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """One direction of one layer over a sequence, as `torch.nn.GRU`, `LSTM` and `RNN` define it.

        Args:
            x: [N, T, I].
            state, cell: h and c before the first step, [N, H]; only an LSTM reads c.
            weight_x, weight_h: [G*H, I] and [G*H, H], the gates in torch's order.
            bias_x, bias_h: [G*H].
            state_scale, state_zero_point, state_low, state_high: the format that h is rounded to for products with
                `weight_h`; none where the scale is 0.

        Returns:
            h after each step, [N, T, H], and c after the last one, [N, H].
        """

        def rounded(h: Tensor) -> Tensor:
            if not state_scale:
                return h
            stored = ((h / state_scale).round() + state_zero_point).clamp(state_low, state_high)
            return state_scale * (stored - state_zero_point)

        found = []
        for row in (x @ weight_x.T + bias_x).unbind(1):
            state, cell = step(row, rounded(state) @ weight_h.T + bias_h, state, cell)
            found.append(state)
        return torch.stack(found, 1), cell.clone()

    def shapes(x: Tensor, state: Tensor, cell: Tensor, *_: object) -> tuple[Tensor, Tensor]:
        return x.new_empty(*x.shape[:2], state.shape[-1]), cell.new_empty(cell.shape)

    torch.library.custom_op(f"tosaic::{kind}", layer, mutates_args=()).register_fake(shapes)
    return getattr(torch.ops.tosaic, kind).default


_STEPS = {"gru": _gru, "lstm": _lstm, "rnn_tanh": _elman(torch.tanh), "rnn_relu": _elman(torch.relu)}
LAYERS = {kind: _op(kind, step) for kind, step in _STEPS.items()}
"""The op of each kind of layer."""


def round_states(program: ExportedProgram | GraphModule) -> None:
    """Let each layer of a quantized graph round its states as its result is rounded: they are the same integers."""
    for node in program.graph.nodes:
        results = states_of(node) if node.target in LAYERS.values() else None
        for user in results.users if results is not None else ():
            if user.target is QUANTIZE[0]:
                node.args = (*arguments(node)[:7], *arguments(user)[1:5])


def states_of(layer: Node) -> Node | None:
    """The first result of a layer; None where nothing reads it."""
    return next((user for user in layer.users if arguments(user)[1] == 0), None)
