"""Weight vectors of patches: which of their columns are stored, how they are packed, expanded and loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tosaic.backends.cortex_m.kernels.mve import VECTOR
from tosaic.backends.cortex_m.nest.patches import PATCH, Patches
from tosaic.backends.cortex_m.program.block import BlockInstruction, advance

_Columns = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class PatchWeights:
    """The weight vectors of a tile's patches.

    Args:
        patches: how the tile is cut.
        held: of its `uses`, the first so many stay in registers.
    """

    patches: Patches
    held: int

    @property
    def all_held(self) -> bool:
        """Whether no vector is loaded where it is used."""
        return self.held == len(self.patches.uses)

    @property
    def taps(self) -> int:
        """Weights of a channel."""
        return self.patches.geometry.kernel[0] * self.patches.geometry.kernel[1]

    @cached_property
    def _columns(self) -> list[_Columns]:
        """For each weight vector its four columns: the numbers of the weights in each, -1 for zeros."""
        kernel = self.patches.geometry.kernel
        numbers = np.arange(1, kernel[0] * kernel[1] + 1).reshape(1, *kernel)
        spread = [self.patches.patch_weights(numbers, *use).reshape(PATCH, PATCH) - 1 for use in self.patches.uses]
        return [tuple(tuple(int(n) for n in column) for column in vector) for vector in spread]

    @cached_property
    def _moved(self) -> dict[int, int]:
        """Weight vectors that are another one moved down by a row, where all of them stay in registers."""
        found: dict[int, int] = {}
        for number, here in enumerate(self._columns if self.all_held else []):
            for other, there in enumerate(self._columns):
                fits = all(column[-1] < 0 for column in there)
                if fits and other not in found and here == tuple((-1, *column[:-1]) for column in there):
                    found[number] = other
        return found

    @cached_property
    def _words(self) -> tuple[list[tuple[int, ...]], dict[int, int]]:
        """The columns that are stored for each channel, and the first column of each weight vector that is loaded.

        Vectors share columns where the end of one is the beginning of another, and zeros with the next channel.
        """
        loaded = [number for number in range(len(self._columns)) if number not in self._moved]
        return min((self._chain(first, loaded) for first in loaded), key=lambda found: len(found[0]))

    def _chain(self, begin: int, loaded: Sequence[int]) -> tuple[list[tuple[int, ...]], dict[int, int]]:
        """What `_words` gives, with one vector before the others."""
        chain, first = list(self._columns[begin]), {begin: 0}
        left = [number for number in loaded if number != begin]
        while left:
            number, shared = max(((n, _overlap(chain, self._columns[n])) for n in left), key=lambda pair: pair[1])
            first[number] = len(chain) - shared
            chain += self._columns[number][shared:]
            left.remove(number)
        zeros = (-1,) * PATCH
        around = max(n for n in range(PATCH) if n < len(chain) and {*chain[:n], *chain[len(chain) - n :]} <= {zeros})
        return chain[: len(chain) - around], first

    @property
    def bytes(self) -> int:
        """Bytes of the stored columns of a channel."""
        return PATCH * len(self._words[0])

    def pack(self, weights: np.ndarray) -> np.ndarray:
        """int8 of int8 (channels, rows, columns): the stored columns of every channel."""
        flat = np.pad(weights.reshape(len(weights), -1), ((0, 0), (0, 1)))
        return flat[:, np.array(self._words[0])].ravel()

    def expand_function(self, channels: int) -> list[str]:
        """C of `expand`: the stored columns of so many channels out of their weights alone."""
        flat = [number for column in self._words[0] for number in column]
        lines = []
        for first in range(0, len(flat), VECTOR):
            part = [*flat[first : first + VECTOR], *[-1] * (first + VECTOR - len(flat))]
            offsets = ", ".join(str(max(number, 0)) for number in part)
            mask = sum(1 << lane for lane, number in enumerate(part) if number >= 0)
            gathered = f"vldrbq_gather_offset_z_s8(from, (uint8x16_t){{{offsets}}}, {mask:#x})"
            lines.append(f"    vstrbq_s8(to + {first}, {gathered});")
        return [
            "INLINE void expand(int8_t *to, const int8_t *from)",
            "{",
            f"  for (int c = 0; c < {channels}; c++, from += {self.taps}, to += {self.bytes}) {{",
            *lines,
            "  }",
            "  vstrbq_s8(to, vdupq_n_s8(0));",
            "}",
        ]

    def loaded(self) -> list[str]:
        """C of the weight vectors that stay in registers."""
        lines = []
        for number in sorted(range(self.held), key=lambda n: n in self._moved):
            if number in self._moved:
                words = f"vshlq_n_s32(vreinterpretq_s32_s8(w{self._moved[number]}), 8)"
            else:
                words = f"vldrwq_s32((const int32_t *)(weights + {self.at(number)}))"
            lines.append(f"const int8x16_t w{number} = vreinterpretq_s8_s32({words});")
        return lines

    def at(self, number: int) -> int:
        """Bytes from the first stored column of a channel to a vector that is loaded."""
        return PATCH * self._words[1][number]

    def code(self) -> list[BlockInstruction]:
        """The instructions that load the weights of the next channel."""
        code = []
        for number in sorted(range(self.held), key=lambda n: n in self._moved):
            if number in self._moved:
                code.append(
                    BlockInstruction("vshl.i32", f"{{w{number}}}, {{w{self._moved[number]}}}, #8", (f"w{number}",))
                )
            else:
                operands = f"{{w{number}}}, [{{weights}}, #{self.at(number)}]"
                code.append(BlockInstruction("vldrw.u32", operands, (f"w{number}",)))
        if self.all_held:
            code += advance("weights", self.bytes)
        return code


def _overlap(chain: Sequence[tuple[int, ...]], vector: _Columns) -> int:
    """How many columns at the end of `chain` are the first of `vector`."""
    return next(n for n in range(PATCH, -1, -1) if n <= len(chain) and tuple(chain[len(chain) - n :]) == vector[:n])
