"""Cycles of a counted region on an in-order core: a scoreboard over the disassembly.

Memory answers at once (tightly coupled memory, no bank conflicts). An MVE instruction holds its pipe for two beats,
instructions on different pipes overlap, pairs of 16-bit instructions issue together, `le` costs nothing once its loop
runs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tosaic.backends.simulators.counting import Block, CountedRegion
from tosaic.backends.target import Pipeline, Timing
from tosaic.support.errors import SimulatorError

# How much of the next block a cost looks at: stalls on the results of a block fall within its first instructions.
_LOOK_AHEAD = 8


class Instruction(NamedTuple):
    """An instruction as the scoreboard sees it. `flow` is `branch`, `loop-start`, `loop-end` or empty."""

    timing: Timing
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    flow: str
    narrow: bool
    pairs: bool


_NOTHING = Timing("none", 0, 0)

_REGISTER = re.compile(r"\b(q[0-7]|r1[0-5]|r[0-9]|lr|sp|pc|p0|vpr|d[0-9]+|s[0-9]+)\b")
_CONDITIONS = "eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le"
_BRANCH = re.compile(rf"(b|bl|bx|blx|bxns|blxns|tbb|tbh|cbz|cbnz|b({_CONDITIONS}))$")
# One of a pair of 16-bit instructions must be of these for the two to issue together.
_PAIRS = re.compile(rf"(adds?|subs?|movs?|uxt[bh]|sxt[bh]|nop|i[te]+|b|b({_CONDITIONS}))$")
_PAIRS_WITH_IMMEDIATE = ("add", "adds", "sub", "subs")
_WRITES_BACK = re.compile(r"\[(\w+)[^\]]*\](!|, *[#rq].*)")
_LISTING = re.compile(r"^ *([0-9a-f]+):\s+((?:[0-9a-f]{4} ?)+)\s*\t(\S+)[ \t]*([^@<]*)")
_ELEMENTS = {"8": 16, "16": 8, "32": 4, "64": 2}


class Decoder:
    """The scoreboard's view of instructions, by the timings of one core."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._vector = [(re.compile(pattern), timing) for pattern, timing in pipeline.vector]
        self._scalar = [(re.compile(pattern), timing) for pattern, timing in pipeline.scalar]
        self._known: dict[tuple[str, str, int], Instruction] = {}

    def __call__(self, mnemonic: str, operands: str, size: int) -> Instruction:
        """One instruction as llvm-objdump prints it; `size` in bytes."""
        key = (mnemonic, operands, size)
        if key not in self._known:
            self._known[key] = self._decode(*key)
        return self._known[key]

    def _decode(self, mnemonic: str, operands: str, size: int) -> Instruction:
        base, _, suffix = mnemonic.partition(".")
        registers = tuple(_REGISTER.findall(operands))
        narrow = size == 2
        if base in ("le", "letp"):
            return Instruction(_NOTHING, (), (), "loop-end", False, False)
        if base in ("dls", "dlstp", "wls", "wlstp"):
            flow = "branch-loop-start" if base[0] == "w" else "loop-start"
            return Instruction(Timing("alu", 1, 1), registers, ("lr",), flow, False, False)
        if _is_vector(base, operands):
            timing = self._vector_timing(base, suffix, operands)
            return Instruction(timing, registers, _written(base, operands, registers), "", False, False)
        if transfer := re.match(r"(ldm|pop|vldm|vpop|stm|push|vstm|vpush)", base):
            return _transfer(transfer[1], registers, narrow)
        timing = _lookup(self._scalar, base)
        if timing.latency == 1 and re.search(r"\b(lsl|lsr|asr|ror) #", operands):
            timing = self._pipeline.shifted_operand
        if _BRANCH.match(base):
            writes = ("lr",) if base in ("bl", "blx") else ()
            return Instruction(timing, registers, writes, "branch", narrow, narrow and bool(_PAIRS.match(base)))
        flow = "branch" if base.startswith("ldr") and registers[:1] == ("pc",) else ""
        immediate = base not in _PAIRS_WITH_IMMEDIATE or "#" in operands
        pairs = narrow and immediate and bool(_PAIRS.match(base))
        return Instruction(timing, registers, _written(base, operands, registers), flow, narrow, pairs)

    def _vector_timing(self, base: str, suffix: str, operands: str) -> Timing:
        if base.startswith(("vldr", "vstr")) and re.search(r"\[\w+, *q", operands):
            bits = re.search(r"(\d+)$", suffix)
            elements = _ELEMENTS.get(bits[1], 4) if bits else 4
            return Timing("load-store", max(2, elements // 2), 2)
        if base.startswith("vmov") and "[" in operands:
            return self._pipeline.lane_insert if operands.startswith("q") else self._pipeline.lane_extract
        if base.startswith("vmov") and "#" in operands:
            return self._pipeline.vector_immediate
        return _lookup(self._vector, base)


@lru_cache(maxsize=8)
def decoder(pipeline: Pipeline) -> Decoder:
    """The decoder of a core's timings; what it has decoded it keeps."""
    return Decoder(pipeline)


def _is_vector(base: str, operands: str) -> bool:
    return base[0] == "v" and (bool(re.search(r"\bq[0-7]\b", operands)) or base.startswith(("vpst", "vctp", "vpnot")))


def _lookup(table: list[tuple[re.Pattern[str], Timing]], base: str) -> Timing:
    return next(timing for pattern, timing in table if pattern.match(base))


def _written(base: str, operands: str, registers: tuple[str, ...]) -> tuple[str, ...]:
    if not registers or base.startswith(("cmp", "cmn", "tst", "teq")):
        return ()
    back = _WRITES_BACK.search(operands)
    address = (back[1],) if back else ()
    if base.startswith(("vldr", "vld2", "vld4")):
        return (*_REGISTER.findall(operands[: operands.index("[")]), *address)
    if base.startswith(("str", "vstr", "vst2", "vst4")):
        return address
    if base.startswith(("vpt", "vcmp")):
        return ("p0",)
    if base.startswith("vmov") and not operands.startswith("q") and "q" in operands:
        return tuple(register for register in registers if register[0] != "q")
    if base.startswith("ldr"):
        return (*registers[: 2 if base.startswith("ldrd") else 1], *address)
    if re.match(r"[su]m[ul][la]l|asrl|lsll|lsrl|v(mla|rmla)l(da|ds)v|vaddlv", base):
        return registers[:2]
    return registers[:1]


def _transfer(base: str, registers: tuple[str, ...], narrow: bool) -> Instruction:
    count = len(registers)
    occupancy = 1 + count if base[0] == "v" else 1 + (count + 1) // 2
    loads = base in ("ldm", "pop", "vldm", "vpop")
    writes = tuple(register for register in registers if register != "sp") if loads else ()
    flow = "branch" if "pc" in writes else ""
    return Instruction(Timing("alu", occupancy, 2 if loads else 1), registers, writes, flow, narrow, False)


def issue_cycles(sequence: Iterable[Instruction]) -> int:
    """Cycles from the issue of the first instruction until one after the last can issue, all results ready before."""
    ready: dict[str, int] = {}
    busy = {"alu": 0, "load-store": 0, "int": 0, "mul": 0, "system": 0}
    clock = 0
    previous: Instruction | None = None
    previous_issue = 0
    for instruction in sequence:
        timing, reads, writes, _, narrow, pairs = instruction
        pipe = timing.pipe
        if pipe == "none":
            previous = None
            continue
        if pipe == "either":
            pipe = "int" if busy["int"] <= busy["mul"] else "mul"
        operands_ready = 0
        for register in reads:
            at = ready.get(register, 0)
            if at > operands_ready:
                operands_ready = at
        together = (
            previous is not None
            and narrow
            and previous.narrow
            and (pairs or previous.pairs)
            and timing.occupancy == 1
            and previous.timing.occupancy == 1
            and operands_ready <= previous_issue
            and not any(register in previous.writes for register in reads)
        )
        issue = previous_issue if together else max(clock, operands_ready, busy[pipe])
        busy[pipe] = max(busy[pipe], issue + timing.occupancy)
        for register in writes:
            ready[register] = issue + timing.latency
        clock = issue + (timing.occupancy if pipe == "alu" else 1)
        previous = None if together else instruction
        previous_issue = issue
    return clock


class CycleModel:
    """The cycles of regions of one run of an ELF."""

    def __init__(self, elf: Path, blocks: Mapping[int, Block], cpu: str, pipeline: Pipeline) -> None:
        """The model of the code that `elf` ran on a core (`-mcpu` name), given the blocks that the run reported.

        Raises:
            SimulatorError: llvm-objdump is not installed or cannot read the ELF.
        """
        self._blocks = blocks
        self._listing = disassemble(elf, cpu)
        self._pipeline, self._decode = pipeline, decoder(pipeline)
        self._sequences: dict[int, list[Instruction]] = {}
        self._ends: dict[int, int] = {}
        self._costs: dict[tuple[int, int], int] = {}

    def cycles(self, region: CountedRegion) -> int:
        """Cycles between the region's markers."""
        first, last = self._sequence(region.first), self._sequence(region.last)
        if not region.edges:
            return issue_cycles(first[region.begin + 1 : region.end])
        total = sum(count * self._cost(*edge) for edge, count in region.edges.items())
        return total - issue_cycles(first[: region.begin + 1]) + issue_cycles(last[: region.end])

    def _sequence(self, number: int) -> list[Instruction]:
        if number not in self._sequences:
            block = self._blocks[number]
            sequence: list[Instruction] = []
            pc = block.pc
            while len(sequence) < block.instructions:
                if pc not in self._listing:
                    raise SimulatorError(f"the code at {pc:#010x} ran but is not in the ELF's disassembly")
                size, mnemonic, operands = self._listing[pc]
                sequence.append(self._decode(mnemonic, operands, size))
                pc += size
            self._sequences[number] = sequence
            self._ends[number] = pc
        return self._sequences[number]

    def _cost(self, number: int, successor: int) -> int:
        """Cycles of a block when `successor` follows, with the stalls that its results cause there."""
        if (number, successor) not in self._costs:
            sequence, ahead = self._sequence(number), self._sequence(successor)[:_LOOK_AHEAD]
            cost = issue_cycles([*sequence, *ahead]) - issue_cycles(ahead)
            jumped = self._blocks[successor].pc != self._ends[number]
            self._costs[number, successor] = cost + self._flow_cycles(sequence, jumped)
        return self._costs[number, successor]

    def _flow_cycles(self, sequence: Sequence[Instruction], jumped: bool) -> int:
        skips_loop = jumped and sequence[-1].flow == "branch-loop-start"
        starts = sum(instruction.flow.endswith("loop-start") for instruction in sequence)
        cycles = 0 if skips_loop else self._pipeline.loop_entry * starts
        if jumped and sequence[-1].flow.startswith("branch"):
            cycles += self._pipeline.taken_branch
        return cycles


def disassemble(elf: Path, cpu: str) -> dict[int, tuple[int, str, str]]:
    """The instructions of an ELF by address: size in bytes, mnemonic, operands.

    Raises:
        SimulatorError: llvm-objdump is not installed or cannot read the ELF.
    """
    objdump = shutil.which("llvm-objdump-22")
    if objdump is None:
        raise SimulatorError("`llvm-objdump-22` is not installed", hint="make setup installs the Debian packages")
    done = subprocess.run([objdump, "-d", f"--mcpu={cpu}", "--no-print-imm-hex", elf], capture_output=True, text=True)
    if done.returncode:
        raise SimulatorError(f"llvm-objdump cannot read {elf.name}", why=done.stderr.strip())
    listing = {}
    for line in done.stdout.splitlines():
        match = _LISTING.match(line)
        if match:
            address, encoding, mnemonic, operands = match.groups()
            listing[int(address, 16)] = (2 * len(encoding.split()), mnemonic, operands.strip())
    return listing
