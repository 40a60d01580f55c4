"""Models with quantizing casts as MLIR text, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.backends.reference import evaluate
from tosaic.passes import run_phases
from tosaic.support.mlir import ir, parse


class Casts:
    """A `main` under construction; values are (name, shape) and every method appends a line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.arguments: list[str] = []
        self.functions: list[str] = []

    def input(self, shape: Sequence[int], kind: str) -> tuple[str, tuple[int, ...]]:
        """A float argument, quantized and dequantized as `kind` says, e.g. `i8:f32, 0.5:3`."""
        name = f"%arg{len(self.arguments)}"
        self.arguments.append(f"{name}: {tensor(shape)}")
        return self.requantized((name, tuple(shape)), kind)

    def op(self, text: str, operands: Sequence[tuple], shape: Sequence[int], attributes: str = "", kind: str = "f32"):
        name = f"%v{len(self.lines)}"
        values, types = ", ".join(value[0] for value in operands), ", ".join(value_type(value) for value in operands)
        self.lines.append(f'{name} = "{text}"({values}) {attributes} : ({types}) -> {tensor(shape, kind)}')
        return name, tuple(shape), kind

    def constant(self, values: np.ndarray):
        values = np.asarray(values)
        kind = {"float32": "f32", "int8": "i8", "int32": "i32"}[values.dtype.name]
        return self.op("tosa.const", [], values.shape, f"<{{values = dense<{values.tolist()}> : "
                       f"{tensor(values.shape, kind)}}}>", kind)  # fmt: skip

    def shape(self, dims: Sequence[int]):
        name = f"%v{len(self.lines)}"
        values = f"dense<{list(dims)}> : tensor<{len(dims)}xindex>"
        self.lines.append(f"{name} = tosa.const_shape {{values = {values}}} : () -> !tosa.shape<{len(dims)}>")
        return name, (), f"!tosa.shape<{len(dims)}>"

    def requantized(self, value: tuple, kind: str):
        """Quantized and dequantized."""
        shape = value[1]
        stored = self.op("quant.qcast", [value], shape, "", f"!quant.uniform<{kind}>")
        return self.op("quant.dcast", [stored], shape)

    def weights(self, values: np.ndarray, kind: str):
        """A quantized constant, dequantized."""
        stored = self.op("quant.scast", [self.constant(values)], values.shape, "", f"!quant.uniform<{kind}>")
        return self.op("quant.dcast", [stored], values.shape)

    def zeros(self, shape: Sequence[int] = (1,)):
        return self.constant(np.zeros(shape, np.float32))

    def module(self, *results: tuple) -> ir.Module:
        names, types = ", ".join(value[0] for value in results), ", ".join(value_type(value) for value in results)
        body = "\n  ".join([*self.lines, f"return {names} : {types}"])
        main = f"func.func @main({', '.join(self.arguments)}) -> ({types}) {{\n  {body}\n}}"
        return parse("\n".join([*self.functions, main]))


def run(module: ir.Module, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of `module` after all phases before `place`."""
    run_phases(module)
    return evaluate(module, inputs)


def tensor(shape: Sequence[int], kind: str = "f32") -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{kind}>"


def value_type(value: tuple) -> str:
    kind = value[2] if len(value) > 2 else "f32"
    return kind if kind.startswith("!tosa.shape") else tensor(value[1], kind)
