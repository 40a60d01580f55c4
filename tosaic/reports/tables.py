"""Tables beside builds: what an NPU's board counted, what this machine has, which ops there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from rich.table import Table

from tosaic.reports.doctor import Finding
from tosaic.runs.npu_measured import MeasuredRegion
from tosaic.runs.npu_verified import VerifiedFile
from tosaic.terminal.console import stderr, stdout

_ACCEPTANCE = {"u55_u65": "U55, U65", "u85": "U85", "suspicions": "tried where it is otherwise"}
"""Headings of an NPU's acceptance table."""


def measured_result(regions: Sequence[MeasuredRegion]) -> dict:
    """What `npu measured --json` prints."""
    return {"regions": [{**msgspec.to_builtins(region), "ratio": region.ratio} for region in regions]}


def print_measured(regions: Sequence[MeasuredRegion]) -> None:
    """Each region's cycles on the board and by Vela."""
    table = Table("region", "calls", "estimate", "on the board", "ratio", box=None)
    for region in regions:
        row = (f"{region.estimate:,}", f"{region.cycles:,.0f}", f"{region.ratio:.2f}")
        table.add_row(region.name, str(region.calls), *row)
    stdout.print(table)


def verified_result(found: VerifiedFile) -> dict:
    """What `npu verify --json` prints."""
    return {"equal": found.equal, **msgspec.to_builtins(found)}


def print_verified(found: VerifiedFile) -> None:
    """The outputs of a compiled file beside those of the plain one."""
    left = f"; on the core: {', '.join(found.core_ops)}" if found.core_ops else ""
    regions = "1 region" if found.regions == 1 else f"{found.regions} regions"
    stdout.print(f"{regions} for {', '.join(found.accelerators)}{left}", highlight=False)
    table = Table("output", "elements", "different", "by at most", box=None)
    for one in found.outputs:
        table.add_row(
            one.name, f"{one.elements:,}", f"{one.different:,}", f"{one.most:g} steps" if one.different else ""
        )
    stdout.print(table)
    stdout.print("equal to the bit" if found.equal else "different", highlight=False)


def doctor_result(findings: Sequence[Finding]) -> dict:
    """What `doctor --json` prints."""
    return {"findings": msgspec.to_builtins(list(findings))}


def print_findings(findings: Sequence[Finding]) -> None:
    """What was looked at, and what to do where something is wrong."""
    table = Table("", "", "found", "what for", box=None)
    for one in findings:
        table.add_row(one.name, one.state, one.found, one.use)
    stdout.print(table)
    for one in findings:
        if one.hint:
            what = one.found if one.use == "" else f"{one.found}; it {one.use}"
            stderr.print(f"{one.state}: {one.name}: {what}; {one.hint}", highlight=False, soft_wrap=True)


def print_ops(rows: Sequence[Mapping[str, str]]) -> None:
    """The table of ATen ops: in what form each computes, and what of it each NPU takes."""
    table = Table(*rows[0], box=None)
    for row in rows:
        table.add_row(*row.values())
    stdout.print(table)


def print_supported_ops(rows: Sequence[Mapping[str, str]]) -> None:
    """The acceptance table of a family of NPUs: each op, its element types, the conditions, and where the compiler is
    tried first."""
    table = Table(*(_ACCEPTANCE.get(column, column) for column in rows[0]), box=None)
    for row in rows:
        table.add_row(*(text or ("no" if column in ("u55_u65", "u85") else "") for column, text in row.items()))
    stdout.print(table)
