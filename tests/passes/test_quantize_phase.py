"""Integer lowerings against the ideal: real arithmetic in float64, rounded once."""

from typing import Literal

import numpy as np
import pytest
import torch
from casts import Casts, Value, run, tensor

from tosaic.backends.reference import evaluate
from tosaic.passes import parse_pipeline, run_passes, run_phase, run_phases
from tosaic.passes.integers import rescale_of
from tosaic.passes.quantize.multipliers import multiplier_and_shift
from tosaic.support.errors import PassError
from tosaic.support.mlir import dialect, functions, ir, parse, walk
from tosaic.support.quantization import Quantization

X = ("i8:f32, 0.02:3", 0.02, 3)
Y = ("i8:f32, 0.05:-7", 0.05, -7)
WINDOW = (
    "<{{acc_type = f32, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: {s}, {s}>, dilation = array<i64: 1, 1>}}>"
)


def integers(seed: int, shape, kind: Literal["int8", "int16"] = "int8") -> np.ndarray:
    limits = np.iinfo(kind)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, kind, endpoint=True)


def windows(image: np.ndarray) -> np.ndarray:
    """The 3x3 windows of NHWC images, (n, h, w, c, 3, 3)."""
    view = np.lib.stride_tricks.sliding_window_view
    return view(view(image, 3, axis=1), 3, axis=2)


def ideal(real: np.ndarray, kind: tuple, dtype: str = "int8") -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.clip(np.rint(real / kind[1]) + kind[2], limits.min, limits.max)


def off_by(got: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
    """The largest difference and the share of elements that differ."""
    difference = np.abs(got.astype(np.int64) - wanted)
    return float(difference.max()), float((difference > 0).mean())


def names(module: ir.Module) -> list[str]:
    main = functions(module)["main"]
    return [op.name.removeprefix("tosa.") for op in walk(main) if not op.name.startswith(("tosa.const", "func."))]


def test_convolution_per_channel_with_relu():
    b = Casts()
    x = b.input((1, 6, 6, 3), X[0])
    stored = integers(1, (4, 3, 3, 3))
    scales = [0.001, 0.002, 0.0005, 0.004]
    w = b.weights(stored, "i8:f32:0, {0.001, 0.002, 0.0005, 0.004}")
    bias = np.array([0.5, -0.25, 0.1, 0], np.float32)
    y = b.op("tosa.conv2d", [x, w, b.constant(bias), b.zeros(), b.zeros()], (1, 6, 6, 4), WINDOW.format(s=1))
    r = b.op("tosa.clamp", [y], y[1], "<{min_val = 0.0 : f32, max_val = 6.0 : f32}>")
    module = b.module(b.requantized(r, Y[0]))
    data = integers(2, (1, 6, 6, 3))
    (got,) = run(module, [data])
    assert names(module) == ["conv2d", "rescale", "clamp"]

    real = np.pad((data.astype(float) - X[2]) * X[1], ((0, 0), (1, 1), (1, 1), (0, 0)))
    kernel = stored * np.reshape(scales, (4, 1, 1, 1))
    patches = windows(real)
    wanted = np.clip(np.einsum("nhwcyx,oyxc->nhwo", patches, kernel) + bias, 0, 6)
    most, share = off_by(got, ideal(wanted, Y))
    assert most <= 1
    assert share < 0.01


def test_transposes_between_casts_and_convolution_do_not_matter():
    b = Casts()
    x = b.input((1, 3, 5, 5), X[0])
    nhwc = b.op("tosa.transpose", [x], (1, 5, 5, 3), "<{perms = array<i32: 0, 2, 3, 1>}>")
    w = b.weights(integers(1, (3, 3, 3, 1)), "i8:f32, 0.01")
    y = b.op("tosa.depthwise_conv2d", [nhwc, w, b.zeros((3,)), b.zeros(), b.zeros()], (1, 5, 5, 3), WINDOW.format(s=1))
    back = b.op("tosa.transpose", [y], (1, 3, 5, 5), "<{perms = array<i32: 0, 3, 1, 2>}>")
    s = b.op("tosa.sigmoid", [b.requantized(back, Y[0])], back[1])
    module = b.module(b.requantized(s, "i8:f32, 0.00390625:-128"))
    run_phases(module)
    assert names(module) == ["transpose", "depthwise_conv2d", "rescale", "table", "transpose"]


@pytest.mark.parametrize("kind", ["int8", "int16"])
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_arithmetic(name, kind):
    b = Casts()
    storage = "i8" if kind == "int8" else "i16"
    factor = 1 if kind == "int8" else 1 / 256
    scales = [0.02031 * factor, 0.03507 * factor, (0.06173 if name != "mul" else 0.08117) * factor]  # few exact ties
    zero_points = [3, -11, 5] if kind == "int8" else [0, 0, 0]
    kinds = [f"{storage}:f32, {s!r}:{z}" for s, z in zip(scales, zero_points, strict=True)]
    x, y = b.input((4, 64), kinds[0]), b.input((4, 64), kinds[1])
    operands = [x, y] if name != "mul" else [x, y, b.constant(np.zeros(1, np.int8))]
    module = b.module(b.requantized(b.op(f"tosa.{name}", operands, (4, 64)), kinds[2]))
    data = [integers(seed, (4, 64), kind) for seed in (1, 2)]
    (got,) = run(module, data)
    reals = [(d.astype(float) - z) * s for d, s, z in zip(data, scales, zero_points, strict=False)]
    real = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name](*reals)
    most, share = off_by(got, ideal(real, (kinds[2], scales[2], zero_points[2]), kind))
    assert most <= 1
    assert share < 0.02


