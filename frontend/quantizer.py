"""Post-training quantization by PT2E, with what Ethos-U and CMSIS-NN can execute in mind."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torchao.quantization.pt2e.observer import MinMaxObserver, PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)

from tosaic.frontend.bias_correction import correct_biases
from tosaic.frontend.canonical import arguments, is_quantized
from tosaic.frontend.capture import Capture
from tosaic.frontend.exclusion import is_excluded, refuse_unmatched
from tosaic.frontend.observer import RangeObserver
from tosaic.frontend.raising import raise_core_aten
from tosaic.frontend.regions import Region, pointwise_regions
from tosaic.support.errors import ModelError

aten = torch.ops.aten
_KEY = "quantization_annotation"

CONVOLUTION: set[Any] = {
    aten.conv1d.default, aten.conv1d.padding, aten.conv2d.default, aten.conv2d.padding, aten.conv_transpose2d.input,
}  # fmt: skip
WEIGHTED: set[Any] = CONVOLUTION | {aten.linear.default}
ARITHMETIC: set[Any] = {
    aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.maximum.default, aten.minimum.default,
    aten.matmul.default, aten.mm.default, aten.bmm.default,
}  # fmt: skip
POINTWISE: set[Any] = {
    aten.abs.default, aten.elu.default, aten.exp.default, aten.gelu.default, aten.hardswish.default,
    aten.leaky_relu.default, aten.neg.default, aten.pow.Tensor_Scalar, aten.silu.default, aten.sqrt.default,
    aten.rsqrt.default, aten.add.Scalar, aten.sub.Scalar, aten.rsub.Scalar, aten.mul.Scalar, aten.div.Scalar,
}  # fmt: skip
COMPOSITE: set[Any] = {aten.layer_norm.default, aten.sum.dim_IntList, aten.sum.default}
CLAMP: set[Any] = {
    aten.relu.default, aten.relu6.default, aten.hardtanh.default, aten.clamp.default, aten.clamp_min.default,
}  # fmt: skip
# Ops whose result has a range known beforehand: (least, greatest) real value.
RANGED: dict[Any, tuple[float, float]] = {
    aten.softmax.int: (0.0, 1.0),
    aten._softmax.default: (0.0, 1.0),
    aten.sigmoid.default: (0.0, 1.0),
    aten.hardsigmoid.default: (0.0, 1.0),
    aten.tanh.default: (-1.0, 1.0),
}
# Ops that are constant below (above) a limit, or in gelu's case within 2e-4 of it.
SATURATING: dict[Any, tuple[float, float]] = {
    aten.hardswish.default: (-3.0, math.inf),
    aten.hardsigmoid.default: (-3.0, 3.0),
    aten.gelu.default: (-4.0, math.inf),
}
SHARED: set[Any] = {
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.permute.default, aten.transpose.int,
    aten.t.default, aten.expand.default, aten.repeat.default, aten.squeeze.dim, aten.squeeze.dims,
    aten.squeeze.default, aten.unsqueeze.default, aten.slice.Tensor, aten.select.int, aten.split.Tensor,
    aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int, operator.getitem, aten.clone.default,
    aten.cat.default, aten.stack.default, aten.index_select.default, aten.gather.default, aten.embedding.default,
    aten.constant_pad_nd.default, aten.pad.default, aten.flip.default, aten.index.Tensor, aten.max_pool2d.default,
    aten.avg_pool2d.default, aten.adaptive_avg_pool2d.default,
    aten.mean.dim, aten.mean.default, aten.amax.default, aten.amin.default, aten.upsample_nearest2d.vec,
    aten.upsample_bilinear2d.vec,
}  # fmt: skip
QUANTIzED = WEIGHTED | ARITHMETIC | POINTWISE | COMPOSITE | CLAMP | set(RANGED) | SHARED | {aten.div.Tensor}
_BIAS_AXES = {target: -1 if target is aten.linear.default else 1 for target in WEIGHTED}
_CORRECTING = 8  # batches: a mean over them and all pixels is steady, and memory holds them
_LISTS: set[Any] = {aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int}


def quantize(capture: Capture, activations: str = "int8", exclude: Sequence[str] = ()) -> ExportedProgram:
    """Quantize a captured model: int8 weights per channel, int32 biases, activations as asked.

    Args:
        capture: the model; its calibration batches are run in order. A graph that holds Q/DQ is returned as it is.
        activations: `int8` (affine) or `int16` (symmetric).
        exclude: module paths (`encoder.0`) and op types (`softmax`) that stay float32.

    Raises:
        ModelError: `activations` is unknown, or an exclusion matches nothing.
    """
    if activations not in ("int8", "int16"):
        raise ModelError(f"activations cannot be `{activations}`", hint="choose int8 or int16")
    refuse_unmatched(capture.program.graph, exclude)
    if is_quantized(capture.program):
        return capture.program
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        module = capture.program.module()
        raise_core_aten(module)
        prepared = prepare_pt2e(module, TosaQuantizer(activations, tuple(exclude)))
        for batch in capture.calibration:
            prepared(*batch)
        correct_biases(prepared, capture.calibration[:_CORRECTING], _BIAS_AXES)
        return torch.export.export(convert_pt2e(prepared), capture.inputs)


@dataclass(frozen=True)
class Formats:
    """The integer formats of activations and what follows from them."""

    dtype: torch.dtype
    low: int
    high: int
    symmetric: bool

    def activation(self, floor: float = -math.inf, ceiling: float = math.inf) -> QuantizationSpec:
        """A calibrated format; what lies beyond the limits may be cut off."""
        scheme = torch.per_tensor_symmetric if self.symmetric else torch.per_tensor_affine
        observer = RangeObserver.with_args(floor=floor, ceiling=ceiling)
        return QuantizationSpec(self.dtype, observer, self.low, self.high, scheme)

    def ranged(self, least: float, greatest: float) -> FixedQParamsQuantizationSpec:
        """Scale and zero point that need no calibration: 1/256 and -128 for [0, 1] in int8."""
        levels = self.high - self.low + 1
        if self.symmetric:
            scale, zero_point = 2 * max(-least, greatest) / (self.high * 2 + 2), 0
        else:
            scale = (greatest - least) / levels
            zero_point = self.low - round(least / scale)
        return FixedQParamsQuantizationSpec(self.dtype, scale, zero_point, self.low, self.high, torch.per_tensor_affine)


FORMATS = {
    "int8": Formats(torch.int8, -128, 127, symmetric=False),
    "int16": Formats(torch.int16, -32768, 32767, symmetric=True),
}


class TosaQuantizer(Quantizer):
    """Annotates a canonical graph, producers before users.

    A node is quantized where its op can be and its float operands are; an activation clamp that alone follows an
    arithmetic op shares that op's output, so that no rounding stands between the two.
    """

    def __init__(self, activations: str = "int8", exclude: tuple[str, ...] = ()) -> None:
        self.formats = FORMATS[activations]
        self.spec = self.formats.activation()
        self.exclude = exclude

    def annotate(self, model: GraphModule) -> GraphModule:
        fused: dict[Node, Node] = {}
        regions = self._regions(model.graph)
        for node in model.graph.nodes:
            if node in regions:
                self._region(node, regions[node])
            elif node.op == "call_function" and not self._excluded(node):
                self._annotate(node, fused)
        return model

    def _regions(self, graph: Graph) -> dict[Node, Region]:
        """The region that each node is in. A clamp starts none: it becomes a part of what is before it."""
        found = pointwise_regions(graph, self._excluded, lambda node: node.target not in CLAMP)
        return {
            node: region
            for region in found
            if (len(region.nodes) > 1 or region.nodes[0].target not in QUANTIzED)
            and not (self.formats.symmetric and region.has_steps)
            for node in region.nodes
        }

    def _region(self, node: Node, region: Region) -> None:
        """Only what the region reads and what it gives have a format."""
        inputs = {region.source: self.spec} if region.source in node.all_input_nodes else {}
        if node is not region.nodes[-1]:
            _note(node, inputs, None)
        elif node.target in RANGED:
            _note(node, inputs, self.formats.ranged(*RANGED[node.target]))
        else:
            _note(node, inputs, self.spec)

    def validate(self, model: GraphModule) -> None:
        """Nothing to check: `annotate` writes only what the importer reads."""

    def _excluded(self, node: Node) -> bool:
        return is_excluded(node, self.exclude)

    def _annotate(self, node: Node, fused: dict[Node, Node]) -> None:
        target = node.target
        if target in WEIGHTED and _is_float(arguments(node)[0]):
            self._weighted(node, fused)
        elif target in ARITHMETIC and _is_float(node):
            self._arithmetic(node, fused)
        elif target in CLAMP and _is_float(node):
            if node not in fused:
                self._plain(node, self.spec)
        elif (target in POINTWISE | COMPOSITE or _divides_by_number(node)) and _is_float(node):
            self._plain(node, self.spec)
        elif target in RANGED and _is_float(node):
            self._plain(node, self.formats.ranged(*RANGED[target]))
        elif target in SHARED:
            self._shared(node)

    def _weighted(self, node: Node, fused: dict[Node, Node]) -> None:
        image, weight = arguments(node)[0], arguments(node)[1]
        if not _is_parameter(weight):
            self._arithmetic(node, fused)
            return
        inputs = {image: self.spec, weight: _weight_spec(node)}
        bias = arguments(node)[2] if len(arguments(node)) > 2 else None
        if bias is not None:
            inputs[bias] = _bias_spec(node)
        self._finish(node, inputs, fused)

    def _arithmetic(self, node: Node, fused: dict[Node, Node]) -> None:
        operands = [source for source in node.all_input_nodes if _is_float(source)]
        self._finish(node, dict.fromkeys(operands, self.spec), fused)

    def _finish(self, node: Node, inputs: dict, fused: dict[Node, Node]) -> None:
        users = list(node.users)
        if len(users) == 1 and users[0].target in CLAMP and not self._excluded(users[0]):
            fused[users[0]] = node
            _note(node, inputs, None)
            _note(users[0], {}, self.spec)
        else:
            _note(node, inputs, self._read_by(users))

    def _read_by(self, users: list[Node]) -> QuantizationSpec:
        """The format of what these read: one saturating op needs no range beyond its limits."""
        if len(users) == 1 and users[0].target in SATURATING and not self._excluded(users[0]):
            return self.formats.activation(*SATURATING[users[0].target])
        return self.spec

    def _plain(self, node: Node, output: object) -> None:
        if not _is_float(arguments(node)[0]):
            return
        _note(node, {arguments(node)[0]: self.spec}, output)

    def _shared(self, node: Node) -> None:
        """Input and output in one format, where what comes in is quantized."""
        if node.target is operator.getitem:
            source = arguments(node)[0]
            if source.target in _LISTS and _KEY in source.meta:
                _note(node, {}, SharedQuantizationSpec((arguments(source)[0], source)))
            return
        operands = [source for source in node.all_input_nodes if _is_float(source)]
        if not operands or not all(_is_quantized(source) for source in operands):
            return
        shared = SharedQuantizationSpec((operands[0], node))
        inputs = {operands[0]: self.spec, **dict.fromkeys(operands[1:], shared)}
        _note(node, inputs, None if node.target in _LISTS else shared)


def _note(node: Node, inputs: dict, output: object) -> None:
    node.meta[_KEY] = QuantizationAnnotation(input_qspec_map=inputs, output_qspec=output, _annotated=True)


def _weight_spec(node: Node) -> QuantizationSpec:
    """Symmetric in [-127, 127], a scale for each output channel.

    Where TOSA's weight layout splits the output channels over two axes there is one scale in all.
    """
    axis, per_channel = 0, True
    groups = arguments(node)[6] if node.target in CONVOLUTION and len(arguments(node)) > 6 else 1
    if node.target is aten.conv_transpose2d.input:
        axis, per_channel = 1, groups == 1
    elif groups > 1:
        out, inner = arguments(node)[1].meta["val"].shape[:2]
        per_channel = inner > 1 or out == groups
    observer = PerChannelMinMaxObserver if per_channel else MinMaxObserver
    scheme = torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric
    return QuantizationSpec(
        torch.int8, observer.with_args(eps=2**-24), -127, 127, scheme, ch_axis=axis if per_channel else None
    )


def _bias_spec(node: Node) -> DerivedQuantizationSpec:
    """int32 with scale = input scale x weight scale, zero point 0."""
    image, weight = arguments(node)[0], arguments(node)[1]

    def derive(observers: list) -> tuple[Tensor, Tensor]:
        (input_scale, _), (weight_scale, _) = (observer.calculate_qparams() for observer in observers)
        scale = input_scale.double() * weight_scale.double()
        return scale.float(), torch.zeros_like(scale, dtype=torch.int32)

    per_channel = _weight_spec(node).qscheme is torch.per_channel_symmetric
    return DerivedQuantizationSpec(
        derived_from=[(image, node), (weight, node)],
        derive_qparams_fn=derive,
        dtype=torch.int32,
        quant_min=-(2**31) + 1,
        quant_max=2**31 - 1,
        qscheme=torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric,
        ch_axis=0 if per_channel else None,
    )


def _is_float(node: object) -> bool:
    value = node.meta.get("val") if isinstance(node, Node) else None
    if isinstance(value, list | tuple):
        value = value[0]
    return isinstance(value, Tensor) and value.dtype == torch.float32


def _divides_by_number(node: Node) -> bool:
    return node.target is aten.div.Tensor and not isinstance(arguments(node)[1], Node)


def _is_parameter(node: Node) -> bool:
    return node.op == "get_attr"


def _is_quantized(node: Node) -> bool:
    return node.op in ("placeholder", "get_attr") or _KEY in node.meta
