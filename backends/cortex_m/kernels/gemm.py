"""An int8 x int8 GEMM on MVE: rows of pixels times packed weights, register-blocked, requantized per tile of rows.

The inner loop multiplies `mr` vectors of 16 pixel bytes with `nr` vectors of weights by VMLADAVA, 16 MAC each:
a block of 3 x 2 needs five loads for six of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tosaic.backends.cortex_m.kernels.emit import Params
from tosaic.backends.cortex_m.kernels.mve import (
    VECTOR,
    Requantizer,
    accumulator_order,
    lookup_order,
    reorder,
    requantization_table,
    round_up,
)
from tosaic.tuner.space import Choice, Schedule

# VMLADAVA accumulates in even general registers; one more than these counts the loop.
_ACCUMULATORS = 7
# Vectors of a tile's rows that stay in vector registers beside weights and factors.
_ROW_REGISTERS = 4
# Vectors of a tile's rows that clang may copy to the stack.
_MOST_HELD = 36
# Vectors along K up to which the stack is the better guess than loading rows again.
_SHORT = 8
# A longer unrolled body leaves the reach of a low-overhead loop's branch back.
_LONGEST_UNROLLED = 36


@dataclass(frozen=True)
class Gemm:
    """The shape of one GEMM: out[rows, channels] = requantize(rows of `depth` bytes times weights + bias).

    Args:
        rows: rows of the whole problem; fewer than `mr` make that block illegal.
        depth: bytes of a row that count.
        channels: output channels.
        left: whether the requantization shifts left first (shifts below 32).
        table: whether the results go through a TABLE.
    """

    rows: int
    depth: int
    channels: int
    left: bool
    table: bool

    @property
    def vectors(self) -> int:
        """Vectors of 16 along K."""
        return -(-self.depth // VECTOR)

    @property
    def knobs(self) -> dict[str, tuple[Choice, ...]]:
        """The knobs of every GEMM, best guess first.

        mr, nr: rows and channels of the register block. unroll: vectors of 16 along K in one turn of the inner loop.
        bias: whether it seeds the accumulators or is added when requantizing. share: rows that share one reading of
        the requantization table. reload: whether rows are loaded again for each register block; otherwise clang copies
        what registers cannot hold to the stack, which needs fewer pointers.
        """
        return {
            "mr": (3, 2, 4, 1),
            "nr": (2, 1, 3, 4) if self.rows > 1 else (4, 3, 2, 1),
            "unroll": ("full", 4, 2, 1),
            "bias": ("requantize", "seed"),
            "share": (3, 2, 1),
            "reload": (self.vectors > _SHORT, self.vectors <= _SHORT),
        }

    def legal(self, knobs: Mapping[str, Choice]) -> bool:
        """Whether the knobs can be generated: the accumulators fit, the unrolling divides K."""
        mr, nr, unroll = int(knobs["mr"]), int(knobs["nr"]), knobs["unroll"]
        if mr > self.rows or mr * nr > _ACCUMULATORS or (nr > 1 and nr > self.channels):
            return False
        if knobs["bias"] == "requantize" and unroll != "full":
            return False
        if int(knobs["share"]) > mr:
            return False
        held = mr * self.vectors
        if knobs["reload"]:
            return unroll == "full" and held > _ROW_REGISTERS and self.vectors <= _LONGEST_UNROLLED
        if unroll == "full":
            return held <= _MOST_HELD
        return int(unroll) < self.vectors and self.vectors % int(unroll) == 0

    @property
    def result_bytes(self) -> int:
        """Bytes of a row of results."""
        return self.channels

    def tile(self, schedule: Schedule, row_stride: int) -> Tile:
        """The tile of a schedule over rows that lie `row_stride` bytes apart."""
        return Tile(self, schedule, row_stride)


@dataclass(frozen=True)
class Tile:
    """C of one tile of `mr` rows:

        void tile(const int8_t *rows, const int8_t *w, const int32_t *seed, const int32_t *terms, const int32_t *table,
                  const int8_t *lookup, const int32_t *range, int32_t *acc, int8_t *out)

    `w`, `seed`, `table` and `lookup` are what `pack` packs, `range` is {zero point, low, high}, `acc` holds
    `accumulator_bytes`.

    Args:
        gemm: the problem.
        schedule: values of the GEMM's knobs.
        row_stride: bytes between rows of the input.
        row_terms: whether `terms` has a term for each row, to add to its accumulators.
    """

    gemm: Gemm
    schedule: Schedule
    row_stride: int
    row_terms: bool = False

    @property
    def mr(self) -> int:
        return int(self.schedule["mr"])

    @property
    def nr(self) -> int:
        return int(self.schedule["nr"])

    @property
    def padded_channels(self) -> int:
        """Channels computed: whole register blocks and whole groups of four to requantize."""
        return round_up(round_up(self.gemm.channels, self.nr), 4)

    @property
    def accumulator(self) -> np.dtype:
        """The type of an accumulator."""
        return np.dtype(np.int32)

    @property
    def weight_vector(self) -> int:
        """Bytes of the weights that meet one vector of a row."""
        return VECTOR

    @property
    def accumulator_bytes(self) -> int:
        return self.mr * self.padded_channels * self.accumulator.itemsize

    @property
    def _seeded(self) -> bool:
        return self.schedule["bias"] == "seed"

    @property
    def weight_bytes(self) -> int:
        """Bytes of the packed weights."""
        return round_up(self.gemm.channels, self.nr) * self.gemm.vectors * self.weight_vector

    @property
    def seed_bytes(self) -> int:
        """Bytes of the packed seeds; the requantization table follows them."""
        return round_up(self.accumulator.itemsize * self.padded_channels, VECTOR) if self._seeded else 0

    @property
    def counts(self) -> dict[str, float]:
        """What the code executes, for the cost model."""
        gemm, unroll = self.gemm, self.schedule["unroll"]
        tiles, blocks = -(-gemm.rows // self.mr), -(-gemm.channels // self.nr)
        inner = tiles * blocks * gemm.vectors
        turns = 0 if unroll == "full" else inner // int(unroll)
        counts = {
            "macs": gemm.rows * gemm.channels * gemm.depth,
            "tiles": tiles,
            "register_blocks": tiles * blocks,
            "multiplies": inner * self.mr * self.nr,
            "loads": inner * (self.mr + self.nr),
            "turns": turns,
            "seeds": tiles * blocks * self.mr * self.nr * self._seeded,
            "outputs": tiles * self.mr * gemm.channels,
            "table_reads": tiles * -(-self.mr // int(self.schedule["share"])) * gemm.channels,
        }
        return {name: float(value) for name, value in counts.items()}

    @property
    def choices(self) -> dict[str, float]:
        """The schedule and the sizes it meets, for the cost model."""
        return {
            "mr": float(self.mr),
            "nr": float(self.nr),
            "accumulators": float(self.mr * self.nr),
            "vectors": float(self.gemm.vectors),
            "unrolled": float(self.schedule["unroll"] == "full"),
            "reload": float(self.schedule["reload"]),
        }

    @property
    def table_bytes(self) -> int:
        """Bytes of the requantization table; the TABLE follows it."""
        return 4 * self.padded_channels * (2 + (not self._seeded) + self.gemm.left)

    def call(self, rows: str, acc: str, out: str) -> str:
        """A call of `tile` on what `pack` made."""
        weights, kind = round_up(self.weight_bytes, VECTOR), f"{self.accumulator}_t"
        seed, table = VECTOR + weights, VECTOR + weights + self.seed_bytes
        at = f"params + {VECTOR}, (const {kind} *)(params + {seed}), 0, (const int32_t *)(params + {table})"
        lookup = f"params + {table + self.table_bytes}"
        return f"tile({rows}, {at}, {lookup}, (const int32_t *)params, ({kind} *){acc}, {out});"

    @property
    def order(self) -> np.ndarray:
        """The channel behind each of the padded accumulators, past the end for padding."""
        order = accumulator_order(self.gemm.channels)
        return np.concatenate([order, np.arange(len(order), self.padded_channels, dtype=np.int32)])

    def pack(
        self,
        weights: np.ndarray,
        bias: np.ndarray,
        multiplier: np.ndarray,
        shift: np.ndarray,
        header: np.ndarray,
        lookup: np.ndarray | None,
    ) -> bytes:
        """The params that `text` reads.

        Args:
            weights: int8 (channels, depth).
            bias: int32 (channels,), the input's zero point folded in.
            multiplier, shift: of the RESCALE, (channels,).
            header: (4,): the output's zero point, lowest and highest value; the input's zero point.
            lookup: int8 (256,), the TABLE, where the GEMM has one.
        """
        params = Params()
        params.add(header.astype(np.int32))
        params.add(self.pack_weights(weights))
        if self._seeded:
            params.add(reorder(bias.astype(self.accumulator), self.order))
        params.add(self.pack_table(multiplier, shift, None if self._seeded else bias))
        if lookup is not None:
            params.add(lookup_order(lookup))
        return bytes(params)

    def pack_table(self, multiplier: np.ndarray, shift: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        """The requantization table; `bias` where it does not seed the accumulators."""
        return requantization_table(multiplier, shift, self.order, bias, with_left=self.gemm.left)

    def pack_weights(self, weights: np.ndarray) -> np.ndarray:
        """int8 (blocks of nr channels, vectors, nr, `weight_vector`), in accumulator order, zeros for padding."""
        ordered = reorder(weights, self.order[: round_up(self.gemm.channels, self.nr)])
        padded = np.pad(ordered, ((0, 0), (0, self.gemm.vectors * self.weight_vector - weights.shape[1])))
        return padded.reshape(-1, self.nr, self.gemm.vectors, self.weight_vector).transpose(0, 2, 1, 3)

    @property
    def text(self) -> str:
        """C of `tile` and the functions it calls."""
        kind = f"{self.accumulator}_t"
        blocks = round_up(self.gemm.channels, self.nr) // self.nr
        lines = [
            f"INLINE void tile(const int8_t *restrict rows, const int8_t *restrict w, const {kind} *restrict seed,",
            "                 const int32_t *terms, const int32_t *restrict table, const int8_t *lookup,",
            f"                 const int32_t *range, {kind} *restrict acc, int8_t *restrict out)",
            "{",
            *(f"  const int32_t t{row} = terms[{row}];" for row in range(self.mr if self.row_terms else 0)),
            f"  {kind} *result = acc;",
            *(f"  const int8_t *p{row} = rows + {row * self.row_stride + self._center};" for row in range(self.mr)),
            f"  for (int n = 0; n < {blocks}; n++) {{",
            *(f"    {line}" for line in self._block()),
            "  }",
            "  requantize(acc, table, lookup, range, out);",
            "}",
            "",
        ]
        return self.requantize + "\n".join(lines)

    @property
    def requantize(self) -> str:
        """C of the function that requantizes the tile's accumulators."""
        return Requantizer(
            self.gemm.channels,
            self.padded_channels,
            self.mr,
            int(self.schedule["share"]),
            bias=not self._seeded,
            left=self.gemm.left,
            lookup=self.gemm.table,
        ).text

    def _block(self) -> list[str]:
        """One register block: mr rows times nr channels over all of K."""
        cells = [(row, channel) for row in range(self.mr) for channel in range(self.nr)]
        lines, kind = [], f"{self.accumulator}_t"
        if self._seeded:
            lines += [f"{kind} s{r}{c} = seed[{c}]{f' + t{r}' if self.row_terms else ''};" for r, c in cells]
            lines.append(f"seed += {self.nr};")
        else:
            lines.append(f"{kind} " + ", ".join(f"s{r}{c}" for r, c in cells) + ";")
        if self.schedule["unroll"] == "full":
            if self.schedule["reload"]:
                pointers = ", ".join(f'"+r"(p{row})' for row in range(self.mr))
                lines.append(f'__asm__ volatile("" : {pointers});')
            for vector in range(self.gemm.vectors):
                lines += self._step("p", vector, accumulate=self._seeded or vector > 0)
            lines.append(f"w += {self.gemm.vectors * self.nr * self.weight_vector};")
        else:
            count = int(self.schedule["unroll"])
            lines += [f"const int8_t *k{row} = p{row};" for row in range(self.mr)]
            lines.append(f"for (int k = 0; k < {self.gemm.vectors // count}; k++) {{")
            for vector in range(count):
                lines += [f"  {line}" for line in self._step("k", vector, accumulate=True)]
            advance = " ".join(f"k{row} += {count * VECTOR};" for row in range(self.mr))
            lines.append(f"  {advance} w += {count * self.nr * self.weight_vector};")
            lines.append("}")
        lines += [f"result[{r * self.padded_channels + c}] = s{r}{c};" for r, c in cells]
        lines.append(f"result += {self.nr};")
        return lines

    @property
    def _center(self) -> int:
        """Where in a row its pointer stands: offsets of VLDRW reach 508 bytes to either side."""
        return 256 if self.schedule["reload"] and self.gemm.vectors * VECTOR > 512 else 0

    def _step(self, pointer: str, vector: int, accumulate: bool) -> list[str]:
        """One vector of 16 along K: load it from all rows and channels, and multiply each with each."""
        lines = ["{"]
        for row in range(self.mr):
            address = f"{pointer}{row} + {vector * VECTOR - self._center}"
            lines.append(f"  const {self._lanes} x{row} = {self._load(address)};")
        for channel in range(self.nr):
            weights = self._load_weights(f"w + {(vector * self.nr + channel) * self.weight_vector}")
            lines.append(f"  const {self._lanes} w{channel} = {weights};")
            for row in range(self.mr):
                cell = f"s{row}{channel}"
                lines.append(f"  {cell} = {self._dot(cell if accumulate else '', f'x{row}, w{channel}')};")
        return [*lines, "}"]

    @property
    def _lanes(self) -> str:
        """The C type of a vector of a row."""
        return "int8x16_t"

    def _dot(self, cell: str, pair: str) -> str:
        """The dot product of a pair of vectors, added to `cell` if there is one."""
        return f"vmladavaq_s8({cell}, {pair})" if cell else f"vmladavq_s8({pair})"

    def _load(self, address: str) -> str:
        """A vector of a row. VLDRW reaches further than VLDRB from one base register, but wants words aligned."""
        if self.row_stride % 4:
            return f"vldrbq_s8({address})"
        return f"vreinterpretq_s8_s32(vldrwq_s32((const int32_t *)({address})))"

    def _load_weights(self, address: str) -> str:
        """The weights that meet one vector of a row."""
        return f"vldrbq_s8({address})"


