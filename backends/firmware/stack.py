"""The most bytes of stack that a function of an image takes, over all calls below it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tosaic.backends.simulators.cycle_model import disassemble
from tosaic.support.processes import run_tool

_PUSHED = re.compile(r"\b[rds](\d+)|\blr\b|\bpc\b|\bs[bl]\b|\bfp\b|\bip\b")
_WRITE_BACK = re.compile(r"\[sp, #-(\d+)\]!")
_LOWERED = re.compile(r"sp, (?:sp, )?#(\d+)$")
_TARGET = re.compile(r"0x([0-9a-f]+)(?: <[^>]*>)?$")
_BRANCH = re.compile(r"(b|bl|blx|b(eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le))(\.[nw])?$")
_INDIRECT = re.compile(r"(bx|blx|bxns|blxns)$")
_SIZES = re.compile(r"Functions: \[(.*)\]\s+Size: (0x[0-9A-F]+)")


@dataclass
class _Function:
    frame: int | None = 0
    callees: set[str] = field(default_factory=set)


def stack_bound(elf: Path, entry: str, cpu: str) -> int | None:
    """The bytes of stack that `entry` and all that it calls take at most; None where the code does not tell.

    Frames are what clang says of the functions that it compiled (`-fstack-size-section`), else the sum of all that a
    function's instructions push. No bound is known of calls through registers, recursion, and frames of variable size.

    Raises:
        BackendError: LLVM's tools are not installed or cannot read the ELF.
    """
    functions = _functions(elf, cpu)
    for names, size in _SIZES.findall(run_tool("llvm-readobj-22", ["--stack-sizes", elf])):
        for name in names.split(", "):
            if name in functions:
                functions[name].frame = int(size, 16)
    return _deepest(entry, functions, ())


def _deepest(name: str, functions: Mapping[str, _Function], above: tuple[str, ...]) -> int | None:
    function = functions[name]
    if function.frame is None or name in above:
        return None
    deepest = 0
    for callee in function.callees:
        below = _deepest(callee, functions, (*above, name))
        if below is None:
            return None
        deepest = max(deepest, below)
    return function.frame + deepest


def _functions(elf: Path, cpu: str) -> dict[str, _Function]:
    """What the instructions of each function say: pushed bytes, and whom it calls or ends in."""
    starts: dict[int, str] = {}
    for line in run_tool("llvm-nm-22", ["--numeric-sort", "--defined-only", elf]).splitlines():
        value, kind, name = line.split(maxsplit=2)
        if kind in "tTwW" and not name.startswith("$"):
            starts.setdefault(int(value, 16) & ~1, name)
    addresses = sorted(starts)
    functions = {name: _Function() for name in starts.values()}

    def holder(address: int) -> str:
        return starts[addresses[max(0, bisect_right(addresses, address) - 1)]]

    for address, (_, mnemonic, operands) in disassemble(elf, cpu).items():
        name = holder(address)
        function = functions[name]
        pushed = _bytes_pushed(mnemonic, operands)
        function.frame = None if pushed is None or function.frame is None else function.frame + pushed
        if _BRANCH.match(mnemonic) and (target := _TARGET.search(operands)):
            callee = holder(int(target[1], 16))
            begins = starts.get(int(target[1], 16)) == callee  # Armv6-M jumps far by BL
            if callee != name or (begins and mnemonic.partition(".")[0] in ("bl", "blx")):
                function.callees.add(callee)
        elif _INDIRECT.match(mnemonic) and operands != "lr":
            function.frame = None
    return functions


def _bytes_pushed(mnemonic: str, operands: str) -> int | None:
    """By how much an instruction lowers the stack pointer; None where a register says it."""
    base = mnemonic.partition(".")[0]
    if base in ("push", "vpush") or (base in ("stmdb", "vstmdb") and operands.startswith("sp!")):
        registers = operands.partition("{")[2]
        return sum(8 if found[0][0] == "d" else 4 for found in _PUSHED.finditer(registers))
    if base in ("sub", "subw", "subs") and operands.startswith("sp,"):
        lowered = _LOWERED.match(operands)
        return int(lowered[1]) if lowered else None
    if base.startswith(("str", "vstr")) and (written := _WRITE_BACK.search(operands)):
        return int(written[1])
    return 0
