"""The user's cache folder: files that one command rebuilds, keyed by the content they were built from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs

from tosaic.support.scratch import held

_KEPT = 30 * 24 * 3600
"""Seconds after its last use for which what other code made is kept."""


def cached(name: str, material: Iterable[str | bytes], build: Callable[[Path], None]) -> Path:
    """The file `name` built from `material`; `build(path)` writes it on first use.

    Processes that want the same file wait for the first.
    """
    path = place(name, material)
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with held(path.with_name(f".{path.name}.new")) as folder:
        if not path.exists():
            build(folder / path.name)
            os.replace(folder / path.name, path)
    return path


def place(name: str, material: Iterable[str | bytes]) -> Path:
    """Where the file `name` built from `material` is, or would be."""
    digest = hashlib.sha256()
    for part in material:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    stem, dot, suffix = name.partition(".")
    return Path(_cache(), f"{stem}-{digest.hexdigest()[:16]}{dot}{suffix}")


def remembered(name: str, code: str, material: Iterable[str | bytes], compute: Callable[[], Any]) -> Any:
    """What `compute` gives, plain data as JSON has it; computed once from the same material by the same code.

    Args:
        name: the folder of all such results. Results of other code are deleted a month after their last use.
        code: a digest of the code that computes it.
    """
    _open(Path(_cache(), name), code)
    file = cached(f"{name}/{code}/result.json", material, lambda path: _write(path, compute()))
    return json.loads(file.read_bytes())


@cache
def _open(results: Path, code: str) -> None:
    """Note that the results of some code are used, once a process; where there are none yet, delete old ones."""
    folder = results / code
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _delete_old(results.iterdir())
    os.utime(folder)


def delete_unused(name: str) -> None:
    """Delete what was made of other material for the name, and is a month old: `os.utime` notes that it is used."""
    _delete_old(Path(_cache()).glob(f"{name}-*"))


def _delete_old(results: Iterable[Path]) -> None:
    for each in results:
        with suppress(FileNotFoundError):  # Another process has removed it.
            if time.time() - each.stat().st_mtime > _KEPT:
                shutil.rmtree(each, ignore_errors=True) if each.is_dir() else each.unlink()


def _cache() -> str:
    return platformdirs.user_cache_dir("tosaic")


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), "utf-8")