@dataclass(frozen=True)
class DenseRows:
    """C that walks over a matrix whose rows of `depth` bytes lie back to back, a tile of `mr` rows at a time.

    The last tile starts early enough to be whole, so some rows may be computed twice. Rows whose last vector would pass
    the end of the matrix are copied to scratch memory first.

    Args:
        tile: the tile that takes the rows.
        copy_at: byte offset in the scratch memory where rows may be copied to.
    """

    tile: Tile
    copy_at: int

    @property
    def _copied(self) -> int:
        """Bytes of a tile of rows where some have to be copied, else 0."""
        return self.tile.mr * self.tile.gemm.depth if self._safe < self._last else 0

    @property
    def _last(self) -> int:
        """First row of the last tile."""
        return self.tile.gemm.rows - self.tile.mr

    @property
    def _safe(self) -> int:
        """The last row that a tile may start with and read nothing past the end."""
        gemm = self.tile.gemm
        return (gemm.rows * gemm.depth - gemm.vectors * VECTOR) // gemm.depth - self.tile.mr + 1

    @property
    def scratch_bytes(self) -> int:
        """Scratch memory from `copy_at` on."""
        return round_up(self._copied + VECTOR, VECTOR) if self._copied else 0

    @property
    def functions(self) -> list[str]:
        """C of the functions that `loop` calls."""
        return COPY.splitlines() if self._copied else []

    def loop(self, matrix: str, body: Sequence[str]) -> list[str]:
        """The loop; `body` sees `rows`, a pointer to the tile's rows, and `row`, the number of the first."""
        gemm, mr = self.tile.gemm, self.tile.mr
        lines = [
            f"for (int p = 0; p < {round_up(gemm.rows, mr)}; p += {mr}) {{",
            f"  const int row = p < {self._last} ? p : {self._last};",
            f"  const int8_t *rows = {matrix} + row * {gemm.depth};",
        ]
        if self._copied:
            lines += [
                f"  if (row > {self._safe}) {{",
                f"    copy(scratch + {self.copy_at}, rows, {self._copied});",
                f"    rows = scratch + {self.copy_at};",
                "  }",
            ]
        return [*lines, *(f"  {line}" for line in body), "}"]


COPY: str = """\
INLINE void copy(int8_t *to, const int8_t *from, int bytes)
{
  for (; bytes > 0; bytes -= 16, to += 16, from += 16) {
    const mve_pred16_t inside = vctp8q(bytes);
    vstrbq_p_s8(to, vldrbq_z_s8(from, inside), inside);
  }
}"""
