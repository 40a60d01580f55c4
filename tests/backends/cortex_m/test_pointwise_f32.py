"""Pointwise kernels on floats: every schedule, under QEMU, equals the reference model to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from board import Case, run_cases
from family_cases import CORTEX_M55, Build, outcomes_of
from tosa_graphs import Graph

from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.reference import evaluate
from tosaic.support.mlir import functions, ir

_SHAPE = (2, 3, 13)
_OFFSETS = np.random.default_rng(5).normal(size=(1, 1, 13))


def _number(g: Graph, value: float) -> ir.Value:
    return g.const([[[value]]], "f32")


def _clamped(g: Graph, x: ir.Value, low: float, high: float, nan_mode: str = "PROPAGATE") -> ir.Value:
    with g.location:
        bounds = {name: ir.FloatAttr.get(ir.F32Type.get(), at) for name, at in (("min_val", low), ("max_val", high))}
    return g.unary("clamp", x, nan_mode=nan_mode, **bounds)


def _quantized(g: Graph, x: ir.Value, element: str = "i8") -> ir.Value:
    moved = g.binary("add", g.mul(x, _number(g, 17.583334), "f32"), _number(g, -8.0))
    return g.unary("cast", _clamped(g, moved, -128.0, 127.0), element)


def _dequantized(g: Graph, x: ir.Value) -> ir.Value:
    return g.mul(g.binary("sub", g.unary("cast", x, "f32"), _number(g, -128.0)), _number(g, 0.03173), "f32")


def _larger(g: Graph) -> ir.Value:
    a, b = g.input(_SHAPE, "f32"), g.input(_SHAPE, "f32")
    return g.op(
        "select", [g.binary("greater", a, b, "i1"), a, g.op("negate", [b, *_zeros(g)], _SHAPE, "f32")], _SHAPE, "f32"
    )


def _zeros(g: Graph) -> list[ir.Value]:
    return [g.const([0.0], "f32"), g.const([0.0], "f32")]


CASES: dict[str, Build] = {
    "quantize": lambda g: _quantized(g, g.input((5, 5, 64), "f32")),
    "quantize an odd shape": lambda g: _quantized(g, g.input(_SHAPE, "f32")),
    "quantize to int16": lambda g: _quantized(g, g.input(_SHAPE, "f32"), "i16"),
    "saturate": lambda g: g.unary("cast", g.mul(g.input(_SHAPE, "f32"), _number(g, 300.0), "f32"), "i8"),
    "saturate int32": lambda g: g.unary("cast", g.mul(g.input(_SHAPE, "f32"), _number(g, 1e30), "f32"), "i32"),
    "dequantize": lambda g: _dequantized(g, g.input((5, 5, 64))),
    "dequantize int16": lambda g: _dequantized(g, g.input(_SHAPE, "i16")),
    "requantize through floats": lambda g: _dequantized(
        g, g.rescale(_quantized(g, g.input(_SHAPE, "f32")), "i8", 1896178010, 30, input_zero=-8, output_zero=-128)
    ),
    "integers of 32 bits": lambda g: g.unary("cast", g.input(_SHAPE, "i32"), "f32"),
    "by channel and by row": lambda g: g.mul(
        g.binary("add", g.input(_SHAPE, "f32"), g.const(_OFFSETS, "f32")),
        g.input((2, 3, 1), "f32"),
        "f32",
    ),
    "number less floats": lambda g: g.binary("sub", _number(g, 1.0), g.input(_SHAPE, "f32")),
    "larger and smaller": lambda g: g.binary(
        "maximum",
        g.binary("minimum", g.input(_SHAPE, "f32"), g.input(_SHAPE, "f32"), nan_mode="IGNORE"),
        g.input((1, 1, 13), "f32"),
        nan_mode="PROPAGATE",
    ),
    "the larger, or the other negated": _larger,
    "whole parts": lambda g: g.binary(
        "sub", g.unary("ceil", g.input(_SHAPE, "f32")), g.unary("floor", g.unary("abs", g.input(_SHAPE, "f32")))
    ),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return outcomes_of(CASES, ("pointwise",), tmp_path_factory.mktemp("pointwise"))


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_equals_the_reference(name, outcomes):
    assert outcomes[name]
    for outcome in outcomes[name]:
        assert outcome.exact, outcome


def test_a_cast_takes_a_fraction_of_the_generic_kernel(outcomes, tmp_path):
    least = {"quantize": 2.5, "dequantize": 4}
    for name, (generic,) in outcomes_of({name: CASES[name] for name in least}, ("linalg",), tmp_path).items():
        assert outcomes[name][0].instructions * least[name] < generic.instructions, name


@pytest.mark.parametrize("nan_mode", ["PROPAGATE", "IGNORE"])
@pytest.mark.parametrize("length", [8, 13])
def test_what_is_no_number_stays_or_gives_way_as_the_mode_says(nan_mode, length, tmp_path):
    """Whether a clamp, a maximum or a minimum is a number, of operands that are not."""
    a, b = np.linspace(-4, 4, length, dtype=np.float32), np.linspace(2, -2, length, dtype=np.float32)
    a[::3], b[::4], a[1], b[2] = np.nan, np.nan, np.inf, -np.inf
    cases = []
    for name in ("clamp", "maximum", "minimum"):
        g = Graph()
        x, y = g.input((length,), "f32"), g.input((length,), "f32")
        inner = x if name == "clamp" else g.binary(name, x, y, nan_mode=nan_mode)
        found = _clamped(g, inner, -1.0, 1.0, nan_mode) if name == "clamp" else inner
        result = g.binary("logical_and", g.binary("equal", found, found, "i1"), g.binary("greater_equal", y, y, "i1"))
        module = g.module(result)
        (expected,) = evaluate(module, [a, b])
        (function,) = functions(module).values()
        task = KernelTask.of(function, CORTEX_M55, ("pointwise",))
        cases.append(Case(task.generate(task.default()), [a, b], [expected], name))
    assert all(outcome.exact for outcome in run_cases(cases, tmp_path))
