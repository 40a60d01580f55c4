"""When an Ethos-U85 computes weights as 2:4: what Vela's cycles say is what the rule says."""

from __future__ import annotations

import numpy as np
import pytest
from tosa_graphs import Graph

from tosaic.backends.ethos_u.sparsity import why_not_2_of_4
from tosaic.backends.ethos_u.vela import compile_region
from tosaic.backends.reference import serialize


def sparse(channels: int = 64) -> np.ndarray:
    """Weights of which the first two of each four input channels are 0."""
    weights = np.random.default_rng(0).integers(1, 127, (64, 3, 3, channels))
    weights[..., np.arange(channels) % 4 < 2] = 0
    return weights.astype(np.int8)


def one(value: int) -> np.ndarray:
    """The same, with one weight otherwise."""
    weights = sparse()
    weights[5, 1, 2, 8] = value
    return weights


def cycles(weights: np.ndarray) -> int:
    graph = Graph()
    x = graph.input((1, 16, 16, weights.shape[3]), "i8")
    y = graph.conv2d(x, weights, np.zeros(64), pad=(1, 1, 1, 1))
    return compile_region(serialize(graph.module(graph.requantize(y, "i8", scale=1e-3))), "ethos-u85-256").cycles


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        (sparse(), ""),
        (one(7), "0.0% of its groups of 4 have fewer than 2 zeros"),
        (one(0), ""),
        (sparse(63), ""),
        (sparse(61), ""),
    ],
)
def test_what_the_rule_says_the_cycles_show(weights, reason):
    assert why_not_2_of_4(weights) == reason
    dense = cycles(np.full(weights.shape, 3) + np.random.default_rng(1).integers(0, 99, weights.shape))
    assert (cycles(weights) < 0.8 * dense) == (not reason)


def test_the_least_number_has_no_place_in_a_sparse_group():
    weights = sparse()
    weights[0, 0, 0, 2] = -128
    assert why_not_2_of_4(weights) == "a weight is -128"
    assert cycles(weights) > 1.2 * cycles(sparse())
