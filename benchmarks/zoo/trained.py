"""The networks of MLPerf Tiny's shapes with trained weights: `zoo:resnet8:trained` and its like.

`benchmarks/train_zoo.py` trains them on made data. A file holds a byte for each weight, which is the signed square root
of the weight's share of the largest: so weights do not lie on the steps that int8 rounds them to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from tosaic.support.threads import one_thread
from tosaic.zoo.pictures import figures, shapes
from tosaic.zoo.sounds import machines, words

Data: TypeAlias = Callable[[int, int], tuple[Tensor, Tensor]]
"""A number of samples and a seed to as many samples, the first axis theirs, and their classes int64."""

TASKS: Mapping[str, Data] = {"resnet8": shapes, "dscnn": words, "mobilenet_v1": figures, "autoencoder": machines}
CALIBRATION, TRAINING = 2, 10
"""Seeds of the samples that ranges are taken from, and of the first training batch."""
_FRESH, _SAMPLES, _LEVELS, _BROKEN = 1, 64, 127, 0.5
_COUNTERS = "num_batches_tracked"


def calls(samples: Tensor) -> Tensor:
    """What the network takes, one behind the other: pictures and words as they are, the windows of sounds."""
    return samples.flatten(0, 1) if samples.dim() == 3 else samples


@one_thread()
def calibration(name: str) -> list[tuple[Tensor, ...]]:
    """Of each sample one call."""
    inputs = calls(TASKS[name](_SAMPLES, CALIBRATION)[0])
    return [(one,) for one in inputs[:: len(inputs) // _SAMPLES].split(1)]


@one_thread()
def fresh(name: str, count: int) -> tuple[Tensor, Tensor]:
    """Samples that no training saw, and their classes; half of the machines are broken."""
    return machines(count, _FRESH, _BROKEN) if name == "autoencoder" else TASKS[name](count, _FRESH)


def score(samples: Tensor, classes: Tensor, outputs: Tensor) -> float:
    """Top-1 of the outputs of all calls. Of an autoencoder the area under the ROC curve: how often a broken machine's
    clip differs more from what is given back than a sound one's."""
    if samples.dim() != 3:
        return (outputs.argmax(1) == classes).double().mean().item()
    errors = (outputs.reshape(samples.shape) - samples).square().mean((1, 2))
    return (errors[classes == 1][:, None] > errors[classes == 0]).double().mean().item()


def _weights_file(name: str) -> Path:
    return Path(__file__).parent / "weights" / f"{name}.npz"


def save_weights(name: str, module: nn.Module) -> None:
    """Write a module's weights as bytes, and all else as f16."""
    arrays: dict[str, np.ndarray] = {}
    for key, tensor in module.state_dict().items():
        if key.endswith(_COUNTERS):
            continue
        if tensor.dim() == 1:
            arrays[key] = tensor.numpy().astype(np.float16)
            continue
        largest = tensor.abs().amax()
        roots = (tensor.sign() * (tensor.abs() / largest).sqrt() * _LEVELS).round()
        arrays[key], arrays[f"{key}:largest"] = roots.numpy().astype(np.int8), largest.numpy()
    np.savez_compressed(_weights_file(name), **arrays)  # type: ignore[arg-type]


def load_weights(name: str, module: nn.Module) -> nn.Module:
    """The module in eval mode, with the weights that `save_weights` wrote."""
    with np.load(_weights_file(name)) as kept:
        state = {key: torch.from_numpy(kept[key]).float() for key in kept.files}
    for key in [key for key in state if f"{key}:largest" in state]:
        root = state[key] / _LEVELS
        state[key] = root * root.abs() * state.pop(f"{key}:largest")
    state |= {key: tensor for key, tensor in module.state_dict().items() if key.endswith(_COUNTERS)}
    module.load_state_dict(state)
    return module.eval()
