"""What PyTorch itself computes: the float reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.export import ExportedProgram

from tosaic.frontend.capture import Capture


def run_float(model: Capture | ExportedProgram, inputs: Sequence[np.ndarray | torch.Tensor]) -> list[np.ndarray]:
    """Run a capture or a program in PyTorch; a quantised program computes its Q/DQ simulation in float32."""
    program = model.program if isinstance(model, Capture) else model
    tensors = [torch.as_tensor(value) for value in inputs]
    with torch.no_grad():
        result = program.module()(*tensors)
    flat, _ = torch.utils._pytree.tree_flatten(result)
    return [tensor.numpy() for tensor in flat]
