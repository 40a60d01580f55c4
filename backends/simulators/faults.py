"""What a fault of a core says in words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tosaic.support.errors import BackendError
from tosaic.support.processes import run_tool


def describe_fault(elf: Path, registers: Mapping[str, int]) -> str:
    """Where the code of `elf` faulted and why; `registers` are `pc`, `lr` and those of the core that tell of faults."""
    places, others = [], []
    for name, value in registers.items():
        if name in ("pc", "lr"):
            symbol = symbol_at(elf, value & ~1)
            places.append(f"{name} {value:#010x}" + (f" ({symbol})" if symbol else ""))
        else:
            others.append(f"{name} {value:#010x}")
    return f"the core faulted at {', '.join(places)}; {', '.join(others)}"


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
