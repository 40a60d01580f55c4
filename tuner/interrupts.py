"""Signals and foreign code."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_interrupt() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM take effect at the end of the block only.

    Foreign code that calls back into Python, as xgboost does for its data, prints an exception and goes on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _frame: caught.append(number)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler or signal.SIG_DFL)
    for each in caught:
        signal.raise_signal(each)
