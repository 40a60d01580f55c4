"""What the quantizer annotates, and what comes of it in the imported module."""

from __future__ import annotations

import functools
import gc
import math
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tosaic.frontend import Capture, capture, import_program, quantize, run_float
from tosaic.frontend.advice import bias_advice
from tosaic.frontend.bias_correction import held_at_once, spread
from tosaic.frontend.canonical import DEQUANTIZE, QUANTIZE, canonical
from tosaic.frontend.decomposition import decomposed
from tosaic.frontend.layers import layers
from tosaic.frontend.linear_constants import whole_units
from tosaic.frontend.normalization import fold_affines
from tosaic.frontend.tied_tables import better_units
from tosaic.passes import run_phase
from tosaic.support.errors import ModelError
from tosaic.support.mlir import constant_value, element_type, walk


def captured(module: nn.Module, *shape: int) -> Capture:
    generator = torch.Generator().manual_seed(3)
    batches = tuple((torch.randn(*shape, generator=generator),) for _ in range(4))
    torch.manual_seed(5)
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.reset_parameters()
    return Capture("model", canonical(torch.export.export(module.eval(), batches[0])), batches[0], batches)


def quantizers(program) -> list[tuple[str, tuple]]:
    """(name of what is quantized, (scale, zero point, low, high, dtype)) for every activation."""
    return [(str(n.args[0].target), n.args[1:]) for n in program.graph.nodes if n.target is QUANTIZE[0]]