@pytest.mark.parametrize("name", ["add", "sub"])
@pytest.mark.parametrize(
    "kinds",
    [
        ("i16:f32, 0.0001213:0", "i8:f32, 0.02565:12", "i16:f32, 0.0001147:0"),
        ("i8:f32, 0.02565:-12", "i16:f32, 0.0000321:0", "i16:f32, 0.0002:0"),
        ("i16:f32, 0.0000321:0", "i8:f32, 0.0002:3", "i8:f32, 0.008:-5"),
        ("i8:f32, 0.000001:3", "i16:f32, 0.0000321:0", "i16:f32, 0.0000321:0"),
        ("i8:f32, 0.0002:3", "i16:f32, 0.0002:0", "i16:f32, 0.0002:0"),
    ],
)
def test_a_sum_of_8_and_16_bits_is_one_of_integers(name, kinds):
    b = Casts()
    widths: list[Literal["int8", "int16"]] = ["int16" if kind.startswith("i16") else "int8" for kind in kinds]
    x, y = (b.input((4, 64), kind) for kind in kinds[:2])
    module = b.module(b.requantized(b.op(f"tosa.{name}", [x, y], (4, 64)), kinds[2]))
    data = [integers(seed, (4, 64), width) for seed, width in enumerate(widths[:2])]
    (got,) = run(module, data)
    assert names(module) == ["rescale", "rescale", name, "rescale"]
    steps = [(kind, *map(float, kind.removeprefix("i8:f32, ").removeprefix("i16:f32, ").split(":"))) for kind in kinds]
    reals = [(d.astype(float) - zero) * scale for d, (_, scale, zero) in zip(data, steps, strict=False)]
    real = {"add": np.add, "sub": np.subtract}[name](*reals)
    most, share = off_by(got, ideal(real, steps[2], widths[2]))
    assert most <= 1 and share < 0.02


@pytest.mark.parametrize("name", ["add", "sub"])
def test_terms_of_one_scale_are_summed_as_they_are(name):
    b = Casts()
    x, y = b.input((4, 64), "i8:f32, 0.02031:3"), b.input((4, 64), "i8:f32, 0.02031:-11")
    module = b.module(b.requantized(b.op(f"tosa.{name}", [x, y], (4, 64)), "i8:f32, 0.03507:5"))
    data = [integers(seed, (4, 64)) for seed in (1, 2)]
    (got,) = run(module, data)
    before = [rescale_of(op) for op in walk(module) if op.name == "tosa.rescale"][:2]
    assert [one.multiplier / 2**one.shift for one in before if one] == [1, 1]
    reals = [(d.astype(float) - z) * 0.02031 for d, z in zip(data, (3, -11), strict=True)]
    real = {"add": np.add, "sub": np.subtract}[name](*reals)
    assert off_by(got, ideal(real, ("i8:f32, 0.03507:5", 0.03507, 5)))[0] <= 1


@pytest.mark.parametrize(("units", "bits"), [((50, 77), 7), ((50, 76), 6), ((8, 12), 5)])
def test_terms_that_are_whole_parts_of_the_result_s_step_are_rounded_by_a_shift(units, bits):
    b = Casts()
    scales = [0.05 * each / 128 for each in units]
    x, y = (b.input((4, 64), f"i8:f32, {scale!r}:{zero}") for scale, zero in zip(scales, (3, -11), strict=True))
    module = b.module(b.requantized(b.op("tosa.add", [x, y], (4, 64)), "i8:f32, 0.05:5"))
    data = [integers(seed, (4, 64)) for seed in (1, 2)]
    (got,) = run(module, data)
    rescales = [rescale_of(op) for op in walk(module) if op.name == "tosa.rescale"]
    factors = [one.multiplier / 2**one.shift for one in rescales if one]
    assert factors == [*(each << 13 + bits - 7 for each in units), 1 / (1 << 13 + bits)]
    total = sum((d.astype(int) - z) * each for d, z, each in zip(data, (3, -11), units, strict=True))
    np.testing.assert_array_equal(got, np.clip((total + 64 >> 7) + 5, -128, 127))


