"""Wheel and sdist hold what the tree holds, and rooms import one way."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tosaic"
LINKS = {path.name: path for path in PACKAGE.iterdir() if path.is_symlink()}
FOLDERS = {"tosaic": PACKAGE} | {f"tosaic.{name}": path.resolve() for name, path in LINKS.items()}

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

WINGS = ("terminal", "builds", "target_files", "runs", "compiler", "reports", "")
"""The folders of the hall, each of which imports itself and those before it; the last is the hall."""


def _files(folder: Path) -> Iterator[Path]:
    """Every file of a room; the hall's do not stand in the rooms that it links to."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and path.name != "__pycache__":
            yield from _files(path)
        elif path.is_file():
            yield path


FILES = [(room, path) for room, folder in FOLDERS.items() for path in _files(folder) if path.suffix == ".py"]


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


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> tuple[Path, Path]:
    """The wheel and the sdist of a copy of the tree."""
    folder = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder)
    for path in FOLDERS.values():
        target = folder / path.relative_to(ROOT)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(path, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)
    build = "from setuptools import build_meta as b; b.build_wheel('dist'); b.build_sdist('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=folder, check=True, capture_output=True)
    (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return wheel, sdist


def _shipped() -> set[str]:
    """Every file of the package by its name in the wheel."""
    found = {f"tosaic/{path.relative_to(PACKAGE)}" for path in _files(PACKAGE)}
    for name, link in LINKS.items():
        found |= {f"tosaic/{name}/{path.relative_to(link.resolve())}" for path in _files(link.resolve())}
    return found


def test_the_wheel_holds_the_tree(distributions):
    names = zipfile.ZipFile(distributions[0]).namelist()
    assert {name for name in names if name.startswith("tosaic/")} == _shipped()
    assert "tosaic/py.typed" in names


def test_the_sdist_holds_the_tree_and_no_links(distributions):
    with tarfile.open(distributions[1]) as sdist:
        members = sdist.getmembers()
    names = {member.name.partition("/")[2] for member in members if member.isfile()}
    assert _shipped() <= names
    assert not [member.name for member in members if member.issym() or member.islnk()]


def test_the_wheel_works_from_an_empty_folder(distributions, tmp_path):
    """Beside the packages that it needs, and away from every file of a checkout."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path / "site"]
    subprocess.run([*command, distributions[0]], check=True, capture_output=True)
    (tmp_path / "empty").mkdir()
    code = """if True:
        import pathlib, torch, tosaic
        assert pathlib.Path(tosaic.__file__).is_relative_to(pathlib.Path("../site").resolve())
        net, x = torch.nn.Conv2d(3, 4, 3).eval(), torch.randn(1, 3, 8, 8)
        build = tosaic.compile(net, x, target="corstone-300", output="build")
        assert build.run().exact and build.report().exists()
    """
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site"), "XDG_DATA_HOME": str(tmp_path / "data")}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "empty", env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_every_room_is_a_relative_link_to_a_folder_of_the_root():
    assert set(LINKS) == {"frontend", "passes", "backends", "tuner", "support", "zoo"}
    assert not any(path.readlink().is_absolute() for path in LINKS.values())
    assert all(path.resolve().is_relative_to(ROOT) for path in LINKS.values())


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_rooms_import_one_way(room):
    found = {
        str(path.relative_to(ROOT)): forbidden
        for owner, path in FILES
        if owner == room and (forbidden := _forbidden(room, path.read_text(encoding="utf-8")))
    }
    assert not found


HALL = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for room, path in FILES if room == "tosaic"}


def _wing(module: str) -> str:
    folder = module.split(".")[1] if module.count(".") > 1 else ""
    return "" if folder == "cli" else folder


def _read_in_the_hall(module: str) -> set[str]:
    """The modules of the hall that a module imports."""
    names = [name for name in _imports(HALL[module].read_text(encoding="utf-8")) if _is_inside(name, "tosaic")]
    found = {next((known for known in (name, name.rpartition(".")[0]) if known in HALL), "") for name in names}
    return found - {"", module}


@pytest.mark.parametrize("module", sorted(HALL))
def test_wings_of_the_hall_import_downward(module):
    own = WINGS.index(_wing(module))
    assert not [name for name in _read_in_the_hall(module) if WINGS.index(_wing(name)) > own]


def test_files_of_the_hall_import_no_circle():
    tuple(TopologicalSorter({module: _read_in_the_hall(module) for module in HALL}).static_order())


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
