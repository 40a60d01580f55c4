"""Weights of four bits through the whole build: half of the flash, one copy for methods, exact on every core."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.compiler.options import QuantizationOptions

FOUR_BITS = QuantizationOptions(int4=("linear",))
MATRICES = 96 * 128 + 128 * 64


class Layers(nn.Module):
    """Two linear layers on each row."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(96, 128), nn.Linear(128, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


def layers(rows: int = 1) -> tuple[nn.Module, tuple[Tensor], list[tuple[Tensor]]]:
    torch.manual_seed(0)
    samples = [(torch.randn(1, rows, 96),) for _ in range(16)]
    return Layers().eval(), samples[0], samples


def constants(build: tosaic.Build) -> int:
    files = [file for file in (build.folder / "constants").iterdir() if not file.name.startswith("selftest")]
    return sum(file.stat().st_size for file in files)


@pytest.mark.parametrize("target", ["cortex-m55", "cortex-m4", "cortex-m0plus", "corstone-300"])
def test_builds_are_exact_and_small_where_kernels_unpack(target):
    net, example, samples = layers()
    build = tosaic.compile(net, example, target=target, calibration=samples, quantization=FOUR_BITS)
    assert build.run(*example).exact
    warned = [advice.what for advice in build.manifest.warnings]
    if target not in ("cortex-m55", "cortex-m4"):
        assert "2 of 2 layers with weights of four bits are read as int8" in warned
    else:
        assert not any("four bits" in what for what in warned)
        assert all(kernel.schedule.startswith("conv2d.nibbles") for kernel in build.manifest.kernels)
        assert constants(build) < 0.55 * MATRICES + (128 + 64) * 16 + 256


class Decoder(nn.Module):
    """A table of embeddings, which is the matrix of a linear layer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(256, 64)

    def forward(self, token: Tensor) -> Tensor:
        return nn.functional.linear(torch.tanh(self.table(token)), self.table.weight)


@pytest.mark.parametrize("target", ["cortex-m55", "cortex-m4"])
def test_a_table_that_is_a_matrix_is_kept_once(target):
    samples = [(torch.tensor([[number]]),) for number in range(0, 256, 16)]
    options = QuantizationOptions(int4=("embedding",))
    build = tosaic.compile(Decoder().eval(), samples[0], target=target, calibration=samples, quantization=options)
    assert build.run(*samples[0]).exact
    assert not any("four bits" in advice.what for advice in build.manifest.warnings)
    # Two factors of a row in each of both kernels, its scale, a bias, and three numbers of a RESCALE.
    assert constants(build) < 256 * (64 // 2 + 2 * 2 + 2 + 4 + 3 * 4) + 1024


def test_methods_share_them():
    (net, one, _), (_, several, _) = layers(), layers(3)
    text = [{"ahead": (torch.randn(1, 3, 96),), "each": (torch.randn(1, 1, 96),)} for _ in range(16)]
    methods = {"ahead": (net, several), "each": (net, one)}
    build = tosaic.compile(methods, target="cortex-m55", calibration=text, quantization=FOUR_BITS)
    assert build.run().exact
    assert constants(build) < 0.55 * MATRICES + 2 * (128 + 64) * 16 + 512


def test_the_story_was_trained_for_them_with_its_table():
    """16 numbers at most in a group of 32, of all matrices and of the table of embeddings."""
    weights = np.load(Path(__file__).parents[2] / "examples" / "story" / "weights_int4.npz")
    matrices = {name: weights[name] for name in weights.files if weights[name].ndim == 2 and name.endswith("weight")}
    assert "embedding.weight" in matrices
    for name, matrix in matrices.items():
        groups = matrix.reshape(-1, 32)
        assert max(len(np.unique(group)) for group in groups) <= 16, name