def sqnr(program, capture: Capture) -> float:
    want = run_float(capture, capture.inputs)[0].astype(np.float64)
    got = run_float(program, capture.inputs)[0]
    return 10 * np.log10((want**2).sum() / ((want - got) ** 2).sum())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU6(inplace=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        y = self.relu(self.norm(self.conv(x)))
        return torch.softmax(self.head(y.mean((2, 3))), -1)


@pytest.fixture(scope="module")
def net() -> Capture:
    return captured(Net(), 1, 3, 8, 8)


@pytest.fixture(scope="module")
def quantized(net):
    return quantize(net)


def test_batch_norm_folds_and_relu_shares_the_convolutions_output(quantized):
    targets = [str(node.target) for node in quantized.graph.nodes]
    assert not any("batch_norm" in target for target in targets)
    (clamp,) = [node for node in quantized.graph.nodes if "hardtanh" in str(node.target)]
    assert "conv2d" in str(clamp.args[0].target)


def test_weights_are_symmetric_per_channel_and_biases_int32_of_the_derived_scale(quantized):
    state = {**quantized.state_dict, **quantized.constants}
    signature = quantized.graph_signature
    names = {
        **signature.inputs_to_buffers,
        **signature.inputs_to_parameters,
        **signature.inputs_to_lifted_tensor_constants,
    }
    (conv,) = [node for node in quantized.graph.nodes if "conv2d" in str(node.target)]
    image, weight, bias = conv.args[:3]
    assert weight.target is bias.target is DEQUANTIZE[1]
    stored, scales = (state[names[node.name]] for node in weight.args[:2])
    assert stored.dtype == torch.int8 and stored.abs().amax() == 127 and stored.min() >= -127
    stored_bias, bias_scales = (state[names[node.name]] for node in bias.args[:2])
    assert stored_bias.dtype == torch.int32
    torch.testing.assert_close(bias_scales.double(), scales.double() * image.args[1], rtol=1e-6, atol=0)


def test_a_weight_that_is_computed_from_parameters_is_quantized_as_one():
    class Standardized(nn.Conv2d):
        def forward(self, input):
            rows = F.batch_norm(self.weight.reshape(1, 8, -1), None, None, training=True)
            return F.conv2d(input, rows.reshape_as(self.weight), self.bias)

    program = quantize(captured(Standardized(4, 8, 3), 1, 4, 8, 8))
    (conv,) = [node for node in program.graph.nodes if "conv2d" in str(node.target)]
    assert all(source.target is DEQUANTIZE[1] for source in conv.args[1:3])
    assert not any("batch_norm" in str(node.target) for node in program.graph.nodes)


def test_the_float_model_takes_indices_as_firmware_does():
    class Masked(nn.Module):
        def forward(self, mask):
            return mask.float() * 2

    given = (torch.tensor([[1, 0, 3]]),)
    program = canonical(torch.export.export(Masked(), given))
    (result,) = run_float(program, [given[0].numpy().astype(np.int32)])
    np.testing.assert_array_equal(result, [[2, 0, 6]])


def test_a_recurrent_layer_is_named_as_users_call_it():
    model = captured(nn.GRU(3, 4), 5, 1, 3)
    program = quantize(model, exclude=["gru"])
    assert not any(node.target is QUANTIZE[0] for node in program.graph.nodes)
    with pytest.raises(ModelError) as caught:
        quantize(model, exclude=["lstms"])
    named = (caught.value.hint or "").removeprefix("name one of ").split(", ")
    assert "gru" in named and not [name for name in named if name.startswith(("p_", "<"))]


def test_softmax_has_the_scale_of_its_range(quantized):
    (softmax,) = [args for name, args in quantizers(quantized) if "softmax" in name]
    assert softmax[0] <= 1 / 255 and softmax[1] == -128


def test_movement_and_pools_keep_the_scale():
    class Moves(nn.Module):
        def forward(self, x):
            a, b = F.max_pool2d(F.relu(x), 2).split(2, 1)
            return torch.cat([b, a], 1).permute(0, 2, 3, 1).reshape(1, -1)

    image, *others = quantizers(quantize(captured(Moves(), 1, 4, 8, 8)))
    assert image[0] == "x"
    assert "relu" in others[0][0] and "max_pool2d" in others[1][0]
    assert len(others) >= 6 and len({args for _, args in others}) == 1


def test_every_integer_constant_reaches_mlir_in_tosa_layout(quantized):
    module = import_program(quantized)
    text = [str(op.operation).split("loc(")[0] for op in walk(module) if op.name == "quant.dcast"]
    assert any("tensor<8x3x3x3x!quant.uniform<i8<-127:127>:f32:0" in line for line in text)
    assert any("tensor<4x1x1x8x!quant.uniform<i8<-127:127>:f32:0" in line for line in text)


def test_depthwise_weights_are_quantized_along_the_third_axis():
    module = import_program(quantize(captured(nn.Conv2d(4, 4, 3, groups=4), 1, 4, 8, 8)))
    assert "tensor<3x3x4x1x!quant.uniform<i8<-127:127>:f32:2" in str(module)


def test_int16_activations_are_symmetric_and_closer(net, quantized):
    wide = quantize(net, activations="int16")
    assert all(args[1] == 0 and args[4] == torch.int16 for _, args in quantizers(wide))
    assert sqnr(wide, net) > sqnr(quantized, net)
    assert "!quant.uniform<i16:f32" in str(import_program(wide))


@pytest.mark.parametrize("exclusion", ["head", "linear", "aten.linear"])
def test_an_excluded_layer_stays_float(net, exclusion):
    program = quantize(net, exclude=[exclusion])
    (linear,) = [node for node in program.graph.nodes if "linear" in str(node.target)]
    assert linear.args[1].op == "placeholder"
    assert "tensor<4x1x1x8xf32>}>" in str(import_program(program))


def test_an_exclusion_that_matches_nothing_names_the_nearest(net):
    with pytest.raises(ModelError, match="`heads` names no module") as caught:
        quantize(net, exclude=["heads"])
    assert "did you mean head" in str(caught.value)


def test_an_exclusion_that_is_near_to_nothing_lists_the_shortest_names():
    model = captured(nn.Sequential(*(nn.Linear(2, 2) for _ in range(45))), 1, 2)
    with pytest.raises(ModelError, match="`xyz` names no module") as caught:
        quantize(model, exclude=["xyz"])
    assert "name one of 0, 1, 2" in caught.value.hint and caught.value.hint.endswith(", ...")


def test_an_unknown_activation_format_is_refused(net):
    with pytest.raises(ModelError, match="int8 or int16"):
        quantize(net, activations="int4")


def test_a_quantized_program_is_left_alone(net, quantized):
    again = Capture("model", quantized, net.inputs, net.calibration)
    assert quantize(again) is quantized


def test_attention_is_taken_apart_and_quantized():
    class Attention(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x)

    model = captured(Attention(), 1, 2, 8, 4)
    program = quantize(model)
    assert sum("softmax" in name for name, _ in quantizers(program)) == 1
    assert sqnr(program, model) > 25


LOWEST = torch.finfo(torch.float32).min
MASKS = {
    "causal": lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "added": lambda q, k, v, m: ((q @ k.mT + m).softmax(-1)) @ v,
    "filled": lambda q, k, v, m: (q @ k.mT).masked_fill(m < 0, -1e9).softmax(-1) @ v,
    "twice": lambda q, k, v, m: (torch.where(m == 0, q @ k.mT, torch.full((), LOWEST)) + m).softmax(-1) @ v,
}


@pytest.mark.parametrize("mask", MASKS)
def test_masked_scores_keep_the_digits_of_the_others(mask):
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.full((16, 16), LOWEST).triu(1))

        def forward(self, x):
            return MASKS[mask](x, x.roll(1, 3), x, self.mask)

    model = captured(Attention(), 1, 2, 16, 8)
    assert sqnr(quantize(model), model) > 28


