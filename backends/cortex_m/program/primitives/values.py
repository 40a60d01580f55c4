"""Primitives on values: rewrite."""

from __future__ import annotations

from dataclasses import replace

from tosaic.backends.cortex_m.program.host import Derive
from tosaic.backends.cortex_m.program.rewriting import mapped, touches
from tosaic.backends.cortex_m.program.rules import RULES
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive, fresh
from tosaic.backends.cortex_m.program.tree import (
    Access,
    Assign,
    Buffer,
    Op,
    Program,
    RefusedError,
    Statement,
    Value,
)


@PRIMITIVES.register
class Rewrite(Primitive):
    """`rewrite(out, high)`: an identity turns the value of a buffer into one that instructions have.

    The host makes new constants for it, and checks that they lie where the identity holds.
    """

    name = "rewrite"
    takes = ("buffer", "rule")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        b, rule = program.buffer(str(arguments[0])), RULES.get(str(arguments[1]))
        if rule is None:
            raise RefusedError(f"there is no rule `{arguments[1]}`", hint=f"there are {', '.join(RULES)}")
        new = dict[Derive, Buffer]()

        def change(value: Value) -> Value:
            if not isinstance(value, Op):
                return value
            value = Op(value.name, tuple(map(change, value.args)))
            found = rule.change(value)
            if found is None:
                return value
            result, constants = found
            for name, sources in constants.items():
                if any(not isinstance(s, Access) or program.buffers[s.buffer].memory != "const" for s in sources):
                    raise RefusedError(f"`{rule.name}` wants constants")
                accesses = [s for s in sources if isinstance(s, Access)]
                if any(s.index not in ((), accesses[0].index) for s in accesses):
                    raise RefusedError(f"`{rule.name}` wants constants of one index")
                buffers = [program.buffers[s.buffer] for s in accesses]
                derived = Derive(name, name, tuple(b.name for b in buffers), tuple(b.shape for b in buffers))
                new[derived] = replace(buffers[0], name=name, dtype="i32")
            return result

        def one(s: Statement) -> Statement:
            return replace(s, value=change(s.value)) if isinstance(s, Assign) and s.target.buffer == b.name else s

        body = mapped(program.body, one)
        if body == program.body:
            raise RefusedError(f"`{rule.name}` finds nothing in {b.name}")
        if len({derived.name for derived in new}) < len(new):
            raise RefusedError(f"`{rule.name}` finds several constants in {b.name}")
        fresh(program, *(derived.name for derived in new))
        found = replace(program, arguments=(*program.arguments, *new.values()), body=body, host=(*program.host, *new))
        used = {a.buffer for _, a in touches(found.body)}
        kept = tuple(a for a in found.arguments if a.memory != "const" or a.name in used)
        return replace(found, arguments=kept)
