"""The user's cache folder: files that one command rebuilds, keyed by the content they were built from."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import platformdirs

from tosaic.support.scratch import held


def cached(name: str, material: Iterable[str | bytes], build: Callable[[Path], None]) -> Path:
    """The file `name` built from `material`; `build(path)` writes it on first use.

    Processes that want the same file wait for the first.
    """
    digest = hashlib.sha256()
    for part in material:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    stem, dot, suffix = name.partition(".")
    path = Path(platformdirs.user_cache_dir("tosaic"), f"{stem}-{digest.hexdigest()[:16]}{dot}{suffix}")
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with held(path.with_name(f".{path.name}.new")) as folder:
        if not path.exists():
            build(folder / path.name)
            os.replace(folder / path.name, path)
    return path


def remembered(name: str, material: Iterable[str | bytes], compute: Callable[[], Any]) -> Any:
    """What `compute` gives, plain data as JSON has it; computed once from the same material."""
    file = cached(f"{name}.json", material, lambda path: _write(path, compute()))
    return json.loads(file.read_bytes())


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), "utf-8")
