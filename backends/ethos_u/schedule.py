"""What Vela tells of a region it compiled: its ops with their costs, and what lies where in the working memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tosaic.backends.npu import NpuOp, NpuTensor

_INSIDE = ("shram", "lutram")
"""Memories of the NPU itself, which no other traffic shares."""
_UNITS = {"mac_cycles": "MAC", "ao_cycles": "output", "cmd_cycles": "commands"}
_ACCESS = "_ac"
_BUFFER_OF = re.compile(r"_op(\d+)$")


class RegionSchedule:
    """Vela's debug database of one region, its tables joined.

    Args:
        database: `perf` has a row for each op, and `perf_debug` and `perf_debug_main` more of it. `queue` has the
            offsets of its commands, `source` the op of the TOSA graph, and `tensors` the working memory.
        op_names: of the TOSA graph, in its order.
        staging: the memory that is region 2; empty where there is none.
    """

    def __init__(self, database: Any, op_names: Sequence[str], staging: str) -> None:
        tables = {name: [dict(zip(t.header, r, strict=True)) for r in t.data] for name, t in database.tables.items()}
        self._names, self._staging = op_names, staging
        self._source = {row["id"]: int(row["ext_key"]) for row in tables.get("source", [])}
        columns = next(iter(tables.get("perf", [])), {})
        self._memories = [
            memory
            for column in columns
            if column.endswith(_ACCESS) and (memory := column.removesuffix(_ACCESS)) not in _INSIDE
        ]
        more = [{row["id"]: row for row in tables.get(name, [])} for name in ("perf_debug", "perf_debug_main")]
        self._rows = [row | more[0].get(row["id"], {}) | more[1].get(row["id"], {}) for row in tables.get("perf", [])]
        self._tensors = tables.get("tensors", [])
        self._offsets: dict[str, list[int]] = {}
        for row in tables.get("queue", []):
            self._offsets.setdefault(row["scheduled_id"], []).append(int(row["offset"]))

    def ops(self) -> tuple[NpuOp, ...]:
        """In the order of their execution."""
        return tuple(self._op(row) for row in self._rows)

    def tensors(self) -> tuple[NpuTensor, ...]:
        """What lies in regions 1 and 2."""
        return tuple(self._placed())

    def _op(self, row: Mapping[str, str]) -> NpuOp:
        source = self._source.get(row["source_id"], -1)
        busy = {unit: _number(row.get(column)) for column, unit in _UNITS.items()}
        busy |= {memory: _number(row[memory + _ACCESS]) for memory in self._memories}
        return NpuOp(
            op=self._names[source] if source >= 0 else "",
            index=self._index(row),
            cycles=_number(row["op_cycles"]),
            busy={part: cycles for part, cycles in busy.items() if cycles},
            macs=_number(row["mac_count"]),
            traffic={memory: moved for memory in self._memories if (moved := _moved(row, memory))},
            time=_number(row.get("time_index")),
            offsets=tuple(self._offsets.get(row["id"], ())),
        )

    def _index(self, row: Mapping[str, str]) -> int:
        source = self._source.get(row["source_id"], -1)
        return sum(not name.startswith("CONST") for name in self._names[:source]) if source >= 0 else -1

    def _placed(self) -> Iterator[NpuTensor]:
        makers = {row["name"]: self._index(row) for row in self._rows}
        for row in self._tensors:
            buffer = _BUFFER_OF.search(row["name"]) if row["usage"] == "OpBuffering" else None
            start = int(row["start_address"], 16)
            yield NpuTensor(
                index=self._index(self._rows[int(buffer[1])]) if buffer else makers.get(row["name"], -1),
                weights=buffer is not None,
                region=2 if row["memory"] == self._staging else 1,
                address=start,
                size=int(row["end_address"], 16) - start,
                first=int(row["start_time"]),
                last=int(row["end_time"]),
            )


def _moved(row: Mapping[str, str], memory: str) -> int:
    """Bytes read from and written to a memory: `SramWeights_read` and its like."""
    columns = rf"{memory}(Lut|FeatureMap|Weights|Scales)_(read|write)"
    return sum(_number(value) for name, value in row.items() if re.fullmatch(columns, name))


def _number(text: str | None) -> int:
    return int(text or 0)
