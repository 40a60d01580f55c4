"""Where a rule says which op of TensorFlow Lite it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tosaic.frontend import tflite_ops
from tosaic.support.discovery import modules_of
from tosaic.support.errors import ModelError
from tosaic.support.mlir import ir

Rule: TypeAlias = "Callable[[Call, Sequence[ir.Value]], Sequence[ir.Value]]"
_RULES: dict[str, list[tuple[Callable[[Call], bool], Rule]]] = {}


@dataclass(frozen=True)
class FileTensor:
    """A tensor of a file.

    Args:
        kind: element type of MLIR; empty where it is another one.
        scales, zero_points: where it is quantized: one, or one a channel, each a float32.
        data: of a constant.
        variable: whether the op keeps it from call to call.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    data: np.ndarray | None
    variable: bool

    @property
    def scale(self) -> float:
        """That of a tensor with a single one, a float32; 1 where there is none."""
        return self.scales[0] if self.scales else 1.0

    @property
    def zero_point(self) -> int:
        """That of a tensor with a single one; 0 where there is none."""
        return self.zero_points[0] if self.zero_points else 0

    @property
    def array(self) -> np.ndarray:
        """The data of a constant.

        Raises:
            ModelError: it is none.
        """
        if self.data is None:
            raise ModelError(f"the tensor `{self.name}` is computed", why="its op needs a constant")
        return self.data

    @property
    def real(self) -> np.ndarray:
        """A constant as float32: `(array - zero_point) * scale`.

        Raises:
            ModelError: it is none.
        """
        return (self.array.astype(np.float32) - np.float32(self.zero_point)) * np.float32(self.scale)


@dataclass(frozen=True)
class Call:
    """An op of a file.

    Args:
        op: its name in schema.fbs.
        inputs: None where one is left out.
        options: by their names in schema.fbs.
        sources, results: the numbers of its tensors; -1 where one is left out.
    """

    number: int
    op: str
    inputs: tuple[FileTensor | None, ...]
    outputs: tuple[FileTensor, ...]
    intermediates: tuple[FileTensor, ...]
    options: Mapping[str, Any]
    sources: Sequence[int]
    results: Sequence[int]

    @property
    def operands(self) -> list[int]:
        """The numbers of the inputs that are neither constant nor variable."""
        pairs = zip(self.sources, self.inputs, strict=True)
        return [number for number, one in pairs if one is not None and one.data is None and not one.variable]

    def given(self, index: int) -> FileTensor | None:
        """An input, None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def input(self, index: int) -> FileTensor:
        """An input.

        Raises:
            ModelError: it is left out.
        """
        one = self.given(index)
        if one is None:
            raise ModelError(f"an op `{self.op}` has no input {index}", where=self.outputs[0].name)
        return one

    def kinds(self) -> tuple[str, ...]:
        """The element types of what it computes with and of what it gives."""
        return tuple(one.kind for one in (*self.inputs[:1], *self.outputs[:1]) if one is not None)


def tflite_op(*names: str, when: Callable[[Call], bool] = lambda _: True) -> Callable[[Rule], Rule]:
    """Register what ops compute.

    A rule takes the op and the values of those inputs that are neither constant nor variable, and gives its results.
    """

    def register(rule: Rule) -> Rule:
        for name in names:
            _RULES.setdefault(name, []).append((when, rule))
        return rule

    return register


def rule_of(call: Call) -> Rule | None:
    """What an op computes; None where no rule is registered."""
    modules_of(tflite_ops.__name__)
    return next((rule for when, rule in _RULES.get(call.op, ()) if when(call)), None)