def test_an_extremum_with_an_infinite_limit_is_what_it_reads():
    class Limited(nn.Module):
        def forward(self, x):
            return torch.minimum(torch.full((), torch.inf), torch.maximum(x.amax(3), torch.full((), -torch.inf)))

    program = quantize(captured(Limited(), 1, 2, 4, 8))
    assert not any("imum" in str(node.target) for node in program.graph.nodes)


def test_integer_tensors_are_not_quantized():
    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 4)

        def forward(self, indices):
            return self.table(indices) * 2

    inputs = (torch.tensor([[1, 2, 3]]),)
    model = Capture("model", canonical(torch.export.export(Lookup().eval(), inputs)), inputs, (inputs,))
    module = import_program(quantize(model))
    assert "tensor<10x4x!quant.uniform<i8" in str(module)
    assert "tensor<1x3xi32>" in str(module)


class Tied(nn.Module):
    """A table of embeddings, of which the least row is `least` times the largest, read by a linear layer, too."""

    def __init__(self, least: float) -> None:
        super().__init__()
        self.table = nn.Embedding(24, 8)
        with torch.no_grad():
            weight = self.table.weight
            weight.mul_(torch.logspace(math.log10(least), 0, 24)[:, None] / weight.abs().amax(1, keepdim=True))

    def forward(self, tokens):
        return F.linear(torch.tanh(self.table(tokens)), self.table.weight)


def tied(least: float = 0.01) -> Capture:
    torch.manual_seed(0)
    batches = tuple((torch.randint(0, 24, (1, 24)),) for _ in range(4))
    return Capture("model", canonical(torch.export.export(Tied(least).eval(), batches[0])), batches[0], batches)


def integers_of(program) -> list[np.ndarray]:
    """The int8 constants of two axes or more, rows first."""
    module = import_program(program)
    found = [constant_value(op.results[0]) for op in walk(module) if op.name == "tosa.const"]
    return [one.reshape(24, 8) for one in found if one is not None and one.dtype == np.int8 and one.size == 24 * 8]


def test_a_table_that_is_a_matrix_has_its_integers():
    model = tied()
    rows = integers_of(quantize(model))
    assert len(rows) == 2 and (rows[0] == rows[1]).all()
    assert (np.abs(rows[0]).max(1) == 127).all()
    assert sqnr(quantize(model), model) > sqnr(quantize(model, npu=True), model)


@pytest.mark.parametrize("activations", ["int8", "int16"])
def test_scales_of_rows_that_are_alike_are_bytes_times_a_number(activations):
    """In the table as in the matrix, whose integers are the same whatever formats the layer reads and gives."""
    model = tied(0.3)
    program = quantize(model, activations)
    rows = integers_of(program)
    assert len(rows) == 2 and (rows[0] == rows[1]).all()
    (units,) = (each for each in program.state_dict.values() if tuple(each.shape) == (24, 1))
    (scales,) = (each for name, each in program.state_dict.items() if name.startswith("_scale"))
    assert units.dtype == torch.int8 and (int(units.min()), int(units.max())) == (38, 127)
    torch.testing.assert_close(scales / scales.max(), units.flatten() / 127, rtol=1e-6, atol=0)
    assert sqnr(program, model) > 30


