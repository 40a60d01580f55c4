"""Models with quantizing casts as MLIR text, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tosaic.backends.reference import evaluate
from tosaic.passes import run_phases
from tosaic.support.mlir import ir, parse


class Value(NamedTuple):
    """What a line computes: its name, and its type's shape and element."""

    name: str
    shape: tuple[int, ...]
    kind: str = "f32"

    @property
    def type(self) -> str:
        return self.kind if self.kind.startswith("!tosa.shape") else tensor(self.shape, self.kind)


class Casts:
    """A `main` under construction; every method appends a line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.arguments: list[str] = []
        self.functions: list[str] = []

    def input(self, shape: Sequence[int], kind: str) -> Value:
        """A float argument, quantized and dequantized as `kind` says, e.g. `i8:f32, 0.5:3`."""
        name = f"%arg{len(self.arguments)}"
        self.arguments.append(f"{name}: {tensor(shape)}")
        return self.requantized(Value(name, tuple(shape)), kind)

    def op(
        self, text: str, operands: Sequence[Value], shape: Sequence[int], attributes: str = "", kind: str = "f32"
    ) -> Value:
        name = f"%v{len(self.lines)}"
        values, types = ", ".join(value.name for value in operands), ", ".join(value.type for value in operands)
        self.lines.append(f'{name} = "{text}"({values}) {attributes} : ({types}) -> {tensor(shape, kind)}')
        return Value(name, tuple(shape), kind)

    def constant(self, values: np.ndarray) -> Value:
        values = np.asarray(values)
        kind = {"float32": "f32", "int8": "i8", "int32": "i32"}[values.dtype.name]
        return self.op("tosa.const", [], values.shape, f"<{{values = dense<{values.tolist()}> : "
                       f"{tensor(values.shape, kind)}}}>", kind)  # fmt: skip

    def shape(self, dims: Sequence[int]) -> Value:
        name = f"%v{len(self.lines)}"
        values = f"dense<{list(dims)}> : tensor<{len(dims)}xindex>"
        self.lines.append(f"{name} = tosa.const_shape {{values = {values}}} : () -> !tosa.shape<{len(dims)}>")
        return Value(name, (), f"!tosa.shape<{len(dims)}>")

    def requantized(self, value: Value, kind: str) -> Value:
        """Quantized and dequantized."""
        stored = self.op("quant.qcast", [value], value.shape, "", f"!quant.uniform<{kind}>")
        return self.op("quant.dcast", [stored], value.shape)

    def weights(self, values: np.ndarray, kind: str) -> Value:
        """A quantized constant, dequantized."""
        stored = self.op("quant.scast", [self.constant(values)], values.shape, "", f"!quant.uniform<{kind}>")
        return self.op("quant.dcast", [stored], values.shape)

    def zeros(self, shape: Sequence[int] = (1,)) -> Value:
        return self.constant(np.zeros(shape, np.float32))

    def module(self, *results: Value) -> ir.Module:
        names, types = ", ".join(value.name for value in results), ", ".join(value.type for value in results)
        body = "\n  ".join([*self.lines, f"return {names} : {types}"])
        main = f"func.func @main({', '.join(self.arguments)}) -> ({types}) {{\n  {body}\n}}"
        return parse("\n".join([*self.functions, main]))


def run(module: ir.Module, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of `module` after all phases before `place`."""
    run_phases(module)
    return evaluate(module, inputs)


def tensor(shape: Sequence[int], kind: str = "f32") -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{kind}>"
