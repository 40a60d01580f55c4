"""Train the digit reader and write `weights.npz`: `python examples/digits/train.py`, a minute on two cores."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))
from model import HELD_BACK, WEIGHTS, DigitReader, scans


def shifted(images: torch.Tensor) -> torch.Tensor:
    """The images moved by up to one pixel each way, the edge filled with 0."""
    dy, dx = torch.randint(-1, 2, (2,)).tolist()
    return torch.roll(functional.pad(images, (1, 1, 1, 1)), (dy, dx), (2, 3))[..., 1:-1, 1:-1]


def main() -> None:
    torch.manual_seed(0)
    images, labels = scans()
    train_images, train_labels = images[:-HELD_BACK], labels[:-HELD_BACK]
    model = DigitReader()
    epochs, batch = 60, 64
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-2)
    steps = epochs * (len(train_images) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=steps)
    for _ in range(epochs):
        model.train()
        order = torch.randperm(len(train_images))
        for first in range(0, len(order) - batch + 1, batch):
            chosen = order[first : first + batch]
            logits, _ = model(shifted(train_images[chosen]))
            loss = functional.cross_entropy(logits, train_labels[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        logits, _ = model(images[-HELD_BACK:])
    print(f"held-back accuracy: {(logits.argmax(1) == labels[-HELD_BACK:]).float().mean():.4f}")
    state = {k: v.numpy() for k, v in model.state_dict().items() if k != "segments" and "num_batches" not in k}
    np.savez_compressed(WEIGHTS, **state)


if __name__ == "__main__":
    main()
