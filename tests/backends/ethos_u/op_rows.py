"""One small graph for each op, element type and form of TOSA's integer profile: what the NPU tests run over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tosa_graphs import Graph, random_input

from tosaic.support.mlir import element_type, ir, shape_of

Build = Callable[[Graph, np.random.Generator], ir.Value]
Sample = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


@dataclass(frozen=True)
class OpRow:
    """A graph and what to feed it.

    Args:
        build: appends the op to a graph and returns its result.
        limit: i32 inputs lie within +-limit, lest TOSA's accumulators overflow.
        samples: how to draw the input of that index, where its values are not free.
    """

    name: str
    build: Build
    limit: int = 2**28
    samples: tuple[tuple[int, Sample], ...] = ()

    def graph(self, seed: int = 1) -> tuple[Graph, ir.Module]:
        graph = Graph()
        return graph, graph.module(self.build(graph, np.random.default_rng(seed)))

    def inputs(self, graph: Graph, seed: int = 2) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [self._input(rng, index, value) for index, value in enumerate(graph.inputs)]

    def _input(self, rng: np.random.Generator, index: int, value: ir.Value) -> np.ndarray:
        shape, element = shape_of(value), str(element_type(value))
        if index in dict(self.samples):
            return dict(self.samples)[index](rng, shape)
        if element == "i32":
            return rng.integers(-self.limit, self.limit, shape).astype(np.int32)
        return random_input(rng, shape, element)


S = (1, 4, 6, 8)
INTEGERS = ("i8", "i16", "i32")
NAN = {"nan_mode": "PROPAGATE"}
ROWS: dict[str, OpRow] = {}


def _row(name: str, build: Build, **options) -> None:
    assert name not in ROWS
    ROWS[name] = OpRow(name, build, **options)


def _shift_amounts(bits: int) -> Sample:
    return lambda rng, shape: rng.integers(0, bits - 1, shape).astype(f"int{bits}")


def _divisors(rng, shape):
    return (rng.integers(1, 1000, shape) * rng.choice([-1, 1], shape)).astype(np.int32)


def _positions(rng, shape):
    return np.stack([rng.permutation(10)[: shape[1]] for _ in range(shape[0])]).astype(np.int32)


def _unary(name: str, element: str, result: str = "", shape=S, **attributes) -> Build:
    return lambda g, _: g.unary(name, g.input(shape, element), result, **attributes)


def _binary(name: str, element: str, result: str = "", a=S, b=S, **attributes) -> Build:
    return lambda g, _: g.binary(name, g.input(a, element), g.input(b, element), result, **attributes)


def _elementwise() -> None:
    for name in ("add", "sub"):
        _row(f"{name} i32", _binary(name, "i32"))
    for name in ("maximum", "minimum"):
        _row(f"{name} i32", _binary(name, "i32", **NAN))
        for element in ("i8", "i16"):
            _row(f"{name} scaled {element}", lambda g, _, n=name, e=element: _scaled_extremum(g, n, e))
    _row("abs i32", _unary("abs", "i32"))
    _row("clz i32", _unary("clz", "i32"), limit=2**31)
    for b in ((1, 1, 1, 8), (1, 4, 1, 1), (1, 1, 6, 1), (1, 1, 1, 1)):
        _row(f"add i32 broadcast {b}", _binary("add", "i32", b=b))
    _row("add i32 broadcast both", _binary("add", "i32", a=(1, 4, 1, 8), b=(1, 1, 6, 8)))
    for rank in (0, 1, 2, 3, 5, 6):
        _row(f"add i32 rank {rank}", _binary("add", "i32", a=(2,) * rank, b=(2,) * rank))
    for element in INTEGERS:
        _row(f"mul {element}", lambda g, _, e=element: g.mul(g.input(S, e), g.input(S, e)), limit=2**15)
        _row(f"negate {element}", lambda g, _, e=element: _negate(g, e))
        if element != "i32":
            _row(f"clamp {element}", lambda g, _, e=element: g.clamp(g.input(S, e), -20, 77))
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
            _row(f"{name} {element}", _binary(name, element))
        _row(f"bitwise_not {element}", _unary("bitwise_not", element))
        amounts = ((1, _shift_amounts(int(element[1:]))),)
        for name in ("logical_left_shift", "logical_right_shift"):
            _row(f"{name} {element}", _binary(name, element), samples=amounts)
        for rounding in (True, False):
            build = _binary("arithmetic_right_shift", element, round=rounding)
            _row(f"arithmetic_right_shift round={rounding} {element}", build, samples=amounts)
        _row(
            f"select {element}",
            lambda g, _, e=element: g.op("select", [g.input(S, "i1"), g.input(S, e), g.input(S, e)], S, e),
        )
    _row("mul i32 shift 31", lambda g, _: g.mul(g.input(S, "i32"), g.input(S, "i32"), shift=31))
    _row("intdiv i32", _binary("intdiv", "i32"), samples=((1, _divisors),))
    for name in ("equal", "greater", "greater_equal"):
        _row(f"{name} i32", _binary(name, "i32", "i1"), limit=3)
    for name in ("logical_and", "logical_or", "logical_xor"):
        _row(f"{name} i1", _binary(name, "i1"))
    _row("logical_not i1", _unary("logical_not", "i1"))
    _row("table i8", lambda g, rng: g.table(g.input(S, "i8"), rng.integers(-128, 128, 256)))
    steps = lambda rng: np.clip(np.cumsum(rng.integers(-60, 60, 513)), -30000, 30000)  # noqa: E731
    _row("table i16", lambda g, rng: g.table(g.input(S, "i16"), steps(rng)))


def _scaled_extremum(g: Graph, name: str, element: str) -> ir.Value:
    wide = [g.requantize(g.input(S, element), "i32", scale) for scale in (0.7, 190.3)]
    return g.requantize(g.binary(name, *wide, **NAN), element, 0.41)


def _negate(g: Graph, element: str) -> ir.Value:
    x = g.input(S, element)
    return g.op("negate", [x, g.const([0], element), g.const([0], element)], S, element)


def _reductions() -> None:
    for element in INTEGERS:
        for name in ("reduce_max", "reduce_min"):
            for axis in (1, 2, 3):
                _row(
                    f"{name} axis {axis} {element}",
                    lambda g, _, n=name, e=element, a=axis: g.reduce(n, g.input(S, e), a, **NAN),
                )
    for axis in (0, 1, 2, 3):
        _row(
            f"reduce_sum axis {axis} i32",
            lambda g, _, a=axis: g.reduce("reduce_sum", g.input((3, 4, 6, 8), "i32"), a),
            limit=2**24,
        )
    for name in ("reduce_all", "reduce_any"):
        _row(f"{name} i1", lambda g, _, n=name: g.reduce(n, g.input(S, "i1"), 3))
    for element in ("i8", "i16"):
        for axis, shape in ((1, (1, 6, 8)), (2, (1, 4, 8)), (3, (1, 4, 6))):
            _row(
                f"argmax axis {axis} {element}",
                lambda g, _, e=element, a=axis, s=shape: g.op("argmax", [g.input(S, e)], s, "i32", axis=a, **NAN),
            )
    _row(
        "argmax 128 channels i8",
        lambda g, _: g.op("argmax", [g.input((1, 2, 3, 128), "i8")], (1, 2, 3), "i32", axis=3, **NAN),
    )
    _row(
        "argmax batch 2 i8",
        lambda g, _: g.op("argmax", [g.input((2, 4, 6, 8), "i8")], (2, 4, 6), "i32", axis=3, **NAN),
    )


def _pools() -> None:
    for element in ("i8", "i16"):
        for kind in ("max", "avg"):
            _row(f"{kind}_pool2d {element}", lambda g, _, k=kind, e=element: g.pool(k, g.input(S, e), (2, 2), (2, 2)))
            _row(
                f"{kind}_pool2d 3x3 padded {element}",
                lambda g, _, k=kind, e=element: g.pool(k, g.input((1, 12, 12, 16), e), (3, 3), (1, 1), (1, 1, 1, 1)),
            )
            _row(
                f"{kind}_pool2d stride 4 {element}",
                lambda g, _, k=kind, e=element: g.pool(k, g.input((1, 8, 8, 8), e), (4, 4), (4, 4)),
            )
    for kind in ("max", "avg"):
        _row(f"{kind}_pool2d batch 2 i8", lambda g, _, k=kind: g.pool(k, g.input((2, 4, 6, 8)), (2, 2), (2, 2)))
        _row(
            f"{kind}_pool2d 9x9 padded i8",
            lambda g, _, k=kind: g.pool(k, g.input((1, 12, 12, 8)), (9, 9), (1, 1), (4, 4, 4, 4)),
        )
    _row("avg_pool2d global 7x7 i8", lambda g, _: g.pool("avg", g.input((1, 7, 7, 48)), (7, 7), zero=-5))
    _row("avg_pool2d global 16x16 i8", lambda g, _: g.pool("avg", g.input((1, 16, 16, 8)), (16, 16), zero=7))
    _row(
        "avg_pool2d two zero points i8",
        lambda g, _: g.pool("avg", g.input((1, 12, 12, 16)), (3, 3), (1, 1), (1, 1, 1, 1), zero=3, out_zero=-9),
    )


def _movement() -> None:
    for element in (*INTEGERS, "i1"):
        _row(f"concat {element}", lambda g, _, e=element: g.concat([g.input(S, e), g.input(S, e)], 3))
        _row(f"reshape {element}", lambda g, _, e=element: g.reshape(g.input(S, e), (4, 48)))
        _row(f"identity {element}", _unary("identity", element))
    for element in INTEGERS:
        _row(f"concat height {element}", lambda g, _, e=element: g.concat([g.input(S, e), g.input((1, 2, 6, 8), e)], 1))
        _row(f"pad {element}", lambda g, _, e=element: g.pad(g.input(S, e), (0, 0, 1, 2, 3, 1, 0, 4), -7))
        _row(f"slice {element}", lambda g, _, e=element: g.slice(g.input(S, e), (0, 1, 1, 2), (1, 2, 3, 4)))
        _row(f"tile {element}", lambda g, _, e=element: g.tile(g.input(S, e), (1, 2, 1, 2)))
        for axis in (1, 2, 3):
            _row(f"reverse axis {axis} {element}", _unary("reverse", element, axis=axis))
        for perms in ((0, 2, 1, 3), (0, 3, 1, 2), (0, 2, 3, 1), (0, 3, 2, 1), (0, 1, 3, 2)):
            text = "".join(map(str, perms))
            _row(f"transpose {text} {element}", lambda g, _, e=element, p=perms: g.transpose(g.input(S, e), p))
        _row(
            f"transpose 03142 {element}",
            lambda g, _, e=element: g.transpose(g.input((2, 3, 4, 5, 6), e), (0, 3, 1, 4, 2)),
        )
        _row(
            f"gather {element}",
            lambda g, _, e=element: g.op("gather", [g.input((1, 10, 8), e), g.input((1, 5), "i32")], (1, 5, 8), e),
            samples=((1, _positions),),
        )
        _row(
            f"scatter {element}",
            lambda g, _, e=element: g.op(
                "scatter", [g.input((1, 10, 8), e), g.input((1, 5), "i32"), g.input((1, 5, 8), e)], (1, 10, 8), e
            ),
            samples=((1, _positions),),
        )
    _row(
        "gather batch 2 i8",
        lambda g, _: g.op("gather", [g.input((2, 10, 8), "i8"), g.input((2, 5), "i32")], (2, 5, 8), "i8"),
        samples=((1, _positions),),
    )
    _row(
        "scatter batch 2 i8",
        lambda g, _: g.op(
            "scatter", [g.input((2, 10, 8), "i8"), g.input((2, 5), "i32"), g.input((2, 5, 8), "i8")], (2, 10, 8), "i8"
        ),
        samples=((1, _positions),),
    )


RESIZES = {
    "x2 aligned": ((2, 1, 2, 1), (0, 0), (0, 0)),
    "x4 aligned": ((4, 1, 4, 1), (0, 0), (0, 0)),
    "x8 aligned": ((8, 1, 8, 1), (0, 0), (0, 0)),
    "x2 centered": ((4, 2, 4, 2), (-1, -1), (1, 1)),
    "x4 centered": ((8, 2, 8, 2), (-3, -3), (3, 3)),
    "x8 centered": ((16, 2, 16, 2), (-7, -7), (7, 7)),
    "x2": ((4, 2, 4, 2), (0, 0), (2, 2)),
    "x2 aligned halves": ((4, 2, 4, 2), (0, 0), (0, 0)),
    "x3": ((6, 2, 6, 2), (0, 0), (0, 0)),
    "x2 bordered": ((2, 1, 2, 1), (0, 0), (1, 1)),
    "half": ((2, 4, 2, 4), (0, 0), (-2, -2)),
    "x2 by x4": ((2, 1, 4, 1), (0, 0), (0, 0)),
}


def _resizes() -> None:
    for form, (scale, offset, border) in RESIZES.items():
        for element in ("i8", "i16"):
            resize = lambda g, mode, e=element, s=scale, o=offset, b=border: g.resize(g.input(S, e), mode, s, o, b)  # noqa: E731
            _row(f"resize nearest {form} {element}", lambda g, _, r=resize: r(g, "NEAREST_NEIGHBOR"))
            factor = scale[0] * scale[2]
            if factor & (factor - 1) == 0:
                shift = 14 + factor.bit_length() - 1
                _row(
                    f"resize bilinear {form} {element}",
                    lambda g, _, r=resize, e=element, s=shift: g.rescale(
                        r(g, "BILINEAR"), e, 2**14, s, scale32=e == "i8"
                    ),
                )
    _row("resize bilinear x2 centered alone i8", lambda g, _: g.resize(g.input(S), "BILINEAR", *RESIZES["x2 centered"]))


def _conversions() -> None:
    for source in INTEGERS:
        for target in INTEGERS:
            if source != target:
                _row(f"cast {source} to {target}", _unary("cast", source, target))
            pair = f"{source} to {target}"
            for rounding in ("SINGLE_ROUND", "DOUBLE_ROUND", "INEXACT_ROUND"):
                _row(
                    f"rescale {rounding} {pair}",
                    lambda g, _, s=source, t=target, r=rounding: g.requantize(g.input(S, s), t, 0.37, rounding=r),
                )
            _row(
                f"rescale scale16 {pair}",
                lambda g, _, s=source, t=target: g.rescale(g.input(S, s), t, 20000, 15, scale32=False),
            )
            _row(
                f"rescale per channel {pair}",
                lambda g, rng, s=source, t=target: g.requantize(g.input(S, s), t, rng.uniform(0.1, 0.9, 8)),
            )
        _row(f"cast i1 to {source}", _unary("cast", "i1", source))
        _row(f"cast {source} to i1", _unary("cast", source, "i1"))
        if source == "i32":
            continue
        for target, zero in (("i8", 128), ("i16", 32768)):
            _row(
                f"rescale {source} to unsigned {target}",
                lambda g, _, s=source, t=target, z=zero: g.requantize(
                    g.input(S, s), t, 0.37, output_zero=z - 2 ** int(t[1:]), output_unsigned=True
                ),
            )
            _row(
                f"rescale unsigned {source} to {target}",
                lambda g, _, s=source, t=target: g.requantize(g.input(S, s), t, 0.37, input_unsigned=True),
            )
    _row("rescale i8 zero points", lambda g, _: g.requantize(g.input(S), "i8", 0.73, input_zero=5, output_zero=-7))


def conv(
    element: str = "i8", *, depthwise=False, multiplier=1, weight_type="i8", kernel=(3, 3), shape=(1, 9, 9, 8),
    channels=8, result="", per_channel=True, dynamic=False, **geometry,
) -> Build:  # fmt: skip
    """A convolution with random small weights, followed by a RESCALE to `result` where that is given."""

    def build(g: Graph, rng: np.random.Generator) -> ir.Value:
        x = g.input(shape, element)
        if depthwise:
            weights = rng.integers(-7, 8, (*kernel, shape[3], multiplier))
            y = g.depthwise_conv2d(
                x, weights, rng.integers(-99, 99, shape[3] * multiplier), weight_type=weight_type, **geometry
            )
        else:
            size = (channels, *kernel, shape[3])
            weights = g.input(size, weight_type) if dynamic else rng.integers(-7, 8, size)
            y = g.conv2d(x, weights, rng.integers(-99, 99, channels), weight_type=weight_type, **geometry)
        if not result:
            return y
        scales = rng.uniform(0.004, 0.01, shape_of(y)[3] if per_channel else 1) * (1 if element == "i8" else 0.3)
        return g.requantize(y, result, scales)

    return build


def _convolutions() -> None:
    for depthwise, name in ((False, "conv2d"), (True, "depthwise_conv2d")):
        for element in ("i8", "i16"):
            for result in ("", "i8", "i16", "i32"):
                to = f" to {result}" if result else ""
                if not (element == "i16" and not result):
                    _row(f"{name} {element}{to}", conv(element, depthwise=depthwise, result=result))
        _row(f"{name} i8 by i4", conv(depthwise=depthwise, weight_type="i4", result="i8"))
        for stride in ((2, 2), (3, 3), (4, 4), (1, 2)):
            build = conv(
                depthwise=depthwise,
                stride=stride,
                shape=(1, 11, 11, 8) if stride[0] == 4 else (1, 9, 9, 8),
                result="i8",
            )
            _row(f"{name} stride {stride}", build)
        for dilation in ((2, 2), (3, 3), (1, 2)):
            _row(f"{name} dilation {dilation}", conv(depthwise=depthwise, dilation=dilation, result="i8"))
        _row(
            f"{name} stride 4 kernel 4",
            conv(depthwise=depthwise, kernel=(4, 4), stride=(4, 4), shape=(1, 16, 16, 8), result="i8"),
        )
        _row(f"{name} batch 2", conv(depthwise=depthwise, shape=(2, 9, 9, 8), result="i8"))
        _row(
            f"{name} padded 5x5", conv(depthwise=depthwise, kernel=(5, 5), pad=(2, 2, 2, 2), result="i8", input_zero=-3)
        )
    _row("depthwise_conv2d multiplier 2", conv(depthwise=True, multiplier=2, result="i8"))
    _row("conv2d kernel 65", conv(kernel=(65, 65), shape=(1, 66, 66, 2), result="i8"))
    _row("conv2d 1x1 wide", conv(kernel=(1, 1), shape=(1, 4, 4, 320), channels=200, result="i8"))
    _row(
        "conv2d first layer",
        conv(shape=(1, 16, 16, 3), channels=24, stride=(2, 2), pad=(0, 1, 0, 1), result="i8", input_zero=-128),
    )
    _row("conv2d computed weights 3x3", conv(dynamic=True, per_channel=False, result="i8"))
    _row("conv2d computed weights 1x1", conv(dynamic=True, per_channel=False, kernel=(1, 1), result="i8"))
    _row("conv2d computed weights 1x1 per channel", conv(dynamic=True, kernel=(1, 1), result="i8"))
    _row("fully connected", conv(kernel=(1, 1), shape=(1, 1, 1, 300), channels=50, result="i8"))
    for element in ("i8", "i16"):
        _row(f"matmul {element} to {element}", lambda g, _, e=element: _matmul(g, e))
        for kz in (1, 3):
            _row(f"conv3d depth {kz} {element}", lambda g, rng, e=element, k=kz: _conv3d(g, rng, e, k))
        for stride in (1, 2, 3):
            _row(
                f"transpose_conv2d stride {stride} {element}",
                lambda g, rng, e=element, s=stride: _transpose_conv(g, rng, e, s),
            )
    _row("matmul i8", lambda g, _: g.matmul(g.input((2, 5, 16)), g.input((2, 16, 7)), 3, -4))


def _matmul(g: Graph, element: str) -> ir.Value:
    y = g.matmul(g.input((2, 5, 16), element), g.input((2, 16, 7), element))
    return g.requantize(y, element, 0.002 if element == "i8" else 2e-5)


def _conv3d(g: Graph, rng: np.random.Generator, element: str, depth: int) -> ir.Value:
    accumulator = "i32" if element == "i8" else "i48"
    weights = g.const(rng.integers(-7, 8, (12, depth, 3, 3, 8)), "i8")
    zeros = [g.const(np.zeros(12), accumulator), g.const([0], element), g.const([0], "i8")]
    y = g.op(
        "conv3d", [g.input((1, 4, 8, 8, 8), element), weights, *zeros], (1, 5 - depth, 6, 6, 12), accumulator,
        acc_type=accumulator, pad=[0] * 6, stride=[1] * 3, dilation=[1] * 3,
    )  # fmt: skip
    return g.requantize(y, element, 0.002)


def _transpose_conv(g: Graph, rng: np.random.Generator, element: str, stride: int) -> ir.Value:
    weights, bias = rng.integers(-7, 8, (12, 3, 3, 16)), rng.integers(-999, 999, 12)
    y = g.transpose_conv2d(g.input((1, 7, 7, 16), element), weights, bias, stride=(stride, stride))
    return g.requantize(y, element, 0.002)


for _family in (_elementwise, _reductions, _pools, _movement, _resizes, _conversions, _convolutions):
    _family()
