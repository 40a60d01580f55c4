"""Cycles of a counted region on an in-order core: a scoreboard over the disassembly.

Memory answers at once (tightly coupled memory, no bank conflicts), and `le` costs nothing once its loop runs. How
instructions issue, `beats` and `in_order` say.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tosaic.backends.simulators.beats import beats_cycles
from tosaic.backends.simulators.counting import CountedRegion, TranslationBlock
from tosaic.backends.simulators.in_order import in_order_cycles
from tosaic.backends.simulators.instruction import Instruction
from tosaic.backends.target import Pipeline, Timing
from tosaic.support.errors import SimulatorError
from tosaic.support.processes import run_tool

# How much of the next block a cost looks at: stalls on the results of a block fall within its first instructions.
_LOOK_AHEAD = 8


_NOTHING = Timing("none", 0, 0)

_REGISTER = re.compile(r"\b(q[0-7]|r1[0-5]|r[0-9]|lr|sp|pc|p0|vpr|d[0-9]+|s[0-9]+)\b")
_CONDITIONS = "eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le"
_BRANCH = re.compile(rf"(b|bl|bx|blx|bxns|blxns|tbb|tbh|cbz|cbnz|b({_CONDITIONS}))$")
# One of a pair of 16-bit instructions must be of these for the two to issue together.
_PAIRS = re.compile(rf"(adds?|subs?|movs?|uxt[bh]|sxt[bh]|nop|i[te]+|b|b({_CONDITIONS}))$")
_PAIRS_WITH_IMMEDIATE = ("add", "adds", "sub", "subs")
_WRITES_BACK = re.compile(r"\[(\w+)[^\]]*\](!|, *[#rq].*)")
_LISTING = re.compile(r"^ *([0-9a-f]+):\s+((?:[0-9a-f]{4} ?)+)\s*\t(\S+)[ \t]*([^@<]*)")
_OFFSETS = re.compile(r"\[(?:\w+, *)?(q[0-7])\b")
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
            offsets = _OFFSETS.search(operands)
            return Instruction(timing, registers, _written(base, operands, registers), "", False, False,
                               _access(base), offsets[1] if offsets else "")  # fmt: skip
        if transfer := re.match(r"(ldm|pop|vldm|vpop|stm|push|vstm|vpush)", base):
            moved = len(_REGISTER.findall(operands.partition("{")[2]))
            return _transfer(transfer[1], registers, moved, narrow, self._pipeline)
        timing = _lookup(self._scalar, base)
        if timing.pipe == "alu" and timing.latency == 1 and re.search(r"\b(lsl|lsr|asr|ror) #", operands):
            timing = self._pipeline.shifted_operand
        if _BRANCH.match(base):
            writes = ("lr",) if base in ("bl", "blx") else ()
            return Instruction(timing, registers, writes, "branch", narrow, narrow and bool(_PAIRS.match(base)))
        flow = "branch" if base.startswith("ldr") and registers[:1] == ("pc",) else ""
        immediate = base not in _PAIRS_WITH_IMMEDIATE or "#" in operands
        pairs = narrow and immediate and bool(_PAIRS.match(base))
        written = _written(base, operands, registers)
        return Instruction(timing, registers, written, flow, narrow, pairs, _access(base))

    def _vector_timing(self, base: str, suffix: str, operands: str) -> Timing:
        if base.startswith(("vldr", "vstr")) and _OFFSETS.search(operands):
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


def _access(base: str) -> str:
    if base.startswith(("ldr", "vldr", "vld2", "vld4")):
        return "load"
    if base.startswith(("vst2", "vst4")):
        return "interleaving-store"
    return "store" if base.startswith("vstr") else ""


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
    if re.match(r"[su]m[ul][la]l|asrl|lsll|lsrl|[su]q?r?sh[lr]l|v(mla|rmla)l(da|ds)v|vaddlv", base):
        return registers[:2]
    return registers[:1]


def _transfer(base: str, registers: tuple[str, ...], moved: int, narrow: bool, pipeline: Pipeline) -> Instruction:
    beside, words = pipeline.transfer
    occupancy = beside + -(-moved // (1 if base[0] == "v" else words))
    loads = base in ("ldm", "pop", "vldm", "vpop")
    writes = tuple(register for register in registers if register != "sp") if loads else ()
    flow = "branch" if "pc" in writes else ""
    return Instruction(Timing("alu", occupancy, 2 if loads else 1), registers, writes, flow, narrow, False)


def issue_cycles(sequence: Sequence[Instruction], pipeline: Pipeline) -> int:
    """Cycles from the issue of the first instruction until one after the last can issue, all results ready before."""
    return (beats_cycles if pipeline.issue == "beats" else in_order_cycles)(sequence, pipeline)


class CycleModel:
    """The cycles of regions of one run of an ELF.

    The blocks that it prices run from where jumps land to where they leave. QEMU's own end at pages too; with these,
    equal code costs the same wherever it lies.
    """

    def __init__(self, elf: Path, blocks: Mapping[int, TranslationBlock], cpu: str, pipeline: Pipeline) -> None:
        """The model of the code that `elf` ran on a core (`-mcpu` name), given the blocks that the run reported.

        Raises:
            BackendError: llvm-objdump is not installed or cannot read the ELF.
        """
        self._blocks = blocks
        self._listing = disassemble(elf, cpu)
        self._pipeline, self._decode = pipeline, decoder(pipeline)
        self._addresses: dict[int, list[int]] = {}
        self._costs: dict[tuple[int, int, bool, tuple[int, ...]], int] = {}

    def cycles(self, region: CountedRegion) -> int:
        """Cycles between the region's markers.

        Raises:
            SimulatorError: code ran that is not in the ELF's disassembly.
        """
        jumps = self._jumps(region)
        blocks = list(_blocks(self._executions(region), jumps, self._after))
        at = {block.addresses[0]: block for block in blocks}
        total = 0
        for block in blocks:
            falls, last = block.executions, block.addresses[-1]
            for target, count in jumps.get(last, {}).items():
                total += count * self._cost(block.addresses, at[target].addresses if target in at else (), jumped=True)
                falls -= count
            if falls:
                following = at.get(self._after(last))
                total += falls * self._cost(block.addresses, following.addresses if following else (), jumped=False)
        return total

    def _executions(self, region: CountedRegion) -> Counter[int]:
        """How often the instruction at each address ran."""
        counts: Counter[int] = Counter(self._walk(region.first)[region.begin + 1 :])
        entered: Counter[int] = Counter()
        for (_, block), count in region.edges.items():
            entered[block] += count
        for block, count in entered.items():
            for address in self._walk(block):
                counts[address] += count
        counts.subtract(self._walk(region.last)[region.end :])
        return +counts

    def _jumps(self, region: CountedRegion) -> dict[int, Counter[int]]:
        """How often control went from the last address of a block to one that does not follow it."""
        jumps: defaultdict[int, Counter[int]] = defaultdict(Counter)
        for (source, block), count in region.edges.items():
            last, target = self._walk(source)[-1], self._blocks[block].pc
            if target != self._after(last):
                jumps[last][target] += count
        return jumps

    def _walk(self, number: int) -> list[int]:
        """The addresses of a block's instructions."""
        if number not in self._addresses:
            block = self._blocks[number]
            addresses, pc = [], block.pc
            for _ in range(block.instructions):
                addresses.append(pc)
                pc = self._after(pc)
            self._addresses[number] = addresses
        return self._addresses[number]

    def _after(self, address: int) -> int:
        if address not in self._listing:
            raise SimulatorError(f"the code at {address:#010x} ran but is not in the ELF's disassembly")
        return address + self._listing[address][0]

    def _cost(self, block: Sequence[int], successor: Sequence[int], *, jumped: bool) -> int:
        """Cycles of a block when `successor` comes next, with the stalls that its results cause there."""
        key = (block[0], block[-1], jumped, tuple(successor[:_LOOK_AHEAD]))
        if key not in self._costs:
            sequence = [self._instruction(address) for address in block]
            ahead = [self._instruction(address) for address in successor[:_LOOK_AHEAD]]
            self._costs[key] = (
                issue_cycles([*sequence, *ahead], self._pipeline)
                - issue_cycles(ahead, self._pipeline)
                + self._flow_cycles(sequence, jumped)
            )
        return self._costs[key]

    def _instruction(self, address: int) -> Instruction:
        size, mnemonic, operands = self._listing[address]
        return self._decode(mnemonic, operands, size)

    def _flow_cycles(self, sequence: Sequence[Instruction], jumped: bool) -> int:
        skips_loop = jumped and sequence[-1].flow == "branch-loop-start"
        starts = sum(instruction.flow.endswith("loop-start") for instruction in sequence)
        cycles = 0 if skips_loop else self._pipeline.loop_entry * starts
        if jumped and sequence[-1].flow.startswith("branch"):
            cycles += self._pipeline.taken_branch
        return cycles


