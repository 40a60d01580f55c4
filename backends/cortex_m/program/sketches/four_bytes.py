"""Bytes of words that fit halves, as part of sketches for cores with vectors."""

from __future__ import annotations

from collections.abc import Iterator


def bytes_of_four(loop: str, own: str = "", *, few: bool = False) -> Iterator[str]:
    """The steps that make bytes of four words that fit halves, `E`, each where it lies: `B`.

    Args:
        loop: around these results.
        own: what names end in.
        few: whether there are fewer than four.
    """
    yield f"part(out, sat8, {loop}, B{own}, scratch, i8)"
    yield f"part(B{own}, low_half, {loop}, E{own}, scratch, i16)"
    for name, apart, lanes in ((f"B{own}", 4, 16), (f"E{own}", 2, 8)):
        yield f"space({name}, {apart})"
        if few:
            yield f"lengthen({name}, 0, {lanes})"
        yield f"place({name}, q)"
