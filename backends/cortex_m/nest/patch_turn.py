"""The instructions of a turn over patches: four sums in general registers, finished as a vector."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tosaic.backends.cortex_m.nest.patch_weights import PatchWeights
from tosaic.backends.cortex_m.nest.patches import PATCH, PatchDepthwise, Patches
from tosaic.backends.cortex_m.program.block import BlockInstruction, InstructionBlock, advance, update
from tosaic.backends.cortex_m.program.inline_assembly import assembly
from tosaic.backends.cortex_m.program.list_scheduler import Issue, ordered
from tosaic.backends.target import Pipeline
from tosaic.support.errors import BackendError

ALL_AHEAD = 6
"""As many loads hoisted, a turn's code up to its first four sums is executed one turn ahead."""

_SUMS = ("r0", "r2", "r4", "r6")
_POINTERS = 4
_GENERAL = 13
_ADD_REACH, _MOVE_REACH = 4095, 65535


@dataclass(frozen=True)
class PatchTurn:
    """What a turn executes.

    Args:
        what: the problem.
        weights: the weight vectors.
        pixel: bytes of a column of a strip.
        group_bytes: bytes of one row group of a strip.
        walks: whether each turn has the next channel: it loads weights and factors of its own.
        last: the output column at which the last turn of a row begins.
        early: columns of it that the turn before has too.
        issue: what is issued first.
        pipeline: timings of the core; None leaves instructions in the order of their meaning.
    """

    what: PatchDepthwise
    weights: PatchWeights
    pixel: int
    group_bytes: int
    walks: bool
    last: int
    early: int
    issue: Issue
    pipeline: Pipeline | None

    @property
    def patches(self) -> Patches:
        """How a tile is cut."""
        return self.weights.patches

    @property
    def factors(self) -> list[str]:
        """The names of a channel's factors."""
        return ["bias", "multiplier", "right", "left"][: self.what.fields]

    @property
    def _outputs(self) -> list[tuple[int, int]]:
        """(row, column) of the four outputs of a turn."""
        patches = self.patches
        return [
            (row, tile * patches.columns + column) for tile in range(patches.per_turn) for row, column in patches.cells
        ]

    @property
    def places(self) -> list[int]:
        """Bytes from the first output of a turn to each."""
        columns, pixel = self.what.geometry.columns, self.what.pixel
        return [(row * columns + column) * pixel for row, column in self._outputs]

    @property
    def mask(self) -> int:
        """The predicate of the four outputs, where some do not exist; else 0."""
        geometry = self.what.geometry
        inside = [row < geometry.rows and column < geometry.columns for row, column in self._outputs]
        return 0 if all(inside) else sum(0xF << 4 * lane for lane, kept in enumerate(inside) if kept)

    @property
    def words(self) -> list[int]:
        """Bytes from the beginning of a patch to each of its words: four columns, or two of two groups of rows."""
        if self.patches.deep:
            return [0, self.group_bytes, self.pixel, self.pixel + self.group_bytes]
        return [column * self.pixel for column in range(PATCH)]

    @cached_property
    def offsets(self) -> list[int]:
        """Bytes from a turn's first patch to each, tile by tile."""
        step = self.patches.columns * self.what.geometry.stride[1]
        return [
            group * self.group_bytes + (first + tile * step) * self.pixel
            for tile in range(self.patches.per_turn)
            for group, first in self.patches.places
        ]

    @property
    def reached(self) -> dict[int, tuple[int, int]]:
        """For each offset of a patch the pointer that stands nearest before it, by its own offset, and the distance."""
        offsets = sorted(set(self.offsets))
        most = 1 if self.walks else min(_POINTERS, max(1, _GENERAL - self._general))
        gaps = zip([-_ADD_REACH - 1, *offsets], offsets, strict=False)
        near = [at for before, at in gaps if at - before > _ADD_REACH]
        stands = offsets if len(offsets) <= most else near[:most]
        return {at: max((stand, at - stand) for stand in stands if stand <= at) for at in offsets}

    @property
    def pointers(self) -> list[str]:
        """The pointers to patches, named by how far they stand behind a turn's first."""
        return [f"p{stand}" for stand in sorted({stand for stand, _ in self.reached.values()})]

    @property
    def _scalars(self) -> list[str]:
        """The numbers that the finish needs."""
        return ["zero_point", *(["low", "high"] if self.what.clamped else []), *self.factors]

    @property
    def _spilled(self) -> bool:
        """Whether the finish reads its numbers from memory, where general registers do not hold them all."""
        return not self.walks and self._others + 1 + len(self._scalars) > _GENERAL

    @property
    def _others(self) -> int:
        """General registers for sums, the output, a distance, and what only some kernels have."""
        return len(_SUMS) + 2 + self.what.table + (not self.weights.all_held) + (self.mask > 0) + self.patches.deep

    @property
    def _general(self) -> int:
        """General registers beside those that point to patches."""
        scalars = 2 if self._spilled else len(self._scalars)
        return self._others + scalars + 2 * self.walks

    def verify(self) -> None:
        """Check that general registers and distances do.

        Raises:
            BackendError: the message says why not.
        """
        if self._general + len(self.pointers) > _GENERAL:
            raise BackendError("pointers and factors do not fit the registers")
        if any(distance > _MOVE_REACH for _, distance in self.reached.values()):
            raise BackendError("patches are too far from each other")

    def function(
        self, name: str, starts: Sequence[int], ahead: tuple[int, int], turns: int, hoisted: int = 0
    ) -> list[str]:
        """C of a function that computes `turns` times the turns at columns `starts`.

        Args:
            ahead: bytes of input and output from the last turn of a block to the first of the next.
            hoisted: loads that are executed a turn ahead, or `ALL_AHEAD`.
        """
        what, mask, walks = self.what, self.mask, self.walks
        pointers = {each: int(each[1:]) for each in self.pointers}
        numbers = [] if self._spilled else [each for each in self._scalars if not (walks and each in self.factors)]
        scalars = [*numbers, *(["lookup"] if what.table else []), *(["context"] if self._spilled else [])]
        scalars += ["weights"] if not self.weights.all_held else []
        constants = [*([] if walks else [f"w{i}" for i in range(self.weights.held)]), "columns", "places"]
        changes = ["o", *pointers, *(["weights", "factors", *self.factors] if walks else [])]
        scratch = {"t": "r8"} if any(distance for _, distance in self.reached.values()) else {}
        scratch |= {"n": "r10"} if self._spilled else {}
        scratch |= {"carry": "r12"} if self.patches.deep else {}
        sums = {f"s{i}": register for i, register in enumerate(_SUMS)}
        registers = {each: f"%[{each}]" for each in (*changes, *scalars)} | sums | scratch
        registers |= {each: f"%q[{each}]" for each in constants}
        free = tuple(f"q{i}" for i in range(8 - len(constants)))
        step = what.geometry.stride[1] * self.pixel
        widths = [there - here for here, there in itertools.pairwise(starts)]
        code, opening = self.weights.code() if walks else [], 0
        steps = [*((width * step, width * what.pixel) for width in widths), ahead]
        for number, (start, (along, to)) in enumerate(zip(starts, steps, strict=True)):
            code += self._sums_code(along, self.early if start == self.last else 0)
            if number == 0:
                opening = len(code) if hoisted == ALL_AHEAD else 0
                code += self._factors_code() if walks else []
            code += self._finish_code(to)
        block = InstructionBlock(tuple(code[opening:]), registers, free, tuple(code[:opening]))
        found = ordered(block, self.pipeline, hoisted, self.issue)
        entry, leave = list(found.entry), list[str]()
        if mask:
            scalars, leave = [*scalars, "mask"], ["vmsr p0, lr"]
            entry = ["vmrs lr, p0", "vmsr p0, %[mask]", *entry]
        used = " ".join([*entry, *found.turn])
        reads = [each for each in scalars if f"%[{each}]" in used]
        clobbers = [*sums.values(), *scratch.values()]
        statement = assembly(entry, found.turn, leave, turns, changes, reads, clobbers, constants, free)
        declared = [f"int8x16_t w{i}" for i in range(self.weights.held)] + [
            f"int32_t {factor}" for factor in self.factors
        ]
        head = "const int8_t *x, int8_t *o, " + ("const int32_t *factors, " if walks else "")
        head += "const int8_t *lookup, const int8_t *weights, uint32x4_t columns, uint32x4_t places"
        tail = "" if walks else "".join(f", {each}" for each in declared)
        return [
            f"INLINE void {name}({head},",
            f"  int32_t zero_point, int32_t low, int32_t high{tail})",
            "{",
            *([f"  int32_t {', '.join(f'{factor} = 0' for factor in self.factors)};"] if walks else []),
            *([f"  const uint32_t mask = {mask:#x};"] if mask else []),
            *([f"  const int32_t context[] = {{{', '.join(self._scalars)}}};"] if self._spilled else []),
            *(f"  const int8_t *{pointer} = x + {at + starts[0] * step};" for pointer, at in pointers.items()),
            *([f"  o += {starts[0] * what.pixel};"] if starts[0] else []),
            *(f"  {line}" for line in statement),
            "}",
        ]

    def _factors_code(self) -> list[BlockInstruction]:
        """The instructions that load the factors of the next channel."""
        code = []
        for first in range(0, len(self.factors), 2):
            names = tuple(self.factors[first : first + 2])
            values = ", ".join(f"{{{name}}}" for name in names)
            mnemonic, operands = "ldrd" if len(names) == 2 else "ldr", f"{values}, [{{factors}}], #{4 * len(names)}"
            code.append(BlockInstruction(mnemonic, operands, (*names, "factors"), ("factors",)))
        return code

    def _sums_code(self, step: int, skipped: int) -> list[BlockInstruction]:
        """The instructions of one turn that come to a vector of four sums: patches, products, a step (bytes) ahead.

        Sums of the first `skipped` columns are left out.
        """
        patches = self.patches
        code: list[BlockInstruction] = []
        skips = [column < skipped for _, column in self._outputs]
        for tile in range(patches.per_turn):
            left_out = {cell for cell in range(len(patches.cells)) if skips[tile * len(patches.cells) + cell]}
            started = set[int]()
            for place in range(len(patches.places)):
                if all(cell in left_out for cell, at in patches.uses if at == place):
                    continue
                stand, distance = self.reached[self.offsets[tile * len(patches.places) + place]]
                base = f"p{stand}"
                if distance > _ADD_REACH:
                    code.append(BlockInstruction("movw", f"{{t}}, #{distance}", ("t",)))
                    code.append(BlockInstruction("add.w", f"{{t}}, {{t}}, {{{base}}}", ("t",), ("t",)))
                elif distance:
                    code.append(BlockInstruction("addw", f"{{t}}, {{{base}}}, #{distance}", ("t",)))
                base = "t" if distance else base
                code.append(BlockInstruction("vldrw.u32", f"{{x}}, [{{{base}}}, {{columns}}]", ("x",)))
                for number, (cell, at) in enumerate(patches.uses):
                    if at != place or cell in left_out:
                        continue
                    weights = f"w{number}"
                    if number >= self.weights.held:
                        column = self.weights.at(number)
                        code.append(BlockInstruction("vldrw.u32", f"{{w}}, [{{weights}}, #{column}]", ("w",)))
                        weights = "w"
                    for above in range(cell + 1) if patches.deep else (0,):
                        if above:
                            bits = 8 * patches.geometry.stride[0]
                            code.append(
                                BlockInstruction("vshlc", f"{{x}}, {{carry}}, #{bits}", ("x", "carry"), ("x", "carry"))
                            )
                        total, more = f"s{tile * len(patches.cells) + cell - above}", cell - above in started
                        started.add(cell - above)
                        mnemonic = "vmladava.s8" if more else "vmladav.s8"
                        operands = f"{{{total}}}, {{x}}, {{{weights}}}"
                        code.append(BlockInstruction(mnemonic, operands, (total,), (total,) if more else ()))
        pairs = [first for first in (0, 1) if not (skips[first] and skips[first + 2])]
        for first in pairs:
            operands = f"{{v}}[{first + 2}], {{v}}[{first}], {{s{first}}}, {{s{first + 2}}}"
            code.append(BlockInstruction("vmov", operands, ("v",), ("v",) if first != pairs[0] else ()))
        return code + [i for pointer in self.pointers for i in advance(pointer, step)]

    def _finish_code(self, step: int) -> list[BlockInstruction]:
        """The instructions of one turn that finish four sums, and a step (bytes) ahead."""
        what = self.what
        code = self._with("bias", "vadd.i32", "{v}, {v}, ")
        if what.form == "left":
            code += self._with("left", "vshl.s32", "{v}, ")
        code += self._with("multiplier", "vqrdmulh.s32" if what.form == "round" else "vqdmulh.s32", "{v}, {v}, ")
        if what.form != "round":
            code += self._with("right", "vrshl.s32", "{v}, ")
        code += self._with("zero_point", "vadd.i32", "{v}, {v}, ")
        for instruction in _narrowed(what.clamped, what.table) if what.element == 1 else []:
            bound = next((name for name in ("low", "high") if name in instruction.names), "") if self._spilled else ""
            if bound:
                code.append(BlockInstruction("ldr", f"{{n}}, [{{context}}, #{4 * self._scalars.index(bound)}]", ("n",)))
                instruction = replace(instruction, operands=instruction.operands.replace(f"{{{bound}}}", "{n}"))
            code.append(instruction)
        value = "v"
        if what.table:
            code.append(BlockInstruction("vldrb.u32", "{y}, [{lookup}, {v}]", ("y",), apart=True))
            value = "y"
        width = "b" if what.element == 1 else "w"
        store = f"vpst\\nvstr{width}t.32" if self.mask else f"vstr{width}.32"
        code.append(BlockInstruction(store, f"{{{value}}}, [{{o}}, {{places}}]"))
        return code + advance("o", step)

    def _with(self, scalar: str, mnemonic: str, operands: str) -> list[BlockInstruction]:
        """An instruction that changes `v` by a scalar in a register, or one that it loads first."""
        if not self._spilled:
            return [_update(mnemonic, f"{operands}{{{scalar}}}")]
        load = BlockInstruction("ldr", f"{{n}}, [{{context}}, #{4 * self._scalars.index(scalar)}]", ("n",))
        return [load, _update(mnemonic, f"{operands}{{n}}")]


def _update(mnemonic: str, operands: str) -> BlockInstruction:
    """An instruction that changes `v`."""
    return BlockInstruction(mnemonic, operands, ("v",), ("v",))


def _narrowed(clamped: bool, indexes: bool) -> list[BlockInstruction]:
    """Four int32 `v` within the bounds `low` and `high`, which are numbers, or within those of int8, in the low byte.

    Args:
        indexes: whether the other bytes are 0.
    """
    if not clamped:
        return [update("vqshl.s32", "v", "#24"), update("vshr.u32", "v", "#24")]
    code = []
    for bound, mnemonic in (("low", "vmax.s32"), ("high", "vmin.s32")):
        code += [BlockInstruction("vdup.32", f"{{b}}, {{{bound}}}", ("b",)), update(mnemonic, "v", "b")]
    if indexes:
        code += [BlockInstruction(f"vmovlb.{kind}", "{v}, {v}", ("v",), ("v",)) for kind in ("u8", "u16")]
    return code
