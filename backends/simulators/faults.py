"""What a fault of a core says in words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tosaic.support.errors import BackendError
from tosaic.support.processes import run_tool

_CAUSES = {
    0: "it fetches code where none may lie",
    1: "an access that its memory protection forbids",
    4: "the stack lies where no access is allowed",
    8: "it fetches code where no memory answers",
    9: "it reads or writes where no memory answers",
    10: "it has written where no memory answers",
    12: "the stack lies where no memory answers",
    16: "the core does not have this instruction",
    17: "it jumps to what is no Thumb code",
    19: "the core has no such coprocessor or floating-point unit",
    20: "the stack is full",
    24: "an access that is not aligned",
    25: "a division by 0",
}
"""What the bits of CFSR, Armv8-M's Configurable Fault Status Register, tell."""
_HAS_ADDRESS = 1 << 15


def describe_fault(elf: Path, registers: Mapping[str, int]) -> str:
    """In which function of `elf` the core faulted, and why; `registers` are `pc`, `cfsr`, `bfar` and others."""
    status, place = registers["cfsr"], registers["pc"]
    symbol = symbol_at(elf, place & ~1)
    causes = [cause for bit, cause in _CAUSES.items() if status >> bit & 1] or ["it does not tell why"]
    address = f", at {registers['bfar']:#010x}" if status & _HAS_ADDRESS else ""
    return f"the core faulted in {f'`{symbol}`' if symbol else f'{place:#010x}'}: {'; '.join(causes)}{address}"


def symbol_at(elf: Path, address: int) -> str:
    """The function that holds `address`, as `name+0x12`; empty where the ELF names none.

    Raises:
        BackendError: llvm-nm is not installed or cannot read the ELF.
    """
    best = ""
    for line in run_tool("llvm-nm-22", ["--numeric-sort", "--defined-only", elf]).splitlines():
        value, kind, name = line.split(maxsplit=2)
        start = int(value, 16) & ~1
        if start > address:
            break
        if kind in "tTwW" and not name.startswith("$"):
            best = f"{name}+{address - start:#x}"
    return best


def address_of(elf: Path, symbol: str) -> int:
    """Where a symbol lies.

    Raises:
        BackendError: llvm-nm is not installed or cannot read the ELF, or there is no such symbol.
    """
    for line in run_tool("llvm-nm-22", ["--defined-only", elf]).splitlines():
        value, _, name = line.split(maxsplit=2)
        if name == symbol:
            return int(value, 16)
    raise BackendError(f"`{elf.name}` has no `{symbol}`")
