"""What the user should know of a model that compiles all the same."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from tosaic.frontend.calls import columns_of
from tosaic.frontend.canonical import DEQUANTIZE, QUANTIZE, arguments, is_quantized
from tosaic.frontend.capture import Capture
from tosaic.frontend.lowerings.op_quantization import Joined, Weighted
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.frontend.origin import origin
from tosaic.support.errors import Advice

CALIBRATED = "tosaic_calibrated"
"""What `quantize` notes on a program's graph: advice on what calibration data show."""
_COARSE = 64  # an operand that fills 256 steps of its own has 4 of these left


def calibration_advice(capture: Capture) -> tuple[Advice, ...]:
    """That calibration data cannot show the ranges: one example, or an input of one value throughout."""
    if is_quantized(capture.program):
        return ()
    hint = "calibrate on some 100 samples of real data"
    found = [Advice("calibration has one sample, the example input", "", hint)] if len(capture.calibration) == 1 else []
    for name, column in zip(capture.input_names, columns_of(capture.calibration), strict=True):
        values = torch.stack(list(column))
        if values.is_floating_point() and values.numel() > 1 and values.min() == values.max():
            kind = "zeros alone" if not values.any() else f"{values.flatten()[0]:g} alone"
            found.append(Advice(f"calibration data for the input `{name}` is {kind}", name, hint))
    return tuple(found)


def range_advice(program: ExportedProgram) -> tuple[Advice, ...]:
    """That something stays float32 as integers do not resolve it, or that fresh data exceed the ranges."""
    return program.graph_module.meta.get(CALIBRATED, ())


def joined_advice(program: ExportedProgram) -> Iterator[Advice]:
    """Operands that a concatenation's scale is too coarse for."""
    for node in program.graph.nodes:
        if not isinstance(op_quantization(node), Joined):
            continue
        result = next((user.args[1] for user in node.users if user.target is QUANTIZE[0]), None)
        for source in node.all_input_nodes:
            if result is None or source.target is not DEQUANTIZE[0]:
                continue
            quantized = source.args[1]
            if isinstance(result, float) and isinstance(quantized, float) and result > _COARSE * quantized:
                yield Advice(
                    f"an operand of `{node.target}` has {result / quantized:,.0f} times finer steps than the result",
                    str(origin(node)),
                    "return it as an output of its own, or scale the operands alike before they are joined",
                )


def bias_advice(program: ExportedProgram) -> tuple[Advice, ...]:
    """That another quantizer left the biases of int8 layers in float, which a board cannot."""
    floats = [node for node in program.graph.nodes if isinstance(op_quantization(node), Weighted) and _adds_float(node)]
    if not floats:
        return ()
    return (
        Advice(
            f"biases of {len(floats)} layers are float32 in the quantized model, and integers on the board: results "
            "may differ from PyTorch's by steps, which a fragile model makes larger",
            str(origin(floats[0])),
            "quantize biases, too, to int32 in steps of input times weight, as ExecuTorch's EthosUQuantizer does",
        ),
    )


def _adds_float(node: Node) -> bool:
    image, weight, bias, *_ = (*arguments(node), None)
    in_integers = image.target in DEQUANTIZE and weight.target in DEQUANTIZE
    return in_integers and isinstance(bias, Node) and bias.target not in DEQUANTIZE
