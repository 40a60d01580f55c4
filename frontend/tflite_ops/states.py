"""What an op of a file keeps from call to call: a variable of TOSA."""

from __future__ import annotations

import numpy as np

from tosaic.frontend.tflite_ops.registry import Call
from tosaic.support.mlir import dense, ir, numpy_dtype


class VariableTensor:
    """A variable tensor of an op; it is its zero point before the first call, as LiteRT has it.

    Args:
        index: of the op's input.
    """

    def __init__(self, call: Call, index: int) -> None:
        tensor = call.input(index)
        kind = ir.Type.parse(tensor.kind)
        first = tensor.zero_point if tensor.kind == "i8" else 0
        initial = dense(np.full(tensor.shape, first, numpy_dtype(kind)))
        name = ir.StringAttr.get(f"{call.op.lower()}_{call.number}_{index}")
        main = ir.InsertionPoint.current.block.owner
        index_type = ir.RankedTensorType.get([len(tensor.shape)], ir.IndexType.get())
        shape = ir.DenseElementsAttr.get(np.array(tensor.shape), type=index_type)
        attributes = {"sym_name": name, "type": ir.TypeAttr.get(kind), "var_shape": shape, "initial_value": initial}
        with ir.InsertionPoint(main):
            ir.Operation.create("tosa.variable", attributes=attributes)
        self._type, self._name = initial.type, name

    def read(self) -> ir.Value:
        """Its value before the call."""
        return ir.Operation.create("tosa.variable_read", results=[self._type], attributes={"name": self._name}).result

    def write(self, value: ir.Value) -> None:
        """Its value after the call."""
        ir.Operation.create("tosa.variable_write", operands=[value], attributes={"name": self._name})