@pytest.mark.parametrize(("kind", "times"), [("int8", (64, 80)), ("int16", (1, 3)), ("int16", (8, 7))])
def test_terms_that_are_many_parts_of_the_result_s_step_fit_int32(kind, times):
    b, storage, scale = Casts(), "i8" if kind == "int8" else "i16", 2.0**-15
    x, y = (b.input((4, 64), f"{storage}:f32, {scale * each!r}:0") for each in times)
    module = b.module(b.requantized(b.op("tosa.sub", [x, y], (4, 64)), f"{storage}:f32, {scale!r}:0"))
    ends = np.iinfo(kind).min, np.iinfo(kind).max
    rising = np.linspace(*ends, 256).astype(kind).reshape(4, 64)
    data = [rising, rising[::-1, ::-1]]
    (got,) = run(module, data)
    real = data[0].astype(float) * times[0] - data[1].astype(float) * times[1]
    assert off_by(got, np.clip(np.rint(real), *ends))[0] <= 1


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extrema_of_tensors(name):
    b = Casts()
    x, y = b.input((4, 64), X[0]), b.input((4, 64), Y[0])
    module = b.module(b.requantized(b.op(f"tosa.{name}", [x, y], (4, 64)), X[0]))
    data = [integers(seed, (4, 64)) for seed in (1, 2)]
    (got,) = run(module, data)
    reals = [(data[0].astype(float) - 3) * 0.02, (data[1].astype(float) + 7) * 0.05]
    assert off_by(got, ideal(getattr(np, name)(*reals), X))[0] <= 1


def test_moves_keep_the_stored_integers():
    b = Casts()
    x = b.input((1, 4, 4, 2), X[0])
    y = b.op("tosa.reverse", [x], x[1], "<{axis = 1 : i32}>")
    y = b.op("tosa.slice", [y, b.shape((0, 1, 0, 0)), b.shape((1, 2, 4, 2))], (1, 2, 4, 2))
    y = b.op("tosa.tile", [y, b.shape((1, 1, 1, 3))], (1, 2, 4, 6))
    padding = b.constant(np.zeros(1, np.float32))
    y = b.op("tosa.pad", [y, b.shape((0, 0, 1, 0, 0, 0, 0, 0)), padding], (1, 3, 4, 6))
    module = b.module(b.requantized(y, X[0]))
    data = integers(1, (1, 4, 4, 2))
    (got,) = run(module, [data])
    assert names(module) == ["reverse", "slice", "tile", "pad"]
    moved = np.tile(data[:, ::-1][:, 1:3], (1, 1, 1, 3))
    assert (got == np.pad(moved, ((0, 0), (1, 0), (0, 0), (0, 0)), constant_values=3)).all()


def test_a_pointwise_region_is_one_table():
    b = Casts()
    x = b.input((4, 64), "i8:f32, 0.05:3")
    three, sixth = (b.constant(np.full((1, 1), value, np.float32)) for value in (3, 1 / 6))
    shift = b.constant(np.zeros(1, np.int8))
    inner = b.op("tosa.clamp", [b.op("tosa.add", [x, three], x[1])], x[1],
                 "<{min_val = 0.0 : f32, max_val = 6.0 : f32}>")  # fmt: skip
    y = b.op("tosa.mul", [b.op("tosa.mul", [x, inner, shift], x[1]), sixth, shift], x[1])
    module = b.module(b.requantized(y, Y[0]))
    data = integers(1, (4, 64))
    (got,) = run(module, [data])
    real = (data.astype(float) - 3) * 0.05
    assert names(module) == ["table"]
    assert off_by(got, ideal(real * np.clip(real + 3, 0, 6) / 6, Y))[1] < 0.005


def test_a_table_of_int16_interpolates():
    b = Casts()
    x = b.input((4, 256), "i16:f32, 0.00025")
    module = b.module(b.requantized(b.op("tosa.tanh", [x], x[1]), "i16:f32, 0.000030517578125"))
    data = integers(1, (4, 256), "int16")
    (got,) = run(module, [data])
    assert names(module) == ["table", "rescale"]
    assert off_by(got, ideal(np.tanh(data * 0.00025), ("", 2**-15, 0), "int16"))[0] <= 4  # what 512 chords leave


