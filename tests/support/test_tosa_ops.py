import pytest
from tosa_graphs import Graph

from tosaic.support import mlir
from tosaic.support.tosa_ops import MOVING, POINTWISE, REDUCING, TOSA_OPS, data_operands, is_constant

# Control flow, state, and what TOSA has besides version 1.0: shape arithmetic, block scaling, adaptive pools, views.
OUTSIDE = (
    "apply_scale avg_pool2d_adaptive cond_if custom dim matmul_t max_pool2d_adaptive row_gather "
    "variable variable_read variable_write"
)


def of_the_dialect() -> set[str]:
    """Every op that MLIR's dialect has, without those of a suffix that says shape or block-scaled."""
    members = vars(mlir.dialect("_tosa_ops_gen")).values()
    names = {kind.OPERATION_NAME for kind in members if hasattr(kind, "OPERATION_NAME")}
    shapes = {name for name in names if name.endswith("_shape") and name != "tosa.const_shape"}
    return names - shapes - {name for name in names if "block_scaled" in name}


def test_the_table_holds_every_op_of_the_dialect_that_computes_tensors():
    assert of_the_dialect() - set(TOSA_OPS) == {f"tosa.{name}" for name in OUTSIDE.split()}
    assert set(TOSA_OPS) <= of_the_dialect()


@pytest.mark.parametrize(
    ("kind", "member", "other"),
    [(POINTWISE, "identity", "concat"), (MOVING, "identity", "abs"), (REDUCING, "reduce_all", "argmax")],
)
def test_kinds(kind, member, other):
    assert f"tosa.{member}" in kind and f"tosa.{other}" not in kind


def test_data_stands_before_shapes_factors_and_zero_points():
    graph = Graph()
    x = graph.input((1, 4))
    made = {
        "rescale": graph.requantize(x, "i32", scale=0.5),
        "pad": graph.pad(x, (0, 0, 1, 0)),
        "mul": graph.mul(graph.requantize(x, "i32", scale=1.0), graph.const([[3, 1, 2, 4]], "i32")),
        "concat": graph.concat([x, x, x], 0),
    }
    counts = {name: len(data_operands(value.owner)) for name, value in made.items()}
    assert counts == {"rescale": 1, "pad": 1, "mul": 2, "concat": 3}
    assert all(data_operands(value.owner)[0] == value.owner.operands[0] for value in made.values())


def test_constants_hold_a_value_and_take_no_data():
    graph = Graph()
    value, shape = graph.const([1], "i8"), graph.shape([1])
    assert is_constant(value.owner) and is_constant(shape.owner)
    assert data_operands(value.owner) == []
    assert not is_constant(graph.reshape(value, (1, 1)).owner)
