"""Train the zoo's networks of MLPerf Tiny's shapes on made data: `python benchmarks/train_zoo.py resnet8`.

Every batch is fresh. A network takes five to fifteen minutes of a processor, on one thread.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click
import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1]))
from tosaic.zoo.trained import TASKS, TRAINING, calls, fresh, load_weights, save_weights, score

_STEPS = {"resnet8": 3000, "dscnn": 1500, "mobilenet_v1": 900, "autoencoder": 1500}
_BATCH, _RATE, _DECAY, _SHOWN, _FRESH = 64, 3e-3, 1e-4, 100, 1000


def loss_of(module: nn.Module, samples: Tensor, classes: Tensor) -> Tensor:
    """Of an autoencoder what it does not give back, else the cross entropy of its classes."""
    inputs = calls(samples)
    outputs = module(inputs)
    return functional.mse_loss(outputs, inputs) if samples.dim() == 3 else functional.cross_entropy(outputs, classes)


def train(name: str) -> nn.Module:
    """The network, trained."""
    torch.manual_seed(0)
    module = importlib.import_module(f"tosaic.zoo.{name}").build()
    optimizer = torch.optim.Adam(module.parameters(), _RATE, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, _STEPS[name])
    for step in range(_STEPS[name]):
        loss = loss_of(module, *TASKS[name](_BATCH, TRAINING + step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % _SHOWN == 0:
            print(f"{name}: step {step}, loss {loss.item():.3f}", flush=True)
    return module.eval()


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(TASKS)))
def main(names: tuple[str, ...]) -> None:
    """Train the networks, all when none is named, and write their weights."""
    torch.set_num_threads(1)
    for name in names or TASKS:
        save_weights(name, train(name))
        module = load_weights(name, importlib.import_module(f"tosaic.zoo.{name}").build())
        samples, classes = fresh(name, _FRESH)
        with torch.no_grad():
            print(f"{name}: {score(samples, classes, module(calls(samples))):.3f} on fresh data", flush=True)


if __name__ == "__main__":
    main()