def test_tables_of_int16_follow_a_root_next_to_0():
    b = Casts()
    x = b.input((4, 128), "i16:f32, 0.000030517578125")
    root = b.op("tosa.pow", [x, b.constant(np.full((1, 1), 0.5, np.float32))], x[1])
    module = b.module(b.requantized(root, "i16:f32, 0.000030517578125"))
    data = np.arange(512, dtype=np.int16).reshape(4, 128)
    (got,) = run(module, [data])
    assert off_by(got, ideal(np.sqrt(data / 2**15), ("", 2**-15, 0), "int16"))[0] <= 8


def test_sums_that_cannot_reach_what_a_rescale_takes_are_not_limited():
    b = Casts()
    x = b.input((1, 4, 4, 8), "i8:f32, 0.02:3")
    stored = integers(1, (2, 3, 3, 8))
    w = b.weights(stored, "i8:f32:0, {0.01, 0.02}")
    y = b.op("tosa.conv2d", [x, w, b.zeros((2,)), b.zeros(), b.zeros()], (1, 4, 4, 2), WINDOW.format(s=1))
    module = b.module(b.requantized(y, "i16:f32, 0.0001"))  # by a factor of up to 4
    data = integers(2, (1, 4, 4, 8))
    (got,) = run(module, [data])
    assert names(module) == ["conv2d", "rescale"]
    real = np.pad((data.astype(float) - 3) * 0.02, ((0, 0), (1, 1), (1, 1), (0, 0)))
    wanted = np.einsum("nhwcyx,oyxc->nhwo", windows(real), stored * np.reshape([0.01, 0.02], (2, 1, 1, 1)))
    assert off_by(got, ideal(wanted, ("", 0.0001, 0), "int16"))[0] <= 1


def test_convolution_of_int16_accumulates_in_48_bits():
    b = Casts()
    x = b.input((1, 4, 4, 8), "i16:f32, 0.0005")
    stored = integers(1, (2, 3, 3, 8))
    w = b.weights(stored, "i8:f32:0, {0.01, 0.02}")
    bias = np.array([0.5, -2], np.float32)
    y = b.op("tosa.conv2d", [x, w, b.constant(bias), b.zeros(), b.zeros()], (1, 4, 4, 2), WINDOW.format(s=1))
    module = b.module(b.requantized(y, "i16:f32, 0.01"))
    data = integers(2, (1, 4, 4, 8), "int16")
    (got,) = run(module, [data])
    real = np.pad(data * 0.0005, ((0, 0), (1, 1), (1, 1), (0, 0)))
    patches = windows(real)
    wanted = np.einsum("nhwcyx,oyxc->nhwo", patches, stored * np.reshape([0.01, 0.02], (2, 1, 1, 1))) + bias
    assert "i48" in str(module)
    assert off_by(got, ideal(wanted, ("", 0.01, 0), "int16"))[0] <= 1


@pytest.mark.parametrize(
    ("image", "kernel", "out", "expected"),
    [
        ((4, 4), (4, 4), X, ["avg_pool2d"]),
        ((4, 4), (4, 4), Y, ["conv2d", "rescale"]),
        ((25, 5), (25, 5), Y, ["conv2d", "rescale", "conv2d", "rescale"]),
        ((67, 1), (67, 1), Y, ["depthwise_conv2d", "rescale"]),
        ((4, 4), (2, 4), Y, ["depthwise_conv2d", "rescale"]),
    ],
)
def test_average_pool(image, kernel, out, expected):
    b = Casts()
    x = b.input((2, *image, 8), X[0])
    down, right = kernel
    window = (
        f"<{{acc_type = f32, kernel = array<i64: {down}, {right}>, stride = array<i64: {down}, {right}>, "
        "pad = array<i64: 0, 0, 0, 0>}>"
    )
    rows = image[0] // down
    pooled = b.op("tosa.avg_pool2d", [x, b.zeros(), b.zeros()], (2, rows, 1, 8), window)
    module = b.module(b.requantized(pooled, out[0]))
    data = integers(1, (2, *image, 8))
    (got,) = run(module, [data])
    assert [name for name in names(module) if name != "reshape"] == expected
    real = (data.astype(float) - 3) * 0.02
    assert off_by(got, ideal(real.reshape(2, rows, down, right, 8).mean((2, 3))[:, :, None], out))[0] <= 1


