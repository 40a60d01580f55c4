"""Ordered blocks as inline assembly in C."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence

_NARROW = re.compile(r"\.n %\[(\w+)\]")
# Loads that widen, and stores that narrow, take their address from a low register.
_LOW = re.compile(r"v(?:ldrbt?\.[su](?:16|32)|ldrht?\.[su]32|strbt?\.(?:16|32)|strht?\.32) \S+ \[%\[(\w+)\](?:\]|, #)")
VECTORS = tuple(f"q{i}" for i in range(8))
"""The vector registers."""


def assembly(
    entry: Iterable[str],
    iteration: Iterable[str],
    leave: Iterable[str],
    iterations: int | str,
    changes: Sequence[str],
    reads: Sequence[str],
    clobbers: Sequence[str],
    constants: Sequence[str] = (),
    vectors: Sequence[str] = VECTORS,
    lanes: Container[str] = (),
) -> list[str]:
    """C of a statement: `entry`, `iterations` times `iteration` in a low-overhead loop, `leave`.

    Args:
        iterations: where it is 1, there is no loop; a C variable among `reads` where only the call knows.
        changes: C variables that the code changes; the text names them `%[variable]`.
        reads: those that it only reads.
        clobbers: other registers that it changes, besides `vectors` and LR, which counts the iterations.
        constants: C variables in vector registers that it only reads; the text names them `%q[variable]`.
        vectors: registers that it changes; none of them holds a constant.
        lanes: those of `changes` that lie in vector registers; the text names them `%q[variable]`.
    """
    body = [*iteration]
    if iterations not in (0, 1):
        count = (
            [f"dls lr, %[{iterations}]"] if isinstance(iterations, str) else [f"movw lr, #{iterations}", "dls lr, lr"]
        )
        body = [*count, "1:", *body, "le lr, 1b"]
    lines = [f'    "{line}\\n"' for line in [*entry, *body, *leave]]
    low = low_registers(lines)
    kinds = ((name, "w" if name in lanes else "l" if name in low else "r") for name in changes)
    outputs = ", ".join(f'[{name}] "+{kind}"({name})' for name, kind in kinds)
    inputs = ", ".join(
        [
            *(f'[{name}] "{"l" if name in low else "r"}"({name})' for name in reads),
            *(f'[{name}] "w"({name})' for name in constants),
        ]
    )
    flags = ["cc"] if _NARROW.search("\n".join(lines)) else []
    changed = ", ".join(f'"{name}"' for name in ["memory", *flags, "lr", *vectors, *clobbers])
    return ["__asm__ volatile(", *lines, f"    : {outputs}", f"    : {inputs}", f"    : {changed});"]


def low_registers(lines: Iterable[str]) -> set[str]:
    """The C variables that instructions want in one of the lower eight registers."""
    text = "\n".join(lines)
    return {*_LOW.findall(text), *_NARROW.findall(text)}
