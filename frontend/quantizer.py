"""Post-training quantization by PT2E, with what Ethos-U and CMSIS-NN can execute in mind."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch.ao.quantization.fx.utils import assert_and_get_unique_device
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    QuantizationSpecBase,
    Quantizer,
    SharedQuantizationSpec,
)
from torchao.utils import _assert_and_get_unique_device

from tosaic.frontend.advice import CALIBRATED
from tosaic.frontend.bias_correction import correct_parameters, make_room_for_biases
from tosaic.frontend.calibration import calibrate
from tosaic.frontend.canonical import arguments, complete_arguments, is_float, is_quantized
from tosaic.frontend.capture import Capture
from tosaic.frontend.constant_products import raise_constant_products
from tosaic.frontend.decomposition import importable
from tosaic.frontend.exclusion import has_int16, refuse_unmatched, stays_float
from tosaic.frontend.formats import ACTIVATIONS, ANNOTATION, BYTES, Activations, bias_format, row_format, weight_format
from tosaic.frontend.gates import balance_gates
from tosaic.frontend.grouped_weights import (
    GROUP_SIZES,
    LAYERS,
    GroupObserver,
    group_format,
    group_of,
    refuse_without_groups,
    table_group,
)
from tosaic.frontend.layers import note_sqnr
from tosaic.frontend.linear_constants import center_inputs, share_units
from tosaic.frontend.lowerings.op_quantization import (
    Arithmetic,
    Averaged,
    Clamp,
    Joined,
    OneToOne,
    Recurrent,
    Shared,
    Weighted,
)
from tosaic.frontend.lowerings.registry import op_quantization, registered
from tosaic.frontend.masks import MASKED
from tosaic.frontend.normalization import fold_affines
from tosaic.frontend.quiet import quietly
from tosaic.frontend.raising import raise_core_aten
from tosaic.frontend.recurrent import round_states
from tosaic.frontend.regions import Region, pointwise_regions
from tosaic.frontend.residuals import widen_residuals
from tosaic.frontend.rms_norm import raise_rms_norms
from tosaic.frontend.sharing import share_formats
from tosaic.frontend.sums import align_sums
from tosaic.frontend.tied_tables import FORMAT, split_tables
from tosaic.frontend.wide_ranges import keep_wide_ranges
from tosaic.frontend.widening import int16_results
from tosaic.frontend.worst_ranges import search_worst_ranges
from tosaic.support.errors import Advice, ModelError
from tosaic.support.threads import one_thread

Format: TypeAlias = QuantizationSpecBase | None


@one_thread()
def quantize(
    capture: Capture,
    activations: str = "int8",
    exclude: Sequence[str] = (),
    int16: Sequence[str] = (),
    int4: Sequence[str] = (),
    group_size: int = GROUP_SIZES[0],
    npu: bool = False,
    adjust: Callable[[Prepared], object] = lambda prepared: None,
) -> ExportedProgram:
    """Quantize a captured model: int8 weights per channel, int32 biases, activations as asked.

    Weights of a layer take up each other's roundings, and biases what these leave on average.

    Args:
        capture: the model; its calibration batches are run in order. A graph that holds Q/DQ is returned as it is.
        activations: `int8` (affine) or `int16` (symmetric).
        exclude: modules (`encoder.0`), ops (`softmax`), or ops of a module (`encoder.0:softmax`) that stay float32.
        int16: the same, and inputs, whose results are int16, as are those that these cannot do without.
        int4: the same, whose weights have four bits, in groups of `group_size` inputs.
        npu: whether scales are chosen for an Ethos-U, not for a Cortex-M alone.
        adjust: may change the formats that calibration gave, before weights are rounded.

    Raises:
        ModelError: `activations` is unknown, or a name names nothing.
    """
    refuse_unmatched(capture.program, (*exclude, *int16, *int4))
    if is_quantized(capture.program):
        return capture.program
    prepared = prepare(capture, activations, exclude, int16, int4, group_size, npu)
    with quietly():
        adjust(prepared)
        if not npu:
            share_units(prepared.module)
        grouped = sum(isinstance(each, GroupObserver) for each in prepared.module.modules())
        measured = correct_parameters(prepared.module, capture.calibration)
        converted = convert_pt2e(prepared.module)
        _forget_modules()
        round_states(converted)
        program = importable(torch.export.export(converted, capture.inputs))
        note_sqnr(program, measured)
        program.graph_module.meta |= {CALIBRATED: prepared.advice, LAYERS: grouped}
        return program


@dataclass(frozen=True)
class Prepared:
    """A calibrated graph, an observer behind each tensor that is quantized, its biases not corrected yet.

    Args:
        advice: what a user should know of its ranges.
        widened: for each node, by name, the nodes whose results are int16 if its result shall be.
    """

    module: GraphModule
    advice: tuple[Advice, ...]
    widened: Mapping[str, frozenset[str]]


@one_thread()
def prepare(
    capture: Capture,
    activations: str = "int8",
    exclude: Sequence[str] = (),
    int16: Sequence[str] = (),
    int4: Sequence[str] = (),
    group_size: int = GROUP_SIZES[0],
    npu: bool = False,
) -> Prepared:
    """Annotate and calibrate a float model; the arguments and errors are those of `quantize`."""
    if activations not in ACTIVATIONS:
        raise ModelError(f"activations cannot be `{activations}`", hint=f"choose {' or '.join(ACTIVATIONS)}")
    with quietly():
        module = capture.program.module()
        raise_core_aten(module)
        raise_rms_norms(module)
        if activations == "int8":  # beside tensors of 16 bits, coarser steps of weights are most of the noise
            fold_affines(module)
            balance_gates(module, capture.calibration, int4, group_size)
            if not npu:  # where sums of int16 cost a Cortex-M what those of int8 do
                widen_residuals(module)
        wide = keep_wide_ranges(module, capture.calibration, activations)
        raise_constant_products(module, activations, (*exclude, *int16))
        named = tuple(exclude), tuple(int16)
        quantizer = TosaQuantizer(activations, *named, capture.bytes, npu, tuple(int4), group_size)
        if not npu:  # whose compiler stores a matrix in a form of its own
            split_tables(module, quantizer.excluded, partial(table_group, named=int4, group=group_size))
        prepared = prepare_pt2e(module, quantizer)
        _forget_modules()
        advice = calibrate(prepared, capture.calibration)
        share_formats(prepared, len(capture.states))
        search_worst_ranges(prepared, capture.calibration)
        if not npu:
            center_inputs(prepared)
        align_sums(prepared, npu)
        make_room_for_biases(prepared)
        return Prepared(prepared, (*wide, *advice), quantizer.widened)


def _forget_modules() -> None:
    """Let go of the modules whose device PT2E has looked up, which it holds, float weights and all, for good."""
    for remembering in (assert_and_get_unique_device, _assert_and_get_unique_device):
        remembering.cache_clear()


class TosaQuantizer(Quantizer):
    """Annotates a canonical graph, producers before users, by what the lowerings say of their ops.

    A node is quantized where its op can be and its float operands are; an activation clamp that alone follows an
    arithmetic op shares that op's output, so that no rounding stands between the two.
    """

    def __init__(
        self,
        activations: str = "int8",
        exclude: tuple[str, ...] = (),
        int16: tuple[str, ...] = (),
        images: tuple[int, ...] = (),
        npu: bool = False,
        int4: tuple[str, ...] = (),
        group_size: int = GROUP_SIZES[0],
    ) -> None:
        self.activations, self.npu = ACTIVATIONS[activations], npu
        self.int4, self.group_size = int4, group_size
        self.exclude, self.int16, self.images = exclude, int16, images
        self.wide: set[Node] = set()
        self.widened: dict[str, frozenset[str]] = {}

    def annotate(self, model: GraphModule) -> GraphModule:
        refuse_without_groups([*model.graph.nodes], self.int4, self.group_size)
        found = pointwise_regions(model.graph, self.excluded)
        owners = {node: region for region in found for node in region.nodes}
        named = [node for node in model.graph.nodes if has_int16(node, self.int16)]
        self.wide = int16_results(named, owners)
        for node in model.graph.nodes:
            self.widened[node.name] = frozenset(one.name for one in int16_results([node], owners))
        tables = [region for region in found if not (self._activations(region.source).symmetric and region.has_steps)]
        regions = {node: region for region in tables for node in region.nodes}
        for node in model.graph.nodes:
            if node in regions:
                self._region(node, regions[node])
            elif ANNOTATION not in node.meta and not self.excluded(node):
                self._annotate(node)
        inputs = [node for node in model.graph.nodes if node.op == "placeholder"]
        for image in (inputs[number] for number in self.images):
            for user in image.users:
                if ANNOTATION in user.meta and image in user.meta[ANNOTATION].input_qspec_map:
                    user.meta[ANNOTATION].input_qspec_map[image] = BYTES
        return model

    def validate(self, model: GraphModule) -> None:
        """Nothing to check: `annotate` writes only what the importer reads."""

    def excluded(self, node: Node) -> bool:
        """Whether a node stays float32."""
        return stays_float(node, self.exclude)

    def _activations(self, node: Node) -> Activations:
        """The integers of a node's result; what only moves or averages values has those that it reads."""
        if node.target is operator.getitem and _is_memory(*arguments(node)):
            return ACTIVATIONS["int16"]
        if isinstance(op_quantization(node), Shared | Averaged) or node.target is operator.getitem:
            source = next((source for source in node.all_input_nodes if is_float(source)), None)
            if source and self._activations(source).symmetric:
                return self._activations(source)
        return ACTIVATIONS["int16"] if node in self.wide else self.activations

    def _calibrated(self, node: Node) -> Format:
        return self._activations(node).calibrated()

    def _read(self, source: Node, node: Node) -> Format:
        """What `node` reads of a source has the source's format; a constant that of the node's result."""
        return self._calibrated(node if source.op == "get_attr" else source)

    def _region(self, node: Node, region: Region) -> None:
        """Only what the region reads and what it gives have a format."""
        inputs: dict[Node, Format] = (
            {region.source: self._calibrated(region.source)} if region.source in node.all_input_nodes else {}
        )
        _note(node, inputs, self._result(node) if node is region.nodes[-1] else None)

    def _annotate(self, node: Node) -> None:
        op = op_quantization(node)
        if node.target is operator.getitem:
            self._item(node)
        elif isinstance(op, Weighted) and is_float(arguments(node)[0]):
            self._weighted(node, op)
        elif isinstance(op, Recurrent):
            self._recurrent(node)
        elif isinstance(op, Arithmetic) and is_float(node):
            self._arithmetic(node)
        elif isinstance(op, OneToOne) and is_float(node):
            self._one_to_one(node)
        elif isinstance(op, Shared):
            self._shared(node)
        elif isinstance(op, Averaged | Joined) and is_float(node) and _joins_quantized(node, op):
            self._give_formats(node, dict.fromkeys(_float_operands(node), self._calibrated(node)))

    def _weighted(self, node: Node, op: Weighted) -> None:
        image, weight, *rest = arguments(node)[:3]
        if weight.op != "get_attr":
            self._arithmetic(node)
            return
        group = group_of(node, self.int4, self.group_size)
        if group and self._activations(image).symmetric:
            raise ModelError(
                f"`{node.name}` cannot have weights of four bits",
                why="it reads int16, and these multiply int8",
                hint="leave it out of --int4, or what it reads out of int16",
            )
        weights = group_format(group) if group else weight_format(node, op)
        inputs: dict[Node, Format] = {image: self._read(image, node), weight: weights}
        if rest and rest[0] is not None:
            inputs[rest[0]] = bias_format(node, op)
        self._give_formats(node, inputs)

    def _recurrent(self, node: Node) -> None:
        x, state, cell, *weights = arguments(node)[:5]
        inputs: dict[Node, Format] = {x: self._calibrated(node), state: self._calibrated(node)}
        if cell is not state:
            inputs[cell] = ACTIVATIONS["int16"].calibrated()
        if all(weight.op == "get_attr" for weight in weights):
            _note(node, inputs | dict.fromkeys(weights, row_format()), None)

    def _arithmetic(self, node: Node) -> None:
        operands = _float_operands(node)
        widest = next((one for one in operands if self._activations(one).symmetric), node)

        def read(one: Node) -> Format:
            if FORMAT in one.meta:
                return SharedQuantizationSpec(one)
            return self._calibrated(widest) if _is_product(node) else self._read(one, node)

        self._give_formats(node, {one: read(one) for one in operands})

    def _give_formats(self, node: Node, inputs: dict[Node, Format]) -> None:
        """Formats for the operands, and for the result or that of a clamp behind it."""
        user = next(iter(node.users)) if len(node.users) == 1 else None
        op = op_quantization(user) if user and not self.excluded(user) else None
        given = self._given(node, inputs)
        if user and isinstance(op, Clamp):
            _note(node, inputs, None)
            _note(user, {}, given.calibrated())
        elif isinstance(op, OneToOne) and op.saturation:
            _note(node, inputs, given.calibrated(*op.saturation))
        elif user and isinstance(op, OneToOne) and op.depth:
            known = [one for one in inputs if one.op == "get_attr" and isinstance(op_quantization(node), Arithmetic)]
            masks = dict.fromkeys(known, given.calibrated(floor=MASKED))
            _note(node, inputs | masks, _scores(given, user, op.depth))
        else:
            _note(node, inputs, given.calibrated())

    def _given(self, node: Node, inputs: dict[Node, Format]) -> Activations:
        """The integers of what a node computes, which its readers may round further: a Cortex-M's kernels have int16 of
        products of int16."""
        reads_int16 = any(getattr(one, "dtype", None) == torch.int16 for one in inputs.values())
        return ACTIVATIONS["int16"] if reads_int16 and _is_product(node) and not self.npu else self._activations(node)

    def _one_to_one(self, node: Node) -> None:
        x, *others = arguments(node)
        if is_float(x) and not (others and isinstance(others[0], Node)):  # as in a division by integers
            op = op_quantization(node)
            deep = isinstance(op, OneToOne) and op.depth
            read = _scores(self._activations(x), node, deep) if deep else self._read(x, node)
            _note(node, {x: read}, self._result(node))

    def _result(self, node: Node) -> Format:
        op = op_quantization(node)
        known = op.result if isinstance(op, OneToOne) else None
        return self._activations(node).calibrated(*(known or ()))

    def _shared(self, node: Node) -> None:
        """One format, where what comes in is quantized; a list has none, but its items have."""
        operands = _float_operands(node)
        if not operands or not all(_is_quantized(source) for source in operands):
            return
        shared = SharedQuantizationSpec((operands[0], node))
        first = node.meta.get(FORMAT) or self._calibrated(node)
        inputs: dict[Node, Format] = {operands[0]: first, **dict.fromkeys(operands[1:], shared)}
        _note(node, inputs, None if isinstance(node.meta.get("val"), list | tuple) else shared)

    def _item(self, node: Node) -> None:
        source, _ = arguments(node)
        if not is_float(node) or ANNOTATION not in source.meta:
            return
        if isinstance(op_quantization(source), Shared):
            _note(node, {}, SharedQuantizationSpec((arguments(source)[0], source)))
        elif isinstance(op_quantization(source), Recurrent):
            _note(node, {}, self._calibrated(node))


