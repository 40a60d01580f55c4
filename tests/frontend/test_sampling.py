"""grid_sample: what torch computes, and its indices are integers that quantization does not move."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

from tosaic.frontend.decompositions.registry import decomposition_of
from tosaic.support.errors import ModelError

SAMPLER = torch.ops.aten.grid_sampler.default
ZEROS, BORDER, REFLECTION = range(3)


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 1, 1, 4)], ids=str)
def test_every_mode_and_padding_is_torchs(shape, mode):
    torch.manual_seed(0)
    decomposed = decomposition_of(SAMPLER)
    assert decomposed is not None
    x, grid = torch.randn(shape), torch.randn(shape[0], 6, 8, 2) * 1.5
    grid[:, 0] = torch.linspace(-3, 3, 8)[:, None]
    for padding, align in itertools.product((ZEROS, BORDER, REFLECTION), (False, True)):
        wanted = SAMPLER(x, grid, mode, padding, align)
        torch.testing.assert_close(decomposed(x, grid, mode, padding, align), wanted, rtol=0, atol=1e-4)


def test_no_floor_is_quantized_before_it_is_an_index():
    class Sampled(nn.Module):
        def forward(self, x, grid):
            return functional.grid_sample(x, grid, align_corners=False)

    decomposed = decomposition_of(SAMPLER)
    assert decomposed is not None
    program = torch.export.export(Sampled(), (torch.randn(1, 2, 5, 7), torch.randn(1, 3, 4, 2)))
    names = {str(node.target) for node in program.run_decompositions({SAMPLER: decomposed}).graph.nodes}
    assert "aten._to_copy.default" in names and "aten.floor.default" not in names


def test_volumes_are_refused():
    decomposed = decomposition_of(SAMPLER)
    assert decomposed is not None
    with pytest.raises(ModelError, match="grid_sample of volumes cannot be compiled"):
        decomposed(torch.zeros(1, 1, 2, 2, 2), torch.zeros(1, 1, 1, 1, 3), 0, 0, False)
