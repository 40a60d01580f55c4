"""The generic path: a TOSA kernel function through linalg to loops, by upstream passes."""

from __future__ import annotations

import itertools
import math
import re

from tosaic.backends.cortex_m.casts import cast_by_sums
from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.linalg_memory import allocations_to_scratch, constants_to_params, set_c_signature
from tosaic.backends.cortex_m.phases import by_phases
from tosaic.support.attributes import ints_of
from tosaic.support.errors import BackendError
from tosaic.support.functions import body_of, retype, standalone
from tosaic.support.mlir import (
    constant_shape,
    constant_value,
    dense,
    dense_values,
    dialect,
    element_type,
    functions,
    ir,
    run_pipeline,
    shape_of,
    walk,
)
from tosaic.support.tosa_builder import emit, rebuild, reshape, sliced
from tosaic.support.values import producer

_TO_LINALG = (
    "func.func(tosa-optional-decompositions,canonicalize,tosa-infer-shapes,tosa-make-broadcastable,"
    "tosa-to-scf,tosa-to-linalg-named,tosa-to-linalg,tosa-to-arith{include-apply-rescale=true},tosa-to-tensor),"
    "canonicalize,cse"
)
_FUSE = "linalg-generalize-named-ops,linalg-fuse-elementwise-ops,canonicalize,cse"
_BUFFERIZE = (
    "eliminate-empty-tensors,empty-tensor-to-alloc-tensor,"
    "one-shot-bufferize{bufferize-function-boundaries=1 function-boundary-type-conversion=identity-layout-map},"
    "buffer-results-to-out-params{hoist-static-allocs=true modify-public-functions=true},canonicalize,cse"
)
_LOOPS = "convert-linalg-to-loops,fold-memref-alias-ops,lower-affine,canonicalize,cse,loop-invariant-code-motion"
_MUCH_LARGER = 8  # elements of a result for each of the input with what its stride adds


def lower(source: ir.Module, symbol: str) -> KernelSource:
    """The kernel of an outlined TOSA function.

    Args:
        source: a module of one `func.func` of tosa ops.
        symbol: the C symbol of the kernel.

    Raises:
        Error: an op has no lowering; the message names it.
    """
    named = functions(source)
    if len(named) != 1:
        raise BackendError(f"a kernel is one function, this module has {len(named)}", why=", ".join(named))
    (kernel,) = named.values()
    module = kernel_module(kernel, symbol)
    (kernel,) = functions(module).values()
    _decompose_transpose_conv2d(kernel)
    _double_single_pixels(kernel)
    _pad_before_single_taps(kernel)
    run_pipeline(module, f"builtin.module({_TO_LINALG},{_FUSE})")
    with module.context:
        (kernel,) = functions(module).values()
        _carry_in_place(kernel)
        _keep_inputs(kernel)
    run_pipeline(module, f"builtin.module({_BUFFERIZE})")
    with module.context:
        (kernel,) = functions(module).values()
        _expand_copies(kernel)
    run_pipeline(module, f"builtin.module({_LOOPS})")
    (kernel,) = functions(module).values()
    with module.context, ir.Location.unknown():
        cast_by_sums(kernel)
        params, scratch = set_c_signature(kernel)
        constants = constants_to_params(module, kernel, params)
        scratch_bytes = allocations_to_scratch(kernel, scratch)
    for op in walk(module):
        if op.name.startswith(("tosa.", "linalg.", "tensor.", "bufferization.")):
            raise BackendError(f"`{op.name}` has no lowering to loops", why=str(op)[:500])
    return KernelSource(symbol, "mlir", _store_i48_as_i64(f"{kernel}\n"), bytes(constants), scratch_bytes)


def kernel_module(function: ir.Operation, symbol: str) -> ir.Module:
    """A module of a copy of the function alone, called `symbol`, without annotations, and with i4 widened to i8."""
    module = standalone(function, symbol)
    (kernel,) = functions(module).values()
    with module.context, ir.Location.unknown():
        _widen_i4(kernel)
    return module


