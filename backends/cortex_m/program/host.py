"""What the host makes of constants before a kernel reads them."""

from __future__ import annotations

from dataclasses import dataclass

from tosaic.backends.cortex_m.program.affine import Affine


@dataclass(frozen=True)
class Pack:
    """What the host makes of a constant: element `v0, v1, ...` of the new `name` is element `where` of `source`.

    Where `where` lies outside of the source, the element is 0.

    Args:
        was: the shape of the source.
    """

    name: str
    source: str
    was: tuple[int, ...]
    shape: tuple[int, ...]
    where: tuple[Affine, ...]


@dataclass(frozen=True)
class Derive:
    """What the host computes of constants: `name` = `rule` of `sources`, from `derived.DERIVED`.

    Args:
        was: the shapes of the sources.
        numbers: what the rule takes behind them.
    """

    name: str
    rule: str
    sources: tuple[str, ...]
    was: tuple[tuple[int, ...], ...]
    numbers: tuple[int, ...] = ()
