"""Models with several methods, from capture to a module that is cut by them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tosaic.backends.reference import evaluate, evaluate_in_turn, prepare
from tosaic.frontend import Capture, capture, import_program, quantize, run_float_on
from tosaic.passes import run_phase
from tosaic.passes.place.methods import cut_methods, join_methods, method_alone
from tosaic.support.errors import ModelError
from tosaic.support.functions import body_of, note_states, returned
from tosaic.support.methods import Method, entered_of, note_methods
from tosaic.support.mlir import copy_of, functions, ir


class Sum(nn.Module):
    """Adds to a sum that it keeps; `scale` is never written."""

    total: Tensor
    scale: Tensor

    def __init__(self, rows: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.register_buffer("total", torch.full((1, 4), 0.5))
        self.register_buffer("scale", torch.full((1, 4), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        self.total += torch.tanh(self.layer(x)).sum(0, keepdim=True)
        return self.total * self.scale


class Shown(nn.Module):
    """Gives a sum without changing it."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((1, 4), 0.5))

    def forward(self, gain: Tensor) -> Tensor:
        return self.total * gain


class Set(nn.Module):
    """Writes a sum without reading it."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((1, 4), 0.5))

    def forward(self, value: Tensor) -> Tensor:
        self.total.copy_(torch.relu(value))
        return value + 1


class Held(nn.Module):
    """Keeps a value where no buffer is."""

    def __init__(self, other: list[Tensor], reads: bool) -> None:
        super().__init__()
        self.other, self.reads = other, reads

    def forward(self, x: Tensor) -> Tensor:
        if self.reads:
            return x + self.other[0]
        self.other[:] = [torch.relu(x)]
        return x * 2


def rows(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


SAMPLES = [{"many": rows(3, n), "one": rows(1, n + 9), "shown": torch.tensor([[1.0 + n]])} for n in range(6)]


@pytest.fixture(scope="module")
def captured() -> Capture:
    net = Sum()
    modules = {"many": net, "one": net, "shown": Shown()}
    return capture({name: (module, SAMPLES[0][name]) for name, module in modules.items()}, SAMPLES)


@pytest.fixture(scope="module")
def module(captured) -> ir.Module:
    made = import_program(quantize(captured))
    note_states(made, len(captured.states))
    note_methods(made, captured.methods)
    for phase in ("legalize", "quantize"):
        run_phase(made, phase)
    return made


def test_each_method_has_its_inputs_and_results(captured):
    assert captured.methods == (Method("many", 1, 1), Method("one", 1, 1), Method("shown", 1, 1))
    assert captured.input_names[:3] == ["many_x", "one_x", "shown_gain"]
    assert captured.output_names[:3] == ["many", "one", "shown"]
    assert [state.initial.tolist() for state in captured.states] == [[[0.5] * 4]], "what is only read is no state"


def test_the_program_calls_the_methods_in_turn(captured):
    net, shown = Sum(), Shown()
    for sample, results in zip(SAMPLES, run_float_on(captured, captured.calibration), strict=True):
        expected = [net(sample["many"]), net(sample["one"])]
        shown.total = net.total
        expected.append(shown(sample["shown"]))
        for value, want in zip(results, expected, strict=False):
            np.testing.assert_allclose(value, want.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_cut_main_reads_states_that_are_arguments(module):
    cut = copy_of(module)
    cut_methods(cut)
    main = functions(cut)["main"]
    entered = entered_of(main)
    assert [tuple(entering) for entering, _ in entered] == [(1, 0), (2, 0)]
    assert len(body_of(main).arguments) == 4 + 2
    cut.operation.verify()


def test_a_module_of_one_method_stays_as_it_is():
    made = import_program(capture(Sum(), None, rows(1)).program)
    before = str(made)
    cut_methods(made)
    join_methods(made)
    assert str(made) == before


def test_methods_alone_compute_what_they_do_in_turn(module, captured):
    rng, main = np.random.default_rng(0), functions(module)["main"]
    types = [tuple(argument.type.shape) for argument in body_of(main).arguments]
    samples = [[rng.integers(-128, 128, shape).astype(np.int8) for shape in types[:3]] for _ in range(4)]
    first = [rng.integers(-128, 128, types[3]).astype(np.int8)]
    whole = evaluate_in_turn(module, samples, first)
    alone, states = [prepare(method_alone(module, number)) for number in range(3)], first
    for sample, (_, given) in zip(samples, whole, strict=True):
        for number, (own, array) in enumerate(zip(alone, sample, strict=True)):
            result, *states = evaluate(own, [array, *states])
            assert np.array_equal(result, given[number])
        assert np.array_equal(states[0], given[-1])
    assert len(returned(main)) == 4


@pytest.mark.parametrize(("gain", "alike"), [(1.2, True), (20.0, False)])
def test_an_op_of_two_methods_has_one_format_where_both_lose_little(gain, alike):
    net = Sum()
    samples = [{"one": rows(2, n), "two": rows(2, n + 9) * gain} for n in range(6)]
    nodes = quantize(capture({name: (net, samples[0][name]) for name in ("one", "two")}, samples)).graph.nodes
    rounded = [node.args for node in nodes if "quantize_per_tensor" in str(node.target)]
    first, second = [formats for x, *formats in rounded if "aten.linear" in str(x.target)]
    assert (first == second) is alike


def of(**methods: nn.Module) -> Capture:
    return capture({name: (module, rows(1)) for name, module in methods.items()})


def test_a_state_that_is_written_first_and_read_by_another_method():
    captured = of(set=Set(), shown=Shown())
    assert len(captured.states) == 1


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ({"one": Sum(), "set": Set()}, "the method `set` writes `one.total` whole, and a method before it does, too"),
        ({"invoke": Sum(), "one": Sum()}, "a method cannot be called `invoke`"),
        ({"2nd": Sum(), "one": Sum()}, "a method cannot be called `2nd`"),
        ({"one": Sum()}, "there must be two methods at least"),
    ],
)
def test_methods_that_cannot_be(methods, words):
    with pytest.raises(ModelError, match=words):
        of(**methods)


def test_what_another_method_made_must_be_in_a_buffer():
    kept: list[Tensor] = []
    with pytest.raises(ModelError, match="the method `read` reads what `write` made"):
        of(write=Held(kept, False), read=Held(kept, True))


def test_buffers_of_one_name_begin_alike():
    other = Shown()
    other.total += 1
    with pytest.raises(ModelError, match="the buffer `total` of `shown` begins with other values"):
        of(one=Sum(), shown=other)


def test_a_sample_has_all_methods():
    with pytest.raises(ModelError, match="the methods are one, shown"):
        capture({"one": (Sum(), rows(1)), "shown": (Shown(), rows(1))}, [{"one": rows(1)}])


def test_a_method_that_is_no_pair():
    with pytest.raises(ModelError, match=r"must be \(module, example inputs\)"):
        capture({"one": (Sum(), rows(1)), "two": (rows(1),)})  # pyright: ignore[reportArgumentType]
