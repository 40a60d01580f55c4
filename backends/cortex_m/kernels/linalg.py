"""The family that covers every TOSA function: upstream's linalg lowering to loops, vectorized by clang."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.linalg import kernel_module, lower
from tosaic.backends.target import Core
from tosaic.support.mlir import functions, ir, shape_of, walk
from tosaic.tuner.space import Schedule, Variant

_CONSTANT_VALUES = re.compile(r'("tosa\.const"\(\) <\{values = )dense(?:_resource)?<[^>]*>')
_FEW = 16  # elements of a constant that the key's text is made with


@FAMILIES.register
class Linalg(KernelFamily):
    """Any function of tosa ops, on any core."""

    name = "linalg"
    rank = 2

    def match(self, function: ir.Operation) -> Workload:
        module = kernel_module(function, "kernel")
        (kernel,) = functions(module).values()
        key = _CONSTANT_VALUES.sub(r"\1dense<>", kernel.get_asm(large_elements_limit=_FEW))
        elements = sum(_elements(op) for op in walk(kernel))
        return Workload(self.name, key, {"module": module, "elements": elements}, {})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return (Variant("loops"),)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        module = workload.attributes["module"]
        assert isinstance(module, ir.Module)
        return named(lower(module, "kernel"), self.name)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        return {"elements": float(str(workload.attributes["elements"]))}


def named(source: KernelSource, kind: str) -> KernelSource:
    """`source` under a symbol made of `kind` and its text: equal symbols mean equal code."""
    symbol = f"{kind}_{hashlib.sha256(source.text.encode()).hexdigest()[:16]}"
    text = source.text.replace(f"@{source.symbol}(", f"@{symbol}(")
    return KernelSource(
        symbol, source.language, text, source.params, source.scratch_bytes, source.in_place, source.libraries
    )


def _elements(op: ir.Operation) -> int:
    total = 0
    for result in op.results:
        if isinstance(result.type, ir.RankedTensorType):
            count = 1
            for extent in shape_of(result):
                count *= extent
            total += count
    return total
