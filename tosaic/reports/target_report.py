"""Targets as JSON objects and as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec
from rich.table import Table

from tosaic.backends.npus import find_accelerator
from tosaic.backends.simulators.stand_in import simulation_of
from tosaic.backends.target import Memory, Npu, Target
from tosaic.target_files.declaration import Declaration
from tosaic.target_files.problems import Problem
from tosaic.terminal.console import print_facts, stdout


def targets_result(declared: Iterable[Declaration]) -> dict:
    """What `targets --json` prints."""
    return {"targets": [target_result(each) for each in declared]}


def target_result(declared: Declaration) -> dict:
    """What `targets show --json` prints."""
    target = declared.target
    return {
        "name": target.name,
        "vendor": declared.vendor,
        "title": declared.title,
        "core": target.core.name,
        "isa": list(target.core.isa),
        "cycle_model": target.core.pipeline is not None,
        "accelerator": target.accelerator,
        "npus": msgspec.to_builtins(_npus(target)),
        "clock": target.clock,
        "clocks": dict(target.clocks),
        "npu_clock": target.npu_clock,
        "flash_size": target.flash_size,
        "machine": target.board.machine,
        "simulated_on": simulation_of(target).machine,
        "layout": msgspec.to_builtins(target.layout),
        "sources": list(declared.sources),
        "unchecked": list(declared.unchecked),
    }


def print_targets(declared: Sequence[Declaration]) -> None:
    """Every target, by vendor and what it is."""
    table = Table("vendor", "target", "what", "core", "NPU", "MHz", "notes", box=None)
    ordered = sorted(declared, key=lambda each: (each.vendor.lower(), each.target.name))
    for vendor, group in groupby(ordered, key=lambda each: each.vendor):
        for number, each in enumerate(group):
            target = each.target
            npus = ", ".join(npu.accelerator.removeprefix("ethos-") for npu in _npus(target)) or "-"
            clock = f"{target.clock / 1e6:g}" if target.clock else "-"
            head = "" if number else vendor or "-"
            table.add_row(head, target.name, each.title, target.core.name, npus, clock, _notes(each))
    stdout.print(table)


def _notes(declared: Declaration) -> str:
    return f"{len(declared.unchecked)} unchecked" if declared.unchecked else ""


def print_target(declared: Declaration) -> None:
    """A target's core, NPUs and memories, and where its numbers come from."""
    target, on = declared.target, simulation_of(declared.target)
    clocks = ", ".join(f"{name} {hertz / 1e6:g} MHz" for name, hertz in target.clocks)
    print_facts(
        [
            ("target", " ".join(part for part in (target.name, declared.vendor, declared.title) if part)),
            ("core", f"{target.core.name} ({', '.join(target.core.isa) or 'no extensions'}), {_kernels(target)}"),
            ("clock", clocks or (f"{target.clock / 1e6:g} MHz" if target.clock else "not said")),
            *(("NPU", _described(npu)) for npu in _npus(target)),
            ("simulated on", f"{on.machine}{f', a {on.core}' if on.core else ''}{', which stands in' * on.stands_in}"),
            *([("flash", f"at most {target.flash_size:,} B")] if target.flash_size else []),
        ]
    )
    stdout.print(_memories(target))
    for source in declared.sources:
        print_facts([("source", source)])
    if declared.unchecked:
        print_facts([("unchecked", ", ".join(declared.unchecked))])


def _kernels(target: Target) -> str:
    model = "a cycle model" if target.core.pipeline else "no cycle model"
    return f"{model}; {'vector kernels' if target.core.mve else 'scalar kernels'}"


def _npus(target: Target) -> list[Npu]:
    """The NPUs of a target; the usual one where its file names none."""
    return list(target.npus) or ([target.npu] if target.npu else [])


def _described(npu: Npu) -> str:
    usual = find_accelerator(npu.accelerator)
    name = f"{npu.name}: {npu.accelerator}" if npu.name != npu.accelerator else npu.accelerator
    clock = f" at {npu.clock / 1e6:g} MHz" if npu.clock else ""
    registers = npu.registers if npu.registers is not None else usual.registers
    vela = f"{npu.memory_mode or usual.memory_mode}, {npu.system_config or usual.system_config}"
    return f"{name}{clock}, registers at {registers:#010x}; for Vela {vela}"


def _memories(target: Target) -> Table:
    heads = ["holds", "memory", "at", "size", "others", "bytes/cycle", "latency", "caches"]
    table = Table(*heads, *(["NPU's port", "for the NPU at"] if target.accelerator else []), box=None)
    layout = target.layout
    uses = [("code", layout.code), ("stack", layout.stack), *(("arena", memory) for memory in layout.arena),
            ("constants", layout.constants)]  # fmt: skip
    for use, memory in uses:
        speed = ["-" if number is None else f"{number:.3g}" for number in (memory.bytes_per_cycle, memory.latency)]
        caches = ", ".join(f"{cache.name} {cache.size / 1024:g} KiB" for cache in memory.caches) or "-"
        others = ", ".join(f"{who} {size / 1024:g} KiB" for who, size in memory.reserved) or "-"
        row = [use, memory.name, f"{memory.base:#010x}", f"{memory.size / 1024:,.10g} KiB", others, *speed, caches]
        table.add_row(*row, *(_for_npu(target, memory) if target.accelerator else []))
    return table


def _for_npu(target: Target, memory: Memory) -> list[str]:
    if not memory.reached_by_npu:
        return ["-", "-"]
    return [target.npu_port(memory), f"{memory.npu_address:#010x}"]


def check_result(checked: tuple[Declaration | None, list[Problem]]) -> dict:
    """What `targets check --json` prints."""
    declared, problems = checked
    return {"target": target_result(declared) if declared else None, "problems": msgspec.to_builtins(problems)}


def print_check(checked: tuple[Declaration | None, list[Problem]]) -> None:
    """What is wrong with a file, a line each; or what it declares."""
    declared, problems = checked
    for problem in problems:
        stdout.print(str(problem), highlight=False, soft_wrap=True)
    if declared:
        print_target(declared)
