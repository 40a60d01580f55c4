"""What was trained with quantization computes on the board what training simulated."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torchao.quantization.pt2e import move_exported_model_to_eval, qat_utils
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e
from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

import tosaic
from tosaic.runs.running import run_build

_STEPS, _FRESH = 80, 32


def network() -> nn.Module:
    body = [nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, bias=False)]
    return nn.Sequential(*body, nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2))


def data(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise with stripes, and whether they lie or stand."""
    classes = torch.randint(2, (count,), generator=generator)
    wave = torch.sin(torch.arange(12) * 1.5 + 6 * torch.rand(count, 1, generator=generator))
    stripes = torch.where(classes[:, None, None] == 1, wave[:, None], wave[:, :, None])
    return stripes[:, None] + 1.5 * torch.randn(count, 3, 12, 12, generator=generator), classes


@pytest.fixture(scope="module")
def two_axes():
    """torchao traces patterns of each kind of convolution, for seconds, also of those that the network has not."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_fuse_conv_bn_qat_helper", "_fold_conv_bn_qat_helper"):
            patch.setattr(qat_utils, name, partial(_of_two_axes, getattr(qat_utils, name)))
        yield


def _of_two_axes(change, module, convolution, *arguments, **options):
    return change(module, convolution, *arguments, **options) if convolution is nn.functional.conv2d else module


@pytest.fixture(scope="module")
def trained(two_axes) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A network after training with fake quantization, converted; fresh samples and their classes."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True, is_qat=True))
    batches = {"input": {0: torch.export.Dim("batch")}}
    exported = torch.export.export(network(), data(8, generator)[:1], dynamic_shapes=batches)
    prepared = prepare_qat_pt2e(exported.module(), quantizer)
    optimizer = torch.optim.Adam(prepared.parameters(), 3e-3)
    for _ in range(_STEPS):
        samples, classes = data(8, generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(prepared(samples), classes, label_smoothing=0.8).backward()
        optimizer.step()
    return convert_pt2e(move_exported_model_to_eval(prepared)), *data(_FRESH, generator)


@pytest.mark.parametrize("target", ["cortex-m55", "corstone-300"])
def test_boards_compute_what_training_simulated(trained, target, tmp_path):
    module, samples, classes = trained
    torch.export.save(torch.export.export(module, (samples[:1],)), tmp_path / "trained.pt2")
    build = tosaic.compile(str(tmp_path / "trained.pt2"), target=target, output=tmp_path / "build")
    ran = run_build(build, [[one.numpy()] for one in samples.split(1)])
    assert ran.exact and bool(build.manifest.regions) == (target == "corstone-300")
    with torch.no_grad():
        simulated = torch.cat([module(one) for one in samples.split(1)]).numpy()
    (output,) = build.manifest.firmware.outputs
    assert output.quantization is not None
    (step,), (zero_point,) = output.quantization.scales, output.quantization.zero_points
    made = np.concatenate([result for (result,) in ran.board.outputs]).astype(int) - zero_point
    steps = made - (simulated / step).round()
    assert np.abs(steps).max() <= 3 and (steps == 0).mean() >= 0.7
    assert (simulated.argmax(1) == classes.numpy()).mean() >= 0.9
