"""Wheel and sdist hold what the tree holds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from house import FOLDERS, LINKS, PACKAGE, ROOT, files


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
    found = {f"tosaic/{path.relative_to(PACKAGE)}" for path in files(PACKAGE)}
    for name, link in LINKS.items():
        found |= {f"tosaic/{name}/{path.relative_to(link.resolve())}" for path in files(link.resolve())}
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
