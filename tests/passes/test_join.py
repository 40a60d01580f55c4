"""Calls of `main` that become one keep their meaning, also with views between them."""

from __future__ import annotations

import numpy as np
import pytest

from tosaic.backends.reference import evaluate
from tosaic.passes.place.join import join
from tosaic.support.attributes import text_of
from tosaic.support.functions import body_of, callee_of, computing_ops
from tosaic.support.mlir import functions, parse

MODULE = """
module {
  func.func @main(%x: tensor<1x6x4xi8>) -> (tensor<1x4x4xi8>, tensor<24xi8>) {
    %0 = func.call @first(%x) : (tensor<1x6x4xi8>) -> tensor<1x6x4xi8>
    %flat = tosa.const_shape {values = dense<[24]> : tensor<1xindex>} : () -> !tosa.shape<1>
    %1 = tosa.reshape %0, %flat : (tensor<1x6x4xi8>, !tosa.shape<1>) -> tensor<24xi8>
    %image = tosa.const_shape {values = dense<[1, 6, 4]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %2 = tosa.reshape %1, %image : (tensor<24xi8>, !tosa.shape<3>) -> tensor<1x6x4xi8>
    %3 = func.call @second(%2) : (tensor<1x6x4xi8>) -> tensor<1x4x4xi8>
    return %3, %1 : tensor<1x4x4xi8>, tensor<24xi8>
  }
  func.func private @first(%x: tensor<1x6x4xi8>) -> tensor<1x6x4xi8> {
    %0 = tosa.clamp %x {min_val = -9 : i8, max_val = 9 : i8} : (tensor<1x6x4xi8>) -> tensor<1x6x4xi8>
    return %0 : tensor<1x6x4xi8>
  }
  func.func private @second(%x: tensor<1x6x4xi8>) -> tensor<1x4x4xi8> {
    %begin = tosa.const_shape {values = dense<[0, 2, 0]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %size = tosa.const_shape {values = dense<[1, 4, 4]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %0 = tosa.slice %x, %begin, %size
        : (tensor<1x6x4xi8>, !tosa.shape<3>, !tosa.shape<3>) -> tensor<1x4x4xi8>
    return %0 : tensor<1x4x4xi8>
  }
}
"""


@pytest.mark.parametrize("flat_is_read", [True, False])
def test_a_view_between_joined_calls_goes_where_it_is_read(flat_is_read):
    text = MODULE
    if not flat_is_read:
        text = text.replace(", tensor<24xi8>) {", ") {").replace("return %3, %1", "return %3")
        text = text.replace(": tensor<1x4x4xi8>, tensor<24xi8>\n", ": tensor<1x4x4xi8>\n")
    module = parse(text)
    join(module, ["first", "second"], "both")
    assert module.operation.verify()
    main, joined = functions(module)["main"], functions(module)["both"]
    calls = [op.operation for op in body_of(main).operations if op.operation.name == "func.call"]
    assert [callee_of(call) for call in calls] == ["both"]
    assert len(calls[0].results) == 1 + flat_is_read
    assert sum(op.operation.name == "tosa.reshape" for op in body_of(main).operations) == flat_is_read
    x = np.random.default_rng(0).integers(-128, 128, (1, 6, 4)).astype(np.int8)
    clamped = np.clip(x, -9, 9)
    found = evaluate(f"module {{\n{str(joined).replace('private @both', '@main').replace('@both', '@main')}\n}}", [x])
    wanted = [clamped, clamped[:, 2:]] if flat_is_read else [clamped[:, 2:]]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_view_between_joined_calls_stays_on_the_cpu_for_the_reason_of_what_reads_it():
    text = MODULE.replace("max_val = 9 : i8}", 'max_val = 9 : i8, tosaic.reason = "first"}')
    module = parse(text.replace("%begin, %size\n", '%begin, %size {tosaic.reason = "second"}\n'))
    join(module, ["first", "second"], "both")
    reasons = {op.name: text_of(op, "tosaic.reason") for op in computing_ops(functions(module)["both"])}
    assert reasons == {"tosa.clamp": "first", "tosa.reshape": "second", "tosa.slice": "second"}


def test_a_shape_stays_before_what_else_reads_it():
    """The view of the input is read by a call before the joined ones, and has its shape from the same constant."""
    flat = "    %flat = tosa.const_shape {values = dense<[24]> : tensor<1xindex>} : () -> !tosa.shape<1>\n"
    early = """    %9 = tosa.reshape %x, %flat : (tensor<1x6x4xi8>, !tosa.shape<1>) -> tensor<24xi8>
    %8 = tosa.reshape %9, %image : (tensor<24xi8>, !tosa.shape<3>) -> tensor<1x6x4xi8>
    %0 = func.call @first(%8)"""
    image = next(line for line in MODULE.splitlines(keepends=True) if "%image = " in line)
    text = MODULE.replace(flat, "").replace(image, "").replace("    %0 = func.call @first(%x)", flat + image + early)
    module = parse(text)
    join(module, ["first", "second"], "both")
    assert module.operation.verify()
