"""Writes the table of ATen ops that `tosaic ops` prints: `python benchmarks/op_table.py`.

Each example is lowered in float, int8 and int16. Of its int8 module an NPU is said to take what Vela compiles and the
emulator executes to the bit. A row says what became of the smallest example that holds the op.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.op_examples import EXAMPLES
from tosaic.backends.ethos_u.vela import VelaRefusal, compile_region
from tosaic.backends.reference import serialize
from tosaic.compiler.proof import region_difference
from tosaic.compiler.trial_inputs import model_samples
from tosaic.compiler.verdicts import verdict
from tosaic.frontend import Capture, import_program, quantize
from tosaic.frontend.canonical import canonical, computed
from tosaic.frontend.decomposition import decomposed
from tosaic.frontend.lowerings.registry import registered
from tosaic.frontend.ops import COLUMNS, TABLE
from tosaic.passes import phases_of, run_phase
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import functions, ir, walk

ACCELERATORS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")


class Behind(nn.Module):
    """A module behind copies of its inputs, which are quantized as any op's result is."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> Any:
        return self.module(*(x.clone() if x.is_floating_point() else x for x in inputs))


def row(name: str) -> tuple[list[str], list[str]]:
    """The ATen ops of an example, and what becomes of it: a word for each column behind the op."""
    program = _exported(name)
    called = [node.target for node in computed(program) if isinstance(node.target, torch._ops.OpOverload)]
    ops = sorted({str(op) for op in called if op is not torch.ops.aten.clone.default})
    import_program(_capture(name).program)
    int8, int16 = (lowered(name, phases_of(npu=True), activations) for activations in ("int8", "int16"))
    return ops, ["yes", _form(int8), _form(int16), "yes", *(placed(name, int8, one) for one in ACCELERATORS)]


def lowered(name: str, phases: Sequence[str], activations: str = "int8") -> ir.Module:
    """An example, quantized, behind these phases."""
    module = import_program(quantize(_capture(name), activations))
    for phase in phases:
        run_phase(module, phase)
    return module


def inputs_of(name: str, module: ir.Module) -> list[np.ndarray]:
    """Random inputs of an example; indices are its own."""
    _, tensors = EXAMPLES[name]
    given = [tensor.numpy() for tensor in tensors]
    given = [array.astype(np.int32) if array.dtype == np.int64 else array for array in given]
    return model_samples(module, given, 0).drawn


@lru_cache(maxsize=1)
def _exported(name: str) -> ExportedProgram:
    module, inputs = EXAMPLES[name]
    return canonical(torch.export.export(Behind(module).eval(), inputs))


@lru_cache(maxsize=1)
def _capture(name: str) -> Capture:
    _, inputs = EXAMPLES[name]
    return Capture("example", decomposed(_exported(name)), inputs, (inputs,))


def _form(module: ir.Module) -> str:
    return "f32" if any("f32" in str(result.type) for op in walk(module) for result in op.results) else "yes"


def placed(name: str, module: ir.Module, accelerator: str) -> str:
    """Whether an accelerator takes an example: `yes`, proven by the emulator, `partly` or `no`."""
    ops = [op for op in computing_ops(functions(module)["main"]) if op.name != "tosa.reshape"]
    refused = [op for op in ops if verdict(op, accelerator)]
    if ops and not refused and _difference(name, module, accelerator):
        return "partly" if len(ops) > 1 else "no"
    return "partly" if 0 < len(refused) < len(ops) else "no" if refused else "yes"


def _difference(name: str, module: ir.Module, accelerator: str) -> str:
    try:
        region = compile_region(serialize(module), accelerator)
    except VelaRefusal as refusal:
        return refusal.why
    return region_difference(region, functions(module)["main"], inputs_of(name, module))


def table(names: list[str]) -> dict[str, list[str]]:
    """The rows of the ATen ops in some examples, and of those that have the same lowering."""
    found: dict[str, tuple[int, list[str]]] = {}
    for name in names:
        ops, words = row(name)
        for op in ops:
            if op not in found or len(ops) < found[op][0]:
                found[op] = (len(ops), words)
    rows = {op: words for op, (_, words) in found.items()}
    emitters = {lowering.emit: rows[str(op)] for op, lowering in registered().items() if str(op) in rows}
    others = {str(op): emitters[one.emit] for op, one in registered().items() if one.emit in emitters}
    return dict(sorted((others | rows).items()))


def main() -> None:
    warnings.simplefilter("ignore")
    lines = [COLUMNS, ["---"] * len(COLUMNS), *([op, *words] for op, words in table(list(EXAMPLES)).items())]
    TABLE.write_text("".join(f"| {' | '.join(line)} |\n" for line in lines))


if __name__ == "__main__":
    main()
