import dataclasses
import json
import sqlite3
import subprocess
import sys
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import ENVIRONMENT

from tosaic.support.errors import DatabaseError
from tosaic.tuner.database import STATUSES, Database, Environment, Record
from tosaic.tuner.measurement import Measurement, Status
from tosaic.tuner.space import Schedule

OTHER = dataclasses.replace(ENVIRONMENT, compiler="2")


def _record(x, cost=10, key="conv", status: Status = "ok"):
    return Record(key, Schedule.of("line", x=x), Measurement(status, cost, 2 * cost, 3 * cost, "é\n"))


def _filled(path, count=5, environment=ENVIRONMENT):
    database = Database(path, environment)
    database.append(_record(x) for x in range(count))
    return database


def test_records_come_back_as_written_and_in_order(tmp_path):
    records = [_record(3), _record(1, status="wrong"), _record(2, key="other")]
    with Database(tmp_path / "deep" / "t.db", ENVIRONMENT) as database:
        assert database.append(records) == 3
    with Database(tmp_path / "deep" / "t.db", ENVIRONMENT) as database:
        assert database.records("conv") == records[:2]
        assert database.records("other") == records[2:]
        assert database.records("none") == []


def test_a_second_record_of_the_same_trial_is_not_written(tmp_path):
    with _filled(tmp_path / "t.db") as database:
        assert database.append([_record(1, cost=1), _record(9)]) == 1
        assert [r.measurement.instructions for r in database.records("conv")] == [10] * 6


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Environment)])
def test_records_of_another_environment_are_ignored_and_counted(tmp_path, field):
    _filled(tmp_path / "t.db").close()
    elsewhere = dataclasses.replace(ENVIRONMENT, **{field: "something else"})
    with Database(tmp_path / "t.db", elsewhere) as database:
        assert database.records("conv") == []
        assert database.ignored(["conv", "none"]) == 5
        database.append([_record(1)])
        assert len(database.records("conv")) == 1


def test_two_processes_may_write(tmp_path):
    with _filled(tmp_path / "t.db") as first, Database(tmp_path / "t.db", ENVIRONMENT) as second:
        second.append([_record(100)])
        first.append([_record(101)])
        assert len(second.records("conv")) == 7


def test_export_and_import_round_trip(tmp_path):
    with _filled(tmp_path / "a.db") as source, Database(tmp_path / "b.db", OTHER) as target:
        target.append([_record(1)])
        assert source.export_lines(tmp_path / "lines") == 5
        assert target.import_lines(tmp_path / "lines") == 5
        assert target.import_lines(tmp_path / "lines") == 0
        assert target.ignored(["conv"]) == 5
        target.export_lines(tmp_path / "both")
    with Database(tmp_path / "c.db", ENVIRONMENT) as third:
        assert third.import_lines(tmp_path / "both") == 6
        assert third.records("conv") == [_record(x) for x in range(5)]
    assert not list(tmp_path.glob("*.part"))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(
        st.builds(
            Record,
            st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
            st.builds(
                lambda variant, knobs: Schedule.of(variant, **knobs),
                st.text("abc_", min_size=1),
                st.dictionaries(st.text("xyz", min_size=1), st.integers() | st.booleans() | st.text("pqr")),
            ),
            st.builds(Measurement, st.sampled_from(STATUSES), st.integers(0, 2**62), st.none() | st.integers(0, 2**62)),
        ),
        unique_by=lambda r: (r.key, r.schedule.to_json()),
        max_size=20,
    )
)
def test_any_record_survives_export_and_import(tmp_path_factory, records):
    folder = tmp_path_factory.mktemp("records")
    with Database(":memory:", ENVIRONMENT) as source, Database(":memory:", ENVIRONMENT) as target:
        source.append(records)
        source.export_lines(folder / "lines")
        assert target.import_lines(folder / "lines") == len(records)
        for key in {record.key for record in records}:
            assert target.records(key) == [record for record in records if record.key == key]


