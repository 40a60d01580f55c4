"""Calls one behind the other: states are those of each call, and take the memory of what changes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tosaic.frontend import capture
from tosaic.frontend.bias_correction import correct_parameters
from tosaic.frontend.calls import Picked, StatefulCalls, StateHistory, columns_of
from tosaic.frontend.quantizer import prepare

CALLS, ROWS = 24, 512


def values() -> list[Tensor]:
    generator, value, found = torch.Generator().manual_seed(2), torch.zeros(2, ROWS, 4), []
    for place in range(CALLS):
        value = value.clone()
        value[:, place % 7] = torch.randn(2, 4, generator=generator)
        found.append(value)
    return found


@pytest.fixture
def history() -> StateHistory:
    made = StateHistory()
    for value in values():
        made.append(value)
    return made


@pytest.mark.parametrize("order", [range(CALLS), range(CALLS - 1, -1, -1), (5, 5, 20, 3, -1, -CALLS, 4)])
def test_a_value_is_that_of_its_time(history, order):
    for number in order:
        assert torch.equal(history[number], values()[number])
    assert [len(history[3:9]), len(history)] == [6, CALLS]
    assert all(torch.equal(one, other) for one, other in zip(history[3:9:2], values()[3:9:2], strict=True))


def test_a_value_stays_as_it_was_given(history):
    first = history[0]
    before = first.clone()
    _ = history[9], history[2]
    assert torch.equal(first, before)


def test_what_is_held_is_what_changes(history):
    held = sum(one.nbytes for pair in history._changes[1:] for one in pair)
    assert held < (CALLS - 1) * values()[0].nbytes / 50


def test_numbers_that_are_not_there(history):
    with pytest.raises(IndexError):
        _ = history[CALLS]
    with pytest.raises(IndexError):
        _ = Picked(history, [1, 2])[2]


def test_calls_have_inputs_and_states():
    taken = [(torch.tensor([number]), value) for number, value in enumerate(values())]
    calls = StatefulCalls(taken, 1)
    for found in (calls, calls[:], list(zip(*columns_of(calls), strict=True))):
        for (x, value), (number, state) in zip(taken, found, strict=True):
            assert torch.equal(x, number) and torch.equal(value, state)
    assert [number.item() for number, _ in calls[4:20:8]] == [4, 12]


class Kept(nn.Module):
    """Layers with a state each."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        for number in range(3):
            self.register_buffer(f"rows_{number}", torch.zeros(ROWS, 4))

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            rows = getattr(self, f"rows_{number}")
            rows.index_copy_(0, place, layer(x))
            x = x + rows.mean(0, keepdim=True)
        return x


def test_layers_are_corrected_as_on_tensors_that_are_held():
    samples = [(torch.randn(1, 4), torch.tensor([place % 9])) for place in range(80)]
    captured = capture(Kept(), samples, samples[0])
    assert isinstance(captured.calibration, StatefulCalls)
    found = []
    for batches in (captured.calibration, list(captured.calibration)):
        module = prepare(captured).module
        ratios = correct_parameters(module, batches)
        weights = [value for name, value in sorted(module.state_dict().items()) if value.is_floating_point()]
        found.append((weights, {name: ratio for name, (_, ratio) in ratios.items()}))
    (weights, ratios), (others, expected) = found
    assert all(map(torch.equal, weights, others)) and ratios == expected and len(ratios) > 6
