"""1x1 convolutions of images take all pixels in one row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.npu.cheapest import Form, as_image, is_pointwise, to_cheapest
from tosaic.support.mlir import ir, shape_of

_LEAST_GAIN = 1 / 4
"""Of an op's cycles: what stands before and behind a row may lie in a slower order."""


@register
@dataclass(frozen=True)
class PixelsToRows(ModulePass):
    """Write each 1x1 CONV2D of an image as one of a row of all its pixels; without a `target` with an NPU, leave them.

    Vela cuts a result into blocks of pixels, and reads all weights again for each. A row has fewer of them. It is done
    where that costs the NPU far fewer cycles.
    """

    name: ClassVar[str] = "pixels-to-rows"
    target: str = ""

    def run(self, module: ir.Module) -> None:
        if self.target:
            to_cheapest(module, self.target, _forms, "tosa.conv2d", gain=_LEAST_GAIN)


def _forms(op: ir.Operation) -> tuple[list[ir.Operation], list[Form]]:
    _, height, width, _ = shape_of(op.operands[0])
    if not is_pointwise(op) or min(height, width) == 1:
        return [op], []
    return [op], [partial(as_image, op, (1, 1, height * width))]
