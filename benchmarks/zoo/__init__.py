"""The seven models that tosaic is measured on, with seeded weights and data.

| Name | Input | Output |
|---|---|---|
| `resnet8` | 1x3x32x32 image | 10 classes |
| `dscnn` | 1x1x49x10 spectrogram | 12 words |
| `mobilenet_v1` | 1x3x96x96 image | 2 classes |
| `autoencoder` | 1x640 spectrogram | 1x640 |
| `mobilenet_v2` | 1x3x224x224 image | 1000 classes |
| `mobilenet_v3_small` | 1x3x224x224 image | 1000 classes |
| `transformer` | 1x32x64 sequence | 1x32x64 |

The first four are there with trained weights and data of their tasks, too: `resnet8:trained`.
"""

from __future__ import annotations

import importlib

from torch import Tensor, nn

from tosaic.support.errors import ModelError
from tosaic.zoo import trained
from tosaic.zoo.seeded import initialize

NAMES = ("resnet8", "dscnn", "mobilenet_v1", "autoencoder", "mobilenet_v2", "mobilenet_v3_small", "transformer")
TRAINED = tuple(f"{name}:trained" for name in trained.TASKS)


def load(name: str) -> tuple[nn.Module, tuple[Tensor, ...], list[tuple[Tensor, ...]]]:
    """(module in eval mode, example inputs, calibration batches); the same at every call.

    Raises:
        ModelError: the zoo has no such model.
    """
    if name not in (*NAMES, *TRAINED):
        raise ModelError(f"the zoo has no model `{name}`", hint=f"it has {', '.join((*NAMES, *TRAINED))}")
    shape = name.removesuffix(":trained")
    source = importlib.import_module(f"tosaic.zoo.{shape}")
    if name in TRAINED:
        batches = trained.calibration(shape)
        return trained.load_weights(shape, source.build()), batches[0], batches
    batches = source.samples()
    module = initialize(source.build(), batches)
    return module, batches[0], batches[1:]
