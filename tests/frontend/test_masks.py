"""Masks of attention: -inf becomes a number that int8 can hold, and nothing else does."""

import math

import pytest
import torch
from torch import nn

from tosaic.frontend import capture, import_program, quantize
from tosaic.frontend.masks import MASKED, bound_masks
from tosaic.passes import run_phase, run_phases
from tosaic.support.functions import computing_ops
from tosaic.support.methods import note_methods
from tosaic.support.mlir import constant_value, functions, walk
from tosaic.support.values import producer

mask = torch.full((4, 4), -torch.inf).triu(1)


class Masked(nn.Module):
    """A function of scores and a mask."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("mask", mask)

    def forward(self, x):
        return self.function(x, self.mask)


@pytest.mark.parametrize(
    ("function", "bounded"),
    [
        (lambda x, m: torch.softmax(x + m, -1), True),
        (lambda x, m: torch.softmax(torch.where(x > 0, x, m.expand(2, 4, 4)), -1), True),
        (lambda x, m: torch.softmax(x.masked_fill(m < 0, -torch.inf), -1), True),
        (lambda x, m: torch.softmax(x + torch.where(m < 0, -torch.inf, x * 0), -1), True),
        (lambda x, m: torch.softmax(x + torch.where(m < 0, x * 0 - 5, torch.finfo(torch.float32).min), -1), True),
        (lambda x, m: torch.softmax(x + torch.where(x < 9, 0.0, -torch.inf), -1), True),
        (lambda x, m: torch.maximum(x, m), False),
        (lambda x, m: (torch.softmax(x + m, -1), m * 1), False),
    ],
)
def test_a_mask_is_finite_where_a_softmax_alone_reads_it(function, bounded):
    module = torch.export.export(Masked(function), (torch.randn(2, 4, 4),)).module()
    x = torch.randn(2, 4, 4)
    want = module(x)
    bound_masks(module)
    torch.testing.assert_close(module(x), want)
    arguments = [argument for node in module.graph.nodes for argument in node.args]
    assert (bool((module.get_buffer("mask") == MASKED).any()) or MASKED in arguments) == bounded


@pytest.mark.parametrize("least", [-1e9, torch.finfo(torch.float32).min])
def test_the_least_numbers_that_people_write_are_masks_too(least):
    masked = Masked(lambda x, m: torch.softmax(x + m, -1))
    masked.mask = torch.full((4, 4), least).triu(1)
    module = torch.export.export(masked, (torch.randn(2, 4, 4),)).module()
    x = torch.randn(2, 4, 4)
    want = module(x)
    bound_masks(module)
    torch.testing.assert_close(module(x), want)
    assert module.get_buffer("mask").unique().tolist() == [MASKED, 0.0]


def test_a_number_that_scores_may_reach_stays():
    module = torch.export.export(Masked(lambda x, m: torch.softmax(x.masked_fill(m < 0, -60.0), -1)), (mask,)).module()
    bound_masks(module)
    assert -60.0 in [argument for node in module.graph.nodes for argument in node.args]


class Attention(nn.Module):
    """Attention of one query to eight keys up to a place, as people write it."""

    def forward(self, q, k, place):
        mask = torch.where(torch.arange(8) <= place, 0.0, -60.0)
        return (q @ k.transpose(-1, -2) / math.sqrt(8) + mask).softmax(-1)


class Kept(Attention):
    """The same, to keys that all methods keep."""

    keys: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 8, 8))

    def forward(self, q, k, place):
        self.keys.copy_(0.5 * self.keys + k)
        return super().forward(q, self.keys, place)


def _scores(chosen):
    """What a SELECT takes where nothing is masked, before reshapes."""
    scores = chosen.operands[1]
    while (above := producer(scores, "tosa.reshape")) is not None:
        scores = above.operands[0]
    return scores


def test_scores_have_the_format_of_their_sum_with_a_mask_so_that_a_cpu_computes_none():
    samples = [(torch.randn(2, 1, 8), torch.randn(2, 8, 8), torch.tensor([at])) for at in range(8)]
    module = import_program(quantize(capture(Attention(), samples, samples[0])))
    run_phases(module)
    ops = [op for op in walk(module) if op.name.startswith("tosa.")]
    (chosen,) = (op for op in ops if op.name == "tosa.select")
    rescaled, least = producer(_scores(chosen), "tosa.rescale"), constant_value(chosen.operands[2])
    assert rescaled is not None and producer(rescaled.operands[0], "tosa.matmul") is not None
    assert least is not None and least.item() == -128


def test_scores_of_two_methods_have_the_format_of_their_sums():
    """Where both methods have one format, too, which is chosen anew by what both saw."""
    net, draw = Kept(), torch.Generator().manual_seed(0)

    def call(rows, at):
        return torch.randn(2, rows, 8, generator=draw), torch.randn(2, 8, 8, generator=draw), torch.tensor([at])

    samples = [{"many": call(4, at), "one": call(1, at)} for at in range(8)]
    captured = capture({name: (net, samples[0][name]) for name in ("many", "one")}, samples)
    module = import_program(quantize(captured))
    note_methods(module, captured.methods)
    run_phases(module)
    chosen = [op for op in walk(module) if op.name == "tosa.select"]
    assert len(chosen) == 2
    for op in chosen:
        rescaled = producer(_scores(op), "tosa.rescale")
        assert rescaled is not None and producer(rescaled.operands[0], "tosa.matmul") is not None


class Shared(nn.Module):
    """Attention of the queries of two heads to keys that these share."""

    def forward(self, q, k, place):
        mask = torch.where(torch.arange(8) <= place, 0.0, -60.0)
        return ((q @ k.transpose(-1, -2) / math.sqrt(8)).view(4, -1, 8) + mask).softmax(-1)


@pytest.mark.parametrize(
    ("net", "rows", "places"), [(Attention, 1, 1), (Attention, 4, 4), (Shared, 2, 1), (Shared, 8, 4)]
)
def test_a_product_with_the_mask_of_its_columns_is_one_kernel(net, rows, places):
    at = torch.arange(places)[:, None]
    samples = [(torch.randn(2, rows, 8), torch.randn(2, 8, 8), at + first) for first in range(9 - places)]
    module = import_program(quantize(capture(net(), samples, samples[0])))
    run_phases(module)
    run_phase(module, "place")
    kernels = [[op.name for op in computing_ops(function)] for function in functions(module).values()]
    assert ["tosa.transpose", "tosa.matmul", "tosa.rescale", "tosa.select"] in kernels
