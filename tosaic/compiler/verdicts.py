"""Tells the passes what each accelerator, and the NPU of each target, says of an op, and what a module costs on it."""

from __future__ import annotations

from functools import lru_cache, partial

from tosaic.backends.digest import short_digest
from tosaic.backends.ethos_u.accelerators import ACCELERATORS
from tosaic.backends.ethos_u.acceptance import refusal, suspicion
from tosaic.backends.ethos_u.vela import VelaOptions, VelaRefusal, compile_region
from tosaic.backends.reference import serialize
from tosaic.backends.target import Target
from tosaic.compiler.proof import prove_beside
from tosaic.passes.npu.costs import COSTS
from tosaic.passes.place.verdicts import VERDICTS
from tosaic.support.mlir import ir
from tosaic.target_files.ready import declarations

_USUAL = VelaOptions()


def verdict(op: ir.Operation, accelerator: str) -> str | None:
    """Why `accelerator` does not run `op`: it cannot, or Vela is suspected of an error and executed to make it."""
    if reason := refusal(op, accelerator):
        return reason
    suspected = suspicion(op, accelerator)
    if suspected is None:
        return None
    difference = prove_beside(op, accelerator, lambda other: refusal(other, accelerator) is None)
    return f"{suspected}; Vela else computes it wrongly: {difference}" if difference else None


def cost(module: ir.Module, accelerator: str, options: VelaOptions = _USUAL) -> int | None:
    """Vela's cycles for `main`; None where it refuses it."""
    return _cycles(serialize(module), accelerator, options)


@lru_cache(maxsize=4096)
def _cycles(flatbuffer: bytes, accelerator: str, options: VelaOptions) -> int | None:
    try:
        return compile_region(flatbuffer, accelerator, options).cycles
    except VelaRefusal:
        return None


def costs_of(target: Target) -> str:
    """The name by which passes find what a module costs the NPU of a target, under its configuration of Vela."""
    accelerator, options = target.accelerator or "", VelaOptions.of(target)
    if options == _USUAL:
        return accelerator
    name = f"{accelerator}-{short_digest([repr(options).encode()])}"
    COSTS.setdefault(name, partial(cost, accelerator=accelerator, options=options))
    return name


def know_targets() -> None:
    """Tell the passes of every target by its name, which pipelines of a person's may have; reads all target files."""
    for name, declared in declarations().items():
        accelerator = declared.target.accelerator or ""
        VERDICTS[name] = VERDICTS[accelerator]
        if accelerator:
            COSTS[name] = COSTS[costs_of(declared.target)]


VERDICTS.update({name: partial(verdict, accelerator=name) for name in ACCELERATORS})
COSTS.update({name: partial(cost, accelerator=name) for name in ACCELERATORS})
