"""Blocks of assembly on general registers as statements of C."""

from __future__ import annotations

from tosaic.backends.cortex_m.program.assembly import Assembly
from tosaic.backends.cortex_m.program.thumb import ThumbBlock


def assembly_statement(block: Assembly) -> list[str]:
    """The statement of a block whose operands are variables."""
    code = [f'  "{line}\\n"' for line in block.lines]
    lost = ", ".join(f'"{name}"' for name in ("memory", *block.lost))
    return ["__asm__ volatile(", *code, *(f"  : {part}" for part in _operands(block)), f"  : {lost});"]


def thumb_statement(block: ThumbBlock) -> list[str]:
    """The statement of a block for the baseline cores, whose operands have registers of their own."""
    changed = [*(f'[{n}] "+h"({n})' for n in block.sums), *(f'"+l"({n})' for n in block.pointers)]
    lost = ", ".join(f'"{name}"' for name in (*block.used, "cc", "memory"))
    code = [f'  "{line}\\n"' for line in block.lines]
    return ["__asm__ volatile(", *code, f"  : {', '.join(changed)} : : {lost});"]


def _operands(block: Assembly) -> tuple[str, str]:
    """The outputs and the inputs of a statement of assembly."""
    kinds = {n: "t" if n in block.floats else "r" for n in (*block.changed, *block.begun, *block.read)}
    outputs = [f'[{n}] "+{kinds[n]}"({n})' for n in block.changed]
    outputs += [f'[{n}] "=&{kinds.get(n, "r")}"({n})' for n in (*block.begun, *block.temporaries)]
    inputs = [f'[{n}] "{kinds.get(n, "r")}"({n})' for n in (*block.read, *block.pointers)]
    return ", ".join(outputs), ", ".join(inputs)