class _ExecutedBlock(NamedTuple):
    addresses: list[int]
    executions: int


def _blocks(
    executions: Mapping[int, int], jumps: Mapping[int, Mapping[int, int]], after: Callable[[int], int]
) -> Iterator[_ExecutedBlock]:
    """What ran, cut where jumps land, where they leave and where something did not run."""
    leaders = {target for targets in jumps.values() for target in targets}
    addresses: list[int] = []
    for address in sorted(executions):
        follows = bool(addresses) and after(addresses[-1]) == address
        if addresses and (not follows or address in leaders or addresses[-1] in jumps):
            yield _ExecutedBlock(addresses, executions[addresses[0]])
            addresses = []
        addresses.append(address)
    if addresses:
        yield _ExecutedBlock(addresses, executions[addresses[0]])


def disassemble(elf: Path, cpu: str) -> dict[int, tuple[int, str, str]]:
    """The instructions of an ELF by address: size in bytes, mnemonic, operands.

    Args:
        cpu: a core's `-mcpu` name; extensions that it leaves out do not matter here.

    Raises:
        BackendError: llvm-objdump is not installed or cannot read the ELF.
    """
    listing = {}
    core = cpu.partition("+")[0]
    for line in run_tool("llvm-objdump-22", ["-d", f"--mcpu={core}", "--no-print-imm-hex", elf]).splitlines():
        match = _LISTING.match(line)
        if match:
            address, encoding, mnemonic, operands = match.groups()
            listing[int(address, 16)] = (2 * len(encoding.split()), mnemonic, operands.strip())
    return listing