def _widen_i4(kernel: ir.Operation) -> None:
    """Make every i4 an i8: the same values, and a byte each in memory as the runtime has them."""
    narrow, wide = ir.IntegerType.get_signless(4), ir.IntegerType.get_signless(8)
    arguments = list(body_of(kernel).arguments)
    operations = list(walk(kernel))
    for op in operations:
        if op.name == "tosa.const" and ir.ShapedType(op.results[0].type).element_type == narrow:
            op.attributes["values"] = dense(dense_values(op.attributes["values"]))
    for value in [*arguments, *(result for op in operations for result in op.results)]:
        if isinstance(value.type, ir.RankedTensorType) and value.type.element_type == narrow:
            value.set_type(ir.RankedTensorType.get(value.type.shape, wide))
    retype(kernel)


def _decompose_transpose_conv2d(kernel: ir.Operation) -> None:
    """TRANSPOSE_CONV2D as CONV2D where upstream's decomposition pads with the wrong type, int16, or keeps a result that
    is much larger than its input twice over."""
    for op in walk(kernel):
        if op.name != "tosa.transpose_conv2d":
            continue
        x, strides = op.operands[0], ints_of(op, "stride")
        larger = math.prod(shape_of(op.results[0])) >= _MUCH_LARGER * math.prod(strides) * math.prod(shape_of(x))
        apart = max(strides) > 1
        if str(element_type(x)) != "i16" and not (larger and apart):
            continue
        with ir.InsertionPoint(op), op.location:
            conv = by_phases(op) if apart and not larger else None
            conv = _spread_conv2d(op) if conv is None else conv
        op.results[0].replace_all_uses_with(conv)
        op.erase()


