"""What used to be compiled wrong without a word: scales, accumulators, ignored arguments."""

from __future__ import annotations

import dis
import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tosaic.backends.reference import evaluate
from tosaic.frontend import (
    Capture,
    calibration_advice,
    import_program,
    joined_advice,
    quantize,
    run_float,
)
from tosaic.frontend.canonical import arguments
from tosaic.frontend.decomposition import decomposed
from tosaic.frontend.layers import layers
from tosaic.frontend.lowerings.registry import registered
from tosaic.passes import FloatsLeft, run_phases
from tosaic.support.errors import Advice, Error, ModelError
from tosaic.support.mlir import walk


def captured(module: nn.Module, *batches: tuple[Tensor, ...]) -> Capture:
    program = torch.export.export(module.eval(), batches[0])
    return Capture("model", decomposed(program), batches[0], batches)


def normal(*shape: int, count: int = 4, size: float = 1.0) -> list[tuple[Tensor, ...]]:
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(*shape, generator=generator) * size,) for _ in range(count)]


def sqnr(capture: Capture, activations: str = "int8") -> float:
    """Of the integer module against the float model, in dB over the calibration batches."""
    module = import_program(quantize(capture, activations))
    run_phases(module, ["legalize", "quantize"])
    main = next(op for op in walk(module) if op.name == "func.func")
    arguments, results = (_quantizations(main, kind) for kind in ("arg_attrs", "res_attrs"))
    signal = noise = 0.0
    for batch in capture.calibration:
        given = [_stored(x.numpy(), *q) if q else x.numpy() for x, q in zip(batch, arguments, strict=True)]
        got = evaluate(module, given)
        for want, value, q in zip(run_float(capture, batch), got, results, strict=True):
            real = (value.astype(np.float64) - q[1]) * q[0] if q else value
            signal += (want.astype(np.float64) ** 2).sum()
            noise += ((want.astype(np.float64) - real) ** 2).sum()
    return 10 * math.log10(signal / noise) if noise else math.inf


def _quantizations(main, kind: str) -> list[tuple[float, int, str] | None]:
    found = []
    types = main.attributes["function_type"].value
    elements = [str(one.element_type) for one in (types.inputs if kind == "arg_attrs" else types.results)]
    given = main.attributes[kind] if kind in main.attributes else [{}] * len(elements)
    for one, element in zip(given, elements, strict=True):
        known = "tosaic.scale" in one
        found.append((one["tosaic.scale"].value, one["tosaic.zero_point"].value, element) if known else None)
    return found


def _stored(x: np.ndarray, scale: float, zero_point: int, element: str) -> np.ndarray:
    dtype = np.dtype({"i8": np.int8, "i16": np.int16}[element])
    limits = np.iinfo(dtype)
    return np.clip(np.rint(x.astype(np.float64) / scale) + zero_point, limits.min, limits.max).astype(dtype)


class Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("tokens, least", [(64, 28.0), (256, 25.0), (1024, 20.0)])
def test_attention_keeps_the_small_shares_of_many_tokens(tokens, least):
    generator = torch.Generator().manual_seed(1)
    batches = [tuple(torch.randn(1, 1, tokens, 16, generator=generator) for _ in range(3)) for _ in range(2)]
    assert sqnr(captured(Attention(), *batches)) > least


@pytest.mark.parametrize("layer", [nn.Sigmoid(), nn.Softmax(-1), nn.Tanh(), nn.Hardsigmoid()])
def test_a_small_part_of_a_known_range_has_a_fine_scale(layer):
    x = [(x - 5,) for (x,) in normal(1, 64)] if not isinstance(layer, nn.Tanh) else normal(1, 64, size=0.01)
    assert sqnr(captured(nn.Sequential(layer, nn.Flatten()), *x)) > 30


class Scaled(nn.Module):
    def __init__(self, weights: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Conv2d(3, 4, 3)
        self.layer.weight.data *= weights
        self.layer.get_parameter("bias").data *= weights

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.layer(x))