def test_bilinear_resize():
    b = Casts()
    x = b.input((1, 3, 3, 2), X[0])
    shapes = [b.shape(dims) for dims in ((4, 2, 4, 2), (-1, -1), (1, 1))]
    module = b.module(b.requantized(b.op("tosa.resize", [x, *shapes], (1, 6, 6, 2),
                                         "<{mode = #tosa.resize_mode<BILINEAR>}>"), Y[0]))  # fmt: skip
    data = np.full((1, 3, 3, 2), 53, np.int8)
    (got,) = run(module, [data])
    assert (got == ideal(np.array(50 * 0.02), Y)).all()


def test_bilinear_resize_in_one_format_keeps_the_zero_point():
    b = Casts()
    x = b.input((1, 3, 3, 2), X[0])
    shapes = [b.shape(dims) for dims in ((4, 2, 4, 2), (-1, -1), (1, 1))]
    module = b.module(b.requantized(b.op("tosa.resize", [x, *shapes], (1, 6, 6, 2),
                                         "<{mode = #tosa.resize_mode<BILINEAR>}>"), X[0]))  # fmt: skip
    data = integers(1, (1, 3, 3, 2)).astype(np.int8)
    (got,) = run(module, [data])
    assert "sub" not in names(module)
    images = torch.from_numpy(data.astype(np.float64)).permute(0, 3, 1, 2)
    between = torch.nn.functional.interpolate(images, scale_factor=2, mode="bilinear").permute(0, 2, 3, 1).numpy()
    assert (got == np.floor(between + 0.5)).all()


def test_matmul_concat_and_reduction():
    b = Casts()
    x, y = b.input((2, 4, 8), X[0]), b.input((2, 8, 4), Y[0])
    product = b.requantized(b.op("tosa.matmul", [x, y, b.zeros(), b.zeros()], (2, 4, 4)), "i8:f32, 0.4:1")
    both = b.requantized(b.op("tosa.concat", [product, x], (2, 4, 12), "<{axis = 2 : i32}>"), "i8:f32, 0.4:1")
    total = b.op("tosa.reduce_sum", [both], (2, 4, 1), "<{axis = 2 : i32}>")
    module = b.module(b.requantized(total, "i8:f32, 1.0:0"))
    data = [integers(1, (2, 4, 8)), integers(2, (2, 8, 4))]
    (got,) = run(module, data)
    left, right = (data[0].astype(float) - 3) * 0.02, (data[1].astype(float) + 7) * 0.05
    kind = ("", 0.4, 1)
    stored = np.concatenate([ideal(left @ right, kind), ideal(left, kind)], axis=2)
    assert off_by(got, ideal((stored - 1).sum(2, keepdims=True) * 0.4, ("", 1.0, 0)))[0] <= 1


def test_a_product_of_int8_and_int16():
    b = Casts()
    x, y = b.input((2, 4, 8), X[0]), b.input((2, 4, 1), "i16:f32, 0.001")
    module = b.module(
        b.requantized(b.op("tosa.mul", [x, y, b.constant(np.zeros(1, np.int8))], (2, 4, 8)), "i8:f32, 0.2103:-3")
    )
    data = [integers(1, (2, 4, 8)), integers(2, (2, 4, 1)).astype(np.int16) * 200]
    (got,) = run(module, data)
    wide, narrow = data[1].astype(float) * 0.001, (data[0].astype(float) - 3) * 0.02
    assert off_by(got, ideal(narrow * wide, ("", 0.2103, -3)))[0] == 0


def test_comparison_with_a_constant_is_exact_and_argmax_needs_no_scale():
    b = Casts()
    x = b.input((4, 64), X[0])
    threshold = b.constant(np.full((1, 1), 0.8, np.float32))  # 40 steps, and a little more as f64
    above = b.op("tosa.greater", [x, threshold], (4, 64), kind="i1")
    below = b.op("tosa.greater", [threshold, x], (4, 64), kind="i1")
    from_below = b.op("tosa.greater_equal", [threshold, x], (4, 64), kind="i1")
    best = b.op("tosa.argmax", [x], (4,), "<{axis = 1 : i32}>", kind="i32")
    module = b.module(above, below, from_below, best)
    data = np.arange(256).reshape(4, 64).astype(np.int8)
    got_above, got_below, got_from_below, got_best = run(module, [data])
    assert not any("f32" in str(op) for op in walk(module))
    assert (got_above == (data > 43)).all()
    assert (got_below == (data < 43)).all()
    assert (got_from_below == (data <= 43)).all()
    assert (got_best == data.argmax(1)).all()


