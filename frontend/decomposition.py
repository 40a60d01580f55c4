"""Ops without a lowering, taken apart into ops that have one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from tosaic.frontend.canonical import DEQUANTIZE, QUANTIZE, canonical, computed, is_in_place
from tosaic.frontend.complex import complex_decompositions, is_joint, refuse_complex, with_parts
from tosaic.frontend.control_flow import straightened
from tosaic.frontend.decompositions.registry import decomposition_of, own_decompositions
from tosaic.frontend.lowerings.registry import registered
from tosaic.frontend.origin import naming_ops, origin
from tosaic.frontend.state import keep_written_constants
from tosaic.support.errors import ModelError

_ROUNDS = 8  # what an op is made of may have to be taken apart in turn


def decomposed(program: ExportedProgram) -> ExportedProgram:
    """The program in its canonical form, with every op without a lowering taken apart; all others stay whole.

    Raises:
        ModelError: ops that cannot be compiled, all of them, with the user's lines.
    """
    keep_written_constants(program)
    program = straightened(program)
    given = unknown = [node for node in unknown_ops(program) if not is_in_place(node)]
    for _ in range(_ROUNDS):
        targets = [node.target for node in unknown if not is_joint(node.target)]
        table: dict[Any, Callable] = {target: made for target in targets if (made := decomposition_of(target))}
        table |= complex_decompositions(program)
        with naming_ops("decomposition"):
            found = with_parts(canonical(program, table, [*registered(), *own_decompositions()]))
        if found is program:
            break
        program, unknown = found, unknown_ops(found)
    if unknown:
        refuse_complex(program)
        lines = {node.meta.get("stack_trace") for node in unknown}
        _refuse([node for node in given if node.meta.get("stack_trace") in lines] or unknown)
    return program


def importable(program: ExportedProgram) -> ExportedProgram:
    """The program itself, or in its canonical form, where it holds ops without a lowering: taken apart."""
    return decomposed(program) if unknown_ops(program) else program


def _refuse(nodes: list[Node]) -> None:
    raise ModelError(
        f"no lowering for {', '.join(sorted({str(node.target) for node in nodes}))}",
        where="\n      ".join(dict.fromkeys(str(origin(node)) for node in nodes)),
        hint="write it with other ops, or add a lowering under tosaic/frontend/lowerings",
    )


def unknown_ops(program: ExportedProgram) -> list[Node]:
    """The nodes in use that depend on the user's inputs and have no lowering."""
    known = {*registered(), *QUANTIZE, *DEQUANTIZE, operator.getitem}
    return [node for node in computed(program) if node.target not in known]
