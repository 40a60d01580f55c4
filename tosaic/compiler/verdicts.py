"""Tells the passes what each accelerator, and the NPU of each target, says of an op, and what a module costs on it."""

from __future__ import annotations

from functools import lru_cache, partial

from tosaic.backends.digest import short_digest
from tosaic.backends.npu import USUAL, NpuOptions, NpuRefusal
from tosaic.backends.npus import accelerators, compile_region, family_of
from tosaic.backends.reference import serialize
from tosaic.backends.target import Target
from tosaic.compiler.proof import prove_beside
from tosaic.passes.npu.costs import COSTS
from tosaic.passes.place.verdicts import VERDICTS
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import functions, ir
from tosaic.target_files.ready import declarations


def verdict(op: ir.Operation, accelerator: str) -> str | None:
    """Why `accelerator` does not run `op`: it cannot, or its compiler makes an error that an execution confirms."""
    family = family_of(accelerator)
    if reason := family.refusal(op, accelerator):
        return reason
    suspected = family.suspicion(op, accelerator)
    if suspected is None:
        return None
    difference = prove_beside(op, accelerator)
    return f"{suspected}; Vela else computes it wrongly: {difference}" if difference else None


def cost(module: ir.Module, accelerator: str, options: NpuOptions = USUAL) -> int | None:
    """Vela's cycles for `main`; None where it, or the NPU, refuses an op."""
    refusal = family_of(accelerator).refusal
    if any(refusal(op, accelerator) for op in computing_ops(functions(module)["main"])):
        return None
    return _cycles(serialize(module), accelerator, options)


@lru_cache(maxsize=4096)
def _cycles(flatbuffer: bytes, accelerator: str, options: NpuOptions) -> int | None:
    try:
        return compile_region(flatbuffer, accelerator, options).cycles
    except NpuRefusal:
        return None


def costs_of(target: Target) -> str:
    """The name by which passes find what a module costs the NPU of a target, under its configuration of Vela."""
    accelerator, options = target.accelerator or "", NpuOptions.of(target)
    if options == USUAL:
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


VERDICTS.update({name: partial(verdict, accelerator=name) for name in accelerators()})
COSTS.update({name: partial(cost, accelerator=name) for name in accelerators()})
