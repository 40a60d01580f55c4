"""Pointwise kernels: every schedule, under QEMU, equals the reference model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from board import M3, M4
from family_cases import CORTEX_M55, Build, outcomes_of, task_of
from golden_files import assert_golden
from slow_memory import SLOW_MEMORY
from tosa_graphs import Graph

from tosaic.backends.boards import DTCM
from tosaic.backends.cores.cortex_m55 import CORE
from tosaic.backends.cortex_m.kernel import ANYWHERE, Overlap, Site
from tosaic.backends.cortex_m.program import guesses, values
from tosaic.backends.cortex_m.program.kernel import scheduled
from tosaic.backends.cortex_m.program.pointwise import Elementwise
from tosaic.backends.cortex_m.program.pointwise_lanes import pointwise_lanes
from tosaic.backends.cortex_m.program.schedule import parse_steps
from tosaic.backends.cortex_m.program.sketches.elementwise import Vectors, in_lanes
from tosaic.backends.cortex_m.program.value_rescales import rescale, with_zero_point
from tosaic.backends.cortex_m.program.values import Value
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.target import Core
from tosaic.support.mlir import functions, ir

_RNG = np.random.default_rng(3)
_TABLE = _RNG.integers(-128, 128, 256)
_OFFSETS = _RNG.integers(-99, 99, (1, 1, 21))
_CURVE = 32767 * np.sin(np.arange(513) / 40)
_SHAPE = (2, 3, 13)


def _residual_add(shape: tuple[int, ...], multiplier: int = 1518500250) -> Callable[[Graph], ir.Value]:
    def build(g: Graph) -> ir.Value:
        a = g.rescale(g.input(shape), "i32", 1 << 30, 10, input_zero=3)
        b = g.rescale(g.input(shape), "i32", multiplier, 11, input_zero=-4)
        return g.clamp(g.rescale(g.binary("add", a, b), "i8", 1690000000, 50, output_zero=-5), -100, 90)

    return build


def _widened(g: Graph, shape: tuple[int, ...], zero: int = 0) -> ir.Value:
    return g.rescale(g.input(shape), "i32", 1 << 30, 30, input_zero=zero)


def _larger(g: Graph) -> ir.Value:
    a, b = g.input(_SHAPE), g.input(_SHAPE)
    condition = g.binary("greater", g.unary("cast", a, "i32"), g.unary("cast", b, "i32"), "i1")
    return g.op("select", [condition, a, b], _SHAPE, "i8")


def _gated(shape: tuple[int, ...]) -> Callable[[Graph], ir.Value]:
    """The product of squeeze and excitation: a table of each channel's gate, times the image."""

    def build(g: Graph) -> ir.Value:
        gate = g.rescale(g.table(g.input((1, 1, 1, shape[-1])), _TABLE), "i32", 1 << 30, 30, input_zero=-128)
        return g.requantize(g.mul(_widened(g, shape, -119), gate), "i8", 0.009, output_zero=-117)

    return build


def _rotated(g: Graph) -> ir.Value:
    """Half of a rotary embedding: 3 places, 4 heads, 5 keys."""
    x, y = (_widened(g, (1, 3, 4, 5), 3) for _ in range(2))
    cos, sin = (_widened(g, (1, 3, 1, 5), -9) for _ in range(2))
    return g.requantize(g.binary("sub", g.mul(x, cos), g.mul(y, sin)), "i8", 0.003, output_zero=4)


def _powers(shape: tuple[int, ...]) -> Callable[[Graph], ir.Value]:
    """The exponentials of a softmax: of int8 less the greatest of their row; what is above 0 gives what 0 does."""

    def build(g: Graph) -> ir.Value:
        difference = g.binary("sub", _widened(g, shape), _widened(g, (*shape[:-1], 1)))
        curve = 32767 * np.exp(np.minimum(np.arange(-256, 257), 0) * 0.06)
        return g.rescale(g.table(g.rescale(difference, "i16", 1 << 30, 23), curve), "i16", 1 << 30, 37)

    return build