def _scores(activations: Activations, reader: Node, depth: float) -> Format:
    """Of what a softmax reads."""
    return activations.calibrated(depth=depth, axis=complete_arguments(reader)[1])


def _is_product(node: Node) -> bool:
    """Whether an op sums up products."""
    op = op_quantization(node)
    return isinstance(op, Weighted) or (isinstance(op, Arithmetic) and not registered()[node.target].pointwise)


def _is_memory(source: Node, number: int) -> bool:
    """Whether it is the memory cells of a recurrent layer: its second result."""
    return isinstance(op_quantization(source), Recurrent) and number == 1


def _note(node: Node, inputs: dict[Node, Format], output: Format) -> None:
    node.meta[ANNOTATION] = QuantizationAnnotation(input_qspec_map=inputs, output_qspec=output, _annotated=True)


def _float_operands(node: Node) -> list[Node]:
    return [source for source in node.all_input_nodes if is_float(source)]


def _joins_quantized(node: Node, op: Averaged | Joined) -> bool:
    operands = _float_operands(node)
    if isinstance(op, Joined) and not op.constants and any(one.op == "get_attr" for one in operands):
        return False
    return all(map(_is_quantized, operands))


def _is_quantized(node: Node) -> bool:
    return node.op in ("placeholder", "get_attr") or ANNOTATION in node.meta