def test_a_scale_in_units_is_the_better_of_the_two_beside_it():
    """A smaller step clips the greatest numbers of a row, a larger one rounds all of them more."""
    torch.manual_seed(0)
    table = torch.randn(64, 32) * torch.linspace(1, 4, 64)[:, None]
    scales = table.abs().amax(1, keepdim=True) / 127
    unit = scales.max() / 127
    units = better_units(table, scales, (scales / unit).round())

    def noise(units):
        return ((table / (units * unit)).round().clamp(-127, 127) * units * unit - table).square().sum(1, keepdim=True)

    low, high = (scales / unit + 1e-4).floor(), (scales / unit - 1e-4).ceil()
    assert ((units == low) | (units == high)).all() and 0 < (units != (scales / unit).round()).sum() < 32
    torch.testing.assert_close(noise(units), torch.minimum(noise(low), noise(high)))


@pytest.mark.parametrize("seed", range(20))
def test_the_greatest_scale_stays_what_the_others_are_parts_of(seed):
    torch.manual_seed(seed)
    table = torch.randn(64, 32)
    scales = table.abs().amax(1, keepdim=True).div(127)
    nearest = whole_units(scales)
    assert nearest is not None
    units = better_units(table, scales, nearest)
    assert units.max() == units[scales.argmax()] == 127


@pytest.mark.parametrize("options", [{"npu": True}, {"exclude": ["embedding"]}, {"exclude": ["linear"]}])
def test_a_table_is_scaled_as_a_whole_where_nothing_could_share_it(options):
    program = quantize(tied(), **options)
    assert not any(node.target is torch.ops.aten.mul.Tensor for node in program.graph.nodes)


def test_numbers_and_integers_mix_with_quantized_tensors():
    class Mix(nn.Module):
        def forward(self, x):
            return x / 3 + (x.argmax(-1, keepdim=True) + 0.5)

    names = [name for name, _ in quantizers(quantize(captured(Mix(), 2, 8)))]
    assert any("div" in name for name in names)
    assert names.count("aten.add.Tensor") == 2


def test_a_decomposed_program_quantizes_like_its_origin():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3, padding=1)
            self.norm = nn.BatchNorm2d(8)
            self.pool = nn.MaxPool2d(2)
            self.scale = nn.LayerNorm(8)
            self.head = nn.Linear(8, 4)

        def forward(self, x):
            y = self.pool(F.relu(self.norm(self.conv(x))))
            return self.head(self.scale(y.mean((2, 3))))

    whole = captured(Model(), 1, 3, 8, 8)
    program = whole.program.run_decompositions()
    assert any(node.target is torch.ops.aten.convolution.default for node in program.graph.nodes)
    core = replace(whole, program=decomposed(program))
    assert [args for _, args in quantizers(quantize(core))] == [args for _, args in quantizers(quantize(whole))]


def test_biases_take_up_the_mean_error():
    class Deep(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(*(layer for _ in range(4) for layer in (nn.Conv2d(8, 8, 3), nn.ReLU())))

    model = captured(Deep(), 1, 8, 24, 24)
    state = {name: tensor.clone() for name, tensor in model.program.state_dict.items()}
    program = quantize(model)
    channels = np.stack([run_float(model, x)[0] - run_float(program, x)[0] for x in model.calibration])
    scale = quantizers(program)[-1][1][0]
    assert np.abs(channels.mean((0, 1, 3, 4))).max() < 0.25 * scale
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.program.state_dict.items())


@pytest.mark.parametrize(("count", "most", "chosen"), [(3, 8, [0, 1, 2]), (8, 4, [0, 2, 4, 6]), (5, 3, [0, 1, 3])])
def test_samples_for_biases_are_spread_over_all(count, most, chosen):
    batches = [(torch.tensor(number),) for number in range(count)]
    assert [batch.item() for (batch,) in spread(batches, most)] == chosen


def test_large_images_are_held_in_smaller_numbers():
    def held(size: int) -> int:
        with torch.device("meta"):
            return held_at_once(torch.export.export(nn.Conv2d(4, 4, 1), (torch.zeros(1, 4, size, size),)).module())

    assert (held(32), held(1024), held(8192)) == (64, 16, 8)


