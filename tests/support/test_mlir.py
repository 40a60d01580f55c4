import multiprocessing
import os

import numpy as np
import pytest

from tosaic.support import mlir
from tosaic.support.errors import PassError
from tosaic.support.mlir import ir

ADD = """
func.func @main(%x: tensor<2x3xi32>) -> tensor<2x3xi32> {
  %0 = tosa.add %x, %x : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
  %1 = tosa.add %0, %0 : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}
func.func private @other() {
  return
}
"""


@pytest.fixture
def block():
    """A place to build ops at: the body of an empty module."""
    with mlir.context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            yield module


def known(value: ir.Value) -> np.ndarray:
    array = mlir.constant_value(value)
    assert array is not None
    return array


def test_parse_takes_text_and_rejects_nonsense_with_the_line():
    assert mlir.parse(ADD).operation.verify()
    with pytest.raises(PassError, match="not valid MLIR") as caught:
        mlir.parse('func.func @main() {\n  "tosa.nonsense"(%x) : () -> ()\n}')
    assert caught.value.where == "-:2"


def test_parse_reports_what_the_verifier_says():
    with pytest.raises(PassError) as caught:
        mlir.parse(ADD.replace("-> tensor<2x3xi32> {", "-> tensor<2x4xi32> {"))
    assert "tensor<2x3xi32>" in caught.value.why


def test_all_modules_of_a_process_share_one_context():
    assert mlir.parse(ADD).context == mlir.parse(ADD).context == mlir.context()


def test_a_forked_child_runs_pipelines():
    """With threads of its own the context would wait for them in the child, which has none."""
    mlir.run_pipeline(mlir.parse(ADD), "builtin.module(func.func(canonicalize))")
    child = multiprocessing.get_context("fork").Process(target=_run_in_child)
    child.start()
    child.join(60)
    alive, code = child.is_alive(), child.exitcode
    child.kill()
    assert (alive, code) == (False, 0)


def _run_in_child() -> None:
    module = mlir.parse(ADD + "func.func @more() { return }")
    mlir.run_pipeline(module, "builtin.module(func.func(canonicalize))")
    os._exit(str(module).count("tosa.add") - 1)


def test_run_pipeline_changes_the_module_in_place():
    module = mlir.parse(ADD)
    mlir.run_pipeline(module, "builtin.module(func.func(canonicalize))")
    assert str(module).count("tosa.add") == 1


def test_run_pipeline_names_the_pipeline_that_failed():
    with pytest.raises(PassError, match=r"builtin.module\(no-such-pass\)") as caught:
        mlir.run_pipeline(mlir.parse(ADD), "builtin.module(no-such-pass)")
    assert "no-such-pass" in caught.value.why


def test_walk_is_in_program_order_and_allows_erasing():
    module = mlir.parse(ADD)
    names = [op.name for op in mlir.walk(module)]
    assert names == ["func.func", "tosa.add", "tosa.add", "func.return", "func.func", "func.return"]
    for op in mlir.walk(module):
        if op.name == "tosa.add" and not list(op.result.uses):
            op.erase()
    assert str(module).count("tosa.add") == 1


def test_functions_are_found_by_name_in_order():
    assert list(mlir.functions(mlir.parse(ADD))) == ["main", "other"]


def test_dialects_come_from_the_same_package_as_ir():
    assert mlir.dialect("tosa").__name__ == ir.__name__.replace(".ir", ".dialects.tosa")


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "int32", "int64", "float32"])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (1, 2, 1, 4)])
def test_a_constant_gives_its_array_back(block, dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    back = known(mlir.constant(array))
    assert back.dtype == array.dtype and np.array_equal(back, array)
    assert block.operation.verify()


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "float32"])
def test_a_splat_gives_its_whole_array_back(block, dtype):
    array = np.ones((3, 4), dtype)
    back = known(mlir.constant(array))
    assert back.dtype == array.dtype and np.array_equal(back, array)


def test_a_non_contiguous_array_keeps_its_values(block):
    array = np.arange(12, dtype=np.int32).reshape(3, 4).T
    assert np.array_equal(known(mlir.constant(array)), array)


@pytest.mark.parametrize(("name", "low", "high"), [("i4", -8, 7), ("i48", -(2**47), 2**47 - 1)])
def test_types_numpy_lacks_are_written_in_full_range(block, name, low, high):
    value = mlir.constant(np.array([low, 0, high], np.int64), ir.Type.parse(name))
    assert str(mlir.element_type(value)) == name and mlir.shape_of(value) == (3,)
    assert f"[{low}, 0, {high}]" in str(value.owner)


def test_shapes_are_constants_too(block):
    value = mlir.constant_shape([1, 2, 300])
    assert str(value.type) == "!tosa.shape<3>"
    assert known(value).tolist() == [1, 2, 300]
    assert known(mlir.constant_shape([4, 4])).tolist() == [4, 4]
    assert block.operation.verify()


def test_a_computed_value_is_no_constant():
    module = mlir.parse(ADD)
    add = next(op for op in mlir.walk(module) if op.name == "tosa.add")
    assert mlir.constant_value(add.result) is None
    assert mlir.constant_value(add.operands[0]) is None


@pytest.mark.parametrize("name", ["i1", "i8", "i16", "i32", "i64", "f32", "f64", "f16"])
def test_dtypes_and_types_map_both_ways(block, name):
    assert str(mlir.mlir_type(mlir.numpy_dtype(ir.Type.parse(name)))) == name


def test_narrow_and_odd_integers_are_held_in_the_next_dtype(block):
    assert mlir.numpy_dtype(ir.Type.parse("i4")) == np.int8
    assert mlir.numpy_dtype(ir.Type.parse("i48")) == np.int64


def test_a_type_without_a_dtype_is_named(block):
    with pytest.raises(PassError, match="no numpy dtype holds `bf16`"):
        mlir.numpy_dtype(ir.Type.parse("bf16"))