def _normalized(g: Graph) -> ir.Value:
    """The end of a layer norm: what each row computes alone, a product, and a scale and an offset a channel."""
    shape, one = (1, 9, 21), g.const([[[1]]], "i32")
    count = g.binary("bitwise_and", g.unary("cast", g.input((1, 9, 1)), "i32"), g.const([[[7]]], "i32"))
    spread = g.binary("logical_left_shift", _widened(g, (1, 9, 1)), g.binary("add", count, one))
    inverse = g.table(g.requantize(spread, "i16", 0.9), _CURVE)
    inverse = g.binary("arithmetic_right_shift", inverse, g.const([[[9]]], "i32"), round=False)
    doubled = g.rescale(_widened(g, shape, 5), "i32", 1 << 30, 27)
    product = g.binary("arithmetic_right_shift", g.mul(doubled, inverse), count, round=True)
    scaled = g.requantize(product, "i32", np.geomspace(1e-4, 1e-2, 21))
    moved = g.binary("add", scaled, g.const(_OFFSETS, "i32"))
    return g.requantize(moved, "i8", 0.02, output_zero=-19)


def _counted(shape: tuple[int, ...], op: str, start: int = 0, step: int = 1) -> Callable[[Graph], ir.Value]:
    """Where a place, of which some are beyond all others, is past those that a constant counts."""

    def build(g: Graph) -> ir.Value:
        counts = g.const(start + step * np.arange(shape[-1]).reshape(1, -1), "i32")
        place = g.rescale(g.input((shape[0], 1), "i16"), "i32", 1 << 30, 35)
        return g.op(op, [counts, place] if start else [place, counts], shape, "i1")

    return build


