"""The wheel holds what the tree holds, and rooms import one way."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
FOLDERS = {package: ROOT / folder for package, folder in SETUPTOOLS["package-dir"].items()}

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
FILES = [(room, path) for room, folder in FOLDERS.items() for path in sorted(folder.rglob("*.py"))]


def _packages_in_tree() -> set[str]:
    return {
        ".".join([room, *path.parent.relative_to(folder).parts])
        for room, folder in FOLDERS.items()
        for path in folder.rglob("__init__.py")
    }


def _folder(package: str) -> Path:
    room = max((name for name in FOLDERS if _is_inside(package, name)), key=len)
    return FOLDERS[room].joinpath(*package.removeprefix(room).strip(".").split("."))


def _imports(source: str) -> Iterator[str]:
    """Every module or name of tosaic that `source` imports, at any depth."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _forbidden(room: str, source: str) -> list[str]:
    ours = [name for name in _imports(source) if _is_inside(name, "tosaic")]
    return [name for name in ours if not any(_is_inside(name, allowed) for allowed in MAY_IMPORT[room])]


def test_every_package_of_the_tree_is_listed_and_every_listed_one_exists():
    assert set(SETUPTOOLS["packages"]) == _packages_in_tree()
    assert len(SETUPTOOLS["packages"]) == len(set(SETUPTOOLS["packages"]))


def test_every_folder_with_modules_is_a_package():
    bare = {path.parent for _, path in FILES if not (path.parent / "__init__.py").exists()}
    assert not bare, f"without __init__.py, so missing from the wheel: {sorted(map(str, bare))}"


def test_every_data_file_is_in_the_wheel():
    shipped = {
        file
        for package, patterns in SETUPTOOLS["package-data"].items()
        for pattern in patterns
        for file in _folder(package).glob(pattern)
    }
    present = {
        path
        for folder in FOLDERS.values()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert present == shipped & present


def test_no_folder_at_the_root_bears_the_package_name():
    assert not (ROOT / "tosaic").exists()


def test_type_checkers_find_every_room():
    links = {path.name: path.resolve() for path in (ROOT / ".typing" / "tosaic").iterdir()}
    rooms = {room.removeprefix("tosaic."): folder for room, folder in FOLDERS.items() if room != "tosaic"}
    assert {name: links.get(name) for name in rooms} == rooms


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_rooms_import_one_way(room):
    found = {
        str(path.relative_to(ROOT)): forbidden
        for owner, path in FILES
        if owner == room and (forbidden := _forbidden(room, path.read_text(encoding="utf-8")))
    }
    assert not found


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