def test_equality_with_a_constant_is_exact_also_where_nothing_stored_is_it():
    b = Casts()
    x = b.input((4, 64), X[0])
    wanted = [0.0, 0.02 * 40, 0.03, 1e30]
    constants = [b.constant(np.full((1, 1), one, np.float32)) for one in wanted]
    module = b.module(*[b.op("tosa.equal", [x, one], (4, 64), kind="i1") for one in constants])
    data = np.arange(256).reshape(4, 64).astype(np.int8)
    stored = [np.flatnonzero(got) for got in run(module, [data])]
    assert not any("f32" in str(op) for op in walk(module))
    assert [list(data.ravel()[one]) for one in stored] == [[3], [43], [], []]


@pytest.mark.parametrize(
    ("size", "scale", "step"), [(10, 0.1, 2**-8), (32, 0.02, 2**-8), (1000, 0.05, 2**-8), (480, 0.002, 2**-16.2)]
)
def test_softmax_is_nearly_always_the_ideal_rounding(size, scale, step):
    b = Casts()
    b.functions.append(_composite("softmax", size, ["x"], ""))
    x = b.input((1, 50, size), f"i8:f32, {scale}:3")
    y = b.op("func.call", [x], x[1], "{callee = @softmax}")
    module = b.module(b.requantized(y, f"i8:f32, {step}:-128"))
    data = np.clip(np.random.default_rng(1).normal(0, 40, (1, 50, size)), -128, 127).astype(np.int8)
    (got,) = run(module, [data])
    powers = np.exp((data.astype(float) - data.max(2, keepdims=True)) * scale)
    most, share = off_by(got, ideal(powers / powers.sum(2, keepdims=True), ("", step, -128)))
    assert most <= 1
    assert share < 0.005


@pytest.mark.parametrize("size", [8, 32, 512])
@pytest.mark.parametrize("scale", [0.0001, 0.0005, 0.002])
def test_softmax_of_int16_is_within_three_units(size, scale):
    b = Casts()
    b.functions.append(_composite("softmax", size, ["x"], ""))
    x = b.input((1, 50, size), f"i16:f32, {scale}")
    y = b.op("func.call", [x], x[1], "{callee = @softmax}")
    module = b.module(b.requantized(y, "i16:f32, 0.000030517578125"))
    data = integers(1, (1, 50, size), "int16")
    (got,) = run(module, [data])
    powers = np.exp((data.astype(float) - data.max(2, keepdims=True)) * scale)
    assert off_by(got, ideal(powers / powers.sum(2, keepdims=True), ("", 2**-15, 0), "int16"))[0] <= 3
    assert "f32" not in str(module)


@pytest.mark.parametrize("size", [16, 300])
def test_layer_norm_of_int16_is_done_in_floats(size):
    rng = np.random.default_rng(1)
    data = integers(1, (1, 20, size), "int16")
    real = data * 0.0001
    centered = real - real.mean(2, keepdims=True)
    weight, bias = (rng.normal(size=size).astype(np.float32) for _ in range(2))
    wanted = centered / np.sqrt((centered**2).mean(2, keepdims=True) + 1e-5) * weight + bias
    scale = float(np.abs(wanted).max() / 32000)
    b = Casts()
    b.functions.append(_layer_norm_in_floats(size))
    x = b.input((1, 20, size), "i16:f32, 0.0001")
    y = b.op("func.call", [x, b.constant(weight), b.constant(bias)], x[1], "{callee = @layer_norm}")
    module = b.module(b.requantized(y, f"i16:f32, {scale!r}"))
    (got,) = run(module, [data])
    assert "rsqrt" in names(module)
    assert off_by(got, ideal(wanted, ("", scale, 0), "int16"))[0] <= 1


