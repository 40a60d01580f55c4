"""The cache builds once per content."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tosaic.support.cache import cached, remembered


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_equal_material_is_built_once():
    built = []

    def build(path: Path) -> None:
        built.append(path)
        path.write_text("content")

    first, second = (cached("a.o", ["flags", b"source"], build) for _ in range(2))
    assert first == second and first.read_text() == "content" and len(built) == 1


def test_other_material_is_another_file():
    def build(path: Path) -> None:
        path.write_text(path.name)

    assert cached("a.o", ["ab", "c"], build) != cached("a.o", ["a", "bc"], build)


def test_a_failed_build_leaves_nothing(folder):
    def build(path: Path) -> None:
        path.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cached("a.o", ["x"], build)
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def test_a_computed_value_is_remembered_by_its_material(folder):
    computed = []

    def compute():
        computed.append(1)
        return {"tile": "2x2", "cycles": 1.5, "none": None}

    first, second = (remembered("guesses", "code", ["shape"], compute) for _ in range(2))
    assert first == second == {"tile": "2x2", "cycles": 1.5, "none": None} and len(computed) == 1
    remembered("guesses", "code", ["another shape"], compute)
    assert len(computed) == 2
    assert len(list((folder / "tosaic/guesses/code").glob("result-*.json"))) == 2


def test_what_other_code_computed_is_deleted_a_month_after_its_last_use(folder):
    month = 31 * 24 * 3600
    for code, age in (("old", month), ("recent", 0)):
        remembered("guesses", code, ["shape"], lambda: 1)
        os.utime(folder / "tosaic/guesses" / code, (time.time() - age, time.time() - age))
    assert remembered("guesses", "new", ["shape"], lambda: 2) == 2
    assert sorted(path.name for path in (folder / "tosaic/guesses").iterdir()) == ["new", "recent"]