CASES: dict[str, Build] = {
    "residual add": _residual_add((1, 32, 32, 16)),
    "residual add of odd shape": _residual_add((1, 3, 5, 7)),
    "residual add of three elements": _residual_add((3,)),
    "table": lambda g: g.table(g.input((1, 16, 16, 7)), _TABLE),
    "table of five elements": lambda g: g.table(g.input((5,)), _TABLE),
    "exponentials": _powers((3, 64)),
    "exponentials of odd shape": _powers((2, 3, 17)),
    "table and clamp": lambda g: g.clamp(g.table(g.input((3, 70)), _TABLE), -20, 90),
    "table of int16": lambda g: g.table(g.input((3, 5, 70), "i16"), _CURVE),
    "table behind a rescale": lambda g: g.table(g.requantize(g.input((3, 5, 7), "i32"), "i8", 1e-7), _TABLE),
    "table of a channel, gating an image": _gated((1, 6, 5, 24)),
    "table of a channel, gating an image of odd shape": _gated((2, 3, 3, 7)),
    "normalization": _normalized,
    "rescale per channel": lambda g: g.requantize(g.input((1, 4, 4, 7), "i32"), "i8", np.geomspace(1e-8, 1e-4, 7)),
    "rescale at shift 32": lambda g: g.rescale(g.input((5, 9), "i32"), "i32", (1 << 31) - 1, 32),
    "rescale at shift 2": lambda g: g.rescale(g.clamp(g.input((5, 9)), -1, 0), "i32", (1 << 30) + 1, 2),
    "rescale at shift 62": lambda g: g.rescale(g.input((5, 9), "i32"), "i32", (1 << 31) - 1, 62),
    "rescale by a half": lambda g: g.rescale(g.input((5, 9), "i16"), "i32", 1 << 30, 31),
    "rescale by the smallest power": lambda g: g.rescale(g.input((5, 9), "i32"), "i32", 1 << 30, 62),
    "rescale by the least multiplier": lambda g: g.rescale(g.input((5, 9)), "i8", 1, 9, output_zero=4),
    "rescale of bytes": lambda g: g.rescale(g.input(_SHAPE), "i8", 1 << 30, 30, output_zero=-128, input_unsigned=True),
    "table behind a rescale of bytes": lambda g: g.table(
        g.rescale(g.input((3, 5, 7)), "i8", 1518500250, 31, input_zero=-6, output_zero=-100, input_unsigned=True),
        _TABLE,
    ),
    "rescale by zero": lambda g: g.rescale(g.input((5, 9), "i16"), "i8", 0, 40, output_zero=4),
    "rescale by two, saturating": lambda g: g.rescale(g.input((5, 9)), "i8", 1 << 30, 29, input_zero=3, output_zero=9),
    "scale by channel": lambda g: g.requantize(
        g.mul(_widened(g, (1, 8, 8, 18), 3), _widened(g, (1, 1, 1, 18), -9)), "i8", 0.003, output_zero=4
    ),
    "scale by channel and by row": lambda g: g.mul(
        g.mul(_widened(g, (1, 4, 5, 18), 3), _widened(g, (1, 1, 1, 18), -9)), _widened(g, (1, 4, 5, 1), -9)
    ),
    "subtract by row": lambda g: g.binary("sub", _widened(g, (1, 8, 15)), _widened(g, (1, 8, 1))),
    "add a scalar": lambda g: g.binary("add", _widened(g, (1, 8, 15)), _widened(g, (1, 1, 1))),
    "add what heads share": lambda g: g.requantize(
        g.binary("add", _widened(g, (1, 4, 3, 18), 3), _widened(g, (1, 1, 3, 18))), "i8", 0.4, output_zero=-7
    ),
    "add an array that heads share": lambda g: g.binary(
        "add", _widened(g, (2, 4, 3, 7)), g.const(np.arange(21).reshape(1, 1, 3, 7), "i32")
    ),
    "multiply by a number of each head": lambda g: g.mul(_widened(g, (1, 4, 3, 18), 3), _widened(g, (1, 4, 1, 1))),
    "rotate by an angle that heads share": _rotated,
    "add a row and a column": lambda g: g.requantize(
        g.binary("add", _widened(g, (3, 1, 7), 3), _widened(g, (1, 5, 1))), "i8", 0.4, output_zero=-7
    ),
    "spread over the outer, a middle and the last axis": lambda g: g.binary(
        "maximum", g.mul(_widened(g, (1, 3, 1, 5)), _widened(g, (2, 1, 3, 1))), _widened(g, (2, 3, 3, 1), -9)
    ),
    "scale by channel, and by a middle axis": lambda g: g.requantize(
        g.mul(_widened(g, (2, 4, 3, 17), 3), _widened(g, (1, 4, 1, 17), -9)), "i8", np.geomspace(1e-4, 1e-2, 17)
    ),
    "select the larger": _larger,
    "clamp of int16": lambda g: g.clamp(g.input(_SHAPE, "i16"), -200, 5000),
    "abs of bytes": lambda g: g.unary("abs", g.unary("cast", g.input(_SHAPE), "i32")),
    "abs of int32": lambda g: g.unary("abs", g.binary("bitwise_xor", g.input(_SHAPE, "i32"), g.input(_SHAPE, "i32"))),
    "multiply by a gate of 15 bits": lambda g: g.mul(
        g.input((3, 45), "i32"), g.rescale(g.input((3, 45), "i16"), "i32", 1 << 30, 30), shift=15
    ),
    "multiply by a scalar of a table": lambda g: g.mul(
        g.input((3, 45), "i16"), g.rescale(g.table(g.input((1, 1), "i16"), _CURVE), "i16", 1 << 30, 37)
    ),
    "multiply at shift 31": lambda g: g.mul(g.input((3, 45), "i32"), g.input((3, 45), "i32"), shift=31),
    "rescale int16 to int8": lambda g: g.requantize(g.input(_SHAPE, "i16"), "i8", 3e-3, output_zero=5),
    "leading zeros": lambda g: g.unary("clz", g.binary("logical_right_shift", g.input((999,), "i32"), _amounts(g))),
    "shift left": lambda g: g.binary("logical_left_shift", g.input((999,), "i32"), _amounts(g)),
    "shift right": lambda g: g.binary("arithmetic_right_shift", g.input((999,), "i32"), _amounts(g), round=False),
    "shift right, rounding": lambda g: g.binary(
        "arithmetic_right_shift", g.input((999,), "i32"), _amounts(g), round=True
    ),
    "compare with a constant": lambda g: g.binary(
        "equal", g.unary("cast", g.input(_SHAPE), "i32"), g.const([[[5]]], "i32"), "i1"
    ),
    "compare with places": _counted((3, 512), "greater_equal"),
    "compare a place with places": _counted((1, 512), "greater_equal"),
    "compare places, counted down": _counted((2, 400), "greater", 700, -3),
    "find places": _counted((4, 300), "equal", -1),
    "add what is counted": lambda g: g.binary(
        "add", _widened(g, (3, 320), 3), g.const(7 * np.arange(320).reshape(1, 320) - 90, "i32")
    ),
    "logic": lambda g: g.binary("logical_and", g.unary("logical_not", g.input(_SHAPE, "i1")), g.input(_SHAPE, "i1")),
    "bits": lambda g: g.binary("bitwise_or", g.unary("bitwise_not", g.input((7, 19))), g.input((7, 19))),
    "bits of int16": lambda g: g.binary(
        "bitwise_or", g.unary("bitwise_not", g.input((9,), "i16")), g.input((9,), "i16")
    ),
}


