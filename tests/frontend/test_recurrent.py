"""Recurrent layers: torch's own results in float, one loop for each layer and direction in integers."""

import numpy as np
import pytest
import torch
from torch import nn
from torch._decomp import decompositions
from torch._dispatch.python import enable_python_dispatcher

from tosaic.backends.reference import evaluate
from tosaic.compiler.accuracy import interface_quantizations
from tosaic.compiler.layers import check_layers, measure_layers, told
from tosaic.frontend import Capture, capture, import_program, quantize
from tosaic.frontend.export import export
from tosaic.frontend.recurrent_shapes import shapes_without_steps
from tosaic.passes import FloatsLeft, run_phases
from tosaic.support.functions import returned
from tosaic.support.loops import LOOP
from tosaic.support.mlir import constant_value, functions, ir, shape_of, walk

N, T, WIDTH, H = 1, 9, 6, 8
ROWS = torch.randn(N, T, WIDTH, generator=torch.Generator().manual_seed(1))


class Layer(nn.Module):
    """A layer with all of its results in a row; states may be given."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x, *states):
        result, states = self.layer(x, *([states] if len(states) > 1 else states))
        return (result, *states) if isinstance(states, tuple) else (result, states)


def made(kind, *states, **options):
    torch.manual_seed(2)
    options = {"batch_first": True, **options}
    return Layer(getattr(nn, kind)(WIDTH, H, **options)).eval(), (ROWS, *states)


def without_weights_of_states(kind):
    """A layer in which the biases alone say how fine the sums of states are."""
    model, inputs = made(kind)
    with torch.no_grad():
        model.layer.get_parameter("weight_hh_l0").zero_()
    return model, inputs


STATE, CELL = torch.randn(1, N, H).tanh(), 3 * torch.randn(1, N, H)
MODELS = {
    "gru": (made("GRU"), 1),
    "lstm": (made("LSTM"), 1),
    "rnn": (made("RNN"), 1),
    "relu": (made("RNN", nonlinearity="relu"), 1),
    "both directions of two layers": (made("GRU", bidirectional=True, num_layers=2), 4),
    "layers of lstm": (made("LSTM", num_layers=3), 3),
    "without biases": (made("LSTM", bias=False), 1),
    "states given": (made("GRU", STATE), 1),
    "states and cells given": (made("LSTM", STATE, CELL), 1),
    "projected": (made("LSTM", proj_size=5), 0),
    "two samples": ((made("GRU", batch_first=False)[0], (ROWS.reshape(T, N, WIDTH).repeat(1, 2, 1),)), 1),
    "biases alone": (without_weights_of_states("LSTM"), 1),
    "one step": ((made("LSTM")[0], (ROWS[:, :1],)), 0),
}


def taken(name) -> Capture:
    model, inputs = MODELS[name][0]
    return capture(model, inputs=inputs)


def expected(name):
    model, inputs = MODELS[name][0]
    with torch.no_grad():
        return [tensor.numpy() for tensor in model(*inputs)]


def loops(module):
    return [op for op in walk(module) if op.name == LOOP]


@pytest.mark.parametrize("name", MODELS)
def test_in_float_the_results_are_those_of_torch(name):
    captured = taken(name)
    module = import_program(captured.program)
    run_phases(module, ["legalize", "quantize"])
    assert len(loops(module)) == MODELS[name][1]
    for got, want in zip(evaluate(module, [x.numpy() for x in captured.inputs]), expected(name), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activations", ["int8", "int16"])
@pytest.mark.parametrize("name", MODELS)
def test_in_integers_they_are_close_and_the_simulation_agrees(name, activations):
    captured = taken(name)
    program = quantize(captured, activations)
    check_layers(measure_layers(program, (), captured.inputs))
    module = import_program(program)
    run_phases(module)
    assert len(loops(module)) == MODELS[name][1]
    assert not [op.name for op in walk(module) if any("f32" in str(result.type) for result in op.results)]
    least = 30 if activations == "int8" else 40
    for got, want in zip(results(module, captured.inputs), expected(name), strict=True):
        assert 10 * np.log10((want**2).sum() / ((want - got) ** 2).sum()) >= least


def results(module, inputs):
    """What an integer module gives on real inputs, as real numbers."""
    main = functions(module)["main"]
    formats = [
        [(ir.FloatAttr(one["tosaic.scale"]).value, ir.IntegerAttr(one["tosaic.zero_point"]).value) for one in each]
        for each in (ir.ArrayAttr(main.attributes[kind]) for kind in ("arg_attrs", "res_attrs"))
    ]
    stored = [
        np.clip(np.rint(x.numpy() / scale) + zero, *limits(argument)).astype(f"int{argument.type.element_type.width}")
        for x, (scale, zero), argument in zip(inputs, formats[0], main.regions[0].blocks[0].arguments, strict=True)
    ]
    return [
        (got.astype(np.float64) - zero) * scale
        for got, (scale, zero) in zip(evaluate(module, stored), formats[1], strict=True)
    ]


def limits(value):
    bits = value.type.element_type.width
    return -(1 << bits - 1), (1 << bits - 1) - 1


SHAPES = {
    "gru": made("GRU"),
    "two samples, steps first": MODELS["two samples"][0],
    "both directions of two layers": MODELS["both directions of two layers"][0],
    "lstm, projected": MODELS["projected"][0],
    "lstm, both directions": made("LSTM", bidirectional=True),
}


@pytest.mark.parametrize("name", SHAPES)
def test_torch_learns_the_shapes_without_a_step(name, monkeypatch):
    """Shapes and strides are those of the layer's results."""
    model, inputs = SHAPES[name]
    steps = []
    monkeypatch.setattr(decompositions, "_rnn_helper", lambda *arguments, **_: steps.append(arguments))
    program = export(model, (inputs, {}))
    assert not steps
    results = [node.meta["val"] for node in program.graph.output_node().all_input_nodes]
    with torch.no_grad():
        expected = model(*inputs)
    assert [(one.shape, one.stride()) for one in results] == [(one.shape, one.stride()) for one in expected]


