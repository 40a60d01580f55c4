"""The table of ATen ops that have been lowered, and where each runs; `benchmarks/op_table.py` writes it."""

from __future__ import annotations

from pathlib import Path

COLUMNS = ["op", "float", "int8", "int16", "M55", "U55", "U65", "U85"]
TABLE = Path(__file__).with_name("ops.md")


def ops() -> list[dict[str, str]]:
    """A row for each op: `yes`, `no` or, of the NPUs, `partly`; `f32` where it stays float in a quantized model."""
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in TABLE.read_text().splitlines()[2:]]
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]