def _layer_norm_in_floats(size: int) -> str:
    x, row, mean = tensor((1, 20, size)), tensor((1, 1, size)), tensor((1, 20, 1))
    vector, one = tensor((size,)), tensor((1, 1, 1))
    return f"""func.func private @layer_norm(%x: {x}, %w: {vector}, %b: {vector}) -> {x}
        attributes {{tosaic.composite = "layer_norm", tosaic.axis = 2 : i64, tosaic.epsilon = 1.0e-5 : f64}} {{
      %z = "tosa.const"() <{{values = dense<0> : tensor<1xi8>}}> : () -> tensor<1xi8>
      %n = "tosa.const"() <{{values = dense<{1 / size}> : {one}}}> : () -> {one}
      %e = "tosa.const"() <{{values = dense<1.0e-5> : {one}}}> : () -> {one}
      %d = tosa.const_shape {{values = dense<[1, 1, {size}]> : tensor<3xindex>}} : () -> !tosa.shape<3>
      %w1 = tosa.reshape %w, %d : ({vector}, !tosa.shape<3>) -> {row}
      %b1 = tosa.reshape %b, %d : ({vector}, !tosa.shape<3>) -> {row}
      %0 = tosa.reduce_sum %x {{axis = 2 : i32}} : ({x}) -> {mean}
      %1 = tosa.mul %0, %n, %z : ({mean}, {one}, tensor<1xi8>) -> {mean}
      %2 = tosa.sub %x, %1 : ({x}, {mean}) -> {x}
      %3 = tosa.mul %2, %2, %z : ({x}, {x}, tensor<1xi8>) -> {x}
      %4 = tosa.reduce_sum %3 {{axis = 2 : i32}} : ({x}) -> {mean}
      %5 = tosa.mul %4, %n, %z : ({mean}, {one}, tensor<1xi8>) -> {mean}
      %6 = tosa.add %5, %e : ({mean}, {one}) -> {mean}
      %7 = tosa.rsqrt %6 : ({mean}) -> {mean}
      %8 = tosa.mul %2, %7, %z : ({x}, {mean}, tensor<1xi8>) -> {x}
      %9 = tosa.mul %8, %w1, %z : ({x}, {row}, tensor<1xi8>) -> {x}
      %10 = tosa.add %9, %b1 : ({x}, {row}) -> {x}
      return %10 : {x}
    }}"""


@pytest.mark.parametrize(("size", "spread"), [(7, 30), (8, 500), (64, 3), (64, 200), (512, 30)])
def test_layer_norm_is_nearly_always_the_ideal_rounding(size, spread):
    rng = np.random.default_rng(1)
    weight, bias = (rng.normal(size=size).astype(np.float32) for _ in range(2))
    weight[:3], bias[2:4] = (0, 1e-12, 0), 0  # a channel of nothing but bias, one that it drowns, one that is always 0
    data = np.clip(rng.normal(10, spread, (1, 50, size)), -128, 127).astype(np.int8)
    real = (data.astype(float) - 3) * 0.03
    centered = real - real.mean(2, keepdims=True)
    wanted = centered / np.sqrt((centered**2).mean(2, keepdims=True) + 1e-5) * weight + bias
    kind = ("", float(np.abs(wanted).max() / 124), 4)
    module = _normalization("layer_norm", "i8:f32, 0.03:3", f"i8:f32, {kind[1]!r}:4", weight, bias)
    (got,) = evaluate(module, [data])
    most, share = off_by(got, ideal(wanted, kind))
    assert most <= 1
    assert share < 0.01


@pytest.mark.parametrize(
    ("size", "spread", "point"), [(7, 30, 3), (8, 500, 0), (64, 3, -128), (64, 200, 127), (512, 30, 3)]
)
def test_rms_norm_is_nearly_always_the_ideal_rounding(size, spread, point):
    rng = np.random.default_rng(1)
    weight = rng.normal(size=size).astype(np.float32)
    data = np.clip(rng.normal(10, spread, (1, 50, size)), -128, 127).astype(np.int8)
    data[0, :2] = [[point], [np.clip(point + 1, -128, 127)]]  # rows of zeros, and of one step
    real = (data.astype(float) - point) * 0.03
    wanted = real / np.sqrt((real**2).mean(2, keepdims=True) + 1e-5) * weight
    kind = ("", float(np.abs(wanted).max() / 124), 4)
    module = _normalization("rms_norm", f"i8:f32, 0.03:{point}", f"i8:f32, {kind[1]!r}:4", weight)
    (got,) = evaluate(module, [data])
    most, share = off_by(got, ideal(wanted, kind))
    assert most <= 1
    assert share < 0.01
    assert "f32" not in str(module)


@pytest.mark.parametrize(("size", "spread"), [(7, 3000), (64, 30000), (64, 400), (512, 9000)])
def test_rms_norm_of_int16_has_65_decibels(size, spread):
    rng = np.random.default_rng(1)
    weight = rng.normal(size=size).astype(np.float32)
    data = np.clip(rng.normal(10, spread, (1, 50, size)), -32768, 32767).astype(np.int16)
    data[0, 0] = 0
    real = data.astype(float) * 0.001
    wanted = real / np.sqrt((real**2).mean(2, keepdims=True) + 1e-5) * weight
    kind = ("", float(np.abs(wanted).max() / 32000), 0)
    module = _normalization("rms_norm", "i16:f32, 0.001", f"i16:f32, {kind[1]!r}", weight)
    (got,) = evaluate(module, [data])
    error = got * kind[1] - wanted
    assert 10 * np.log10((wanted**2).mean() / (error**2).mean()) > 65
    assert "f32" not in str(module)