def _line(**changes):
    fields = {"key": "conv", "schedule": Schedule.of("line", x=1).to_json(), "features": "{}"}
    fields |= {"status": "ok", "instructions": 1}
    fields |= {"cycles": 1, "waits": 1, "message": "", "code": "", **dataclasses.asdict(ENVIRONMENT), **changes}
    return json.dumps(fields)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "Expecting property name"),
        ("[]", "a record has exactly the fields"),
        (_line(extra=1), "a record has exactly the fields"),
        (_line(status="fine"), "no status is called 'fine'"),
        (_line(cycles=-1), "are counts"),
        (_line(cycles=True), "are counts"),
        (_line(waits=None), "are counts"),
        (_line(features='{"macs": "many"}'), "features are numbers by name"),
        (_line(features="[]"), "features are numbers by name"),
        (_line(cycles=2**63), "are counts"),
        (_line(key=3), "are texts"),
        (_line(schedule="{}"), "this is not a schedule"),
        (_line(schedule='{"variant":"a"}'), "canonical"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_imported(tmp_path, line, why):
    (tmp_path / "lines").write_text(f"{_line()}\n{line}\n")
    with Database(tmp_path / "t.db", ENVIRONMENT) as database:
        with pytest.raises(DatabaseError, match="not a tuning record") as caught:
            database.import_lines(tmp_path / "lines")
        assert caught.value.where == f"{tmp_path / 'lines'}:2" and why in caught.value.why
        assert database.records("conv") == []


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "lines").write_bytes(b"\xff\xfe\x00")
    with Database(tmp_path / "t.db", ENVIRONMENT) as database:
        for path in (tmp_path / "lines", tmp_path / "missing"):
            with pytest.raises(DatabaseError, match="cannot read the records"):
                database.import_lines(path)


def test_an_export_that_cannot_be_written_is_answered(tmp_path):
    with _filled(tmp_path / "t.db") as database, pytest.raises(DatabaseError, match="cannot write the records"):
        database.export_lines(tmp_path / "missing" / "lines")


def test_a_file_of_noise_is_damaged(tmp_path):
    (tmp_path / "t.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(DatabaseError, match="is damaged") as caught:
        Database(tmp_path / "t.db", ENVIRONMENT)
    assert "move the file away" in caught.value.hint


def test_an_overwritten_page_is_damaged(tmp_path):
    _filled(tmp_path / "t.db", 2000).close()
    data = bytearray((tmp_path / "t.db").read_bytes())
    data[8192:16384] = b"\xa5" * 8192
    (tmp_path / "t.db").write_bytes(data)
    with pytest.raises(DatabaseError, match="is damaged"):
        Database(tmp_path / "t.db", ENVIRONMENT)


def test_a_truncated_file_is_damaged(tmp_path):
    _filled(tmp_path / "t.db", 2000).close()
    data = (tmp_path / "t.db").read_bytes()
    (tmp_path / "t.db").write_bytes(data[: len(data) // 2])
    with pytest.raises(DatabaseError, match="is damaged"):
        Database(tmp_path / "t.db", ENVIRONMENT)


def test_a_record_that_makes_no_sense_is_damage(tmp_path):
    _filled(tmp_path / "t.db").close()
    with sqlite3.connect(tmp_path / "t.db") as raw:
        raw.execute("UPDATE trials SET schedule = 'gibberish' WHERE id = 3")
    raw.close()
    with Database(tmp_path / "t.db", ENVIRONMENT) as database, pytest.raises(DatabaseError, match="is damaged"):
        database.records("conv")


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / "t.db") as raw:
        raw.execute("CREATE TABLE letters (body TEXT)")
    raw.close()
    before = (tmp_path / "t.db").read_bytes()
    with pytest.raises(DatabaseError, match="not a tuning database"):
        Database(tmp_path / "t.db", ENVIRONMENT)
    assert (tmp_path / "t.db").read_bytes() == before


def test_a_later_format_is_refused(tmp_path):
    _filled(tmp_path / "t.db").close()
    with sqlite3.connect(tmp_path / "t.db") as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(DatabaseError, match="format 99"):
        Database(tmp_path / "t.db", ENVIRONMENT)


def test_a_folder_in_place_of_the_file_is_answered(tmp_path):
    with pytest.raises(DatabaseError, match="cannot be used") as caught:
        Database(tmp_path, ENVIRONMENT)
    assert "writable" in caught.value.hint


@pytest.mark.parametrize("statements", range(10))
def test_what_ends_while_the_database_is_made_leaves_one_that_opens(statements, tmp_path, monkeypatch):
    left = iter(range(statements))

    class Ending(sqlite3.Connection):
        def execute(self, *arguments):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return super().execute(*arguments)

    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Ending))
        Database(tmp_path / "t.db", ENVIRONMENT).close()
    with Database(tmp_path / "t.db", ENVIRONMENT) as database:
        assert database.append([_record(1)]) == 1


def test_a_killed_writer_loses_only_the_batch_in_flight(tmp_path):
    script = f"""
import os, signal, sys
sys.path[:0] = {sys.path!r}
from test_database import _record, Database, ENVIRONMENT
database = Database({str(tmp_path / "t.db")!r}, ENVIRONMENT)
database.append([_record(x) for x in range(50)])
def half():
    yield from (_record(x) for x in range(50, 75))
    os.kill(os.getpid(), signal.SIGKILL)
database.append(half())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    with Database(tmp_path / "t.db", ENVIRONMENT) as database:
        assert len(database.records("conv")) == 50