@pytest.mark.parametrize("activations", ["int8", "int16"])
@pytest.mark.parametrize(
    "inputs, weights",
    [
        (1.0, 1e-30),
        (1e-30, 1.0),
        (1e-15, 1e-15),
        (1e-6, 1e-6),
        (1.0, 1e-6),
        (1e30, 1.0),
        (1.0, 1e30),
        (1e-30, 1e30),
        (1e30, 1e-30),
        (1e15, 1e15),
    ],
)
def test_no_magnitude_turns_to_zero(inputs, weights, activations):
    model = Scaled(weights)
    model.layer.get_parameter("bias").data *= inputs
    capture = captured(model, *normal(1, 3, 6, 6, size=inputs))
    assert sqnr(capture, activations) > 35


@pytest.mark.parametrize("size", [0.0, 1e-12, 1e-7])
def test_a_channel_of_weights_that_are_nothing_beside_its_bias_keeps_that(size):
    model = Scaled(1.0)
    model.layer.weight.data[1] *= size
    model.layer.get_parameter("bias").data[:] = 1.0
    assert sqnr(captured(model, *normal(1, 3, 6, 6))) > 35


class Mean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).mean((2, 3))


def test_a_mean_of_many_has_a_scale_of_its_own():
    assert sqnr(captured(Mean(), *normal(1, 3, 60, 60))) > 30