def test_what_a_hardswish_does_not_see_is_no_noise():
    model = captured(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Hardswish()), 1, 3, 8, 8)
    program = quantize(replace(model, calibration=tuple((20 * x,) for (x,) in model.calibration)))
    (ratio,) = (layer.sqnr_db for layer in layers(program) if "conv2d" in layer.origin.op)
    assert ratio is not None and ratio > 35


def test_the_input_of_a_hardswish_needs_no_range_below_minus_3():
    model = captured(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Hardswish()), 1, 3, 8, 8)
    batches = tuple((20 * x,) for (x,) in model.calibration)
    program = quantize(replace(model, calibration=batches))
    (scale, zero_point, *_), *_ = (args for name, args in quantizers(program) if "conv2d" in name)
    assert scale * (-128 - zero_point) == pytest.approx(-3, abs=2 * scale)


def test_casts_name_the_line_of_the_op_they_belong_to(quantized):
    casts = [op for op in walk(import_program(quantized)) if op.name in ("quant.qcast", "quant.dcast", "quant.scast")]
    assert casts
    for cast in casts:
        assert f'"{__file__}":' in str(cast.location) and "quantized_decomposed" not in str(cast.location)


def test_integers_may_come_in_and_go_out():
    class Quantized(nn.Module):
        def forward(self, x):
            real = torch.ops.quantized_decomposed.dequantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8)
            return torch.ops.quantized_decomposed.quantize_per_tensor(F.relu(real), 0.04, -128, -128, 127, torch.int8)

    text = str(import_program(torch.export.export(Quantized(), (torch.zeros(1, 8, dtype=torch.int8),))))
    assert "@main(%arg0: tensor<1x8xi8>) -> tensor<1x8xi8>" in text
    assert "quant.scast %arg0" in text


def test_a_foreign_quantizers_program_is_imported():
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

    model = captured(Net(), 1, 3, 8, 8)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(Net().eval(), model.inputs).module(), quantizer)
    prepared(*model.inputs)
    program = torch.export.export(convert_pt2e(prepared), model.inputs)
    assert quantize(replace(model, program=program)) is program
    assert "tensor<8x3x3x3x!quant.uniform<i8<-127:127>:f32:0" in str(import_program(program))
    (advice,) = bias_advice(program)
    assert advice.what.startswith("biases of 2 layers are float32 in the quantized model")
    assert not bias_advice(quantize(model))


def test_nothing_holds_a_calibrated_module_once_it_is_quantized():
    held = list[weakref.ref]()
    quantize(captured(Net(), 1, 3, 8, 8), adjust=lambda prepared: held.append(weakref.ref(prepared.module)))
    gc.collect()
    assert [each() for each in held] == [None]


@pytest.mark.parametrize("kind", ["samples", "noise"])
@pytest.mark.parametrize("name", ["dscnn", "mobilenet_v1", "transformer"])
def test_the_zoo_stays_close_to_float(name, kind):
    model = zoo_model(name)
    program = quantized_zoo_model(name)
    generator = torch.Generator().manual_seed(11)
    noise = [torch.randn(model.inputs[0].shape, generator=generator) for _ in range(4)]
    inputs = noise if kind == "noise" else [x for (x,) in model.calibration]
    reference, rounded = model.program.module(), program.module()
    with torch.no_grad():
        want = torch.stack([reference(x) for x in inputs]).double().numpy()
        got = torch.stack([rounded(x) for x in inputs]).numpy()
    assert 10 * np.log10((want**2).sum() / ((want - got) ** 2).sum()) > 22


@functools.cache
def zoo_model(name: str) -> Capture:
    return capture(f"zoo:{name}")


@functools.cache
def quantized_zoo_model(name: str):
    return quantize(zoo_model(name))


class Normalized(nn.Module):
    """Linear layers, with and without bias, behind a layer norm; `twice` reads it beside them."""

    def __init__(self, twice: bool = False) -> None:
        super().__init__()
        self.norm, self.one, self.other = nn.LayerNorm(8), nn.Linear(8, 4), nn.Linear(8, 4, bias=False)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)
        self.twice = twice

    def forward(self, x):
        y = self.norm(x)
        return self.one(y) + self.other(y) + (y[..., :4] if self.twice else 0.0)