def _spread_conv2d(op: ir.Operation) -> ir.Value:
    """A convolution of stride 1 that gives what a transposed one gives.

    The input is spread with zero points, stride - 1 between neighbors, and the kernel is reversed. The padding is the
    kernel's size less one plus `out_pad`.
    """
    x, weights, *rest = op.operands
    kernel_size, out_pad = shape_of(weights)[1:3], ints_of(op, "out_pad")
    pad = [out_pad[i] + kernel_size[i // 2] - 1 for i in range(4)]
    operands = [_spread(x, rest[1], *ints_of(op, "stride")), _reversed(_reversed(weights, 1), 2), *rest]
    window = {"pad": pad, "stride": (1, 1), "dilation": (1, 1), "acc_type": op.attributes["acc_type"]}
    return emit("conv2d", operands, shape_of(op.results[0]), element_type(op.results[0]), **window)


def _double_single_pixels(kernel: ir.Operation) -> None:
    """A bilinear RESIZE of one int16 pixel, which upstream multiplies in the wrong type, as one of two equal pixels.

    The border (TOSA 1.0, 2.9 RESIZE) gives up the width that is added, so that the result keeps its own.
    """
    for op in walk(kernel):
        if op.name != "tosa.resize" or str(element_type(op.results[0])) != "i48":
            continue
        x, scale, offset, border = op.operands
        n, *size, c = shape_of(x)
        scales, borders = constant_value(scale), constant_value(border)
        if size != [1, 1] or scales is None or borders is None:
            continue
        with ir.InsertionPoint(op), op.location:
            pair = emit("concat", [x, x], (n, 1, 2, c), element_type(x), axis=2)
            less = constant_shape((borders - (0, scales[2])).tolist())
            resized = rebuild(op, [pair, scale, offset, less], op.results[0].type)
        op.results[0].replace_all_uses_with(resized)
        op.erase()


def _pad_before_single_taps(kernel: ir.Operation) -> None:
    """DEPTHWISE_CONV2D of 1 x 1, whose upstream decomposition pads with the wrong type, behind a PAD."""
    for op in walk(kernel):
        if op.name != "tosa.depthwise_conv2d" or shape_of(op.operands[1])[:2] != (1, 1) or not any(ints_of(op, "pad")):
            continue
        x, *rest = op.operands
        (n, h, w, c), (top, bottom, left, right) = shape_of(x), ints_of(op, "pad")
        window = {name: op.attributes[name] for name in ("stride", "dilation", "acc_type")}
        with ir.InsertionPoint(op), op.location:
            amounts = constant_shape((0, 0, top, bottom, left, right, 0, 0))
            padded = emit("pad", [x, amounts, rest[2]], (n, h + top + bottom, w + left + right, c), element_type(x))
            shape, element = shape_of(op.results[0]), element_type(op.results[0])
            conv = emit("depthwise_conv2d", [padded, *rest], shape, element, pad=(0, 0, 0, 0), **window)
        op.results[0].replace_all_uses_with(conv)
        op.erase()


def _spread(x: ir.Value, zero_point: ir.Value, stride_y: int, stride_x: int) -> ir.Value:
    """NHWC `x` with stride - 1 zero points between neighboring rows and columns."""
    n, h, w, c = shape_of(x)
    element = element_type(x)
    amounts = constant_shape((0, 0, 0, 0, 0, stride_y - 1, 0, 0, 0, stride_x - 1, 0, 0))
    apart = [reshape(x, (n, h, 1, w, 1, c)), amounts, zero_point]
    spread = reshape(emit("pad", apart, (n, h, stride_y, w, stride_x, c), element), (n, h * stride_y, w * stride_x, c))
    size = (n, (h - 1) * stride_y + 1, (w - 1) * stride_x + 1, c)
    return sliced(spread, (0, 0, 0, 0), size)


def _reversed(x: ir.Value, axis: int) -> ir.Value:
    return emit("reverse", [x], shape_of(x), element_type(x), axis=axis)


def _store_i48_as_i64(text: str) -> str:
    """Give i48 in memory the eight bytes and the sign extension that it has at a kernel's interface."""
    names = itertools.count()

    def load(match: re.Match[str]) -> str:
        wide = f"%wide{next(names)}"
        return f"{wide} = memref.load{match[2]}\n{match[1]} = arith.trunci {wide} : i64 to i48"

    def store(match: re.Match[str]) -> str:
        wide = f"%wide{next(names)}"
        return f"{wide} = arith.extsi {match[1]} : i48 to i64\nmemref.store {wide},{match[2]}"

    text = re.sub(r"(%\S+) = memref\.load(.*xi48>)", load, text)
    text = re.sub(r"memref\.store (%\S+),(.*xi48>)", store, text)
    return text.replace("xi48>", "xi64>").replace("xi48,", "xi64,")


def _carry_in_place(kernel: ir.Operation) -> None:
    """Let each iteration of a loop write what it gives over what it got, where it does not already."""
    linalg, tensor = dialect("linalg"), dialect("tensor")
    for loop in walk(kernel):
        if loop.name != "scf.while":
            continue
        iteration = loop.regions[1].blocks[0]
        *_, end = (op.operation for op in iteration.operations)
        arguments = list(iteration.arguments)
        with ir.InsertionPoint(end), end.location:
            for number, value in enumerate(end.operands):
                if value in arguments and value != arguments[number]:
                    apart = tensor.EmptyOp(shape_of(value), element_type(value)).result
                    end.operands[number] = linalg.copy(value, outs=[apart])
            for number, (value, given) in enumerate(zip(list(end.operands), arguments, strict=True)):
                rows = producer(value, "scf.for")  # of a SCATTER
                if value != given and (rows is None or given not in rows.operands):
                    end.operands[number] = linalg.copy(value, outs=[given])


def _keep_inputs(kernel: ir.Operation) -> None:
    """Forbid that bufferization writes over an argument, as a loop would that begins with it."""
    constant_ = ir.DictAttr.get({"bufferization.writable": ir.BoolAttr.get(False)})
    kernel.attributes["arg_attrs"] = ir.ArrayAttr.get([constant_] * len(body_of(kernel).arguments))


def _expand_copies(kernel: ir.Operation) -> None:
    """memref.copy, which would become a call of MLIR's run-time library, to linalg.copy."""
    for op in walk(kernel):
        if op.name == "memref.copy":
            source, target = op.operands
            with ir.InsertionPoint(op), op.location:
                dialect("linalg").copy(source, outs=[target])
            op.erase()
