"""The constants of a kernel, packed."""

from __future__ import annotations

import numpy as np

_ALIGNMENT = 16


class Params:
    """The packed constants of one kernel, addressed by byte offset."""

    def __init__(self) -> None:
        self._blob = bytearray()

    def add(self, array: np.ndarray) -> int:
        """Append `array` row-major, 16-byte aligned; its byte offset."""
        self._blob.extend(bytes(-len(self._blob) % _ALIGNMENT))
        offset = len(self._blob)
        self._blob.extend(np.ascontiguousarray(array).tobytes())
        return offset

    def __len__(self) -> int:
        return len(self._blob)

    def __bytes__(self) -> bytes:
        return bytes(self._blob)
