"""The user's cache folder: files that one command rebuilds, keyed by the content they were built from."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import platformdirs


def cached(name: str, material: Iterable[str | bytes], build: Callable[[Path], None]) -> Path:
    """The file `name` built from `material`; `build(path)` writes it on first use.

    Processes may race: each builds beside and renames, and equal material gives equal files.
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
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        fresh = Path(folder, name)
        build(fresh)
        os.replace(fresh, path)
    return path