def test_a_composite_that_stays_float_is_inlined():
    b = Casts()
    b.functions.append(_composite("softmax", 4, ["x"], ""))
    b.arguments.append("%arg0: tensor<1x50x4xf32>")
    module = b.module(b.op("func.call", [Value("%arg0", (1, 50, 4))], (1, 50, 4), "{callee = @softmax}"))
    run_phases(module)
    assert names(module) == ["abs"]
    assert list(functions(module)) == ["main"]


def test_what_is_not_quantized_stays_float_between_explicit_casts():
    b = Casts()
    x = b.input((4, 64), X[0])
    y = b.op("tosa.sin", [b.op("tosa.reduce_product", [x], (4, 1), "<{axis = 1 : i32}>")], (4, 1))
    module = b.module(b.requantized(y, Y[0]))
    data = np.full((4, 64), 53, np.int8)
    (got,) = run(module, [data])
    assert names(module) == ["cast", "sub", "mul", "reduce_product", "sin", "mul", "add", "clamp", "cast"]
    assert (got == ideal(np.sin(np.array(1.0)), Y)).all()


@pytest.mark.parametrize(
    ("storage", "flags", "scale", "zero_point", "message"),
    [
        ("i8", 1, float("nan"), 3, "a quantization scale is nan"),
        ("i8", 1, 0.0, 3, "a quantization scale is 0.0"),
        ("i8", 1, -0.5, 3, "a quantization scale is -0.5"),
        ("i8", 0, 0.5, 3, "unsigned quantization"),
        ("i16", 1, 0.5, 3, "a zero point of `i16` is not 0"),
    ],
)
def test_bad_quantization_is_answered_with_its_place(storage, flags, scale, zero_point, message, tmp_path):
    module = parse("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }")
    block = functions(module)["main"].regions[0].blocks[0]
    with module.context, ir.Location.file("model.py", 12, 3):
        kind = dialect("quant").UniformQuantizedType.get(
            flags, ir.Type.parse(storage), ir.F32Type.get(), scale, zero_point, 0, 100
        )
        ip = ir.InsertionPoint(block.operations[0])
        types = [ir.RankedTensorType.get([4], kind)]
        ir.Operation.create("quant.qcast", results=types, operands=[block.arguments[0]], ip=ip)
    with pytest.raises(PassError) as caught:
        run_passes(module, parse_pipeline("fold-casts"), failures=tmp_path)
    assert message in str(caught.value)
    assert "model.py" in str(caught.value)


@pytest.mark.parametrize("factor", [1e-18, 3e-9, 0.1, 0.5, 1.0, 77.7, 2.0**20])
def test_multiplier_and_shift(factor):
    multiplier, shift = multiplier_and_shift(factor)
    assert 2 <= shift <= 62
    assert 0 <= multiplier < 2**31
    assert abs(multiplier / 2.0**shift - factor) <= max(factor * 2.0**-30, 2.0**-62)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf"), 1e30])
def test_factors_that_no_rescale_can_take(factor):
    with pytest.raises(PassError):
        multiplier_and_shift(factor)


def test_quantization_saturates_and_rounds_half_to_even():
    one = Quantization("i8", (0.5,), (3,), None, -128, 127)
    assert one.quantize(np.array([0.25, 0.75, 1e9, -1e9])).tolist() == [3, 5, 127, -128]


def _normalization(kind: str, given: str, result: str, *vectors: np.ndarray) -> ir.Module:
    """A composite over the last axis of [1, 50, size], quantized so, with vectors of its channels, in integers."""
    size = len(vectors[0])
    b = Casts()
    b.functions.append(_composite(kind, size, ["x", "w", "b"][: 1 + len(vectors)], ", tosaic.epsilon = 1.0e-5 : f64"))
    x = b.input((1, 50, size), given)
    y = b.op("func.call", [x, *map(b.constant, vectors)], x[1], f"{{callee = @{kind}}}")
    module = b.module(b.requantized(y, result))
    for phase in ("legalize", "quantize"):
        run_phase(module, phase)
    return module


def _composite(kind: str, size: int, arguments: list[str], more: str) -> str:
    types = [tensor((1, 50, size)), tensor((size,)), tensor((size,))]
    signature = ", ".join(f"%{name}: {type_}" for name, type_ in zip(arguments, types, strict=False))
    body = f"%0 = tosa.abs %x : ({types[0]}) -> {types[0]}\n  return %0 : {types[0]}"
    attributes = f'{{tosaic.composite = "{kind}", tosaic.axis = 2 : i64{more}}}'
    return f"func.func private @{kind}({signature}) -> {types[0]} attributes {attributes} {{\n  {body}\n}}"