def _amounts(g: Graph) -> ir.Value:
    return g.const(np.arange(999) % 32, "i32")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return outcomes_of(CASES, ("pointwise",), tmp_path_factory.mktemp("pointwise"), samples=2)


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_equals_the_reference(name, outcomes):
    assert outcomes[name]
    for outcome in outcomes[name]:
        assert outcome.exact, outcome


def test_it_takes_a_third_of_the_generic_kernel(outcomes, tmp_path):
    cases = {name: CASES[name] for name in ("residual add", "table", "table of a channel, gating an image")}
    for name, (generic,) in outcomes_of(cases, ("linalg",), tmp_path).items():
        assert outcomes[name][0].instructions * 3 < generic.instructions, name


@pytest.mark.parametrize(
    "build",
    [
        lambda g: g.rescale(g.input((3, 5), "i32"), "i8", 1 << 30, 50, rounding="DOUBLE_ROUND"),
        lambda g: g.unary("exp", g.input((3, 5), "f32")),
        lambda g: g.binary("logical_right_shift", g.input((3, 5)), g.input((3, 5))),
        lambda g: g.mul(g.input((3, 5), "i32"), g.input((3, 5), "i32"), shift=30),
    ],
)
def test_what_it_cannot_do_exactly_is_left_to_the_generic_path(build):
    assert {variant.name for variant in task_of(build).space.variants} == {"linalg.loops"}


def test_an_integer_output_may_take_the_place_of_an_input():
    task = task_of(_residual_add((1, 4, 4, 16)))
    assert task.generate(task.default()).in_place == (Overlap(0, 0), Overlap(1, 0))


