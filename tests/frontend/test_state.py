"""Buffers that a model writes: what its program takes and gives, and in which format they are kept."""

import weakref

import pytest
import torch
from torch import Tensor, nn

from tosaic.compiler.accuracy import interface_quantizations
from tosaic.frontend import bias_correction, capture, import_program, input_statistics, quantize, run_float_on
from tosaic.frontend.quantizer import prepare
from tosaic.passes import run_phase
from tosaic.support.functions import body_of, note_states, returned
from tosaic.support.mlir import functions


class Model(nn.Module):
    """The last two inputs, a running mean, and how often it was called."""

    past: Tensor
    mean: Tensor
    count: Tensor
    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("past", torch.full((1, 2, 4), 0.5), persistent=False)
        self.register_buffer("mean", torch.zeros(1, 4))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("table", torch.tensor([1.0, 2.0, 3.0, 4.0]))

    def forward(self, x):
        seen = torch.cat([self.past, x[:, None]], 1)
        self.past = seen[:, 1:]
        self.mean.mul_(0.5).add_(seen.sum(1) * 0.25)
        self.count += 1
        return {"mean": self.mean * self.table, "count": self.count + 1}


@pytest.fixture
def samples():
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(1, 4, generator=generator),) for _ in range(12)]


@pytest.fixture
def captured(samples):
    return capture(Model(), samples, samples[0])


def test_what_a_model_writes_it_takes_and_gives(captured):
    assert captured.input_names == ["x", "past", "mean", "count"]
    assert captured.output_names == ["mean", "count", "past", "mean", "count"]
    assert [state.initial.flatten()[0].item() for state in captured.states] == [0.5, 0.0, 0]
    assert captured.program.graph_signature.buffers == ("table",)


def test_calibration_is_a_row_of_calls(captured, samples):
    model = Model()
    results = run_float_on(captured, captured.calibration)
    for (x,), (mean, count, *_) in zip(samples, results, strict=True):
        expected = model(x)
        assert torch.equal(torch.from_numpy(mean), expected["mean"]) and count == expected["count"]


def test_the_module_of_the_caller_stays_as_it_is(samples):
    model = Model()
    capture(model, samples, samples[0])
    assert not model.count.any() and not model.mean.any() and (model.past == 0.5).all()


@pytest.mark.parametrize("activations, exclude", [("int8", ()), ("int16", ()), ("int8", ("mul",)), ("int8", ("cat",))])
def test_what_is_kept_has_one_format(captured, activations, exclude):
    module = import_program(quantize(captured, activations, exclude), exclude)
    note_states(module, 3)
    for phase in ("legalize", "quantize"):
        run_phase(module, phase)
    main = functions(module)["main"]
    taken, given = list(body_of(main).arguments), returned(main)
    assert [value.type for value in taken[-3:]] == [value.type for value in given[-3:]]
    kinds = interface_quantizations(main, "arg_attrs", taken), interface_quantizations(main, "res_attrs", given)
    assert kinds[0][-3:] == kinds[1][-3:]
    if not exclude:
        assert all(kinds[0][-3:-1])


def test_an_input_that_is_kept_stays_quantized():
    class Difference(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("before", torch.zeros(1, 4))

        def forward(self, x):
            change = x - self.before
            self.before = x.clone()
            return change

    x = torch.linspace(-1, 1, 4)[None]
    module = import_program(quantize(capture(Difference(), [(x,), (2 * x,)], (x,))))
    note_states(module, 1)
    for phase in ("legalize", "quantize"):
        run_phase(module, phase)
    arguments = body_of(functions(module)["main"]).arguments
    assert [str(argument.type) for argument in arguments] == ["tensor<1x4xi8>", "tensor<1x4xi8>"]


class Counting(nn.Module):
    """A cache as transformers keeps it: tensors of an object, one registered as well, one of them without axes."""

    rows: Tensor
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.kept = [torch.zeros(1, 6, 4), torch.zeros(1, 6, 4), torch.zeros((), dtype=torch.int64)]
        self.register_buffer("rows", self.kept[0], persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        rows, others, seen = self.kept
        seen.copy_(place[0])
        rows.index_copy_(1, place, x)
        others.index_copy_(1, place, 2 * x)
        seen.add_(1)
        self.calls += 1
        return rows + others + seen + self.calls


def test_tensors_that_a_model_holds_and_writes_are_states():
    generator = torch.Generator().manual_seed(0)
    calls = [(torch.randn(1, 1, 4, generator=generator), torch.tensor([place])) for place in (0, 1, 5, 2)]
    captured = capture(Counting(), calls, calls[0])
    shapes = {state.name: tuple(state.initial.shape) for state in captured.states}
    assert sorted(shapes.values()) == [(1,), (1, 6, 4), (1, 6, 4)]
    assert shapes["rows"] == (1, 6, 4) and shapes["calls"] == (1,)  # what is written before it is read is none
    model = Counting()
    for given, found in zip(calls, run_float_on(captured, captured.calibration), strict=True):
        assert torch.equal(torch.from_numpy(found[0]), model(*given))


class Chain(nn.Module):
    """Eight states, each the softmax of its sum with the one before."""

    def __init__(self) -> None:
        super().__init__()
        for index in range(8):
            self.register_buffer(f"state{index}", torch.zeros(1, 4))

    def forward(self, x):
        for index in range(8):
            state = getattr(self, f"state{index}")
            x = state.copy_((x + state).softmax(-1))
        return x


def test_new_states_are_held_no_longer_than_the_model_reads_them(samples, monkeypatch):
    captured, seen, alive = capture(Chain(), samples, samples[0]), [], []
    rounded = bias_correction.fake_quantize

    def watched(observer, x):
        result = rounded(observer, x)
        seen.append(weakref.ref(result))
        alive.append(sum(each() is not None for each in seen))
        return result

    monkeypatch.setattr(bias_correction, "fake_quantize", watched)
    bias_correction.correct_parameters(prepare(captured).module, captured.calibration)
    assert len(seen) >= 8 * len(samples) and alive[-1] <= 4 * len(samples)


def test_statistics_are_of_the_inputs_that_a_caller_gives(captured, samples):
    (found,) = input_statistics(captured)
    given = torch.cat([x for (x,) in samples]).double()
    assert found == {"mean": given.mean().item(), "deviation": given.std(correction=0).item(),
                     "min": given.min().item(), "max": given.max().item()}  # fmt: skip
