"""Packages that add to tosaic's tables, installed for one test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
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


_COMMANDS = """
import json, sys
from click.testing import CliRunner
from tosaic.cli import main
for words in json.load(sys.stdin):
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    print(json.dumps(result.stdout))
"""


def tosaic_in(folder: Path, *commands: Sequence[object]) -> list[str]:
    """What commands print, one after the other in a process of its own that finds what is installed in `folder`."""
    settings = {
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "XDG_DATA_HOME": str(folder / "data"),
        "PYTHONFAULTHANDLER": "1",
    }
    given = json.dumps([list(map(str, words)) for words in commands])
    done = subprocess.run(
        [sys.executable, "-c", _COMMANDS], cwd=folder, env=os.environ | settings,
        input=given, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return list(map(json.loads, done.stdout.splitlines()))


def install(registry: Registry, name: str, source: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Install the distribution `name` in `folder`: one file, whose class `Added` is an entry point of the registry."""
    describe(name, f"[{registry.group}]\n{name} = {name}:Added\n", folder)
    (folder / f"{name}.py").write_text(source)
    patch.setattr(registry, "_known", registry.known())
    patch.setattr(registry, "_complete", False)
    patch.syspath_prepend(folder)  # not before: what is known then would hold it for good