def _random(seed: int) -> Build:
    """A random function of int8, int16 and int32 operands, each with one element along some axes of a shape."""

    def build(g: Graph) -> ir.Value:
        rng = np.random.default_rng(seed)
        shape = (*(int(rng.integers(1, 5)) for _ in range(rng.integers(0, 4))), int(rng.integers(1, 45)))
        kept = rng.integers(2, size=(3, len(shape)))
        places = [shape, shape, *(tuple(int(size) for size in np.where(axes, shape, 1)) for axes in kept)]

        def whole(depth: int) -> ir.Value:
            """An i32 of less than 15 bits."""
            if depth == 0:
                place = places[rng.integers(len(places))]
                kind, zero = (("i8", int(rng.integers(-128, 128))), ("i16", 0))[rng.integers(2)]
                if rng.integers(4) == 0:
                    return g.const(rng.integers(-9999, 9999, place), "i32")
                x = g.input(place, kind)
                if kind == "i8" and rng.integers(3) == 0:
                    x = g.table(x, rng.integers(-128, 128, 256))
                up = int(rng.integers(24, 31)) if kind == "i8" else int(rng.integers(31, 36))
                return g.rescale(x, "i32", 1 << 30, up, input_zero=zero)
            return narrowed(combined(depth), "i16")

        def combined(depth: int) -> ir.Value:
            name = ("add", "sub", "mul", "minimum", "maximum", "select", "shift")[rng.integers(7)]
            a, b = whole(depth - 1), whole(depth - 1)
            if name == "mul":
                return g.mul(a, b)
            if name == "select":
                relation = ("greater", "greater_equal", "equal")[rng.integers(3)]
                condition = g.binary(relation, a, b, "i1")
                return g.op(
                    "select", [condition, a, b], np.broadcast_shapes(*(tuple(v.type.shape) for v in (a, b))), "i32"
                )
            if name == "shift":
                amount = g.const(np.full([1] * len(shape), rng.integers(0, 9)), "i32")
                return g.binary("arithmetic_right_shift", a, amount, round=bool(rng.integers(2)))
            return g.binary(name, a, b)

        def narrowed(value: ir.Value, kind: str) -> ir.Value:
            """Through int8 or int16, by some factor, and back to an i32 of less than 15 bits."""
            x = requantized(value, kind)
            return g.rescale(x, "i32", int(rng.integers(1 << 29, 1 << 31)), 31)

        def requantized(value: ir.Value, kind: str) -> ir.Value:
            form, zero = rng.integers(4), int(rng.integers(-99, 99)) if kind == "i8" else 0
            if form == 0:
                return g.rescale(value, kind, 1 << 30, int(rng.integers(30, 46)), output_zero=zero)
            if form == 1:
                return g.rescale(
                    value, kind, int(rng.integers(1, 1 << 15)) << 15, int(rng.integers(32, 46)), output_zero=zero
                )
            if form == 2 and value.type.shape[-1] == shape[-1]:
                return g.requantize(value, kind, np.geomspace(1e-4, 1e-2, shape[-1]), output_zero=zero)
            return g.requantize(value, kind, float(10 ** rng.uniform(-4, -1)), output_zero=zero)

        value = requantized(combined(int(rng.integers(1, 4))), ("i8", "i16")[rng.integers(2)])
        return g.clamp(value, -100, 90) if rng.integers(2) else value

    return build


def test_random_functions_equal_the_reference(tmp_path):
    cases = {f"random {seed}": _random(seed) for seed in range(12)}
    covered = {
        n: build for n, build in cases.items() if task_of(build, ("pointwise",)).default().variant != "linalg.loops"
    }
    assert len(covered) > 8
    for name, found in outcomes_of(covered, ("pointwise",), tmp_path, samples=2).items():
        assert not [str(outcome) for outcome in found if not outcome.exact], name


@pytest.mark.parametrize("bench", [M4, M3], ids=["DSP", "scalar"])
def test_cores_without_vectors_compute_the_same(tmp_path, bench):
    cases = CASES | {f"random {seed}": _random(seed) for seed in range(12, 18)}
    covered = {
        n: build
        for n, build in cases.items()
        if task_of(build, ("pointwise",), bench.core).space.variant("pointwise.program")
    }
    assert len(covered) > 0.8 * len(cases)
    for name, found in outcomes_of(covered, ("pointwise",), tmp_path, samples=1, bench=bench).items():
        assert not [str(outcome) for outcome in found if not outcome.exact], name


def test_the_c_of_one_schedule_stays_what_it_is():
    """Golden C of the default schedule."""
    task = task_of(_residual_add((1, 32, 32, 16)), site=ANYWHERE)
    source = task.generate(task.default())
    assert_golden("pointwise.c", source, "void pointwise")


