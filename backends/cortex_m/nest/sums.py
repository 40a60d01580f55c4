"""Contractions whose sums go through scratch memory: register blocks of pixels x channels, then the finish."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernels.mve import VECTOR, round_up
from tosaic.backends.cortex_m.nest.assembly import VECTORS, assembly
from tosaic.backends.cortex_m.nest.block import BlockInstruction, InstructionBlock, ordered
from tosaic.backends.cortex_m.nest.finish import GROUP
from tosaic.backends.cortex_m.nest.nest import NestLoop
from tosaic.backends.cortex_m.nest.tiled import REACH_OF_LOOP, Tiled
from tosaic.support.errors import BackendError

# General registers for sums, the even ones that VMLADAVA wants first; what is left over holds pointers.
SUMS = ("r0", "r2", "r4", "r8", "r10", "r12", "r6")
PAIRS = (("r0", "r1"), ("r2", "r3"), ("r4", "r5"), ("r8", "r9"))
_GENERAL = 13
_STORE_PAIR, _STORE = 1020, 4095


@dataclass(frozen=True)
class SumsKernel(Tiled):
    """A contraction that stores the sums of a tile, then finishes them."""

    # What the nest says.

    @cached_property
    def shared(self) -> list[NestLoop]:
        """The loops around both stages, outermost first."""
        loops = self.nest.stages["out"]
        _, name = self.nest.at["sums"]
        return list(loops[: loops.index(self.nest.loop("out", name)) + 1])

    @cached_property
    def tile(self) -> tuple[int, int]:
        """Pixels and channels of the register block."""
        return self.nest.loop("sums", "xi").extent, self.nest.loop("sums", "ni").extent

    @cached_property
    def _turn(self) -> NestLoop:
        """The hardware loop of the sums."""
        return next(loop for loop in self.nest.stages["sums"] if loop.how == "turn")

    @property
    def _repeats(self) -> int:
        """Register blocks in one turn over the channels."""
        return self._turn.step // self.tile[1] if self._turn.axis == "n" else 1

    @property
    def _code_bytes(self) -> int:
        """Bytes of the hardware loop of the sums."""
        mr, nr = self.tile
        vectors = len(self.vectors) if self._turn.axis == "n" else self._turn.step // VECTOR
        return 4 * self._repeats * (vectors * (mr + nr + mr * nr) + mr * nr)

    @property
    def turns(self) -> dict[str, int]:
        whole, repeats = self.block // GROUP, self._finish_repeats
        sums = -(-self.block // self.tile[1]) // self._repeats if self._turn.axis == "n" else 1
        return {"sums": sums, "out": max(whole // repeats, whole % repeats)}

    @cached_property
    def share(self) -> int:
        """Pixels that are finished with one reading of the factors."""
        return next(loop.extent for loop in self.nest.stages["out"] if loop.axis == "x" and loop.how == "unroll")

    @property
    def _finished_rows(self) -> list[int]:
        """How many pixels are finished together, fewest first."""
        return sorted({self.share, self.pixels % self.share, self._short % self.share} - {0})

    @property
    def _finish_repeats(self) -> int:
        """Vectors of results in one turn of the finish."""
        loops = self.nest.stages["out"]
        return next(loop.step // VECTOR for loop in loops if loop.how == "turn") or 1

    # Sizes of what lies in memory.

    @property
    def padded_block(self) -> int:
        """Channels of a block that are computed: whole register blocks, whole groups of four."""
        nr = self.tile[1]
        return round_up(round_up(self.block, nr), GROUP)

    @property
    def sum_bytes(self) -> int:
        """Bytes of a sum."""
        return 4 * self.what.dot.registers

    @property
    def sum_stride(self) -> int:
        """Bytes from the sums of a pixel to those of the next."""
        return self.sum_bytes * self.padded_block

    @property
    def sums_bytes(self) -> int:
        """Bytes of the sums of a tile."""
        return self.pixels * self.sum_stride + VECTOR * self.nest.hoisted.get("out", 0)

    @property
    def block_factors(self) -> int:
        return 4 * self.what.finish.fields * round_up(self.block, GROUP)

    # What the host packs.

    def channel_order(self) -> np.ndarray:
        """The channel behind each sum of a block, past the end for padding: int32 (round_up(block, nr),)."""
        return np.arange(round_up(self.block, self.tile[1]), dtype=np.int32)

    def pack_factors(self, bias: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """int32: the factors of all channels in the order in which they are read."""
        split = [np.split(np.asarray(values), self.blocks) for values in (bias, multiplier, shift)]
        packed = np.concatenate([self.what.finish.factors(*block).ravel() for block in zip(*split, strict=True)])
        return np.pad(packed, (0, GROUP * self.nest.hoisted.get("out", 0)))

    # The code.

    def functions(self) -> list[str]:
        """C of the functions that `body` calls."""
        lines = self._sums_function("sums")
        finish, strides = self.what.finish, (self.sum_stride, self._result_stride)
        hoisted = self.nest.hoisted.get("out", 0)
        if rest := self._short % self.tile[0]:
            loops = (loop._replace(extent=rest) if loop.name == "xi" else loop for loop in self.nest.stages["sums"])
            lines += replace(self, nest=self.nest.with_loops("sums", loops))._sums_function("sums_rest")
        for rows in self._finished_rows:
            repeats, issue = self._finish_repeats, self.nest.issue("out")
            lines += finish.function(f"finish{rows}", self.block, rows, *strides, hoisted, repeats, issue)
        return self._with_copies(lines)

    def _tile(self) -> list[str]:
        """The sums and results of one tile of pixels and one block of channels."""
        mr, share, short = self.tile[0], self.share, self._short
        pitch, stride, element = self.reader.pitch, self.sum_stride, self.what.finish.element
        position = f"{'' if self.flat else f'y * {self.reader.geometry.columns} + '}x"
        lines = [
            f"int8_t *o = out + (({position}) * {self.what.channels} + n) * {element};",
            f"{self._sum_type} *totals = ({self._sum_type} *)(scratch + {self._offsets['sums']});",
        ]

        def sums(name: str, r: str) -> str:
            moved = ", ".join(f"{pointer} + {r} * {pitch}" for pointer in self.reader.pointers)
            return f"{name}({moved}, w, (int8_t *)totals + {r} * {stride});"

        def finish(r: str, rows: int) -> str:
            at = f"totals + {r} * {stride // self.sum_bytes}, t, o + {r} * {self._result_stride}"
            return f"finish{rows}({at}, low, high);"

        lines += [f"for (int r = 0; r <= {self._count} - {mr}; r += {mr})", f"  {sums('sums', 'r')}"]
        if short % mr:
            lines.append(f"if (pixels == {short}) {sums('sums_rest', str(short - short % mr))}")
        lines += [f"for (int r = 0; r <= {self._count} - {share}; r += {share})", f"  {finish('r', share)}"]
        for pixels in filter(None, (self.pixels, short)):
            if rest := pixels % share:
                only = f"if (pixels == {pixels}) " if short else ""
                lines.append(only + finish(str(pixels - rest), rest))
        return lines

    @property
    def _sum_type(self) -> str:
        return "int64_t" if self.what.dot.registers == 2 else "int32_t"

    # The register block.

    @cached_property
    def _held(self) -> list[tuple[int, int]]:
        """The (pixel, vector) of the windows that stay in registers over the turns."""
        reads = [(r, i) for i in range(len(self.vectors)) for r in range(self.tile[0])]
        return reads[: self.nest.held.get("windows", 0)]

    def _plan(self) -> tuple[dict[str, tuple[str, int]], dict[tuple[int, int], tuple[str, int]]]:
        """Registers that point into the image, and where each (pixel, vector) is read from them."""
        mr, pitch = self.tile[0], self.reader.pitch
        reach = (self.what.dot.load_words if self.reader.words else self.what.dot.load)[1]
        unit = 4 if self.reader.words else self.what.dot.element
        registers: dict[str, tuple[str, int]] = {}
        reads: dict[tuple[int, int], tuple[str, int]] = {}
        for row in dict.fromkeys(vector.row for vector in self.vectors):
            members = [(i, vector.offset) for i, vector in enumerate(self.vectors) if vector.row == row]
            left = sorted((r * pitch + offset, r, i) for r in range(mr) for i, offset in members)
            while left:
                first = left[0][0]
                near = [read for read in left if read[0] - first <= 2 * reach // unit * unit]
                center = first if near[-1][0] - first <= reach else first + reach // unit * unit
                name = f"x{row}_{first}"
                registers[name] = (f"p{row}", center)
                reads |= {(r, i): (name, at - center) for at, r, i in near}
                left = left[len(near) :]
        return registers, reads

    def _sums_function(self, name: str) -> list[str]:
        """C of a function: a register block's pixels times a block of channels."""
        arguments = ", ".join(f"const int8_t *{name}" for name in self.reader.pointers)
        by_channels = self._turn.axis == "n"
        return [
            f"INLINE void {name}({arguments}, const int8_t *w, int8_t *a)",
            "{",
            *(f"  {line}" for line in (self._over_channels() if by_channels else self._over_depth())),
            "}",
        ]

    @property
    def _sum_registers(self) -> dict[str, str]:
        """The register of each sum by name; of pairs, the lower half ends in `l`, the upper in `h`."""
        cells = list(itertools.product(*map(range, self.tile)))
        if self.what.dot.registers == 1:
            return {f"s{r}_{c}": register for (r, c), register in zip(cells, SUMS, strict=False)}
        halves = {f"s{r}_{c}l": pair[0] for (r, c), pair in zip(cells, PAIRS, strict=False)}
        return halves | {f"s{r}_{c}h": pair[1] for (r, c), pair in zip(cells, PAIRS, strict=False)}

    def _cell(self, r: int, c: int) -> tuple[str, ...]:
        return (f"s{r}_{c}",) if self.what.dot.registers == 1 else (f"s{r}_{c}l", f"s{r}_{c}h")

    def _window(self, name: str, pointer: str, offset: int | None) -> BlockInstruction:
        """The load of a window's vector; without an offset the pointer moves on by a vector."""
        mnemonic = (self.what.dot.load_words if self.reader.words else self.what.dot.load)[0]
        moved = (pointer,) if offset is None else ()
        address = f"[{{{pointer}}}], #{VECTOR}" if offset is None else f"[{{{pointer}}}, #{offset}]"
        return BlockInstruction(mnemonic, f"{{{name}}}, {address}", (name, *moved), moved)

    def _products(self, windows: Sequence[str | BlockInstruction], first: bool) -> list[BlockInstruction]:
        """One vector along the depth: every pixel with every channel.

        Args:
            windows: for each pixel the vector of its window that is held, or its load.
            first: whether the products start the sums.
        """
        dot, (mr, nr) = self.what.dot, self.tile
        channels = [
            BlockInstruction(dot.weights, f"{{w{c}}}, [{{w}}], #{dot.lanes}", (f"w{c}", "w"), ("w",)) for c in range(nr)
        ]
        code = list[BlockInstruction]()
        for c, r in itertools.product(range(nr), range(mr)):
            window, cell = windows[r], self._cell(r, c)
            loads = [load for load in (window, channels[c]) if isinstance(load, BlockInstruction)]
            code += [load for load in loads if load not in code]
            x = window if isinstance(window, str) else window.writes[0]
            operands = ", ".join([*(f"{{{half}}}" for half in cell), f"{{{x}}}", f"{{w{c}}}"])
            code.append(BlockInstruction(dot.first if first else dot.more, operands, cell, () if first else cell))
        return code

    def _stores(self) -> list[BlockInstruction]:
        """Store the sums of a register block, the first pixel's last, and move to the next block."""
        (mr, nr), size, stride = self.tile, self.sum_bytes, self.sum_stride
        code: list[BlockInstruction] = []
        pairs = size == 8 or (nr % 2 == 0 and (mr - 1) * stride + (nr - 2) * size <= _STORE_PAIR)
        step = 2 if pairs else 1
        for r in reversed(range(mr)):
            names = [name for c in range(nr) for name in self._cell(r, c)]
            for at in reversed(range(0, len(names), step)):
                values = ", ".join(f"{{{name}}}" for name in names[at : at + step])
                if r or at:
                    offset = r * stride + 4 * at
                    code.append(BlockInstruction("strd" if pairs else "str.w", f"{values}, [{{a}}, #{offset}]"))
                else:
                    moved = f"{values}, [{{a}}], #{nr * size}"
                    code.append(BlockInstruction("strd" if pairs else "str", moved, ("a",), ("a",)))
        return code

    def _over_channels(self) -> list[str]:
        """All of the depth unrolled in a hardware loop over register blocks of channels."""
        pointers, reads = self._plan()
        held = {read: f"h{number}" for number, read in enumerate(self._held)}
        windows = {read: held.get(read) or self._window(f"x{read[0]}", *at) for read, at in reads.items()}
        code: list[BlockInstruction] = []
        for _ in range(self._repeats):
            for i in range(len(self.vectors)):
                code += self._products([windows[r, i] for r in range(self.tile[0])], first=i == 0)
            code += self._stores()
        changes, sums = ["w", "a"], self._sum_registers
        free = VECTORS[: len(VECTORS) - len(held)]
        homes = dict(zip(held.values(), VECTORS[len(free) :], strict=True))
        registers = {**{name: f"%[{name}]" for name in (*pointers, *changes)}, **sums, **homes}
        turns = -(-self.block // self.tile[1]) // self._repeats
        hoisted = self.nest.hoisted.get("sums", 0) if turns > 1 else 0
        found = ordered(InstructionBlock(tuple(code), registers, free), self.pipeline, hoisted, self.nest.issue("sums"))
        placed = [f"const int8_t *{name} = {base} + {center};" for name, (base, center) in pointers.items()]
        entry = [self._window(name, *reads[read]).text(registers) for read, name in held.items()]
        clobbers = list(sums.values())
        return [*placed, *assembly([*entry, *found.entry], found.turn, (), turns, changes, list(pointers), clobbers)]

    def _over_depth(self) -> list[str]:
        """A hardware loop over the depth, for each register block of channels."""
        (mr, nr), sums = self.tile, self._sum_registers
        unrolled = self._turn.step // VECTOR
        code: list[BlockInstruction] = []
        for _ in range(unrolled):
            code += self._products([self._window(f"x{r}", f"x_{r}", None) for r in range(mr)], first=False)
        pointers = {f"x_{r}": f"p0 + {r * self.reader.pitch}" for r in range(mr)}
        changes = ["w", "a", *pointers]
        registers = {**{name: f"%[{name}]" for name in changes}, **sums}
        turns = len(self.vectors) // unrolled
        found = ordered(InstructionBlock(tuple(code), registers, VECTORS), self.pipeline, 0, self.nest.issue("sums"))
        entry = [*(f"mov.w {register}, #0" for register in sums.values()), *found.entry]
        leave = [instruction.text(registers) for instruction in self._stores()]
        statement = assembly(entry, found.turn, leave, turns, changes, (), list(sums.values()))
        return [
            f"for (int block = 0; block < {-(-self.block // nr)}; block++) {{",
            *(f"  const int8_t *{name} = {at};" for name, at in pointers.items()),
            *(f"  {line}" for line in statement),
            "}",
        ]

    # What must hold.

    def verify(self) -> None:
        """Check what the printed code takes for granted.

        Raises:
            BackendError: the nest is not legal; the message says why.
        """
        self.verify_sizes()

    def verify_sizes(self) -> None:
        """As far as sizes tell, which takes no time.

        Raises:
            BackendError: the nest is not legal; the message says why.
        """
        (mr, nr), dot, turn = self.tile, self.what.dot, self._turn
        general = _GENERAL - dot.registers * mr * nr - 2
        if mr * nr > (len(SUMS) if dot.registers == 1 else len(PAIRS)):
            raise BackendError(f"{mr} x {nr} sums do not fit the registers")
        if mr > self.pixels or nr > self.block:
            raise BackendError(f"the register block {mr} x {nr} is larger than the block around it")
        if self.block % VECTOR and self.blocks > 1:
            raise BackendError(f"blocks of {self.block} channels do not end at whole vectors")
        if self.what.channels % self.block:
            raise BackendError(f"blocks of {self.block} do not divide {self.what.channels} channels")
        if (mr - 1) * self.sum_stride + nr * self.sum_bytes > (_STORE_PAIR if dot.registers == 2 else _STORE):
            raise BackendError("the sums of a register block are out of the reach of their pointer")
        if self.pixels % mr:
            raise BackendError(f"register blocks of {mr} pixels do not divide a tile of {self.pixels}")
        held = Counter(i for _, i in self._held)
        if len(self._held) < self.nest.held.get("windows", 0):
            raise BackendError(f"a tile reads no more than {len(self._held)} vectors of its windows")
        if len(VECTORS) - len(self._held) < max(mr - held[i] for i in range(len(self.vectors))) + 1:
            raise BackendError(f"{len(self._held)} vectors that stay leave no registers")
        if turn.axis == "n":
            pointers = len(self._plan()[0])
            if -(-self.block // nr) % self._repeats:
                raise BackendError(f"{self.block} channels have no turns of {self._repeats} register blocks")
            length = self._code_bytes
            if length > REACH_OF_LOOP:
                raise BackendError(f"a loop of {length} bytes is out of the reach of its end")
        else:
            pointers, step = mr, turn.step // VECTOR
            scattered = [vector.offset for vector in self.vectors] != list(range(0, VECTOR * len(self.vectors), VECTOR))
            if scattered or turn.step % VECTOR or len(self.vectors) % step:
                raise BackendError(f"a depth of {self.what.depth} bytes has no turns of {turn.step}")
            if held:
                raise BackendError("windows stay in registers where the hardware loop goes over the channels")
            if self.nest.loop("sums", "n").step > nr:
                raise BackendError("register blocks are repeated where the hardware loop goes over the channels")
        if pointers > general:
            raise BackendError(f"{pointers} pointers do not fit the registers beside {mr} x {nr} sums")
        finish = self.what.finish
        if finish.form != "wide" and finish.vectors(self.share, self.nest.hoisted.get("out", 0)) > finish.spare_vectors:
            raise BackendError(f"{self.share} pixels cannot be finished together in the vector registers")
        self.verify_windows()

    def walks(self) -> Sequence[Walk]:
        (mr, nr), element = self.tile, self.what.finish.element
        groups, registers = -(-self.pixels // mr), -(-self.block // nr)
        row, still = self._result_stride, (0.0,) * len(self.shared)
        position = {"y": row * self.reader.geometry.columns, "x": row, "n": element}
        strides = (*self._moving(**position), mr * row, nr * element)
        group = (self.block_bytes + self.block_factors) / registers
        accesses = [
            *self._image_accesses(mr, mr, 0),
            *self._weight_accesses(group, 0, 1),
            ArrayAccess(
                "sums",
                "scratch",
                nr * self.sum_bytes,
                (*still, mr * self.sum_stride, nr * self.sum_bytes),
                writes=True,
                inner=((mr, self.sum_stride),),
            ),
            ArrayAccess("out", "output", nr * element, strides, writes=True, inner=((mr, row),)),
        ]
        return [Walk((*(loop.turns for loop in self.shared), groups, registers), tuple(accesses))]

    def counts(self) -> dict[str, float]:
        """What the code executes, for the cost model."""
        (mr, nr), vectors = self.tile, len(self.vectors)
        tiles = math.prod(loop.turns for loop in self.shared)
        rows, row_tiles = tiles // self._around("x").turns, self._row_tiles
        calls = rows * sum(-(-pixels // mr) for pixels in row_tiles)
        cells = rows * sum(pixels if self._short else round_up(pixels, mr) for pixels in row_tiles)
        registers = -(-self.block // nr)
        finished = rows * sum(row_tiles) * self.block
        shared = rows * sum(-(-pixels // self.share) for pixels in row_tiles)
        held = self.nest.held.get("windows", 0)
        whole = self.block // VECTOR
        statements = (whole >= self._finish_repeats) + (whole % self._finish_repeats > 0) + (self.block % VECTOR > 0)
        joined = whole // self._finish_repeats * (self._finish_repeats - 1)
        read = self.block_bytes * (self.blocks if self._copies_weights else calls)
        read += self.block_factors * (self.blocks if self._copies_weights else shared)
        counts = {
            "products": registers * vectors * cells * nr,
            "loads": registers * (vectors * (cells + calls * nr) - calls * held),
            "stores": registers * cells * nr,
            "sums": registers * calls,
            "turns": registers * calls / self._repeats * (1 if self._turn.axis == "n" else self._turn.turns),
            "repeats": self._repeats,
            "finish_repeats": self._finish_repeats,
            "finished": finished,
            "factors": shared * self.block,
            "tiles": tiles,
            "entries": calls + shared * statements,
            "finish_joined": shared * joined,
            "code": self._code_bytes * (1 + self._short % mr / mr)
            + sum(self.what.finish.code_bytes(rows, self._finish_repeats) for rows in self._finished_rows),
            "pixels": mr,
            "channels": nr,
            "accumulators": mr * nr,
            "held": calls * held,
            "share": self.share,
            "vectors": vectors,
            "ahead": self.nest.hoisted.get("sums", 0),
            "finish_ahead": self.nest.hoisted.get("out", 0),
            "constants_read": read,
            **self.window_counts(tiles, read),
        }
        return {name: float(value) for name, value in counts.items()}