def test_a_layer_of_constants_is_computed():
    """Where a layer reads no input, torch knows its result as it traces the model."""
    with shapes_without_steps(), enable_python_dispatcher(), torch.no_grad():
        model, inputs = SHAPES["gru"]
        results = model(*inputs)
    with torch.no_grad():
        assert all(torch.allclose(got, want) for got, want in zip(results, model(*inputs), strict=True))


def test_weights_are_there_once():
    module = import_program(quantize(taken("gru")))
    run_phases(module)
    weights = [op for op in walk(module) if op.name == "tosa.conv2d"]
    assert [shape_of(op.operands[1]) for op in weights] == [(3 * H, 1, 1, WIDTH), (3 * H, 1, 1, H)]
    assert all(constant_value(op.operands[1]) is not None for op in weights)


def test_a_gate_that_is_open_keeps_what_is_remembered():
    """h of a GRU whose update gate is 1 stays; 500 steps forget 2**-15 of it each."""
    layer = nn.GRU(2, 4, batch_first=True)
    for weights in layer.parameters():
        nn.init.zeros_(weights)
    with torch.no_grad():
        layer.state_dict()["bias_ih_l0"][4:8] = 20.0
    state = torch.tensor([[[0.9, -0.5, 0.1, -1.0]]])
    captured = capture(Layer(layer).eval(), inputs=(torch.randn(1, 500, 2), state))
    module = import_program(quantize(captured))
    run_phases(module)
    last = results(module, captured.inputs)[1]
    np.testing.assert_allclose(last, state, atol=0.02)


def test_a_layer_that_is_excluded_stays_float():
    captured = taken("gru")
    module = import_program(quantize(captured, exclude=["layer"]), ["layer"])
    run_phases(module)
    assert all("f32" in str(loop.results[1].type) for loop in loops(module))


def test_computed_weights_are_refused():
    class Computed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.GRU(WIDTH, H, batch_first=True)

        def forward(self, x):
            named = {name: weight * x.mean() for name, weight in self.layer.named_parameters()}
            return torch.func.functional_call(self.layer, named, (x,))[0]

    captured = capture(Computed().eval(), inputs=(ROWS,))
    with pytest.raises(Exception, match="a recurrent layer's weights are computed"):
        import_program(quantize(captured))


def test_what_adds_up_for_a_thousand_steps_has_room():
    torch.manual_seed(4)
    layer = nn.LSTM(WIDTH, H, batch_first=True)
    with torch.no_grad():
        layer.state_dict()["bias_ih_l0"][: 3 * H] = 20.0  # all but the last gate open: c counts steps
    captured = capture(Layer(layer).eval(), inputs=(torch.zeros(1, 1000, WIDTH),))
    module = import_program(quantize(captured))
    run_phases(module, ["legalize", "quantize"])
    results = evaluate(module, [np.zeros((1, 1000, WIDTH), np.int8)])
    main = functions(module)["main"]
    kind = interface_quantizations(main, "res_attrs", returned(main))[2]
    assert kind is not None and np.allclose(kind.dequantize(results[2]), 1000, rtol=0.02)


@pytest.mark.parametrize("weight", ["weight_ih_l0", "weight_hh_l0"])
def test_sums_without_bits_for_the_gates_stay_float(weight):
    model, inputs = made("GRU")
    with torch.no_grad():
        getattr(model.layer, weight)[0, 0] = 1e6
    module = import_program(quantize(capture(model, inputs=inputs)))
    left = FloatsLeft()
    run_phases(module, ["legalize", "quantize"], [left])
    assert any("tosaic.gru" in advice.what for advice in left.advice)


def test_behind_a_step_that_was_rounded_otherwise_nothing_is_told():
    theirs = np.arange(2 * 5 * 3).reshape(2, 5, 3)
    ours = theirs.copy()
    ours[1, 2, 0] += 1
    ours[1, 3:] += 100
    compared = told(0, (ours, theirs), (ours, theirs))
    assert [len(part) for part in compared] == [5 + 3] * 2
    assert np.abs(compared[0] - compared[1]).max() == 1
    memory = np.zeros((2, 3))
    assert [part.shape for part in told(1, (memory, memory), (ours, theirs))] == [(1, 3)] * 2
    ours[1, 2] = theirs[1, 2]
    assert np.abs(np.subtract(*told(0, (ours, theirs), (ours, theirs)))).max() == 100
