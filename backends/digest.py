"""Digests of the code of this room: what was found by other code is no longer true."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_ROOM = Path(__file__).parent


@cache
def code_digest(*rooms: str) -> str:
    """A digest of the sources below some folders of `backends`."""
    files = (path for room in rooms for path in sorted((_ROOM / room).rglob("*")))
    return short_digest(path.read_bytes() for path in files if path.suffix in (".py", ".c", ".h"))


def short_digest(parts: Iterable[bytes]) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of some bytes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:12]
