"""A package that adds to one of tosaic's tables, installed for one test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tosaic.support.registry import Registry


def install(registry: Registry, name: str, source: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Install the distribution `name` in `folder`: one file, whose class `Added` is an entry point of the registry."""
    information = folder / f"{name}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[{registry.group}]\n{name} = {name}:Added\n")
    (folder / f"{name}.py").write_text(source)
    patch.setattr(registry, "_known", registry.known())
    patch.setattr(registry, "_complete", False)
    patch.syspath_prepend(folder)  # not before: what is known then would hold it for good
