"""TABLE as a value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tosaic.backends.cortex_m.program.values import Value, add, computed, multiply, number, shift_right, subtract


def table(a: Value, entries: np.ndarray) -> Value:
    """TABLE of 256 int8."""
    low, high = int(entries.min()), int(entries.max())
    return computed("table", (a,), low, high, data=entries)


def interpolated(a: Value, entries: np.ndarray) -> Value:
    """TABLE of 513 int16 (TOSA 1.0): nine bits choose a segment, seven interpolate in it. a is an int16."""
    segment, entries = shift_right(a, 7, rounding=False), entries.astype(np.int64)
    low, high = int(entries.min()), int(entries.max())
    base = computed("lookup", (segment,), low, high, (256,), entries)
    if a.zeros >= 7:
        return multiply(base, number(128))
    rises = np.diff(entries)
    following = computed("lookup", (segment,), low, high, (257,), entries)
    slope = replace(subtract(following, base), low=int(rises.min()), high=int(rises.max()))
    fraction = computed("and", (a, number(127)), 0, 127)
    return replace(add(multiply(base, number(128)), multiply(slope, fraction)), low=low << 7, high=high << 7)
