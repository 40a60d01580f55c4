"""The targets a user can name, and how an option changes one."""

from __future__ import annotations

import difflib
from dataclasses import replace

from tosaic.backends.ethos_u.accelerators import ACCELERATORS
from tosaic.backends.target import CORTEX_M55, Memory, Target
from tosaic.support.errors import Error

KIB, MIB = 1024, 1024 * 1024

# The SSE-300 map of MPS3 AN547, which the Corstone-300 FVP shares. The NPU cannot reach the tightly coupled memories.
ITCM = Memory("itcm", 0x0000_0000, 512 * KIB)
STACK = Memory("stack", 0x2000_0000, 64 * KIB)
DTCM = Memory("dtcm", 0x2001_0000, 448 * KIB)
SRAM = Memory("sram", 0x2100_0000, 4 * MIB)
DDR_ARENA = Memory("ddr", 0x6000_0000, 64 * MIB)
DDR_CONSTANTS = Memory("ddr-constants", 0x6400_0000, 192 * MIB)

TARGETS = {
    target.name: target
    for target in (
        Target("cortex-m55", CORTEX_M55, None, ITCM, STACK, (DTCM, SRAM, DDR_ARENA), DDR_CONSTANTS),
        Target("corstone-300", CORTEX_M55, "ethos-u55-128", ITCM, STACK, (SRAM, DDR_ARENA), DDR_CONSTANTS),
        # Its core is a Cortex-M85. QEMU has none, so code is built for the M55, whose instructions the M85 executes.
        Target("corstone-320", CORTEX_M55, "ethos-u85-256", ITCM, STACK, (SRAM, DDR_ARENA), DDR_CONSTANTS),
    )
}


def find_target(name: str, accelerator: str | None = None, arena_size: int | None = None) -> Target:
    """The target called `name`, with another NPU or with its arena limited to `arena_size` bytes.

    Raises:
        Error: no such target or accelerator; the message names the nearest.
    """
    target = TARGETS.get(name) or _unknown("target", name, tuple(TARGETS))
    if accelerator is not None:
        if accelerator not in ACCELERATORS:
            _unknown("accelerator", accelerator, tuple(ACCELERATORS))
        # Without an NPU of its own, the core may keep its arena in memory that an NPU does not reach.
        arena = target.arena if target.accelerator else TARGETS["corstone-300"].arena
        target = replace(target, accelerator=accelerator, arena=arena)
    if arena_size is not None:
        first = target.arena[0]
        target = replace(target, arena=(replace(first, size=min(first.size, arena_size)),))
    return target


def _unknown(kind: str, name: str, known: tuple[str, ...]):
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"one of {', '.join(known)}"
    raise Error(f"there is no {kind} `{name}`", hint=hint)
