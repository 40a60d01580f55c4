"""Affine numbers: a sum of loop variables with whole factors, and a constant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final


class Affine:
    """`sum of factor * variable + const`; variables are sorted by name, and no factor is 0."""

    __slots__ = ("const", "terms")

    def __init__(self, terms: tuple[tuple[str, int], ...] = (), const: int = 0) -> None:
        self.terms: Final = terms
        self.const: Final = const

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Affine) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        return hash((self.terms, self.const))

    def __repr__(self) -> str:
        return f"Affine(terms={self.terms!r}, const={self.const!r})"

    @staticmethod
    def of(value: Affine | str | int) -> Affine:
        """A number or a variable as an affine number."""
        if isinstance(value, Affine):
            return value
        return Affine((), value) if isinstance(value, int) else Affine(((value, 1),))

    @staticmethod
    def sum(parts: Iterable[tuple[Affine, int]]) -> Affine:
        """The sum of affine numbers, each times a factor."""
        terms, const = dict[str, int](), 0
        for part, factor in parts:
            const += part.const * factor
            for name, own in part.terms:
                terms[name] = terms.get(name, 0) + own * factor
        return Affine(_sorted(terms), const)

    def __add__(self, other: Affine | str | int) -> Affine:
        other = Affine.of(other)
        if not other.terms:
            return Affine(self.terms, self.const + other.const)
        return Affine.sum(((self, 1), (other, 1)))

    def __sub__(self, other: Affine | str | int) -> Affine:
        return self + Affine.of(other) * -1

    def __mul__(self, factor: int) -> Affine:
        return Affine(tuple((n, f * factor) for n, f in self.terms) if factor else (), self.const * factor)

    def __getitem__(self, name: str) -> int:
        """The factor of a variable."""
        for variable, factor in self.terms:
            if variable == name:
                return factor
        return 0

    @property
    def names(self) -> set[str]:
        """The variables in it."""
        return {name for name, _ in self.terms}

    def is_multiple(self, unit: int) -> bool:
        """Whether it is one of `unit`, whatever its variables are."""
        return unit == 1 or (self.const % unit == 0 and all(factor % unit == 0 for _, factor in self.terms))

    def at(self, values: Mapping[str, Affine | int]) -> Affine:
        """With variables replaced."""
        for name, _ in self.terms:
            if name in values:
                break
        else:
            return self
        terms, const = dict[str, int](), self.const
        for name, factor in self.terms:
            value = values.get(name)
            if value is None:
                terms[name] = terms.get(name, 0) + factor
            elif isinstance(value, int):
                const += value * factor
            else:
                const += value.const * factor
                for inner, own in value.terms:
                    terms[inner] = terms.get(inner, 0) + own * factor
        return Affine(_sorted(terms), const)

    def bounds(self, last: Mapping[str, int]) -> tuple[int, int]:
        """The least and the greatest value, where each variable goes from 0 to its value in `last`."""
        ends = [factor * last[name] for name, factor in self.terms]
        return self.const + sum(e for e in ends if e < 0), self.const + sum(e for e in ends if e > 0)

    def __str__(self) -> str:
        parts = [name if factor == 1 else f"{factor} * {name}" for name, factor in self.terms]
        return " + ".join([*parts, *([str(self.const)] if self.const or not parts else [])])


def _sorted(terms: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Factors by variable as `Affine.terms` holds them."""
    found = [term for term in terms.items() if term[1]]
    return tuple(sorted(found)) if len(found) > 1 else tuple(found)
