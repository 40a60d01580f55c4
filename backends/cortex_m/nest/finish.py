"""How sums become int16 or int32: bias, RESCALE and clamp of channels that lie side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tosaic.backends.cortex_m.kernels.mve import shift_factors
from tosaic.backends.cortex_m.nest.assembly import assembly
from tosaic.backends.cortex_m.nest.block import (
    AS_BEST,
    BlockInstruction,
    InstructionBlock,
    Issue,
    ordered,
    with_late_loads,
)
from tosaic.backends.target import Pipeline

GROUP = 4
"""int32 lanes of a vector."""

# VQMOVNB/T narrow into even and odd lanes: two rounds of it put sum 4v + i of a vector of 16 into byte 4i + rank(v).
_FACTORS = ["bias", "multiplier", "right"]
NARROWED = [4 * i + first for first in (0, 2, 1, 3) for i in range(4)]


_PARAMETERS = "int32_t low, int32_t high"


@dataclass(frozen=True)
class Finish:
    """The code that finishes rows of sums.

    Args:
        element: bytes of a result, 2 or 4.
        form: `round` where every shift is 31: VQRDMULH; `right` where none is below 32: VQDMULH, then VRSHL; `left`
            elsewhere, which shifts left first. `wide` is for int64 sums, which no vector finishes.
        clamped: whether the bounds are closer than those of the element.
        pipeline: timings of the core.
    """

    element: int
    form: str
    clamped: bool
    pipeline: Pipeline | None

    @property
    def names(self) -> list[str]:
        """The factors of a channel in the order of their use."""
        return ["bias", "left", "multiplier", "right"] if self.form == "left" else _FACTORS[: self.fields]

    @property
    def fields(self) -> int:
        """int32 values of a channel in the table of factors."""
        return {"round": 2, "right": 3, "left": 4, "wide": 4}[self.form]

    def factors(self, bias: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """int32 (groups, fields, 4) of a block's channels: bias[, left], multiplier[, right], in the order of use.

        Of form `wide`, int32 (channels, 4): both halves of the bias, multiplier, shift.
        """
        missing = -len(bias) % GROUP
        if self.form == "wide":
            halves = np.pad(bias.astype(np.int64), (0, missing)).view(np.int32).reshape(-1, 2)
            scale = [np.pad(values.astype(np.int32), (0, missing)) for values in (multiplier, shift)]
            return np.column_stack([halves, *scale])
        multiplier, right, left = shift_factors(multiplier, shift)
        fields = [bias, left, multiplier, right] if self.form == "left" else [bias, multiplier, right][: self.fields]
        rows = np.stack([np.asarray(field, np.int32) for field in fields])
        padded = np.pad(rows, ((0, 0), (0, missing)))
        return padded.reshape(self.fields, -1, GROUP).transpose(1, 0, 2)

    def function(
        self,
        name: str,
        channels: int,
        rows: int,
        sum_stride: int,
        out_stride: int,
        hoisted: int,
        repeats: int = 1,
        issue: Issue = AS_BEST,
    ) -> list[str]:
        """C of `void name(a, t, o, ...)`: `rows` rows of sums at `a`, with the factors at `t`, become results at `o`.

        Args:
            name: its symbol.
            channels: of the block.
            rows: finished together.
            sum_stride: bytes from a row of sums to the next.
            out_stride: bytes from a row of results to the next.
            hoisted: loads of a turn that are executed one turn ahead.
            repeats: vectors of results in a turn, where there are so many.
            issue: what of a turn is issued first.
        """
        if self.form == "wide":
            return self._wide(name, channels, rows, sum_stride, out_stride)
        whole, rest = divmod(channels, GROUP)
        sums = "const int32_t *restrict a, const int32_t *restrict t, int8_t *restrict o"
        lines = [f"INLINE void {name}({sums}, {_PARAMETERS})", "{"]
        done, strides = 0, (sum_stride, out_stride)
        for count, times in ((repeats, whole // repeats), (1, whole % repeats)):
            if not times:
                continue
            turn = [instruction for _ in range(count) for instruction in self._four(rows)]
            lines += self._statement(turn, times, hoisted if times > 1 else 0, rows, done, strides, issue)
            done += count * times * GROUP
        if rest:
            lines += self._statement(self._four(rows, rest), 1, 0, rows, done, strides, issue, rest)
        return [*lines, "}"]

    def _wide(self, name: str, channels: int, rows: int, sum_stride: int, out_stride: int) -> list[str]:
        """The function on int64 sums: bias, multiplier and shift of a channel lie together."""
        return [
            f"INLINE void {name}(const int64_t *a, const int32_t *t, int8_t *o, {_PARAMETERS})",
            "{",
            f"  for (int r = 0; r < {rows}; r++)",
            f"    for (int c = 0; c < {channels}; c++) {{",
            f"      const int64_t sum = a[r * {sum_stride // 8} + c] + ((const int64_t *)t)[2 * c];",
            "      const int64_t value = (sum * t[4 * c + 2] + (1ll << (t[4 * c + 3] - 1))) >> t[4 * c + 3];",
            f"      ((int16_t *)(o + r * {out_stride}))[c] = value < low ? low : value > high ? high : value;",
            "    }",
            "}",
        ]

    def _statement(
        self,
        turn: list[BlockInstruction],
        turns: int,
        hoisted: int,
        rows: int,
        done: int,
        strides: tuple[int, int],
        issue: Issue,
        left: int = 0,
    ) -> list[str]:
        """`turns` turns from channel `done` of the block on, the last of them of `left` channels where that is not 0.

        `strides` are bytes from a row of sums to the next, and from a row of results to the next.
        """
        pointers = {f"a{r}": f"(const int8_t *)a + {r * strides[0] + 4 * done}" for r in range(rows)}
        pointers |= {f"o{r}": f"o + {r * strides[1] + self.element * done}" for r in range(rows)}
        pointers["table"] = f"t + {self.fields * done}"
        held = {"qlow": "q6", "qhigh": "q7"} if self.clamped else {}
        scalars = ["low", "high"] if self.clamped else []
        registers = {**{name: f"%[{name}]" for name in (*pointers, *scalars)}, **held}
        free = tuple(f"q{i}" for i in range(8) if f"q{i}" not in held.values())
        body = tuple(with_late_loads(turn, registers))
        code = ordered(InstructionBlock(body, registers, free), self.pipeline, hoisted, issue)
        entry, leave = list(code.entry), list[str]()
        if held:
            entry = ["vdup.32 q6, %[low]", "vdup.32 q7, %[high]", *entry]
        if left:
            scalars, entry, leave = [*scalars, "left"], ["vmrs lr, p0", "vctp.32 %[left]", *entry], ["vmsr p0, lr"]
        text = " ".join([*entry, *code.turn])
        reads = [name for name in scalars if f"%[{name}]" in text]
        return [
            "  {",
            *(
                f"    {'' if name[0] == 'o' else 'const '}int8_t *{name} = (void *)({at});"
                for name, at in pointers.items()
            ),
            *([f"    const int32_t left = {left};"] if left else []),
            *(f"    {line}" for line in assembly(entry, code.turn, leave, turns, list(pointers), reads, ())),
            "  }",
        ]

    def _scaled(self, rows: int) -> list[BlockInstruction]:
        """Four sums of every row, from their load to their rescaled value `v<row>`."""
        loads = {
            name: BlockInstruction("vldrw.u32", f"{{{name}}}, [{{table}}], #16", (name, "table"), ("table",))
            for name in self.names
        }
        code = list(loads.values()) if rows > 1 else []

        def use(mnemonic: str, target: str, factor: str) -> None:
            if rows == 1:
                code.append(loads[factor])
            code.append(update(mnemonic, target, factor))

        for r in range(rows):
            v, a = f"v{r}", f"a{r}"
            code.append(BlockInstruction("vldrw.u32", f"{{{v}}}, [{{{a}}}], #16", (v, a), (a,)))
            use("vadd.i32", v, "bias")
            if self.form == "left":
                use("vqshl.s32", v, "left")
            use("vqrdmulh.s32" if self.form == "round" else "vqdmulh.s32", v, "multiplier")
            if self.form != "round":
                use("vrshl.s32", v, "right")
        return code

    def code_bytes(self, rows: int, repeats: int) -> int:
        """About the bytes of the turns that finish `repeats` times sixteen results of every row."""
        return 4 * repeats * (4 * (self.fields + rows * (self.fields + 2)) + 7 * rows)

    def vectors(self, rows: int, hoisted: int) -> int:
        """Vector registers that the code for `rows` rows needs, beside the bounds."""
        factors = self.fields if rows > 1 else 1
        return max(factors + 1, hoisted + rows + 1)

    @property
    def spare_vectors(self) -> int:
        """Vector registers that hold no bounds."""
        return 8 - 2 * self.clamped

    def _four(self, rows: int, count: int = GROUP) -> list[BlockInstruction]:
        """The next four channels, of which `count` exist."""
        code = self._scaled(rows)
        for r in range(rows):
            v = f"v{r}"
            if self.clamped:
                code += [update("vmax.s32", v, "qlow"), update("vmin.s32", v, "qhigh")]
            elif self.element == 2:
                code.append(BlockInstruction("vqmovnb.s32", f"{{{v}}}, {{{v}}}", (v,), (v,)))
            code.append(self._store_four(v, f"o{r}", count))
        return code

    def _store_four(self, value: str, pointer: str, count: int) -> BlockInstruction:
        kind = {2: "vstrh", 4: "vstrw"}[self.element]
        mnemonic = f"{kind}.32" if count == GROUP else f"vpst\\n{kind}t.32"
        return BlockInstruction(
            mnemonic, f"{{{value}}}, [{{{pointer}}}], #{GROUP * self.element}", (pointer,), (pointer,)
        )


def narrowed(clamped: bool, indexes: bool) -> list[BlockInstruction]:
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


def update(mnemonic: str, target: str, operand: str) -> BlockInstruction:
    """An instruction on two registers that changes the first; the second may be a number."""
    second = operand if operand[0] == "#" else f"{{{operand}}}"
    return BlockInstruction(mnemonic, f"{{{target}}}, {{{target}}}, {second}", (target,), (target,))
