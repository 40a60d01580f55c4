"""A tree as C: loops as they stand, blocks as statements of assembly."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from tosaic.backends.cortex_m.kernel import weights_at
from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.assembly import assembled, register
from tosaic.backends.cortex_m.program.branches import share_of
from tosaic.backends.cortex_m.program.copied_rows import TOGETHER, copied_row
from tosaic.backends.cortex_m.program.legal import any_iteration
from tosaic.backends.cortex_m.program.memory import constant_offsets, scratch_offsets, weights_of
from tosaic.backends.cortex_m.program.ops import LOOKUP, OPS
from tosaic.backends.cortex_m.program.overlap import overlaps, relation
from tosaic.backends.cortex_m.program.print_assembly import assembly_statement, thumb_statement
from tosaic.backends.cortex_m.program.print_calls import TYPES, given_to, prototype
from tosaic.backends.cortex_m.program.program import Program, allocated, walk
from tosaic.backends.cortex_m.program.rewriting import parts_of, written_out
from tosaic.backends.cortex_m.program.tally import Tally
from tosaic.backends.cortex_m.program.thumb import ThumbBlock, is_thumb, thumb
from tosaic.backends.cortex_m.program.tree import (
    BYTES,
    Access,
    Alloc,
    Assign,
    For,
    If,
    Instr,
    Invoke,
    Let,
    Op,
    Reduce,
    RefusedError,
    Seq,
    Statement,
    Value,
)
from tosaic.backends.cortex_m.program.vectors import has_vectors, vector_block
from tosaic.backends.target import Pipeline

# clang 22 stores a high register by an STM that has none.
_FROM_HIGH = 'INLINE int32_t from_high(int32_t v) { __asm__("" : "+l"(v)); return v; }'
_LOOP = 3
"""Instructions of an iteration of a loop of C."""
_CALL = 20
"""Instructions of a call, of one that copies, beside its words."""
_CONDITION = 2
"""Instructions of a condition of C, which takes half of a branch beside them."""
_LONG = 32
"""Instructions of assembly that are worth a loop of two iterations: clang takes a block for one instruction, and would
write both iterations out."""
_WORKING = ("const int8_t *restrict params", "int8_t *restrict scratch")
_PRELUDE = """\
#include <stdint.h>
#define INLINE static inline __attribute__((always_inline))
"""


class Printer:
    """C of one program.

    Attributes:
        text: a translation unit; `@SYMBOL@` stands for the function's name.
        instructions: about how many a call executes.
        cycles: about how many it takes; of a core without timings, its instructions.
    """

    def __init__(
        self, program: Program, pipeline: Pipeline | None = None, *, baseline: bool = False, filled: bool = True
    ) -> None:
        self.program, self.body, self.pipeline = program, written_out(program.body), pipeline
        self.filled = filled
        self.buffers = {b.name: b for b in program.arguments}
        self.buffers |= {b.name: b for b in allocated(self.body)}
        self.scratch = scratch_offsets(program)
        self._loops = dict[str, For]()
        self._tally = Tally(self.buffers, pipeline, baseline=baseline)
        self.text = self._unit()
        self.instructions, self.cycles = round(self._tally.instructions), round(self._tally.cycles)

    def _unit(self) -> str:
        tensors = [b for b in self.program.arguments if b.memory in ("in", "out")]
        inputs, outputs = self.program.inputs, self.program.outputs
        meet = {b for pair in overlaps(self.program) for b in (inputs[pair.input], outputs[pair.output])}
        arguments = [
            f"{'const ' * (b.memory == 'in')}{TYPES[b.dtype]} *{'restrict ' * (b not in meet)}{b.name}" for b in tensors
        ]
        lines = self._print(self.body, 1)
        return "\n".join(
            [
                _PRELUDE + "\n".join(self._helpers()),
                f"void @SYMBOL@({', '.join((*arguments, *_WORKING))})",
                "{",
                *self._constants(),
                *lines,
                "}",
                "",
            ]
        )

    def _helpers(self) -> Iterable[str]:
        values = (s.value for s in walk(self.body) if isinstance(s, Assign | Reduce | Let))
        names = {part.name for value in values for part in parts_of(value) if isinstance(part, Op)}
        high = [_FROM_HIGH] if any(b.memory == "h" for b in self.buffers.values()) else []
        called = dict.fromkeys(prototype(s.callee) for s in walk(self.body) if isinstance(s, Invoke))
        return (*high, *(OPS[name].helper for name in sorted(names & set(OPS)) if OPS[name].helper), *called)

    def _constants(self) -> Iterable[str]:
        for name, offset in constant_offsets(self.program).items():
            kind = TYPES[self.buffers[name].dtype]
            if name == weights_of(self.program):
                yield weights_at(offset)
                yield f"  const {kind} *const {name} = (const {kind} *)packed;"
            else:
                yield f"  const {kind} *const {name} = (const {kind} *)(params + {offset});"

    def _print(self, s: Statement, depth: int) -> list[str]:
        pad = "  " * depth
        match s:
            case Seq():
                return [line for part in s.body for line in self._print(part, depth)]
            case Alloc():
                held = s.buffer.bytes // 4 if s.buffer.memory in ("r", "p") else 0
                self._tally.held += held
                lines = [f"{pad}{{", *self._declared(s, depth + 1), *self._print(s.body, depth + 1), f"{pad}}}"]
                self._tally.held -= held
                return lines
            case If(then=Invoke() as call, otherwise=Invoke() as other) if call.callee == other.callee:
                pairs = zip(given_to(call, self.buffers), given_to(other, self.buffers), strict=True)
                given = (here if here == there else f"{_all_of(s)} ? {here} : {there}" for here, there in pairs)
                return self._called(call, given, pad)
            case If():
                asked, branch = len(s.conditions), self.pipeline.taken_branch / 2 if self.pipeline else 0
                self._tally.took(_CONDITION * asked, (_CONDITION + branch) * asked)
                share = share_of(s.conditions, self._loops)
                then = self._tally.times_over(share, partial(self._print, s.then, depth + 1))
                otherwise = self._tally.times_over(1 - share, partial(self._print, s.otherwise, depth + 1))
                return [f"{pad}if ({_all_of(s)}) {{", *then, f"{pad}}} else {{", *otherwise, f"{pad}}}"]
            case Let():
                return self._let(s, depth)
            case For():
                return self._loop(s, depth)
            case Assign() | Reduce():
                sign = "=" if isinstance(s, Assign) else "+="
                self._tally.count(s)
                value = self._value(s.value, wide=self.buffers[s.target.buffer].dtype == "i64")
                return [f"{pad}{self._place(s.target)} {sign} {value};"]
            case Invoke():
                return self._called(s, given_to(s, self.buffers), pad)
            case Instr():
                raise RefusedError(f"{s.row.name} stands outside of a block")
        raise TypeError(s)

    def _let(self, s: Let, depth: int) -> list[str]:
        pad, branch = "  " * depth, self.pipeline.taken_branch / 2 if self.pipeline else 0
        self._tally.took(_CONDITION, _CONDITION + branch)
        self._tally.count(s)
        self._loops[s.var] = any_iteration(s)
        number = f"{pad}  const int32_t {s.var} = {self._value(s.value)};"
        body = self._tally.times_over(1, partial(self._print, s.body, depth + 2))
        return [f"{pad}{{", number, f"{pad}  if ((uint32_t){s.var} < {s.extent}) {{", *body, f"{pad}  }}", f"{pad}}}"]

    def _words(self, s: For, pad: str) -> list[str]:
        """C for a loop that copies neighbors. Where the buffers may lie over each other, several words are read before
        any of them is written; what may be copied to itself is not moved where it is."""
        target, source = copied_row(s, self.buffers)
        to, read = self._place(target), self._place(source)
        size = BYTES[self.buffers[target.buffer].dtype]
        if (where := relation(self.program, source, target)) != "shifted":
            bytes_copied = s.extent * size
            self._tally.took(_CALL + bytes_copied / 2, _CALL + bytes_copied / 4 * (1 + self._tally.load))
            to, read = (
                self._place(Access(a.buffer, tuple(i.at({s.var: 0}) for i in a.index))) for a in (target, source)
            )
            condition = [f"{pad}if ({target.buffer} != {source.buffer})"] if where == "one place" else []
            return [*condition, f"{pad}__builtin_memcpy(&{to}, &{read}, {bytes_copied});"]
        together = TOGETHER // size
        whole, words = s.extent // together * together, TOGETHER // 4
        for times, moved in ((whole // together, words), (s.extent - whole, 1)):
            self._tally.took(times * (_LOOP + 2 * moved), times * (_LOOP + moved * (1 + self._tally.load)))
        lines = [
            f"{pad}for (int32_t {s.var} = 0; {s.var} < {whole}; {s.var} += {together}) {{",
            f"{pad}  uint32_t words[{words}];",
            f"{pad}  __builtin_memcpy(words, &{read}, {TOGETHER});",
            f"{pad}  __builtin_memcpy(&{to}, words, {TOGETHER});",
            f"{pad}}}",
        ]
        rest = f"{pad}for (int32_t {s.var} = {whole}; {s.var} < {s.extent}; {s.var} += 1) {to} = {read};"
        return [*lines, *([rest] if whole < s.extent else [])]

    def _declared(self, s: Alloc, depth: int) -> list[str]:
        b, pad = s.buffer, "  " * depth
        if not b.in_registers:
            start = f"({TYPES[b.dtype]} *)(scratch + {self.scratch[b.name]})"
            return [f"{pad}{TYPES[b.dtype]} *const {b.name} = {start};"]
        kind = TYPES[b.dtype] if b.dtype in ("f32", "i64") else "int32_t" if b.lanes == 1 else "uint32_t"
        return [f"{pad}{kind} {', '.join(f'{b.name}__{i}' for i in range(b.size // b.lanes))};"]

    def _loop(self, s: For, depth: int) -> list[str]:
        pad, early = "  " * depth, s.early
        name = f"{s.var}_" if early else s.var
        if s.kind == "hardware_loop":
            return [f"{pad}{{", *self._vectors(s, depth + 1), f"{pad}}}"]
        if s.kind == "words":
            return self._words(s, pad)
        self._loops[s.var] = s
        body = self._tally.times_over(s.iterations, partial(self._iteration, s, depth + 1))
        if s.iterations == 1:
            return [f"{pad}{{", f"{pad}  const int32_t {s.var} = 0;", *body, f"{pad}}}"]
        first = [f"{pad}  const int32_t {s.var} = {name} < {s.last} ? {name} : {s.last};"] if early else []
        # A comparison for order would tell clang that the second iteration is the last one.
        within = "!=" if s.extent == 2 * s.step and _assembly_lines(body) > _LONG else "<"
        iterations = f"{pad}for (int32_t {name} = 0; {name} {within} {s.extent}; {name} += {s.step}) {{"
        return [iterations, *first, *body, f"{pad}}}"]

    def _iteration(self, s: For, depth: int) -> list[str]:
        if s.iterations > 1:
            self._tally.took(_LOOP, _LOOP + (self.pipeline.taken_branch if self.pipeline else 0))
        return self._block(s.body, depth) if s.kind == "block" else self._print(s.body, depth)

    def _block(self, body: Statement, depth: int) -> list[str]:
        if has_vectors(body):
            return self._vectors(body, depth)
        pad = "  " * depth
        return self._thumb(thumb(body, self.buffers), pad) if is_thumb(body) else self._assembly(body, pad)

    def _vectors(self, body: Statement, depth: int) -> list[str]:
        last = {n: loop.last for n, loop in self._loops.items()}
        block = vector_block(body, self.buffers, self.pipeline, last, filled=self.filled)
        cost = block.cycles + len(block.pointers.starts)
        self._tally.took(cost, cost)
        lanes, starts = block.pointers.lanes, block.pointers.starts
        begun = (
            lanes[n].at(n, self._pointer(*start)) if n in lanes else f"const int8_t *{n} = {self._pointer(*start)};"
            for n, start in starts.items()
        )
        return [f"{'  ' * depth}{line}" for line in (*block.declared, *begun, *block.statement)]

    def _assembly(self, body: Statement, pad: str) -> list[str]:
        block = assembled(body, self.buffers, self.pipeline)
        self._tally.assembled(block.lines, len(block.pointers))
        declared = [f"uint32_t {', '.join(block.temporaries)};"] if block.temporaries else []
        pointers = [f"const int8_t *const {n} = {self._pointer(*start)};" for n, start in block.pointers.items()]
        return [f"{pad}{line}" for line in (*declared, *pointers, *assembly_statement(block))]

    def _thumb(self, block: ThumbBlock, pad: str) -> list[str]:
        self._tally.assembled(block.lines, len(block.pointers))
        pointers = [
            f'register const int8_t *{name} __asm__("{name}") = {self._pointer(*start)};'
            for name, start in block.pointers.items()
        ]
        return [f"{pad}{line}" for line in (*pointers, *thumb_statement(block))]

    def _called(self, call: Invoke, given: Iterable[str], pad: str) -> list[str]:
        self._tally.took(_CALL, _CALL)
        return [f"{pad}{call.callee.name}({', '.join(given)});"]

    def _pointer(self, buffer: str, where: Affine) -> str:
        return f"(const int8_t *){buffer} + {where}"

    def _place(self, access: Access) -> str:
        b = self.buffers[access.buffer]
        return register(b, access) if b.in_registers else f"{b.name}[{b.address(access.index)}]"

    def _value(self, v: Value, *, wide: bool = False) -> str:
        """C of a value; where it is `wide`, sums and products have 64 bits."""
        match v:
            case Access():
                place = self._place(v)
                return f"from_high({place})" if self.buffers[v.buffer].memory == "h" else place
            case Op(name=name, args=(Access() as table, value)) if name == LOOKUP:
                return f"{table.buffer}[{self.buffers[table.buffer].address(table.index)} + {self._value(value)}]"
            case Op(name="add" | "sub" | "mul") if wide:
                first, *others = (self._value(arg, wide=True) for arg in v.args)
                return OPS[v.name].c.format(f"(int64_t){first}", *others)
            case Op():
                return OPS[v.name].c.format(*map(self._value, v.args))
        return str(v)


def _all_of(s: If) -> str:
    return " && ".join(f"{condition} >= 0" for condition in s.conditions)


def _assembly_lines(lines: Iterable[str]) -> int:
    """How many of some lines of C are instructions of assembly."""
    return sum(line.endswith('\\n"') for line in lines)
