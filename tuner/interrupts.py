"""Ctrl-C and foreign code."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_interrupt() -> Iterator[None]:
    """Let Ctrl-C take effect at the end of the block only.

    Foreign code that calls back into Python, as xgboost does for its data, prints a KeyboardInterrupt and goes on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
    if caught:
        raise KeyboardInterrupt
