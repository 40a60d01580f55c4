"""Tells the passes what the NPU of each target, and each accelerator, says of an op, and what a module costs on it."""

from __future__ import annotations

from functools import lru_cache, partial

from tosaic.backends.ethos_u.accelerators import ACCELERATORS
from tosaic.backends.ethos_u.acceptance import refusal, suspicion
from tosaic.backends.ethos_u.vela import VelaRefusal, compile_region
from tosaic.backends.reference import serialize
from tosaic.passes.npu.costs import COSTS
from tosaic.passes.place.verdicts import VERDICTS
from tosaic.proof import prove_beside
from tosaic.support.mlir import ir
from tosaic.targets import declarations


def verdict(op: ir.Operation, accelerator: str) -> str | None:
    """Why `accelerator` does not run `op`: it cannot, or Vela is suspected of an error and executed to make it."""
    if reason := refusal(op, accelerator):
        return reason
    suspected = suspicion(op, accelerator)
    if suspected is None:
        return None
    difference = prove_beside(op, accelerator, lambda other: refusal(other, accelerator) is None)
    return f"{suspected}; Vela else computes it wrongly: {difference}" if difference else None


def cost(module: ir.Module, accelerator: str) -> int | None:
    """Vela's cycles for `main`; None where it refuses it."""
    return _cycles(serialize(module), accelerator)


@lru_cache(maxsize=4096)
def _cycles(flatbuffer: bytes, accelerator: str) -> int | None:
    try:
        return compile_region(flatbuffer, accelerator).cycles
    except VelaRefusal:
        return None


VERDICTS.update({name: partial(verdict, accelerator=name) for name in ACCELERATORS})
COSTS.update({name: partial(cost, accelerator=name) for name in ACCELERATORS})
for _name, _declared in declarations().items():
    _accelerator = _declared.target.accelerator or ""
    VERDICTS[_name] = VERDICTS[_accelerator]
    if _accelerator:
        COSTS[_name] = COSTS[_accelerator]
