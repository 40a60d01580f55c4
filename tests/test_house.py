"""Rooms and wings import one way."""

from __future__ import annotations

from graphlib import TopologicalSorter

import pytest
from house import FILES, FOLDERS, HALL, ROOT, imported_in_the_hall, imports, is_inside, picture, wing

VOCABULARY = {"tosaic.support", "tosaic.tuner.space", "tosaic.tuner.measurement"}
MAY_IMPORT = {
    "tosaic.support": {"tosaic.support"},
    "tosaic.tuner": {"tosaic.tuner", "tosaic.support"},
    "tosaic.zoo": {"tosaic.zoo", "tosaic.support"},
    "tosaic.frontend": {"tosaic.frontend", "tosaic.zoo", *VOCABULARY},
    "tosaic.passes": {"tosaic.passes", *VOCABULARY},
    "tosaic.backends": {"tosaic.backends", *VOCABULARY},
    "tosaic": {"tosaic"},
}

WINGS = ("terminal", "builds", "target_files", "runs", "compiler", "reports", "cli")
"""The folders of the hall: each imports itself and those before it."""


def _forbidden(room: str, source: str) -> list[str]:
    ours = [name for name in imports(source) if is_inside(name, "tosaic")]
    return [name for name in ours if not any(is_inside(name, allowed) for allowed in MAY_IMPORT[room])]


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_rooms_import_one_way(room):
    found = {
        str(path.relative_to(ROOT)): forbidden
        for owner, path in FILES
        if owner == room and (forbidden := _forbidden(room, path.read_text(encoding="utf-8")))
    }
    assert not found


@pytest.mark.parametrize("module", sorted(HALL))
def test_wings_of_the_hall_import_downward(module):
    own = WINGS.index(wing(module))
    assert not [name for name in imported_in_the_hall(module) if WINGS.index(wing(name)) > own]


def test_files_of_the_hall_import_no_circle():
    tuple(TopologicalSorter({module: imported_in_the_hall(module) for module in HALL}).static_order())


def test_the_picture_is_of_today():
    """`python tests/house.py` prints it anew."""
    assert f"```mermaid\n{picture()}\n```\n" in (ROOT / "ARCHITECTURE.md").read_text()


def test_every_room_has_a_rule():
    assert set(MAY_IMPORT) == set(FOLDERS)


def test_the_rule_sees_what_is_forbidden():
    assert _forbidden("tosaic.passes", "def f():\n    from tosaic.backends.target import Core") == [
        "tosaic.backends.target.Core"
    ]
    assert _forbidden("tosaic.passes", "from tosaic import backends") == ["tosaic.backends"]
    assert _forbidden("tosaic.backends", "import tosaic.tuner.tune") == ["tosaic.tuner.tune"]
    assert _forbidden("tosaic.backends", "from tosaic.tuner.space import Space\nimport numpy") == []
    with pytest.raises(AssertionError, match="relative"):
        _forbidden("tosaic.passes", "from . import place")
