"""Writes the table of ATen ops that `tosaic ops` prints: `python benchmarks/op_table.py`.

Each example is lowered in float, int8 and int16, and each NPU is asked about the ops of its int8 module. A row says
what became of the smallest example that holds the op.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.op_examples import EXAMPLES
from tosaic.backends.ethos_u.acceptance import refusal
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


def row(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[list[str], list[str]]:
    """The ATen ops of an example, and what becomes of it: a word for each column behind the op."""
    program = canonical(torch.export.export(Behind(module).eval(), inputs))
    called = [node.target for node in computed(program) if isinstance(node.target, torch._ops.OpOverload)]
    ops = sorted({str(op) for op in called if op is not torch.ops.aten.clone.default})
    capture = Capture("example", decomposed(program), inputs, (inputs,))
    import_program(capture.program)
    int8, int16 = (_lowered(capture, activations) for activations in ("int8", "int16"))
    return ops, ["yes", _form(int8), _form(int16), "yes", *(placed(int8, one) for one in ACCELERATORS)]


def quantized(name: str) -> ir.Module:
    """An example in int8, as it is imported."""
    module, inputs = EXAMPLES[name]
    program = canonical(torch.export.export(Behind(module).eval(), inputs))
    return import_program(quantize(Capture("example", decomposed(program), inputs, (inputs,)), "int8"))


def _lowered(capture: Capture, activations: str) -> ir.Module:
    module = import_program(quantize(capture, activations))
    for phase in phases_of(npu=True):
        run_phase(module, phase)
    return module


def _form(module: ir.Module) -> str:
    return "f32" if any("f32" in str(result.type) for op in walk(module) for result in op.results) else "yes"


def placed(module: ir.Module, accelerator: str) -> str:
    """Whether an accelerator takes a module: `yes`, `partly` or `no`."""
    ops = [op for op in computing_ops(functions(module)["main"]) if op.name != "tosa.reshape"]
    refused = [op for op in ops if refusal(op, accelerator)]
    return "partly" if 0 < len(refused) < len(ops) else "no" if refused else "yes"


def table(names: list[str]) -> dict[str, list[str]]:
    """The rows of the ATen ops in some examples, and of those that have the same lowering."""
    found: dict[str, tuple[int, list[str]]] = {}
    for name in names:
        ops, words = row(*EXAMPLES[name])
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
