"""Which sums have 16 bits: those of a stream that RMSNorm reads, on a Cortex-M."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tosaic.frontend import capture, import_program, quantize
from tosaic.passes import run_phase
from tosaic.support.mlir import element_type, walk


class Stream(nn.Module):
    """Layers that a norm reads before, and which are added to what it reads; the last row of it goes on."""

    def __init__(self, norm: type[nn.Module], depth: int, last: bool = True) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norm(16) for _ in range(depth))
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(depth))
        self.last = norm(16) if last else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x))
        return self.last(x[:, -1:])


def _program(model: nn.Module, **options):
    torch.manual_seed(0)
    batches = [(torch.randn(1, 3, 16),) for _ in range(8)]
    return quantize(capture(model.eval(), batches, batches[0]), **options)


def _sums(model: nn.Module, **options) -> list[torch.dtype]:
    """What each sum's result is rounded to."""
    nodes = _program(model, **options).graph.nodes
    sums = [node for node in nodes if node.target is torch.ops.aten.add.Tensor]
    return [next(iter(node.users)).args[5] for node in sums]


_BYTE, _WIDE = torch.int8, torch.int16


@pytest.mark.parametrize(
    ("model", "options", "found"),
    [
        (Stream(nn.RMSNorm, 3), {}, [_WIDE] * 3),
        (Stream(nn.RMSNorm, 3, last=False), {}, [_WIDE, _WIDE, _BYTE]),
        (Stream(nn.RMSNorm, 1), {}, [_BYTE]),
        (Stream(nn.LayerNorm, 3), {}, [_BYTE] * 3),
        (Stream(nn.RMSNorm, 3), {"npu": True}, [_BYTE] * 3),
    ],
)
def test_sums_of_a_stream_that_rms_norm_reads(model, options, found):
    assert _sums(model, **options) == found


def test_they_are_sums_of_integers():
    module = import_program(_program(Stream(nn.RMSNorm, 2)))
    for phase in ("legalize", "quantize"):
        run_phase(module, phase)
    sums = [op for op in walk(module) if op.name == "tosa.add"]
    assert len(sums) >= 2 and {str(element_type(op.results[0])) for op in sums} == {"i32"}
