"""The memory of the tuner: one record per trial, appended and never changed, in one SQLite file."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import get_args

from tosaic.support.errors import DatabaseError, Error
from tosaic.tuner.measurement import Measurement, Objective, Status
from tosaic.tuner.space import Schedule

APPLICATION_ID = 0x705A1C
FORMAT = 3
STATUSES = tuple(status for status in get_args(Status) if status != "late")
STAMP = ("core", "memory", "toolchain", "simulator", "compiler")
TEXTS = ("key", "schedule", "features", "status", "message", "code", *STAMP)
COLUMNS = ("key", "schedule", "features", "status", "instructions", "cycles", "waits", "message", "code", *STAMP)
CREATE = f"""
CREATE TABLE IF NOT EXISTS trials (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL, schedule TEXT NOT NULL, features TEXT NOT NULL,
    status TEXT NOT NULL, instructions INTEGER NOT NULL, cycles INTEGER, waits INTEGER NOT NULL, message TEXT NOT NULL,
    code TEXT NOT NULL,
    {", ".join(f"{column} TEXT NOT NULL" for column in STAMP)},
    UNIQUE (key, {", ".join(STAMP)}, schedule, code)
)
"""
INSERT = f"INSERT OR IGNORE INTO trials ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
SELECT = f"SELECT {', '.join(COLUMNS)} FROM trials"
COSTS: Mapping[Objective, str] = {
    "cycles": "cycles + waits",
    "core-cycles": "cycles",
    "instructions": "instructions",
}
SAME_ENVIRONMENT = " AND ".join(f"{column} = ?" for column in STAMP)


@dataclass(frozen=True)
class Environment:
    """What a measurement depends on besides the kernel: records of one environment say nothing about another.

    Args:
        core: the core, e.g. `cortex-m55`.
        memory: where code and data stood.
        toolchain: name and version of what compiled the code, and the library linked to it.
        simulator: name and version of what ran it, and of what counted, compared and priced it.
        compiler: version of tosaic's generators.
    """

    core: str
    memory: str
    toolchain: str
    simulator: str
    compiler: str


@dataclass(frozen=True)
class Record:
    """One trial of the workload `key`.

    Args:
        features: of the schedule's kernel, from which other workloads learn.
    """

    key: str
    schedule: Schedule
    measurement: Measurement
    features: Mapping[str, float] = field(default_factory=dict)


class Database:
    """The trials in `path`, read and written for one environment.

    An appended batch is on the disk when `append` returns (write-ahead log, synchronized): a crash or a power cut
    loses what was not yet appended and nothing else. Several processes may share the file.

    `written` holds workload and schedule of each trial that was appended here.

    Args:
        path: the SQLite file, created where missing.
        environment: what new records are stamped with, and which records count.

    Raises:
        DatabaseError: the file is damaged, is something else, or cannot be opened for writing.
    """

    def __init__(self, path: str | os.PathLike[str], environment: Environment) -> None:
        self.path, self.environment = Path(path), environment
        self.written: set[tuple[str, Schedule]] = set()
        with self._guard():
            self._connection = _open(self.path)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def append(self, records: Iterable[Record]) -> int:
        """Write a batch in one transaction; a schedule that has a record keeps it. Returns how many were new.

        What was late is left out: it tells of the machine's load, and of no kernel.
        """
        kept = [each for each in records if each.measurement.status in STATUSES]
        new = self._insert(_row(each, self.environment) for each in kept)
        self.written.update((each.key, each.schedule) for each in kept)
        return new

    def records(self, key: str) -> list[Record]:
        """The trials of a workload in this environment, oldest first."""
        query = f"{SELECT} WHERE key = ? AND {SAME_ENVIRONMENT} ORDER BY id"
        return [self._record(row) for row in self._rows(query, (key, *_stamp(self.environment)))]

    def recent(self, count: int, but: Collection[str] = ()) -> list[Record]:
        """The last `count` trials of all workloads in this environment but those of keys `but`, newest first."""
        others = f"key NOT IN ({', '.join('?' * len(but))})"
        query = f"{SELECT} WHERE {others} AND {SAME_ENVIRONMENT} ORDER BY id DESC LIMIT ?"
        return [self._record(row) for row in self._rows(query, (*but, *_stamp(self.environment), count))]

    def bests(self, objective: Objective) -> list[Record]:
        """The best trial of each workload in this environment."""
        least = f"SELECT {', '.join(COLUMNS)}, MIN({COSTS[objective]}) FROM trials"
        query = f"{least} WHERE status = 'ok' AND {SAME_ENVIRONMENT} GROUP BY key ORDER BY id"
        return [self._record(row[:-1]) for row in self._rows(query, _stamp(self.environment))]

    def ignored(self, keys: Iterable[str]) -> int:
        """How many trials of these workloads belong to other environments and therefore do not count."""
        query = f"SELECT COUNT(*) FROM trials WHERE key = ? AND NOT ({SAME_ENVIRONMENT})"
        return sum(self._rows(query, (key, *_stamp(self.environment)))[0][0] for key in keys)

    def export_lines(self, path: str | os.PathLike[str]) -> int:
        """Write the trials of all environments to `path`, one JSON object a line. Returns how many.

        Raises:
            DatabaseError: the file cannot be written.
        """
        rows = self._rows(f"{SELECT} ORDER BY id")
        beside = Path(path).with_name(Path(path).name + ".part")
        try:
            with open(beside, "w", encoding="utf-8") as file:
                for row in rows:
                    file.write(json.dumps(dict(zip(COLUMNS, row, strict=True)), sort_keys=True) + "\n")
            beside.replace(path)
        except OSError as error:
            raise DatabaseError(f"cannot write the records to {path}", why=str(error)) from None
        return len(rows)

    def import_lines(self, path: str | os.PathLike[str]) -> int:
        """Add the trials of an exported file, all or none. Returns how many were new.

        Raises:
            DatabaseError: a line is not a record; the message names the line.
        """
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DatabaseError(f"cannot read the records in {path}", why=str(error)) from None
        return self._insert([_parse(line, f"{path}:{n}") for n, line in enumerate(lines, 1) if line.strip()])

    def _insert(self, rows: Iterable[Sequence[object]]) -> int:
        with self._guard(), self._connection:
            before = self._connection.total_changes
            self._connection.executemany(INSERT, rows)
            return self._connection.total_changes - before

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple]:
        with self._guard():
            return self._connection.execute(query, values).fetchall()

    def _record(self, row: tuple) -> Record:
        fields = dict(zip(COLUMNS, row, strict=True))
        try:
            _check(fields)
        except (Error, ValueError) as error:
            raise _damaged(self.path, str(error)) from None
        names = ("status", "instructions", "cycles", "waits", "message", "code")
        measurement = Measurement(**{name: fields[name] for name in names})
        schedule, features = Schedule.from_json(fields["schedule"]), json.loads(fields["features"])
        return Record(fields["key"], schedule, measurement, features)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            raise DatabaseError(
                f"the tuning database {self.path} cannot be used",
                why=str(error),
                hint="check that its folder exists, is writable and has space, and that no other process locks it",
            ) from None
        except sqlite3.DatabaseError as error:
            raise _damaged(self.path, str(error)) from None


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=30)
    try:
        _verify(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        with connection:  # whole or not at all, whenever the process is killed
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
            connection.execute(CREATE)
    except BaseException:
        connection.close()
        raise
    return connection


def _verify(connection: sqlite3.Connection, path: Path) -> None:
    owner, version, tables = (
        connection.execute(query).fetchone()[0]
        for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT COUNT(*) FROM sqlite_master")
    )
    if tables and owner != APPLICATION_ID:
        raise DatabaseError(
            f"{path} is not a tuning database", why="it is an SQLite file of another program", hint="name another file"
        )
    if tables and version != FORMAT:
        raise DatabaseError(
            f"{path} has format {version}, this tosaic reads format {FORMAT}",
            hint="move the file away; what another version measured would not count",
        )
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise _damaged(path, verdict)


def _damaged(path: Path, why: str) -> DatabaseError:
    return DatabaseError(
        f"the tuning database {path} is damaged",
        why=why,
        hint="move the file away (its -wal and -shm too) and tune again, or import an export of it into a new file",
    )


def _stamp(environment: Environment) -> tuple[str, ...]:
    return tuple(asdict(environment).values())


def _row(record: Record, environment: Environment) -> tuple[object, ...]:
    found = record.measurement
    measured = (found.status, found.instructions, found.cycles, found.waits, found.message, found.code)
    features = json.dumps(dict(record.features))
    return (record.key, record.schedule.to_json(), features, *measured, *_stamp(environment))


def _parse(line: str, where: str) -> tuple[object, ...]:
    try:
        fields = json.loads(line)
        _check(fields)
    except (Error, ValueError) as error:
        raise DatabaseError(
            "this is not a tuning record",
            where=where,
            why=str(error),
            hint="import only files written by an export; nothing was imported",
        ) from None
    return tuple(fields[name] for name in COLUMNS)


def _check(fields: object) -> None:
    """Raise ValueError or Error where `fields` is not a record."""
    if not isinstance(fields, dict) or set(fields) != set(COLUMNS):
        raise ValueError(f"a record has exactly the fields {', '.join(COLUMNS)}")
    if not all(isinstance(fields[name], str) for name in TEXTS):
        raise ValueError(f"{', '.join(TEXTS)} are texts")
    counts = [fields["instructions"], fields["waits"], *([] if fields["cycles"] is None else [fields["cycles"]])]
    if not all(type(count) is int and 0 <= count < 2**63 for count in counts):
        raise ValueError("instructions, cycles and waits are counts")
    if fields["status"] not in STATUSES:
        raise ValueError(f"no status is called {fields['status']!r}")
    features = json.loads(fields["features"])
    if not isinstance(features, dict) or not all(isinstance(value, int | float) for value in features.values()):
        raise ValueError("features are numbers by name")
    if Schedule.from_json(fields["schedule"]).to_json() != fields["schedule"]:
        raise ValueError("the schedule is not in its canonical form")
