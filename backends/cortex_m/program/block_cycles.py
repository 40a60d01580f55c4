"""What blocks of instructions on named registers take, by a core's timings."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence, Set
from functools import lru_cache

from tosaic.backends.cortex_m.program.block import VARIABLE, encoded_bytes
from tosaic.backends.cortex_m.program.idle_slots import least_issue_cycles
from tosaic.backends.simulators.cycle_model import decoder, issue_cycles
from tosaic.backends.simulators.instruction import Instruction
from tosaic.backends.target import Pipeline

_REGISTER = re.compile(r"\b[qr]\d+\b")


def cycles_of(code: Sequence[str], pipeline: Pipeline) -> int:
    """Cycles of instructions that are executed once."""
    return issue_cycles(_decoded(code, pipeline), pipeline)


@lru_cache(maxsize=1024)
def loop_cycles(iteration: tuple[str, ...], pipeline: Pipeline, iterations: int) -> int:
    """Cycles of a loop of so many iterations, all but the first of which cost the same."""
    decoded = _decoded(iteration, pipeline)
    once = issue_cycles(decoded, pipeline)
    return once + (iterations - 1) * (issue_cycles(decoded * 2, pipeline) - once) if iterations > 1 else once


@lru_cache(maxsize=1024)
def least_cycles(iteration: tuple[str, ...], pipeline: Pipeline) -> int:
    """Cycles that no order of an iteration takes less than."""
    return least_issue_cycles(_decoded(iteration, pipeline), pipeline)


def _decoded(code: Sequence[str], pipeline: Pipeline) -> list[Instruction]:
    """Instructions as the scoreboard sees them. Variables of C lie in registers that none of them names."""
    variables = dict.fromkeys(name for instruction in code for name in VARIABLE.findall(instruction))
    used = set(_REGISTER.findall(" ".join(code)))
    pools = {kind: itertools.cycle(_unused(kind, count, used)) for kind, count in (("q", 8), ("r", 13))}
    registers = {name: next(pools["q" if name[1] == "q" else "r"]) for name in variables}
    lines = [line.partition(" ") for instruction in code for line in instruction.split("\\n")]
    named = [(mnemonic, VARIABLE.sub(lambda name: registers[name[0]], operands)) for mnemonic, _, operands in lines]
    return [decoder(pipeline)(mnemonic, operands, encoded_bytes(mnemonic)) for mnemonic, operands in named]


def _unused(kind: str, count: int, used: Set[str]) -> list[str]:
    """The registers of a kind that no instruction names; all of them where there is none."""
    names = [f"{kind}{i}" for i in range(count)]
    return [name for name in names if name not in used] or names