def test_functions_that_differ_in_numbers_of_their_params_have_one_guess_and_one_code(monkeypatch):
    asked, tasks = [], [task_of(_residual_add((8, 32), multiplier)) for multiplier in (1518500250, 1518500266)]
    monkeypatch.setattr(
        guesses, "remembered", lambda name, code, material, compute: (asked.append(material), compute())[1]
    )
    one, other = (task.generate(task.default()) for task in tasks)
    assert asked[0] == asked[1] and len(asked) == 2
    assert one.text == other.text and one.params != other.params


def test_entries_that_are_alike_lie_once():
    task = task_of(_powers((3, 64)))
    assert 2 * 256 <= len(task.generate(task.default()).params) <= 2 * 256 + 16


def test_a_constant_that_counts_takes_a_few_bytes():
    task = task_of(_counted((1, 512), "greater_equal"))
    assert len(task.generate(task.default()).params) < 128
    assert task.features(task.default())["pointwise.estimate"] < 512


def test_tables_in_slow_memory_are_copied_where_there_is_room():
    graph = Graph()
    build = graph.module(graph.op("table", [graph.input((64, 64)), graph.const(_TABLE, "i8")], (64, 64), "i8"))
    (function,) = functions(build).values()

    def place(site: Site) -> str:
        return str(replace(KernelTask.of(function, CORTEX_M55), site=site).default()["params"])

    assert place(Site(SLOW_MEMORY)) == "scratch"
    assert place(Site(SLOW_MEMORY, 255)) == "in_place"
    assert place(Site(DTCM)) == place(Site()) == "in_place"


def _instructions(result: Value, size: int, arguments: int, unroll: int, beside: int, core: Core = CORE) -> list[str]:
    """The vector instructions of an iteration of a value of 64 elements, in lanes of 32 bits."""
    program, _ = pointwise_lanes(Elementwise(result, (64,), size), arguments, staged=False)
    steps = "\n".join(in_lanes(program, Vectors(32, unroll, beside, copied=False, isa="mve")))
    text = scheduled(program, parse_steps(steps), core).text
    code = [line.strip().split()[0].strip('"') for line in text[text.index("1:") :].splitlines() if " q" in line]
    return [name for name in code if name[0] == "v"]


def test_a_sum_of_whole_factors_rounds_once_and_adds_its_zero_point_before():
    """Two products, one shift that narrows, one saturation: no instruction that the meaning does not ask for."""
    a, b = (values.given(index, 1, -128, 127, {values.CHANNEL}) for index in (0, 1))
    total = values.add(values.multiply(a, values.number(40000)), values.multiply(b, values.number(30000)))
    scaled = rescale(total, np.array([1 << 30], np.int32), np.array([46], np.int8), 8)
    assert scaled is not None
    core = replace(CORE, pipeline=None)  # nothing runs ahead
    assert sorted(_instructions(with_zero_point(scaled, -3, 8), 1, 2, 1, 1, core)) == [
        "vldrb.s32", "vldrb.s32", "vmla.s32", "vmlas.s32", "vqmovnb.s16", "vqrshrnb.s32", "vstrb.32",
    ]  # fmt: skip


def test_the_code_of_two_vectors_takes_turns():
    product = values.multiply(values.given(0, 1, -128, 127, {values.CHANNEL}), values.number(40000))
    assert _instructions(product, 4, 1, 2, 2, replace(CORE, pipeline=None)) == [
        "vldrb.s32", "vmul.i32", "vldrb.s32", "vmul.i32", "vstrw.32", "vstrw.32",
    ]  # fmt: skip


def test_numbers_that_registers_do_not_hold_are_read_from_memory(tmp_path):
    """Fifteen numbers beside two pointers."""

    def build(g: Graph) -> ir.Value:
        x = g.unary("cast", g.input((3, 50)), "i32")
        for number in range(15):
            x = g.binary("bitwise_xor" if number % 2 else "add", x, g.const([[3 + 7 * number]], "i32"))
        return x

    source = task_of(build).generate(task_of(build).default())
    assert "const int32_t *const m =" in source.text
    for found in outcomes_of({"numbers": build}, ("pointwise",), tmp_path).values():
        assert not [str(outcome) for outcome in found if not outcome.exact]