class Gate(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((2, 3), keepdim=True)
        return torch.cat((x * mean, x), 1)


def test_a_mean_beside_other_readers_has_a_scale_of_its_own_where_much_is_lost():
    """An NPU pays for it there: a squeeze of 3 x 3 keeps its tensor's scale, one of 60 x 60 does not."""
    coarse, fine = (quantize(captured(Gate(), *normal(1, 4, size, size))) for size in (3, 60))
    steps = []
    for program in (coarse, fine):
        tensor, mean = (layer for layer in layers(program) if layer.origin.op in ("x", "aten.mean.dim"))
        steps.append(arguments(mean.node)[1] / arguments(tensor.node)[1])
    assert steps[0] == 1 and steps[1] < 0.1


class Head(nn.Module):
    """Boxes of a detector in pixels beside scores below 1, as YOLO's head joins them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Conv2d(8, 3 * 9, 1)
        ys, xs = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
        self.register_buffer("grid", torch.stack((xs, ys), -1))
        self.register_buffer("anchor", torch.tensor([[10.0, 13.0], [33.0, 23.0], [116.0, 90.0]]).reshape(1, 3, 1, 1, 2))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sigmoid(self.layer(x).view(1, 3, 9, 8, 8).permute(0, 1, 3, 4, 2))
        xy, wh, scores = y.split((2, 2, 5), 4)
        xy = (xy * 2 - 0.5 + self.get_buffer("grid")) * 8.0
        wh = (wh * 2) ** 2 * self.get_buffer("anchor")
        return torch.cat((xy, wh, scores), 4).view(1, -1, 9)


@pytest.mark.parametrize("activations, least", [("int8", 30.0), ("int16", 40.0)])
def test_a_detectors_head_keeps_what_stands_beside_its_boxes(activations, least):
    assert sqnr(captured(Head(), *normal(1, 8, 8, 8)), activations) > least


class Long(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(size, 1)
        self.layer.weight.data[:] = 1.0
        self.layer.bias.data[:] = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@pytest.mark.parametrize("activations", ["int8", "int16"])
def test_a_sum_beyond_int32_is_split(activations):
    """140,000 products of 127 and 128 or more are above 2^31."""
    batches = [(torch.full((1, 140000), 0.9),), (torch.full((1, 140000), 0.5),), (torch.full((1, 140000), -0.3),)]
    assert sqnr(captured(Long(140000), *batches), activations) > 35


class Products(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.matmul(x, x.transpose(1, 2))


def test_a_product_of_activations_beyond_int32_is_refused():
    with pytest.raises(Error, match="an int32 accumulator can overflow") as error:
        sqnr(captured(Products(), *normal(1, 1, 140000, count=1)))
    assert "test_trust.py" in error.value.where
    assert "140,000 products can exceed 2^31 - 1" in error.value.why


class Resized(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, **self.options)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("factor", [1.3, 1.5, 0.6, 2.7, (1.2, 2.4), 2.0, math.pi])
def test_an_image_is_resized_by_the_factor_that_is_given(mode, factor):
    (x,) = normal(1, 2, 7, 9, count=1)[0]
    for same_program in (False, True):
        capture = captured(Resized(scale_factor=factor, mode=mode), (x,))
        program = capture.program.run_decompositions({}) if same_program else capture.program
        got = evaluate(import_program(program), [x.numpy()])
        np.testing.assert_allclose(got[0], run_float(capture, (x,))[0], atol=1e-3)


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (4, 1)])
@pytest.mark.parametrize(
    "options",
    [
        {"size": (8, 8), "mode": "bilinear", "align_corners": True},
        {"size": (8, 8), "mode": "bilinear"},
        {"scale_factor": 3.0, "mode": "bilinear"},
        {"scale_factor": 3.0, "mode": "nearest"},
    ],
)
def test_an_axis_of_one_element_is_repeated(shape, options):
    capture = captured(Resized(**options), *normal(1, 2, *shape))
    (x,) = capture.inputs
    got = evaluate(import_program(capture.program), [x.numpy()])
    np.testing.assert_allclose(got[0], run_float(capture, (x,))[0], atol=1e-5)


class ScoresOfWords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.full((8, 8), -torch.inf).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x + self.get_buffer("mask"), -1)


def test_a_mask_may_be_a_buffer_with_infinities():
    assert sqnr(captured(ScoresOfWords(), *normal(1, 8, 8))) > 30


class Infinite(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 1.0 / (x - x)


def test_an_infinity_names_its_op_and_line():
    with pytest.raises(ModelError, match="cannot be quantized on calibration batch 0") as error:
        quantize(captured(Infinite(), *normal(1, 4)))
    assert "test_trust.py" in error.value.where
    assert error.value.why == "it holds NaN or infinity"


class Layer(nn.Module):
    """A function of tensors, and the layers that it calls."""

    def __init__(self, function, *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, *x: Tensor) -> Tensor:
        return self.function(self, *x)


@pytest.mark.parametrize("activations", ["int8", "int16"])
def test_a_layer_norm_that_overflows_in_pytorch_names_its_line(activations):
    (x,), *_ = batches = normal(2, 8, size=4e19)
    capture = captured(Layer(lambda m, x: F.layer_norm(x, (8,))), *batches)
    assert not run_float(capture, (x,))[0].any() and F.layer_norm(x.double(), (8,)).all()
    with pytest.raises(ModelError, match=r"`aten\.layer_norm\.default` overflows in float32") as error:
        quantize(capture, activations)
    assert "test_trust.py" in error.value.where
    kept = import_program(quantize(capture, activations, ("layer_norm",)), ("layer_norm",))
    run_phases(kept, ["legalize", "quantize"])
    assert not evaluate(kept, [x.numpy()])[0].any()


def test_what_was_always_zero_does_not_drown_small_numbers():
    tiny = captured(Layer(lambda m, x: torch.stack([x, -x], -1).sum(-1) + x), *normal(2, 8, size=1e-15))
    assert sqnr(tiny) > 35


@pytest.mark.parametrize("function", [torch.sin, torch.cos])
def test_an_angle_that_float32_does_not_know_names_its_line(function):
    quantize(captured(Layer(lambda m, x: function(x)), *normal(2, 8, size=1e6)))
    with pytest.raises(ModelError, match=r"`aten\.(sin|cos)\.default` overflows in float32") as error:
        quantize(captured(Layer(lambda m, x: function(x)), *normal(2, 8, size=1e9)))
    assert "test_trust.py" in error.value.where


def floats(capture: Capture, activations: str = "int8", exclude: tuple[str, ...] = ()) -> list[Advice]:
    left = FloatsLeft()
    run_phases(import_program(quantize(capture, activations, exclude), exclude), ["legalize", "quantize"], [left])
    return left.advice


@pytest.mark.parametrize(
    "function, least",
    [
        (lambda m, x: F.log_softmax(m.layers[0](x), -1), 25),
        (lambda m, x: torch.sin(m.layers[0](x)), 30),
        (lambda m, x: torch.rsub(m.layers[0](x), x), 30),
        (lambda m, x: m.layers[0](x).clamp_max(0.5), 30),
        (lambda m, x: m.layers[0](x).max(), 30),
        (lambda m, x: F.adaptive_max_pool2d(m.layers[0](x)[None, None], 2), 30),
        (lambda m, x: torch.matmul(x[None], m.layers[0].weight.transpose(0, 1)), 30),
    ],
)
@pytest.mark.parametrize("activations", ["int8", "int16"])
def test_an_op_is_quantized(function, least, activations):
    torch.manual_seed(0)
    capture = captured(Layer(function, nn.Linear(8, 8)), *normal(6, 8))
    assert not floats(capture, activations)
    assert sqnr(capture, activations) > least


def test_what_stays_float_is_named():
    (found,) = floats(captured(Layer(lambda m, x: x.pow(m.layers[0](x).abs())[:, :4], nn.Linear(8, 8)), *[
        (x.abs(),) for (x,) in normal(6, 8)]))  # fmt: skip
    assert found.what == "`aten.pow.Tensor_Tensor` stays float32"
    assert "test_trust.py" in found.where


def test_calibration_on_one_sample_of_zeros_is_named():
    capture = captured(nn.Linear(8, 8), (torch.zeros(6, 8),))
    assert [one.what for one in calibration_advice(capture)] == [
        "calibration has one sample, the example input",
        "calibration data for the input `input` is zeros alone",
    ]
    assert calibration_advice(captured(nn.Linear(8, 8), *normal(6, 8))) == ()


def test_a_coarse_concatenation_is_named():
    def function(model: Layer, x: Tensor) -> tuple[Tensor, Tensor]:
        fine = model.layers[0](x)
        return torch.cat((x * 1000, fine), 1), fine

    (found,) = joined_advice(quantize(captured(Layer(function, nn.Linear(8, 8)), *normal(6, 8))))
    assert "finer steps than the result" in found.what
    assert "test_trust.py" in found.where


@pytest.mark.parametrize(
    "model, shape",
    [
        (nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(3, 4, 3)), (1, 3, 8, 8)),
        (nn.Sequential(nn.ConvTranspose2d(4, 8, 3, groups=2), nn.BatchNorm2d(8)), (1, 4, 5, 5)),
        (nn.PixelShuffle(2), (8, 3, 3)),
        (nn.PixelUnshuffle(2), (2, 4, 4)),
        (Layer(lambda m, x: x.mean(1, dtype=torch.float64)), (2, 8)),
        (Layer(lambda m, x: x.sum().sum() + x), (2, 8)),
    ],
)
def test_a_model_compiles_as_it_is(model, shape):
    for layer in model.modules():
        if hasattr(layer, "reset_parameters"):
            torch.manual_seed(0)
            layer.reset_parameters()
    assert sqnr(captured(model, *normal(*shape))) > 28


def test_a_chord_of_an_int16_table_keeps_its_slope_at_the_end_of_the_range():
    class Line(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 0.5 + 1

    batches = [(torch.tensor([[-2.81, -2.8, value]]),) for value in (-2.79, -2.8)]
    assert sqnr(captured(Line(), *batches), "int16") > 70


def test_an_int16_softplus_is_one_function_without_steps():
    assert sqnr(captured(nn.Softplus(), *normal(2, 64, size=4.0)), "int16") > 70
    assert sqnr(captured(nn.Softplus(beta=3), *normal(2, 64, size=4.0)), "int16") > 70


@pytest.mark.parametrize(
    "function, scale, least",
    [
        (torch.log, 1, 60),
        (torch.rsqrt, 1, 50),
        (torch.reciprocal, 1, 50),
        (torch.sqrt, 1, 80),
        (torch.sigmoid, 1e4, 60),
    ],
)
def test_int16_tables_follow_a_function_that_is_steep_at_0(function, scale, least):
    class Steep(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(x)

    random = torch.Generator().manual_seed(0)
    batches = [((torch.rand(1, 400, generator=random) * scale + 1e-3),) for _ in range(4)]
    assert sqnr(captured(Steep(), *batches), "int16") > least


def test_an_int16_table_of_a_function_that_is_not_defined_at_0():
    class Above(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.acosh(x)

    batches = [(x.abs() + 1.05,) for (x,) in normal(2, 64)]
    assert sqnr(captured(Above(), *batches), "int16") > 60


def test_what_no_int16_table_can_follow_stays_in_f32():
    class Wave(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(x)

    capture = captured(Wave(), *[(torch.linspace(-900, 900, 400)[None] + i,) for i in range(2)])
    (found,) = floats(capture, "int16")
    assert found.what.startswith("`aten.sin.default` stays float32: lines between the entries of int16 TABLEs are too")
    assert "test_trust.py" in found.where
    assert floats(capture, "int16", ("sin",)) == floats(capture) == []
    assert sqnr(capture, "int16") > 38
    module = import_program(quantize(capture, "int16"))
    run_phases(module, ["legalize", "quantize"])
    assert "tosa.sin" in {op.name for op in walk(module)}


def test_an_int16_table_of_a_pole_has_slopes_that_tosa_allows():
    class Log(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.log(x)

    batches = [(torch.tensor([[1e-3, 1.0, value]]),) for value in (2.0, 3e3)]
    assert math.isfinite(sqnr(captured(Log(), *batches), "int16"))


@pytest.mark.parametrize("activations, least", [("int8", -1), ("int16", 25)])
def test_sums_far_beyond_the_range_of_their_result_saturate(activations, least):
    """On calibration data the products cancel, but for a thousandth."""
    layer = nn.Linear(2048, 4, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, -1.0]).repeat(4, 1024))
    batches = [(x.repeat_interleave(2, 1) + 1e-3 * torch.eye(1, 2048),) for (x,) in normal(1, 1024)]
    capture = captured(layer, *batches)
    assert sqnr(capture, activations) > least
    module = import_program(quantize(capture, activations))
    run_phases(module, ["legalize", "quantize"])
    kind = np.iinfo(activations)
    for ends in ((kind.min, kind.max), (kind.max, kind.min)):
        (result,) = evaluate(module, [np.tile(np.array(ends, kind.dtype), 1024)[None]])
        assert (result == ends[0]).all()


# What a lowering does not read of its op's arguments, and why nothing depends on it.
_UNREAD = {
    "size": "the result's shape says it",
    "output_size": "the result's shape says it",
    "shape": "the result's shape says it",
    "implicit": "of tracing alone",
    "keepdim": "the result's shape says it",
    "ceil_mode": "the result's shape says it",
    "start_dim": "the result's shape says it",
    "end_dim": "the result's shape says it",
    "split_size": "the results' shapes say it",
    "split_sizes": "the results' shapes say it",
    "chunks": "the results' shapes say it",
    "dtype": "the result's dtype says it",
    "half_to_float": "the result's dtype says it",
    "other": "of type_as: the result's dtype says it",
    "train": "refused",
    "p": "without effect unless it trains",
    "momentum": "of training",
    "cudnn_enable": "of CUDA",
    "layout": "all are strided",
    "device": "all are the CPU",
    "pin_memory": "of CUDA",
    "non_blocking": "of CUDA",
    "copy": "values are the same",
    "memory_format": "values are the same",
    "padding_idx": "of training",
    "scale_grad_by_freq": "of training",
    "sparse": "of training",
    "sparse_grad": "of training",
    "state_scale": "of PyTorch's simulation of a loop",
    "state_zero_point": "of PyTorch's simulation of a loop",
    "state_low": "of PyTorch's simulation of a loop",
    "state_high": "of PyTorch's simulation of a loop",
    "dim": "of unsqueeze and squeeze: the result's shape says it",
}


def test_no_lowering_ignores_an_argument_that_matters():
    """A parameter that a lowering's code never loads is among the known ones."""
    ignored = {}
    for target, lowering in registered().items():
        read = {
            name
            for step in dis.get_instructions(lowering.emit)
            if step.opname.startswith(("LOAD_", "STORE_DEREF", "STORE_FAST_LOAD_FAST"))
            for name in (step.argval if isinstance(step.argval, tuple) else (step.argval,))
        }
        parameters = list(inspect.signature(lowering.emit).parameters.values())[2:]
        for index, argument in enumerate(target._schema.arguments):
            parameter = parameters[min(index, len(parameters) - 1)]
            if parameter.name not in read and argument.name not in _UNREAD:
                ignored[str(target)] = argument.name
    assert not ignored
