"""Rooms and wings import one way; files, classes and functions stay small; a class has a name of its own."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

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


MOST_LINES = {"function": 60, "class": 300, "file": 400}
SMALL_FILES = {"backends/cortex_m": 300}
"""Folders whose files have fewer lines still."""

OLD_WORDS = {
    "finish": "epilogue",
    "finishes": "epilogues",
    "resident": "weight_stationary",
    "patch": "spatial_tile",
    "patches": "spatial_tiles",
    "crowded": "fragmented",
    "home": "scope",
    "homes": "scopes",
}
"""Words of our own in names, and the field's for them."""

TREES = {
    path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for room, path in FILES if room != "tosaic.zoo"
}


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or 0) - node.lineno + 1


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


def _large(path: Path, tree: ast.Module) -> list[str]:
    """The file, classes and functions that are longer than they should be."""
    most = min([MOST_LINES["file"], *(lines for folder, lines in SMALL_FILES.items() if path.is_relative_to(folder))])
    found = [str(path)] if tree.body and (tree.body[-1].end_lineno or 0) > most else []
    for node in ast.walk(tree):
        kind = "class" if isinstance(node, ast.ClassDef) else "function"
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and _lines(node) > MOST_LINES[kind]:
            found.append(f"{path}: {node.name} has {_lines(node)} lines")
    return found


def test_files_classes_and_functions_stay_small():
    assert [one for path, tree in TREES.items() for one in _large(path, tree)] == []


def test_a_large_function_is_seen():
    source = "def f():\n" + "    x = 1\n" * 60
    assert _large(Path("a.py"), ast.parse(source)) == ["a.py: f has 61 lines"]


def test_a_large_file_is_seen():
    source = "x = 1\n" * 301
    assert _large(Path("backends/cortex_m/a.py"), ast.parse(source)) == ["backends/cortex_m/a.py"]
    assert _large(Path("frontend/a.py"), ast.parse(source)) == []


def test_a_class_has_a_name_of_its_own():
    found = defaultdict[str, list[str]](list)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_a_file_of_tests_has_a_name_of_its_own():
    """Pytest imports two of one name as one."""
    counts = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in counts.items() if count > 1] == []


def _named(tree: ast.Module) -> Iterator[str]:
    """The names that a file gives."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name


def _old_words(tree: ast.Module) -> set[str]:
    return {word for name in _named(tree) for word in re.findall("[A-Za-z][a-z]*", name) if word.lower() in OLD_WORDS}


def test_names_are_the_words_of_the_field():
    found = {path: {word: OLD_WORDS[word.lower()] for word in _old_words(tree)} for path, tree in TREES.items()}
    assert {str(path): better for path, better in found.items() if better} == {}


def test_an_old_word_is_seen():
    source = "class HomeSketch:\n    def _finish(self, patched, patch_rows):\n        crowded = monkeypatch\n"
    assert _old_words(ast.parse(source)) == {"Home", "finish", "patch", "crowded"}
