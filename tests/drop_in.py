"""Packages that add to tosaic's tables, installed for one test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tosaic.support.registry import Registry

ROOT = Path(__file__).parents[1]


def describe(name: str, groups: str, folder: Path) -> None:
    """Make a distribution of what lies in `folder`, as pip leaves it.

    Args:
        groups: of its entry points, as `entry_points.txt` or `pyproject.toml` has them.
    """
    information = folder / f"{name}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(groups.replace("project.entry-points.", "").replace('"', ""))


def tosaic_in(folder: Path, *words: object) -> str:
    """What a command prints, in a process of its own that finds what is installed in `folder`."""
    settings = {
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "XDG_DATA_HOME": str(folder / "data"),
        "PYTHONFAULTHANDLER": "1",
    }
    command = [sys.executable, "-m", "tosaic", *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def install(registry: Registry, name: str, source: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Install the distribution `name` in `folder`: one file, whose class `Added` is an entry point of the registry."""
    describe(name, f"[{registry.group}]\n{name} = {name}:Added\n", folder)
    (folder / f"{name}.py").write_text(source)
    patch.setattr(registry, "_known", registry.known())
    patch.setattr(registry, "_complete", False)
    patch.syspath_prepend(folder)  # not before: what is known then would hold it for good
