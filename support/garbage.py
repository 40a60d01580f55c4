"""Garbage: when Python looks for it, and what becomes of its memory."""

import ctypes
import gc
from contextlib import suppress

_OBJECTS = 200_000


def collect_rarely() -> None:
    """Let this process make more objects before Python looks for garbage among them.

    Modules, graphs and trees of kernels are millions of objects that stay. To look through them while they grow takes
    a quarter of a small compilation and a tenth of making kernels, and finds next to none.
    """
    gc.set_threshold(_OBJECTS)


def give_back() -> None:
    """Give what was freed back to the system; glibc keeps it otherwise, other libraries need no call."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
