"""The constant blocks of a firmware, and the assembly that holds them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tosaic.backends.firmware.linker_script import CONSTANTS_SECTION
from tosaic.backends.firmware.placing import ALIGNMENT

_SMALL, _WORD = 128, 4
"""Bytes of the largest params that lie in one block with others, and of a word."""
_RECENT = 96
"""How far behind what calls read a gap may end, so that a cache may still hold it."""


@dataclass
class Constants:
    """Constant blocks by name of their file; equal blocks are kept once.

    Args:
        prefix: of their symbols.
    """

    prefix: str
    blocks: dict[str, bytes] = field(default_factory=dict)
    _distances: dict[str, str] = field(default_factory=dict)
    _names: dict[tuple[bytes, str, bool], str] = field(default_factory=dict)
    _together: dict[str, int] = field(default_factory=dict)
    _end: int = 0
    _gaps: list[tuple[int, int]] = field(default_factory=list)
    """What aligned blocks have left before them, each from one byte to another."""

    @property
    def together(self) -> str:
        """The symbol of small params, which lie in one block."""
        return f"{self.prefix}constants"

    def add(self, name: str, data: bytes) -> str:
        """The symbol of `data`, called `name` unless an equal block is there already; `0` for nothing."""
        return self.prefix + self._named(name, data, "", False) if data else "0"

    def params(self, name: str, data: bytes, to: str = "", near: str = "") -> str:
        """Where the params of a kernel lie, in C: their symbol, or small ones at a distance from `together`.

        Args:
            to: a symbol; a word follows the data then, the distance from it to there.
            near: a pointer to `together`, which small ones are reached by.
        """
        size = len(data) + _WORD * bool(to)
        if not 0 < size <= _SMALL:
            return self.prefix + self._named(name, data, to, False) if size else "0"
        name = self._named(name, data, to, True)
        if name not in self._together:
            self._together[name] = self._room(size)
        return f"{near or self.together} + {self._together[name]:#x}"

    def _room(self, size: int) -> int:
        """Where so many bytes find room among small params: in a recent gap, or behind all."""
        for index, (first, end) in enumerate(self._gaps):
            if self._end - end <= _RECENT and (start := _aligned(first, size)) + size <= end:
                self._gaps[index] = start + size, end
                return start
        start = _aligned(self._end, size)
        self._gaps.append((self._end, start))
        self._end = start + size
        return start

    def _named(self, name: str, data: bytes, to: str, small: bool) -> str:
        known = self._names.setdefault((data, to, small), name)
        self.blocks[known], self._distances[known] = data, to
        return known

    @property
    def _apart(self) -> list[str]:
        return [name for name in self.blocks if name not in self._together]

    def declarations(self) -> str:
        symbols = [*[self.together] * bool(self._together), *(self.prefix + name for name in self._apart)]
        return "\n".join(f"extern const uint8_t {symbol}[];" for symbol in symbols)

    def assembly(self) -> str:
        """Assembly that includes each block from the file `constants/<name>.bin`."""
        lines = self._section(self.together) if self._together else []
        for name in sorted(self._together, key=self._together.__getitem__):
            size = len(self.blocks[name]) + _WORD * bool(self._distances[name])
            lines += [f".balign {_alignment(size)}", *self._included(name)]
        for name in self._apart:
            lines += [*self._section(self.prefix + name), *self._included(name)]
        return "\n".join([*lines, ""])

    @staticmethod
    def _section(symbol: str) -> list[str]:
        return [f'.section {CONSTANTS_SECTION}.{symbol}, "a"', ".balign 16", f".global {symbol}", f"{symbol}:"]

    def _included(self, name: str) -> list[str]:
        to = self._distances[name]
        return [f'.incbin "constants/{name}.bin"', *([f".word {to} - ."] if to else [])]


def _aligned(start: int, size: int) -> int:
    """The first place from `start` on for a small block of so many bytes."""
    return -(-start // _alignment(size)) * _alignment(size)


def _alignment(size: int) -> int:
    """Of a small block: that of a word, where it is less than a vector."""
    return ALIGNMENT if size >= ALIGNMENT else _WORD