@pytest.mark.parametrize("twice", [False, True])
def test_linear_layers_take_over_what_a_layer_norm_multiplies_and_adds(twice):
    torch.manual_seed(0)
    x = torch.randn(2, 5, 8)
    module = torch.export.export(Normalized(twice).eval(), (x,)).module()
    expected = module(x)
    fold_affines(module)
    module.recompile()
    torch.testing.assert_close(module(x), expected)
    (norm,) = [node for node in module.graph.nodes if node.target is torch.ops.aten.layer_norm.default]
    assert (len(norm.all_input_nodes) == 1) is not twice


class Residual(nn.Module):
    def __init__(self, clamped: bool = False) -> None:
        super().__init__()
        self.one, self.other, self.clamped = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1), clamped

    def forward(self, x):
        y = self.one(x)
        total = y + self.other(y)
        return total.relu() if self.clamped else total


def scales_of_sum(program, clamped: bool) -> tuple[list[float], float]:
    """The scales of the operands of the only ADD, and of its result or what RELU makes of it."""
    (add,) = [node for node in program.graph.nodes if node.target is torch.ops.aten.add.Tensor]
    (reader,) = add.users
    (result,) = reader.users if clamped else [reader]
    return [node.args[1] for node in add.args], result.args[1]


@pytest.mark.parametrize("clamped", [False, True])
@pytest.mark.parametrize(("activations", "whole"), [("int8", True), ("int16", False)])
def test_the_operands_of_a_sum_of_int8_are_whole_numbers_of_a_part_of_its_step(activations, whole, clamped):
    program = quantize(captured(Residual(clamped), 1, 3, 6, 6), activations)
    scales, result = scales_of_sum(program, clamped)
    units = [scale / result * 128 for scale in scales]
    assert all(abs(each - round(each)) < 1e-3 for each in units) is whole


def test_for_an_npu_their_scales_have_a_ratio_of_few_bits():
    scales, result = scales_of_sum(quantize(captured(Residual(), 1, 3, 6, 6), "int8", npu=True), False)
    ratio = 64 * min(scales) / max(scales)
    assert abs(ratio - round(ratio)) < 1e-4
    units = [scale / result * 128 for scale in scales]
    assert any(abs(each - round(each)) > 1e-3 for each in units)


class Gated(nn.Module):
    """A hardswish between convolutions, a clamp behind one, an average and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.act = nn.Conv2d(3, 8, 1), nn.Hardswish()
        self.two, self.clamp = nn.Conv2d(8, 8, 3, groups=8), nn.ReLU()
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 4)

    def forward(self, x):
        y = self.clamp(self.two(self.act(self.one(x))))
        return self.head((self.pool(y) * y).mean((2, 3)))


def wide_results(program) -> list[str]:
    return [
        name.removeprefix("aten.").partition(".")[0] for name, args in quantizers(program) if args[4] == torch.int16
    ]


@pytest.mark.parametrize(
    ("named", "wide"),
    [
        ((), []),
        (("act",), ["conv2d", "hardswish"]),
        (("clamp",), ["relu", "adaptive_avg_pool2d"]),
        (("two",), ["relu", "adaptive_avg_pool2d"]),
        (("one",), ["conv2d"]),
        (("pool",), ["relu", "adaptive_avg_pool2d"]),
        (("x",), ["x"]),
        (("head",), ["linear"]),
    ],
)
def test_what_is_named_gives_int16_and_what_it_cannot_do_without(named, wide):
    program = quantize(captured(Gated(), 1, 3, 8, 8), int16=named, npu=True)
    assert wide_results(program) == wide


def test_products_of_int16_are_int16_on_a_cortex_m():
    names = wide_results(quantize(captured(Gated(), 1, 3, 8, 8), int16=("act",)))
    assert names == ["conv2d", "hardswish", "relu"]


def test_matrix_products_have_operands_of_one_format():
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Hardswish()

        def forward(self, x):
            return self.wide(x) @ F.relu(x).transpose(1, 2)

    module = import_program(quantize(captured(Product(), 1, 6, 6), int16=("wide",), npu=True))
    for phase in ("legalize", "quantize"):
        run_phase(module, phase)
    (product,) = (op for op in walk(module) if op.name == "tosa.matmul")
    assert {str(element_type(operand)) for operand in list(product.operands)[:2]} == {"i16"}
